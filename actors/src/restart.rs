//! Restart limit of supervised actors.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// At most `max_restarts` within `period` (Erlang's intensity and period).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartIntensity {
    /// Maximum number of restarts within the period.
    pub max_restarts: usize,
    /// The period.
    pub period: Duration,
}

impl Default for RestartIntensity {
    fn default() -> Self {
        Self { max_restarts: 10, period: Duration::from_mins(1) }
    }
}

/// Recent restarts of the children of one supervisor.
#[derive(Debug, Default)]
pub(crate) struct RestartTracker(VecDeque<Instant>);

impl RestartTracker {
    /// Records a restart; returns `false` if it exceeds the limit.
    pub(crate) fn admit(&mut self, intensity: RestartIntensity, now: Instant) -> bool {
        while self.0.front().is_some_and(|first| now.duration_since(*first) > intensity.period) {
            self.0.pop_front();
        }
        self.0.push_back(now);
        self.0.len() <= intensity.max_restarts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stops_after_too_many_restarts_within_the_period() {
        let intensity = RestartIntensity { max_restarts: 2, period: Duration::from_secs(10) };
        let mut restarts = RestartTracker::default();
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        assert!(restarts.admit(intensity, at(0)));
        assert!(restarts.admit(intensity, at(1)));
        assert!(!restarts.admit(intensity, at(2)));
        assert!(restarts.admit(intensity, at(13)), "restarts outside the period are not counted");
    }
}
