//! Counters of purged rows.

use orlog_actors::MetricSink;
use prometheus_client::metrics::counter::Counter;

/// Result of a purge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeResult {
    /// Instances, with their history.
    pub instances: u64,
    /// Tasks, with their task events.
    pub tasks: u64,
    /// Dead letters.
    pub dead_letters: u64,
}

/// Totals since the start.
#[derive(Default)]
pub(crate) struct PurgeCounters {
    pub(crate) instances: Counter,
    pub(crate) tasks: Counter,
    pub(crate) dead_letters: Counter,
}

impl PurgeCounters {
    pub(crate) fn register(registry: &mut impl MetricSink) -> Self {
        let purges = Self::default();
        registry.register("instances_purged_total", purges.instances.clone());
        registry.register("tasks_purged_total", purges.tasks.clone());
        registry.register("dead_letters_purged_total", purges.dead_letters.clone());
        purges
    }
}
