//! Gauges that are read on request from the running system.

use std::time::Duration;

use crate::runtime::Runtime;
use crate::telemetry::metrics::ActorKind;

/// Timeout for reading the end of a stream.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Distribution of queued inputs over the mailboxes of the live instances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MailboxStats {
    /// Number of mailboxes in each class of [`MailboxStats::BOUNDS`]: at most this bound and more
    /// than the previous one. Last element: more than all bounds.
    pub counts: [u64; MailboxStats::BOUNDS.len() + 1],
    /// Total number of queued inputs.
    pub inputs: u64,
    /// Number of inputs in the deepest mailbox.
    pub deepest: u64,
}

impl MailboxStats {
    /// Upper bounds of the classes.
    pub const BOUNDS: [u64; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];

    fn add(&mut self, depth: u64) {
        self.counts[Self::BOUNDS.partition_point(|bound| *bound < depth)] += 1;
        self.inputs += depth;
        self.deepest = self.deepest.max(depth);
    }
}

/// Subscription of a shard to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamSubscription {
    /// Stream name.
    pub stream: String,
    /// Name of the subscription.
    pub name: String,
    /// Subject filters.
    pub filters: Vec<String>,
    /// Highest sequence with no unacknowledged message at or below it.
    pub ack_floor: u64,
}

/// Distance of a shard from the end of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamLag {
    /// Stream name.
    pub stream: String,
    /// Shard number.
    pub shard: u16,
    /// Messages after the ack floor; includes messages for other shards.
    pub messages: u64,
}

impl Runtime {
    /// Returns the mailbox statistics. Visits every live instance and updates the gauges that are
    /// not counted continuously.
    #[must_use]
    pub fn mailboxes(&self) -> MailboxStats {
        let mut mailboxes = MailboxStats::default();
        for shard in self.shards.all() {
            shard
                .live
                .for_each_depth(|_, depth| mailboxes.add(depth as u64));
        }

        let committers = self
            .shards
            .all()
            .into_iter()
            .filter_map(|shard| shard.registry.lifecycle.committer().ok());
        let waiting = committers.map(|committer| committer.waiting() as u64).sum();
        for (kind, depth) in [
            (ActorKind::Saga, mailboxes.inputs),
            (ActorKind::Committer, waiting),
        ] {
            let gauge = self.shared.metrics.mailbox_depth(kind);
            gauge.set(i64::try_from(depth).unwrap_or(i64::MAX));
        }
        mailboxes
    }

    /// Returns the subscriptions of each shard of this process, by shard number.
    #[must_use]
    pub fn subscriptions(&self) -> Vec<(u16, StreamSubscription)> {
        let mut subscriptions = Vec::new();
        for shard in self.shards.all() {
            for source in &self.shared.sources {
                let Some(ack_floor) = shard.registry.lifecycle.ack_floor(&source.name) else {
                    continue;
                };
                subscriptions.push((
                    shard.index,
                    StreamSubscription {
                        stream: source.name.clone(),
                        name: shard.name(),
                        filters: source.filters(),
                        ack_floor,
                    },
                ));
            }
        }
        subscriptions
    }

    /// Returns the lag of each shard for each stream. Omits streams whose end cannot be read.
    pub async fn lags(&self) -> Vec<StreamLag> {
        let last = self.shared.sources.iter().map(async |source| {
            let last = tokio::time::timeout(QUERY_TIMEOUT, source.bus.last_sequence()).await;
            Some((source, last.ok()?.ok()?))
        });
        // At the same time: a scrape must not wait for one timeout after another.
        let last = futures::future::join_all(last).await;

        let mut lags = Vec::new();
        for (source, last) in last.into_iter().flatten() {
            for shard in self.shards.all() {
                let Some(ack_floor) = shard.registry.lifecycle.ack_floor(&source.name) else {
                    continue;
                };
                let messages = last.saturating_sub(ack_floor);
                lags.push(StreamLag {
                    stream: source.name.clone(),
                    shard: shard.index,
                    messages,
                });
            }
        }
        lags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_are_grouped_by_depth() {
        let mut mailboxes = MailboxStats::default();
        for depth in [0, 0, 1, 3, 256, 257] {
            mailboxes.add(depth);
        }
        assert_eq!(mailboxes.counts, [2, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((mailboxes.inputs, mailboxes.deepest), (517, 257));
    }
}
