//! The circuit breaker: stops calls to an unhealthy upstream and probes it with single calls.
//!
//! A pure state machine; time is an argument. All effects of an upstream share one breaker.
//!
//! | state | admit | healthy result | unhealthy result | caller cancelled |
//! |---|---|---|---|---|
//! | closed | allow | count | count; at a limit → open | – |
//! | open | reject until `open_duration` has passed; then → half-open | – | – | – |
//! | half-open, no probe | allow one probe | – | – | – |
//! | half-open, one probe | reject | → closed | → open | no probe |
//!
//! The result of a call that started before the last change of state is outdated and is not
//! counted.

use std::collections::VecDeque;
use std::time::Duration;

use orlog_model::SteadyTime;
use serde::{Deserialize, Serialize};

/// Thresholds and open duration of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BreakerOptions {
    /// Number of consecutive unhealthy results that opens the breaker; at least 1.
    #[serde(deserialize_with = "crate::duration::positive")]
    pub failure_threshold: u32,
    /// Share of unhealthy results that also opens the breaker.
    pub rate: Option<FailureRate>,
    /// Duration of the open state before a probe.
    #[serde(with = "crate::duration")]
    pub open_duration: Duration,
}

impl Default for BreakerOptions {
    fn default() -> Self {
        Self {
            failure_threshold: 10,
            rate: None,
            open_duration: Duration::from_secs(5),
        }
    }
}

/// Share of failures among the latest results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailureRate {
    /// Unhealthy results in percent.
    pub percent: u8,
    /// Number of latest results that are evaluated; the rate is not evaluated before there are so
    /// many.
    #[serde(deserialize_with = "crate::duration::positive")]
    pub window: u32,
}

/// State of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BreakerState {
    /// Allows calls.
    Closed,
    /// Rejects calls.
    Open,
    /// Allows one probe.
    HalfOpen,
}

impl BreakerState {
    /// Returns the label for users and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open => "open",
            BreakerState::HalfOpen => "half_open",
        }
    }
}

/// Health of the upstream according to the result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallHealth {
    /// The upstream works, even if it rejected the call.
    Healthy,
    /// The upstream was unreachable, failed, or did not respond in time.
    Unhealthy,
    /// The caller cancelled before there was a result.
    Unknown,
}

/// Decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerDecision {
    /// Allowed; return the token with the health of the result.
    Allow(CallToken),
    /// Not before this time; `None`: not before the state changes.
    Wait(Option<SteadyTime>),
}

/// Token of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallToken {
    generation: u64,
}

/// Circuit breaker; see the table above.
#[derive(Clone, Debug)]
pub(crate) struct Breaker {
    options: BreakerOptions,
    phase: Phase,
    /// Incremented with each change of state; identifies outdated results.
    generation: u64,
    opened: u64,
}

#[derive(Clone, Debug)]
enum Phase {
    Closed(Window),
    Open { until: SteadyTime },
    HalfOpen { probing: bool },
}

impl Breaker {
    pub(crate) fn new(options: BreakerOptions) -> Self {
        Self {
            options,
            phase: Phase::Closed(Window::default()),
            generation: 0,
            opened: 0,
        }
    }

    pub(crate) fn state(&self) -> BreakerState {
        match self.phase {
            Phase::Closed(_) => BreakerState::Closed,
            Phase::Open { .. } => BreakerState::Open,
            Phase::HalfOpen { .. } => BreakerState::HalfOpen,
        }
    }

    /// Returns how often the breaker has opened.
    pub(crate) fn open_count(&self) -> u64 {
        self.opened
    }

    /// Requests admission at `now`.
    pub(crate) fn admit(&mut self, now: SteadyTime) -> BreakerDecision {
        match &mut self.phase {
            Phase::Closed(_) => self.go(),
            Phase::Open { until } if now < *until => BreakerDecision::Wait(Some(*until)),
            // The pause is over. One call probes the upstream.
            Phase::Open { .. } => {
                self.change(Phase::HalfOpen { probing: true });
                self.go()
            }
            Phase::HalfOpen { probing: true } => BreakerDecision::Wait(None),
            Phase::HalfOpen { probing } => {
                *probing = true;
                self.go()
            }
        }
    }

