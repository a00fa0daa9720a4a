//! Clock check: jumps during the check, and skew against remote hosts.

use std::time::{Duration, Instant};

use orlog_model::{Clock as _, Timestamp, parse_http_date};

use super::check::CheckResult;
use crate::clock::SystemClock;

const CHECK: &str = "clock";
/// Maximum difference between two local clocks during the check.
const MAX_JUMP: Duration = Duration::from_millis(500);
/// Clock skew that causes a warning. Remote times have a resolution of one second.
const WARN_SKEW: Duration = Duration::from_secs(3);
/// Clock skew that is an error: tokens and timers of other hosts become invalid.
const MAX_SKEW: Duration = Duration::from_secs(30);
/// Lower bound of the release date: 2026-01-01.
const BUILT_AFTER: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// Comparison of two local clocks.
pub(super) struct ClockComparison {
    monotonic: Instant,
    system_time: Timestamp,
}

impl ClockComparison {
    pub(super) fn start() -> Self {
        Self {
            monotonic: Instant::now(),
            system_time: SystemClock.now(),
        }
    }

    pub(super) fn stop(self) -> CheckResult {
        let now = SystemClock.now();
        let elapsed = i128::from(now.as_millis()) - i128::from(self.system_time.as_millis());
        let expected = i128::try_from(self.monotonic.elapsed().as_millis()).unwrap_or(i128::MAX);
        let difference = (elapsed - expected).unsigned_abs();

        if now < BUILT_AFTER {
            let remedy = "set the clock, for example with NTP";
            CheckResult::error(
                CHECK,
                format!("clock shows {now}, which is before the release date"),
                remedy,
            )
        } else if difference > MAX_JUMP.as_millis() {
            // Two samples of the same machine: only a process that steps the clock moves them
            // apart.
            let remedy = "find the process that sets the clock; configure NTP to slew, not to step";
            CheckResult::warn(
                CHECK,
                format!("clock jumped by {difference} ms during the check"),
                remedy,
            )
        } else {
            CheckResult::ok(CHECK, format!("{now}, no jumps"))
        }
    }
}

/// Compares the local clock with the `date` header of a host.
pub(super) fn compare(host: &str, date: &str) -> Option<CheckResult> {
    let server_time = parse_http_date(date)?;
    let local_time = SystemClock.now();
    let apart = local_time
        .duration_since(server_time)
        .max(server_time.duration_since(local_time));
    let found = format!("{} s apart from the clock of {host}", apart.as_secs());
    let remedy = "synchronize both clocks with NTP";

    match apart {
        apart if apart >= MAX_SKEW => Some(CheckResult::error(CHECK, found, remedy)),
        apart if apart >= WARN_SKEW => Some(CheckResult::warn(CHECK, found, remedy)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::CheckStatus;

    #[test]
    fn clock_skew_is_detected() {
        let date = |seconds: i64| {
            let at =
                jiff::Timestamp::from_millisecond(SystemClock.now().as_millis() - seconds * 1000)
                    .unwrap();
            at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
        };
        assert_eq!(compare("shop", &date(0)), None);
        assert_eq!(
            compare("shop", &date(10)).map(|found| found.status),
            Some(CheckStatus::Warn)
        );
        assert_eq!(
            compare("shop", &date(-100)).map(|found| found.status),
            Some(CheckStatus::Error)
        );
        assert_eq!(compare("shop", "yesterday"), None);
    }
}
