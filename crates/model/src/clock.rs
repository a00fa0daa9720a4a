//! Points in time, and the one door through which the present enters.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point in time: milliseconds since 1970-01-01T00:00:00Z, leap seconds not counted. Shown as RFC 3339.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

/// A text that is no RFC 3339 time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an RFC 3339 time such as 2026-11-21T08:30:00Z: {reason}")]
pub struct TimestampError {
    text: String,
    reason: String,
}

impl Timestamp {
    /// The latest representable time; as a deadline it means never.
    pub const MAX: Self = Self(i64::MAX);

    /// From milliseconds since the epoch.
    #[must_use]
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the epoch.
    #[must_use]
    pub const fn millis(self) -> i64 {
        self.0
    }

    /// Later by `duration`; stops at [`Timestamp::MAX`]. Parts of a millisecond are dropped.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(millis))
    }

    /// Earlier by `duration`; stops at the smallest time.
    #[must_use]
    pub fn before(self, duration: Duration) -> Self {
        let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
        Self(self.0.saturating_sub(millis))
    }

    /// How long from `earlier` until this; zero when it is not later.
    #[must_use]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// Reads RFC 3339 (`2026-11-21T08:30:00+01:00`, also with a space for the `T`).
    ///
    /// # Errors
    /// When the text is no such time or lies outside the years -9999 to 9999.
    pub fn parse(text: &str) -> Result<Self, TimestampError> {
        text.parse::<jiff::Timestamp>()
            .map(|t| Self(t.as_millisecond()))
            .map_err(|e| TimestampError { text: text.chars().take(64).collect(), reason: e.to_string() })
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(t) => write!(f, "{t:.3}"),
            Err(_) => f.write_str("never"),
        }
    }
}

/// Where the present comes from. Code that must know the time takes this; tests bring their own.
pub trait Clock: Send + Sync + 'static {
    /// The present.
    fn now(&self) -> Timestamp;

    /// Resolves at `at` or as soon as possible after; at once when `at` is past.
    fn sleep_until(&self, at: Timestamp) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_shows_rfc_3339() {
        let t = Timestamp::parse("2005-03-23 00:00:00+01:00").unwrap();
        assert_eq!(t.to_string(), "2005-03-22T23:00:00.000Z");
        assert!(Timestamp::parse("yesterday").is_err());
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp::MAX.after(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Timestamp::from_millis(5).since(Timestamp::from_millis(9)), Duration::ZERO);
        assert_eq!(Timestamp::MAX.to_string(), "never");
    }
}
