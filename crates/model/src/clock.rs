//! Timestamps and the clock interface.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Serialize};

/// Point in time: milliseconds since 1970-01-01T00:00:00Z, without leap seconds. Displayed as RFC
/// 3339.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// Last millisecond of the year 9999, the last one of RFC 3339.
const LAST_MILLIS_OF_RFC_3339: i64 = 253_402_300_799_999;

/// Error for a text that is not an RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid RFC 3339 time {text:?}: {reason}; example: 2026-11-21T08:30:00Z")]
pub struct TimestampError {
    text: String,
    reason: String,
}

/// Implements what a time in milliseconds has in common.
macro_rules! millis {
    ($name:ident) => {
        impl $name {
            /// Latest representable time; as a deadline it means never.
            pub const MAX: Self = Self(i64::MAX);

            /// Creates a time from milliseconds since the epoch or start.
            #[must_use]
            pub const fn from_millis(millis: i64) -> Self {
                Self(millis)
            }

            /// Returns the milliseconds since the epoch or start.
            #[must_use]
            pub const fn as_millis(self) -> i64 {
                self.0
            }

            /// Adds `duration`, up to the latest time. Fractions of a millisecond are dropped.
            #[must_use]
            pub fn saturating_add(self, duration: Duration) -> Self {
                let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
                Self(self.0.saturating_add(millis))
            }

            /// Returns the duration since `earlier`; zero if `earlier` is not earlier.
            #[must_use]
            pub fn duration_since(self, earlier: Self) -> Duration {
                Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
            }
        }
    };
}

millis!(Timestamp);
millis!(SteadyTime);

impl Timestamp {
    /// Latest time that has a text, `9999-12-30T22:00:00.000Z`: about a day before the end of the
    /// year 9999, so that it has a local time at every offset.
    pub const MAX_RFC_3339: Self = Self(253_402_207_200_000);

    /// Creates a time from the milliseconds of another system. A later time of the year 9999, the
    /// usual value for "no end", becomes [`Self::MAX_RFC_3339`].
    #[must_use]
    pub const fn from_foreign_millis(millis: i64) -> Self {
        if millis > Self::MAX_RFC_3339.0 && millis <= LAST_MILLIS_OF_RFC_3339 {
            return Self::MAX_RFC_3339;
        }
        Self(millis)
    }

    /// Subtracts `duration`, down to the smallest time.
    #[must_use]
    pub fn saturating_sub(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// Parses RFC 3339 (`2026-11-21T08:30:00+01:00`, also with a space instead of the `T`). A later
    /// time than [`Self::MAX_RFC_3339`], such as `9999-12-31T23:59:59Z`, becomes that time.
    ///
    /// # Errors
    /// The text is not such a time, or the time is outside the years -9999 to 9999.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        match text.parse::<jiff::Timestamp>() {
            // The last fraction of a second of the library has no whole milliseconds.
            Ok(time) => Ok(Self(time.as_millisecond()).min(Self::MAX_RFC_3339)),
            Err(_) if is_end_of_last_year(text) => Ok(Self::MAX_RFC_3339),
            Err(error) => Err(TimestampError {
                text: text.chars().take(64).collect(),
                reason: error.to_string(),
            }),
        }
    }
}

/// Returns whether a text that is not in the range of the library is a time of the year 9999.
fn is_end_of_last_year(text: &str) -> bool {
    let Ok(pieces) = Pieces::parse(text) else {
        return false;
    };
    pieces.date().year() == 9999 && pieces.time().is_some() && pieces.to_numeric_offset().is_some()
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => f.write_str("never"),
        }
    }
}

/// Point in time on a clock that is never set: milliseconds since an arbitrary start. Valid only
/// within one process. Durations are measured with it; [`Timestamp`] is for stored and displayed
/// times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SteadyTime(i64);

/// Source of the current time. Code that requires the time uses this trait; tests provide their own
/// clock.
pub trait Clock: Send + Sync + 'static {
    /// Returns the current wall-clock time. It can go backwards when the clock of the host is set.
    fn now(&self) -> Timestamp;

    /// Returns the current time of a clock that is never set.
    fn steady(&self) -> SteadyTime;

    /// Resolves at `at` or as soon as possible after it; immediately if `at` is in the past.
    fn sleep_until(&self, at: SteadyTime) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// Resolves when the wall clock reaches `due`, or when the time that remained at the call has
    /// passed.
    fn sleep_until_due(&self, due: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            let end = self.steady_at(due);

            // Either clock can pass `due` first: the wall clock if it is set forward, the steady
            // clock if it is set back. Neither may delay a timer.
            loop {
                let left = due
                    .duration_since(self.now())
                    .min(end.duration_since(self.steady()));
                if left.is_zero() {
                    return;
                }

                self.sleep_until(self.steady().saturating_add(left.min(REREAD_INTERVAL)))
                    .await;
            }
        })
    }

    /// Returns the time at which `due` is reached if the wall clock is not set meanwhile.
    fn steady_at(&self, due: Timestamp) -> SteadyTime {
        // `MAX` means never. The sum below would be a finite time.
        if due == Timestamp::MAX {
            return SteadyTime::MAX;
        }
        self.steady().saturating_add(due.duration_since(self.now()))
    }

    /// Returns the wall-clock time of a later `at` if the wall clock is not set meanwhile.
    fn wall_at(&self, at: SteadyTime) -> Timestamp {
        self.now().saturating_add(at.duration_since(self.steady()))
    }
}

/// Interval at which a long sleep rereads the wall clock, so that it detects that the clock was set
/// forward.
const REREAD_INTERVAL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_3339_round_trips() {
        let t = Timestamp::parse("2005-03-23 00:00:00+01:00").unwrap();
        assert_eq!(t.to_string(), "2005-03-22T23:00:00.000Z");
        assert!(Timestamp::parse("yesterday").is_err());
    }

    #[test]
    fn end_of_the_last_year_is_the_latest_time() {
        let latest = "9999-12-30T22:00:00.000Z";
        assert_eq!(Timestamp::MAX_RFC_3339.to_string(), latest);
        assert_eq!(Timestamp::parse(latest), Ok(Timestamp::MAX_RFC_3339));

        for text in [
            "9999-12-31T23:59:59Z",
            "9999-12-31T23:59:59.999999999Z",
            "9999-12-31 23:59:59+00:00",
            "9999-12-31T23:59:59+14:00",
            "9999-12-31T23:59:59-12:00",
            "9999-12-30T22:00:00.999Z",
            "9999-12-30T22:00:01Z",
        ] {
            assert_eq!(
                Timestamp::parse(text),
                Ok(Timestamp::MAX_RFC_3339),
                "{text}"
            );
        }
        assert_eq!(
            Timestamp::from_foreign_millis(253_402_300_799_000),
            Timestamp::MAX_RFC_3339
        );

        assert_eq!(
            Timestamp::parse("9999-12-30T21:00:00Z")
                .unwrap()
                .to_string(),
            "9999-12-30T21:00:00.000Z"
        );
        for text in [
            "9999-12-31",
            "9999-12-31T23:59:59",
            "9999-12-32T23:59:59Z",
            "9999-12-31T25:59:59Z",
            "10000-01-01T00:00:00Z",
        ] {
            let error = Timestamp::parse(text).unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
        }
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(
            Timestamp::MAX.saturating_add(Duration::from_secs(1)),
            Timestamp::MAX
        );
        assert_eq!(
            Timestamp::from_millis(5).duration_since(Timestamp::from_millis(9)),
            Duration::ZERO
        );
        assert_eq!(Timestamp::MAX.to_string(), "never");
    }
}
