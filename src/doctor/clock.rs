//! The clock: whether it jumps while we look, and how far it is from those of others.

use std::time::{Duration, Instant};

use orlog_model::{Clock as _, Timestamp};

use super::check::Finding;
use crate::clock::SystemClock;

const CHECK: &str = "clock";
/// The clocks of a computer may drift apart by this while we look.
const JUMP: Duration = Duration::from_millis(500);
/// Another's clock, which shows whole seconds, may be so far away …
const APART: Duration = Duration::from_secs(3);
/// … and this far is too far: tokens and timers of others do not fit any more.
const TOO_FAR: Duration = Duration::from_secs(30);
/// This release was made after it: 2026-01-01.
const MADE: Timestamp = Timestamp::from_millis(1_767_225_600_000);

/// Two clocks that should go alike.
pub(super) struct Watch {
    monotonic: Instant,
    wall: Timestamp,
}

impl Watch {
    pub(super) fn start() -> Self {
        Self { monotonic: Instant::now(), wall: SystemClock.now() }
    }

    pub(super) fn stop(self) -> Finding {
        let now = SystemClock.now();
        let went = i128::from(now.millis()) - i128::from(self.wall.millis());
        let should = i128::try_from(self.monotonic.elapsed().as_millis()).unwrap_or(i128::MAX);
        let apart = (went - should).unsigned_abs();
        if now < MADE {
            let remedy = "set the clock; use NTP";
            Finding::bad(CHECK, format!("it says {now}, which is before this release was made"), remedy)
        } else if apart > JUMP.as_millis() {
            let remedy = "find out who sets the clock; NTP should slew it, not step it";
            Finding::warn(CHECK, format!("it jumped by {apart} ms while it was looked at"), remedy)
        } else {
            Finding::ok(CHECK, format!("{now}, and it goes evenly"))
        }
    }
}

/// How far this clock is from that of a host that said when it is (the header `date`).
pub(super) fn compare(host: &str, date: &str) -> Option<Finding> {
    let theirs = read(date)?;
    let ours = SystemClock.now();
    let apart = ours.since(theirs).max(theirs.since(ours));
    let found = format!("{} s from that of {host}", apart.as_secs());
    let remedy = "compare both with NTP; one of them is wrong";
    match apart {
        apart if apart >= TOO_FAR => Some(Finding::bad(CHECK, found, remedy)),
        apart if apart >= APART => Some(Finding::warn(CHECK, found, remedy)),
        _ => None,
    }
}

/// `Sat, 21 Nov 2026 16:05:00 GMT`.
fn read(date: &str) -> Option<Timestamp> {
    let zoned = jiff::fmt::rfc2822::parse(date).ok()?;
    Some(Timestamp::from_millis(zoned.timestamp().as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::check::Level;

    #[test]
    fn a_clock_that_is_far_from_anothers_is_noticed() {
        let date = |seconds: i64| {
            let at = jiff::Timestamp::from_millisecond(SystemClock.now().millis() - seconds * 1000).unwrap();
            at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
        };
        assert_eq!(compare("shop", &date(0)), None);
        assert_eq!(compare("shop", &date(10)).map(|found| found.level), Some(Level::Warn));
        assert_eq!(compare("shop", &date(-100)).map(|found| found.level), Some(Level::Bad));
        assert_eq!(compare("shop", "yesterday"), None);
    }
}
