//! Retry policies of tasks and compensations.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Retry policy: the number of attempts and the delays between them.
///
/// The delay doubles after each attempt, up to a maximum. The default is one attempt.
///
/// ```
/// use std::time::Duration;
/// use orlog_workflow::Retry;
///
/// let retry = Retry::attempts(4).delay(Duration::from_secs(1)).max_delay(Duration::from_secs(3));
/// assert_eq!(retry.delay_after(1), Some(Duration::from_secs(1)));
/// assert_eq!(retry.delay_after(3), Some(Duration::from_secs(3)));
/// assert_eq!(retry.delay_after(4), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    attempts: u32,
    delay_ms: u64,
    max_delay_ms: u64,
}

/// Default policy of compensations.
pub(crate) const UNDO: Retry = Retry::attempts(5);

impl Default for Retry {
    fn default() -> Self {
        Self::attempts(1)
    }
}

impl Retry {
    /// Returns a policy with a maximum number of attempts, the first one included. Delays: from 100
    /// ms to 1 min.
    #[must_use]
    pub const fn attempts(attempts: u32) -> Self {
        Self {
            attempts,
            delay_ms: 100,
            max_delay_ms: 60_000,
        }
    }

    /// Sets the delay after the first attempt.
    #[must_use]
    pub fn delay(mut self, delay: Duration) -> Self {
        self.delay_ms = millis(delay);
        // The default maximum must not shorten a longer first delay.
        self.max_delay_ms = self.max_delay_ms.max(self.delay_ms);
        self
    }

    /// Sets the maximum delay.
    #[must_use]
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay_ms = millis(delay);
        self
    }

    /// Returns the delay after an attempt, counted from 1, or `None` if it was the last one.
    #[must_use]
    pub fn delay_after(&self, attempt: u32) -> Option<Duration> {
        // A shift by 64 bits or more has no result, so the delay is the maximum then.
        let factor = 1_u64
            .checked_shl(attempt.saturating_sub(1))
            .unwrap_or(u64::MAX);
        let delay = self.delay_ms.saturating_mul(factor).min(self.max_delay_ms);

        (attempt < self.attempts).then_some(Duration::from_millis(delay))
    }

    /// Returns the time limit of all attempts, if each can last as long as a timeout and the delays
    /// between them are the longest.
    #[cfg(feature = "program")]
    pub(crate) fn longest(&self, timeout: Duration) -> Duration {
        let delays = self
            .longest_delay()
            .saturating_mul(self.attempts.saturating_sub(1));
        timeout.saturating_mul(self.attempts).saturating_add(delays)
    }

    #[cfg(feature = "program")]
    pub(crate) fn longest_delay(&self) -> Duration {
        Duration::from_millis(self.max_delay_ms)
    }

    #[cfg(feature = "program")]
    pub(crate) fn first_delay(&self) -> Duration {
        Duration::from_millis(self.delay_ms)
    }

    #[cfg(feature = "program")]
    pub(crate) fn max_attempts(&self) -> u32 {
        self.attempts
    }

    pub(crate) fn has_attempts(&self) -> bool {
        self.attempts > 0
    }
}

/// Converts a duration to milliseconds; one that exceeds 2⁶⁴ ms becomes the maximum.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
