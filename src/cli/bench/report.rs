//! Report of a benchmark as JSON and as text.

use std::time::Duration;

use serde::Serialize;

use super::options::BenchArgs;
use super::resources::ResourceUsage;

/// Results of one minute of a long run.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Interval {
    /// Second of the run at its end.
    pub second: u64,
    /// Ended sagas per second.
    pub sagas_per_s: f64,
    /// Median latency, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99_ms: f64,
    /// Resident memory at its end, MiB.
    pub rss_mib: f64,
    /// Size of the data directory at its end, MiB.
    pub disk_mib: f64,
    /// Number of instances purged since the start.
    pub purged: u64,
}

/// Results of one run. A metric that a workload does not have is 0.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BenchReport {
    /// Workload, A to H.
    pub workload: String,
    /// Concurrent sagas.
    pub concurrency: u32,
    /// Durability mode, `sync` or `interval`.
    pub durability: String,
    /// Number of measured sagas.
    pub sagas: u64,
    /// Ended sagas per second.
    pub sagas_per_s: f64,
    /// Durable transitions per second.
    pub transitions_per_s: f64,
    /// Median latency from publish to durable end, in milliseconds.
    pub p50_ms: f64,
    /// 99th percentile of the latency, in milliseconds.
    pub p99_ms: f64,
    /// Maximum latency, in milliseconds.
    pub max_ms: f64,
    /// CPU time of the process (user and system) per transition, in microseconds.
    pub cpu_us_per_transition: f64,
    /// Resident memory at the end, MiB.
    pub rss_mib: f64,
    /// Average number of transitions per commit.
    pub transitions_per_commit: f64,
    /// Minutes of workload H.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub intervals: Vec<Interval>,
    /// Additional metrics by name.
    #[serde(flatten)]
    pub extra: std::collections::BTreeMap<&'static str, f64>,
}

impl BenchReport {
    /// Creates a report with the parameters of the run.
    pub(super) fn of(bench: &BenchArgs) -> Self {
        Self {
            workload: format!("{:?}", bench.workload),
            concurrency: bench.concurrency,
            durability: format!("{:?}", bench.durability).to_lowercase(),
            ..Self::default()
        }
    }

    /// Sets the rates from the resource usage within `duration`.
    pub(super) fn rates(
        &mut self,
        sagas: u64,
        transitions: u64,
        took: Duration,
        used: ResourceUsage,
    ) {
        self.sagas = sagas;
        self.sagas_per_s = ratio(sagas, took.as_secs_f64());
        self.transitions_per_s = ratio(transitions, took.as_secs_f64());
        // A run without transitions must not print an infinite number, which JSON does not have.
        self.cpu_us_per_transition = used.cpu.as_secs_f64() * 1e6 / float(transitions).max(1.0);
        self.rss_mib = float(used.resident) / f64::from(1 << 20);
    }

    /// Sets the latencies.
    pub(super) fn latencies(&mut self, mut all: Vec<Duration>) {
        all.sort_unstable();
        self.p50_ms = percentile(&all, 50);
        self.p99_ms = percentile(&all, 99);
        self.max_ms = percentile(&all, 100);
    }
}

/// Returns the given percentile in milliseconds; 0 if there are no values. `sorted` is in ascending
/// order.
pub(super) fn percentile(sorted: &[Duration], percent: usize) -> f64 {
    // Nearest rank: a value that was measured, not one between two of them.
    let rank = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(rank).map_or(0.0, |d| d.as_secs_f64() * 1e3)
}

/// Returns the count divided by `by`.
pub(super) fn ratio(count: u64, by: f64) -> f64 {
    float(count) / by.max(1e-9)
}

/// Converts a count to a float; exact below 2^53.
#[expect(
    clippy::cast_precision_loss,
    reason = "counts and bytes of a benchmark are far below 2^53"
)]
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
