//! Shards whose counts in the gauges are not complete: their stores cannot be read, or have more
//! rows than a scrape reads.

use std::collections::BTreeSet;

use orlog_store::Error;

use super::types::LabeledMetrics;
use crate::server::logged_reads::{LoggedReads, ShardValues};
use orlog_node::telemetry::MetricsRegistry;

/// Shards whose gauges are incomplete in one scrape.
pub(super) struct FailedReads<'a> {
    logged: &'a LoggedReads,
    failed: BTreeSet<ShardValues>,
    truncated: BTreeSet<ShardValues>,
}

impl<'a> FailedReads<'a> {
    pub(super) fn new(logged: &'a LoggedReads) -> Self {
        Self {
            logged,
            failed: BTreeSet::new(),
            truncated: BTreeSet::new(),
        }
    }

    /// Marks values of a shard that cannot be read.
    pub(super) fn report(&mut self, shard: u16, values: &'static str, error: &Error) {
        self.failed.insert((shard, values));
        let is_known = self.logged.failed.lock().contains(&(shard, values));
        // A store that closes at this moment is no failure; a later scrape finds it on its new
        // owner, or not at all.
        if matches!(error, Error::Closed) {
            tracing::debug!(shard, values, "store closed; no metrics");
        } else if !is_known {
            tracing::warn!(shard, values, %error, "metrics of the shard are incomplete");
        }
    }

    /// Marks values of a shard of which only the first `limit` rows are counted.
    pub(super) fn truncate(&mut self, shard: u16, values: &'static str, limit: usize) {
        self.truncated.insert((shard, values));
        if !self.logged.truncated.lock().contains(&(shard, values)) {
            tracing::warn!(
                shard,
                values,
                limit,
                "metrics of the shard are truncated: it has more rows"
            );
        }
    }

    /// Registers two gauges for each of the shards, so that an incomplete sum is recognizable. Ends
    /// the scrape.
    pub(super) fn register(
        self,
        shards: impl Iterator<Item = u16>,
        registry: &mut MetricsRegistry,
    ) {
        let has = |values: &BTreeSet<ShardValues>, shard| {
            u64::from(values.iter().any(|(of, _)| *of == shard))
        };
        let mut gauges = LabeledMetrics::default();
        for shard in shards {
            let label = shard.to_string();
            let labels = &[("shard", label.as_str())];
            gauges.set("store_metrics_failing", labels, has(&self.failed, shard));
            gauges.set(
                "store_metrics_truncated",
                labels,
                has(&self.truncated, shard),
            );
        }
        gauges.register(registry);

        *self.logged.failed.lock() = self.failed;
        *self.logged.truncated.lock() = self.truncated;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(failed: FailedReads<'_>) -> String {
        let mut registry = MetricsRegistry::default();
        failed.register([0, 1, 2].into_iter(), &mut registry);
        let mut text = String::new();
        registry.encode(&mut text).unwrap();
        text
    }

    #[test]
    fn shard_that_cannot_be_read_has_incomplete_metrics() {
        let logged = LoggedReads::default();
        let mut failed = FailedReads::new(&logged);
        failed.report(0, "instances", &Error::Closed);
        let unreadable = Error::Unavailable {
            reason: "damaged".to_owned(),
        };
        failed.report(1, "instances", &unreadable);
        failed.truncate(2, "instances", 10);

        let text = encoded(failed);
        for line in [
            "orlog_store_metrics_failing{shard=\"0\"} 1",
            "orlog_store_metrics_failing{shard=\"1\"} 1",
            "orlog_store_metrics_failing{shard=\"2\"} 0",
            "orlog_store_metrics_truncated{shard=\"1\"} 0",
            "orlog_store_metrics_truncated{shard=\"2\"} 1",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn incomplete_values_are_remembered_until_they_are_complete_again() {
        let logged = LoggedReads::default();
        let mut failed = FailedReads::new(&logged);
        failed.report(1, "instances", &Error::Closed);
        failed.truncate(1, "instances", 10);
        encoded(failed);
        assert_eq!(*logged.failed.lock(), BTreeSet::from([(1, "instances")]));
        assert_eq!(*logged.truncated.lock(), BTreeSet::from([(1, "instances")]));

        encoded(FailedReads::new(&logged));
        assert!(logged.failed.lock().is_empty());
        assert!(logged.truncated.lock().is_empty());
    }
}