    /// Records the result of a call at `now`.
    pub(crate) fn record(&mut self, ticket: CallToken, health: CallHealth, now: SteadyTime) {
        // The call started before the last change of state: its result is outdated.
        if ticket.generation != self.generation {
            return;
        }

        match (&mut self.phase, health) {
            (Phase::Closed(window), CallHealth::Healthy | CallHealth::Unhealthy) => {
                if window.count(health == CallHealth::Unhealthy, &self.options) {
                    self.open(now);
                }
            }
            (Phase::HalfOpen { .. }, CallHealth::Healthy) => {
                self.change(Phase::Closed(Window::default()));
            }
            (Phase::HalfOpen { .. }, CallHealth::Unhealthy) => self.open(now),
            // The trial was cancelled without a result, so another call takes its place.
            (Phase::HalfOpen { probing }, CallHealth::Unknown) => *probing = false,
            (Phase::Closed(_), CallHealth::Unknown) | (Phase::Open { .. }, _) => {}
        }
    }

    fn go(&self) -> BreakerDecision {
        BreakerDecision::Allow(CallToken {
            generation: self.generation,
        })
    }

    fn open(&mut self, now: SteadyTime) {
        self.opened += 1;
        self.change(Phase::Open {
            until: now.saturating_add(self.options.open_duration),
        });
    }

    fn change(&mut self, phase: Phase) {
        // Results of calls that are in flight now belong to the earlier state and are not counted.
        self.generation += 1;
        self.phase = phase;
    }
}

/// Latest results of the closed state.
#[derive(Clone, Debug, Default)]
struct Window {
    in_a_row: u32,
    latest: VecDeque<bool>,
    unhealthy: u32,
}

impl Window {
    /// Counts a result; returns `true` when a limit is reached.
    fn count(&mut self, unhealthy: bool, options: &BreakerOptions) -> bool {
        self.in_a_row = if unhealthy { self.in_a_row + 1 } else { 0 };
        // The rate is evaluated only if the threshold is not reached, because both open the
        // breaker.
        self.in_a_row >= options.failure_threshold.max(1)
            || options.rate.is_some_and(|rate| self.share(unhealthy, rate))
    }

