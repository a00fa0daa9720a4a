//! Log of an operation that is retried until it succeeds.

use std::time::{Duration, Instant};

/// Time until the second report of an operation that goes on failing. It doubles with each report.
const FIRST_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum time between two reports.
const MAX_INTERVAL: Duration = Duration::from_mins(10);

/// Decides which failures are logged: the first one, and then ever fewer while the operation fails.
#[derive(Debug, Default)]
pub struct RetryLog {
    failures: u64,
    reported: Option<Report>,
}

/// Last report of a series of failures.
#[derive(Clone, Copy, Debug)]
struct Report {
    at: Instant,
    /// Time until the next report.
    interval: Duration,
}

impl RetryLog {
    /// Counts a failure; calls `log` with the number of failures since the last success if it is to
    /// be logged.
    pub fn failed(&mut self, log: impl FnOnce(u64)) {
        // Counted also if it is not logged, so that the next report has the total.
        self.failures += 1;
        let interval = match self.reported {
            None => FIRST_INTERVAL,
            Some(last) if last.at.elapsed() >= last.interval => {
                (last.interval * 2).min(MAX_INTERVAL)
            }
            Some(_) => return,
        };
        self.reported = Some(Report {
            at: Instant::now(),
            interval,
        });
        log(self.failures);
    }

    /// Ends a series of failures; calls `log` with their number if there were any.
    pub fn succeeded(&mut self, log: impl FnOnce(u64)) {
        // The interval is reset too: the next series is reported at once.
        let failures = std::mem::take(self).failures;
        if failures > 0 {
            log(failures);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_failure_and_the_end_of_a_series_are_logged() {
        let mut retries = RetryLog::default();
        let mut logged = Vec::new();
        retries.succeeded(|_| panic!("nothing has failed"));
        for _ in 0..1000 {
            retries.failed(|count| logged.push(count));
        }
        retries.succeeded(|count| logged.push(count));
        retries.succeeded(|_| panic!("it works already"));
        retries.failed(|count| logged.push(count));
        assert_eq!(logged, [1, 1000, 1]);
    }

    #[test]
    fn lasting_failures_are_logged_ever_less_often() {
        let mut retries = RetryLog::default();
        let mut intervals = Vec::new();
        for _ in 0..9 {
            // The last report is as old as its interval.
            if let Some(last) = &mut retries.reported {
                last.at = last.at.checked_sub(last.interval).unwrap_or(last.at);
            }
            let mut lines = 0;
            for _ in 0..3 {
                retries.failed(|_| lines += 1);
            }
            assert_eq!(lines, 1);
            intervals.push(retries.reported.unwrap().interval.as_secs());
        }
        assert_eq!(intervals, [10, 20, 40, 80, 160, 320, 600, 600, 600]);
    }
}
