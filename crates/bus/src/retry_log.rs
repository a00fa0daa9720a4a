//! Log of an operation that is retried until it succeeds.

use std::time::{Duration, Instant};

/// Interval between two reports of an operation that goes on failing.
const INTERVAL: Duration = Duration::from_secs(10);

/// Decides which failures are logged: the first one, and one per 10 s while the operation fails.
#[derive(Debug, Default)]
pub struct RetryLog {
    failures: u64,
    reported: Option<Instant>,
}

impl RetryLog {
    /// Counts a failure; calls `log` with the number of failures since the last success if it is to be
    /// logged.
    pub fn failed(&mut self, log: impl FnOnce(u64)) {
        self.failures += 1;
        if self
            .reported
            .is_none_or(|reported| reported.elapsed() >= INTERVAL)
        {
            self.reported = Some(Instant::now());
            log(self.failures);
        }
    }

    /// Ends a series of failures.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failure_of_a_series_is_logged() {
        let mut retries = RetryLog::default();
        let mut logged = Vec::new();
        for _ in 0..3 {
            retries.failed(|count| logged.push(count));
        }
        retries.succeeded();
        retries.failed(|count| logged.push(count));
        assert_eq!(logged, [1, 1]);
    }

    #[test]
    fn lasting_failures_are_logged_again_with_their_number() {
        let now = Instant::now();
        let mut retries = RetryLog {
            failures: 6,
            reported: now.checked_sub(INTERVAL),
        };
        let mut logged = Vec::new();
        retries.failed(|count| logged.push(count));
        retries.failed(|count| logged.push(count));
        assert_eq!(logged, [7]);
    }
}
