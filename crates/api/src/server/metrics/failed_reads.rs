//! Shards whose stores cannot be read for the metrics: their counts are missing from the gauges.

use std::collections::BTreeSet;

use orlog_store::Error;

use super::types::LabeledMetrics;
use orlog_node::telemetry::MetricsRegistry;

/// Shards whose gauges are incomplete in one scrape.
#[derive(Default)]
pub(super) struct FailedReads(BTreeSet<u16>);

impl FailedReads {
    /// Logs that values of a shard cannot be read, and marks the shard as incomplete.
    pub(super) fn report(&mut self, shard: u16, values: &str, error: &Error) {
        self.0.insert(shard);
        // A store that closes at this moment is no failure; a later scrape finds it on its new
        // owner, or not at all.
        if matches!(error, Error::Closed) {
            tracing::debug!(shard, values, "store closed; no metrics");
        } else {
            tracing::warn!(shard, values, %error, "metrics of the shard are incomplete");
        }
    }

    /// Registers one gauge for each of the shards, so that an incomplete sum is recognizable.
    pub(super) fn register(
        &self,
        shards: impl Iterator<Item = u16>,
        registry: &mut MetricsRegistry,
    ) {
        let mut gauges = LabeledMetrics::default();
        for shard in shards {
            let label = shard.to_string();
            let is_failing = u64::from(self.0.contains(&shard));
            gauges.set("store_metrics_failing", &[("shard", &label)], is_failing);
        }

        gauges.register(registry);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(failed: &FailedReads) -> String {
        let mut registry = MetricsRegistry::default();
        failed.register([0, 1, 2].into_iter(), &mut registry);
        let mut text = String::new();
        registry.encode(&mut text).unwrap();
        text
    }

    #[test]
    fn shard_that_cannot_be_read_has_incomplete_metrics() {
        let mut failed = FailedReads::default();
        failed.report(0, "instances", &Error::Closed);
        let unreadable = Error::Unavailable {
            reason: "damaged".to_owned(),
        };
        failed.report(1, "instances", &unreadable);

        let text = encoded(&failed);
        assert!(
            text.contains("orlog_store_metrics_failing{shard=\"0\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("orlog_store_metrics_failing{shard=\"1\"} 1"),
            "{text}"
        );
        assert!(
            text.contains("orlog_store_metrics_failing{shard=\"2\"} 0"),
            "{text}"
        );
    }
}
