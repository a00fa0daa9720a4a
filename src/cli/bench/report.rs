//! What was measured, for programs and for people.

use std::time::Duration;

use serde::Serialize;

use super::options::Bench;
use super::resources::Used;

/// The figures of one run. A figure that a workload does not have is 0.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// A to E.
    pub workload: String,
    /// Sagas under way at once.
    pub concurrency: u32,
    /// `sync` or `interval`.
    pub durability: String,
    /// Sagas measured.
    pub sagas: u64,
    /// Sagas that ended, each second.
    pub sagas_per_s: f64,
    /// Transitions made durable, each second.
    pub transitions_per_s: f64,
    /// Half of the sagas took no longer, milliseconds from publish to durable end.
    pub p50_ms: f64,
    /// 99 of 100 took no longer.
    pub p99_ms: f64,
    /// The longest.
    pub max_ms: f64,
    /// Processor time of the process, user and system, for each transition, microseconds.
    pub cpu_us_per_transition: f64,
    /// Resident memory at the end, MiB.
    pub rss_mib: f64,
    /// Changes in a commit, on average.
    pub transitions_per_commit: f64,
    /// Everything else, by name.
    #[serde(flatten)]
    pub more: std::collections::BTreeMap<&'static str, f64>,
}

impl Report {
    /// The head of a report.
    pub(super) fn of(bench: &Bench) -> Self {
        Self {
            workload: format!("{:?}", bench.workload),
            concurrency: bench.concurrency,
            durability: format!("{:?}", bench.durability).to_lowercase(),
            ..Self::default()
        }
    }

    /// Fills in rates from what was used within `took`.
    pub(super) fn rates(&mut self, sagas: u64, transitions: u64, took: Duration, used: Used) {
        self.sagas = sagas;
        self.sagas_per_s = ratio(sagas, took.as_secs_f64());
        self.transitions_per_s = ratio(transitions, took.as_secs_f64());
        self.cpu_us_per_transition = used.cpu.as_secs_f64() * 1e6 / float(transitions).max(1.0);
        self.rss_mib = float(used.resident) / f64::from(1 << 20);
    }

    /// Fills in the latencies.
    pub(super) fn latencies(&mut self, mut all: Vec<Duration>) {
        all.sort_unstable();
        self.p50_ms = percentile(&all, 50);
        self.p99_ms = percentile(&all, 99);
        self.max_ms = percentile(&all, 100);
    }
}

/// The value that `percent` of all do not exceed, in milliseconds; 0 when there is none. `sorted` is in rising order.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).map_or(0.0, |d| d.as_secs_f64() * 1e3)
}

/// Per second, or per anything.
pub(super) fn ratio(count: u64, by: f64) -> f64 {
    float(count) / by.max(1e-9)
}

/// Exact below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts and bytes of a bench stay far below 2^53")]
pub(super) fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let all: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert!((percentile(&all, 50) - 100.0).abs() < 1e-9);
        assert!((percentile(&all, 99) - 198.0).abs() < 1e-9);
        assert!((percentile(&all, 100) - 200.0).abs() < 1e-9);
        assert!(percentile(&[], 50).abs() < 1e-9);
    }
}
