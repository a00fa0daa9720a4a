//! Duration histogram, independent of the exporter.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets, in seconds. One more bucket has no bound.
pub const BOUNDS_SECONDS: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Histogram of durations.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DurationHistogram {
    /// Number of durations up to each of [`BOUNDS_SECONDS`] and above the previous one; the last bucket has
    /// no bound.
    pub counts: [u64; BOUNDS_SECONDS.len() + 1],
    /// Sum of all durations.
    pub sum: Duration,
}

impl DurationHistogram {
    /// Returns the number of durations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Histogram that any thread can update.
#[derive(Debug, Default)]
pub(crate) struct AtomicDurationHistogram {
    counts: [AtomicU64; BOUNDS_SECONDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl AtomicDurationHistogram {
    /// Records one duration.
    pub(crate) fn record(&self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let class = BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the current values.
    pub(crate) fn read(&self) -> DurationHistogram {
        DurationHistogram {
            counts: std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_bounds_are_inclusive() {
        let clocked = AtomicDurationHistogram::default();
        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            clocked.record(Duration::from_micros(micros));
        }
        let durations = clocked.read();
        assert_eq!((durations.counts[0], durations.counts[1]), (2, 1));
        assert_eq!((durations.counts[15], durations.counts[16]), (1, 1));
        assert_eq!((durations.count(), durations.sum), (5, Duration::from_micros(20_000_202)));
    }
}
