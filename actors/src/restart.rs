//! How often something may be restarted before its supervisor gives up.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// At most `restarts` within `period` (Erlang's intensity and period).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intensity {
    /// Restarts allowed within the period.
    pub restarts: usize,
    /// The period.
    pub period: Duration,
}

impl Default for Intensity {
    fn default() -> Self {
        Self { restarts: 10, period: Duration::from_mins(1) }
    }
}

/// The restarts of one child.
#[derive(Debug, Default)]
pub(crate) struct Restarts(VecDeque<Instant>);

impl Restarts {
    /// Notes a restart; `false` when it is one too many.
    pub(crate) fn admit(&mut self, intensity: Intensity, now: Instant) -> bool {
        while self.0.front().is_some_and(|first| now.duration_since(*first) > intensity.period) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len() <= intensity.restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_up_after_too_many_restarts_within_the_period() {
        let intensity = Intensity { restarts: 2, period: Duration::from_secs(10) };
        let mut restarts = Restarts::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        assert!(restarts.admit(intensity, at(0)));
        assert!(restarts.admit(intensity, at(1)));
        assert!(!restarts.admit(intensity, at(2)));
        assert!(restarts.admit(intensity, at(13)), "the first three are forgotten");
    }
}