    fn share(&mut self, unhealthy: bool, rate: FailureRate) -> bool {
        let window = rate.window.max(1) as usize;

        self.latest.push_back(unhealthy);
        self.unhealthy += u32::from(unhealthy);
        if self.latest.len() > window && self.latest.pop_front() == Some(true) {
            self.unhealthy -= 1;
        }

        // A share of a window that is not full says little: one of two calls is 50 %.
        self.latest.len() == window
            && u64::from(self.unhealthy) * 100 >= u64::from(rate.percent.max(1)) * window as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const START: SteadyTime = SteadyTime::from_millis(0);
    const OPEN_FOR: Duration = Duration::from_secs(5);

    fn breaker(failures: u32) -> Breaker {
        Breaker::new(BreakerOptions {
            failure_threshold: failures,
            rate: None,
            open_duration: OPEN_FOR,
        })
    }

    #[track_caller]
    fn go(breaker: &mut Breaker, now: SteadyTime) -> CallToken {
        match breaker.admit(now) {
            BreakerDecision::Allow(ticket) => ticket,
            BreakerDecision::Wait(until) => panic!("rejected until {until:?}"),
        }
    }

    fn record_call(breaker: &mut Breaker, health: CallHealth, now: SteadyTime) {
        let ticket = go(breaker, now);
        breaker.record(ticket, health, now);
    }

    #[test]
    fn opens_after_consecutive_failures_for_the_open_duration() {
        let mut breaker = breaker(3);
        for health in [
            CallHealth::Unhealthy,
            CallHealth::Unhealthy,
            CallHealth::Healthy,
            CallHealth::Unhealthy,
            CallHealth::Unhealthy,
        ] {
            record_call(&mut breaker, health, START);
        }
        assert_eq!(breaker.state(), BreakerState::Closed);
        record_call(&mut breaker, CallHealth::Unhealthy, START);
        assert_eq!(
            (breaker.state(), breaker.open_count()),
            (BreakerState::Open, 1)
        );
        assert_eq!(
            breaker.admit(START),
            BreakerDecision::Wait(Some(START.saturating_add(OPEN_FOR)))
        );
    }

    #[test]
    fn half_open_closes_after_a_successful_probe() {
        let mut breaker = breaker(1);
        record_call(&mut breaker, CallHealth::Unhealthy, START);
        let later = START.saturating_add(OPEN_FOR);
        let probe = go(&mut breaker, later);
        assert_eq!(
            (breaker.state(), breaker.admit(later)),
            (BreakerState::HalfOpen, BreakerDecision::Wait(None))
        );
        breaker.record(probe, CallHealth::Healthy, later);
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn half_open_reopens_after_a_failed_probe() {
        let mut breaker = breaker(1);
        record_call(&mut breaker, CallHealth::Unhealthy, START);
        record_call(
            &mut breaker,
            CallHealth::Unhealthy,
            START.saturating_add(OPEN_FOR),
        );
        assert_eq!(
            (breaker.state(), breaker.open_count()),
            (BreakerState::Open, 2)
        );
    }

    #[test]
    fn half_open_admits_another_probe_when_the_first_is_dropped() {
        let mut breaker = breaker(1);
        record_call(&mut breaker, CallHealth::Unhealthy, START);
        record_call(
            &mut breaker,
            CallHealth::Unknown,
            START.saturating_add(OPEN_FOR),
        );
        assert_eq!(breaker.state(), BreakerState::HalfOpen);
        record_call(
            &mut breaker,
            CallHealth::Healthy,
            START.saturating_add(OPEN_FOR),
        );
        assert_eq!(breaker.state(), BreakerState::Closed);
    }

    #[test]
    fn results_of_stale_calls_are_ignored() {
        let mut breaker = breaker(1);
        let (first, second) = (go(&mut breaker, START), go(&mut breaker, START));
        breaker.record(first, CallHealth::Unhealthy, START);
        let later = START.saturating_add(OPEN_FOR);
        let _probe = go(&mut breaker, later);
        breaker.record(second, CallHealth::Healthy, later);
        assert_eq!(
            (breaker.state(), breaker.admit(later)),
            (BreakerState::HalfOpen, BreakerDecision::Wait(None))
        );
    }

    #[test]
    fn opens_at_the_failure_rate_once_the_window_is_full() {
        let rate = FailureRate {
            percent: 50,
            window: 4,
        };
        let mut breaker = Breaker::new(BreakerOptions {
            failure_threshold: 100,
            rate: Some(rate),
            open_duration: OPEN_FOR,
        });
        for health in [
            CallHealth::Unhealthy,
            CallHealth::Unhealthy,
            CallHealth::Healthy,
        ] {
            record_call(&mut breaker, health, START);
            assert_eq!(breaker.state(), BreakerState::Closed);
        }
        record_call(&mut breaker, CallHealth::Healthy, START);
        assert_eq!(breaker.state(), BreakerState::Open);
    }

    proptest! {
        #[test]
        fn half_open_admits_one_probe_and_always_recovers(
            steps in proptest::collection::vec((0u8..4, 0u64..4_000), 1..200),
        ) {
            let mut breaker = breaker(2);
            let (mut now, mut probing) = (START, Vec::new());
            for (step, wait) in steps {
                now = now.saturating_add(Duration::from_millis(wait));
                if step == 0 {
                    let before = breaker.state();
                    if let BreakerDecision::Allow(ticket) = breaker.admit(now) {
                        let trials = probing.iter().filter(|t: &&CallToken| t.generation == ticket.generation).count();
                        prop_assert!(before == BreakerState::Closed || trials == 0);
                        probing.push(ticket);
                    }
                } else if let Some(ticket) = probing.pop() {
                    let health = [CallHealth::Healthy, CallHealth::Unhealthy, CallHealth::Unknown][usize::from(step) - 1];
                    breaker.record(ticket, health, now);
                }
            }
            while let Some(ticket) = probing.pop() {
                breaker.record(ticket, CallHealth::Unknown, now);
            }
            let later = now.saturating_add(OPEN_FOR);
            prop_assert!(matches!(breaker.admit(later), BreakerDecision::Allow(_)));
        }
    }
}
