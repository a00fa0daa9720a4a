//! How long something took, counted in classes: for histograms, without knowing who shows them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper bounds of the classes, in seconds; one more is without bound.
pub const BOUNDS_SECONDS: [f64; 16] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Figures about how long something took.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Durations {
    /// How many took no longer than each of [`BOUNDS_SECONDS`] and longer than the one before; the last: longer than all.
    pub counts: [u64; BOUNDS_SECONDS.len() + 1],
    /// All of them together.
    pub sum: Duration,
}

impl Durations {
    /// How many there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Counts them, from any thread.
#[derive(Debug, Default)]
pub(crate) struct Clocked {
    counts: [AtomicU64; BOUNDS_SECONDS.len() + 1],
    sum_nanos: AtomicU64,
}

impl Clocked {
    /// Once more.
    pub(crate) fn note(&self, took: Duration) {
        let seconds = took.as_secs_f64();
        let class = BOUNDS_SECONDS.partition_point(|bound| *bound < seconds);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.sum_nanos.fetch_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// What was counted.
    pub(crate) fn read(&self) -> Durations {
        Durations {
            counts: std::array::from_fn(|class| self.counts[class].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.sum_nanos.load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_belongs_to_the_class_below_it() {
        let clocked = Clocked::default();
        for micros in [0, 100, 101, 10_000_000, 10_000_001] {
            clocked.note(Duration::from_micros(micros));
        }
        let durations = clocked.read();
        assert_eq!((durations.counts[0], durations.counts[1]), (2, 1));
        assert_eq!((durations.counts[15], durations.counts[16]), (1, 1));
        assert_eq!((durations.count(), durations.sum), (5, Duration::from_micros(20_000_202)));
    }
}
