//! What is looked up when somebody asks how the running system does.

use std::time::Duration;

use crate::runtime::handle::Runtime;
use crate::telemetry::metrics::ActorKind;

/// How long a stream may take to say where it ends.
const PATIENCE: Duration = Duration::from_secs(1);

/// How full the mailboxes of the live instances are at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mailboxes {
    /// How many mailboxes hold no more inputs than each of [`Mailboxes::BOUNDS`] and more than the one before; the last: more
    /// than all.
    pub counts: [u64; Mailboxes::BOUNDS.len() + 1],
    /// The inputs in all of them.
    pub inputs: u64,
    /// The inputs in the deepest.
    pub deepest: u64,
}

impl Mailboxes {
    /// The classes.
    pub const BOUNDS: [u64; 10] = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256];

    fn add(&mut self, depth: u64) {
        self.counts[Self::BOUNDS.partition_point(|bound| *bound < depth)] += 1;
        self.inputs += depth;
        self.deepest = self.deepest.max(depth);
    }
}

/// How far a shard is behind the end of a stream it reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lag {
    /// The stream.
    pub stream: String,
    /// The shard.
    pub shard: u16,
    /// Messages behind the last one up to which everything is done with; those that are for others are among them.
    pub messages: u64,
}

impl Runtime {
    /// The mailboxes of the live instances. Looks at every one, and notes what waits where nobody counts it all the time.
    #[must_use]
    pub fn mailboxes(&self) -> Mailboxes {
        let mut mailboxes = Mailboxes::default();
        for shard in self.shards.all() {
            shard.directory.each_depth(|depth| mailboxes.add(depth as u64));
        }
        self.metrics.look(ActorKind::Saga, mailboxes.inputs);
        self.metrics.look(ActorKind::Committer, self.waiting_changes() as u64);
        mailboxes
    }

    /// Changes that wait for a committer, all shards together.
    fn waiting_changes(&self) -> usize {
        let shards = self.shards.all();
        shards
            .iter()
            .filter_map(|shard| shard.directory.committer().ok())
            .map(|committer| committer.waiting())
            .sum()
    }

    /// How far each shard is behind each stream. A stream that does not say where it ends is left out.
    pub async fn lags(&self) -> Vec<Lag> {
        let mut lags = Vec::new();
        for source in &self.making.sources {
            let last = tokio::time::timeout(PATIENCE, source.bus.last_sequence());
            let Ok(Ok(last)) = last.await else { continue };
            for shard in self.shards.all() {
                let Some(floor) = shard.directory.floor(&source.name) else { continue };
                let messages = last.saturating_sub(floor);
                lags.push(Lag { stream: source.name.clone(), shard: shard.index, messages });
            }
        }
        lags
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailboxes_are_counted_by_how_full_they_are() {
        let mut mailboxes = Mailboxes::default();
        for depth in [0, 0, 1, 3, 256, 257] {
            mailboxes.add(depth);
        }
        assert_eq!(mailboxes.counts, [2, 1, 0, 1, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((mailboxes.inputs, mailboxes.deepest), (517, 257));
    }
}
