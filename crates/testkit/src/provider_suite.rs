//! Conformance suite of providers: the guarantees of [`Provider`] under a real [`EffectExecutor`].
//!
//! An implementation provides a [`ProviderFixture`]: the provider and an upstream that follows an [`UpstreamScript`].
//! The macro [`provider_suite!`](crate::provider_suite!) creates one test per case. Time is simulated.

mod item;
mod probes;
mod script;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orlog_effect::limits::breaker::{self, BreakerState};
use orlog_effect::{
    EffectExecutor, ExecutionProgress, ExecutionResult, Policy, Provider, Upstream,
};
use orlog_model::{Clock, EffectName, InDoubtPolicy, WorkOutcome};
use serde_json::json;

use crate::SimClock;

pub use item::{START, item};
pub use probes::{
    attempt_unexecuted_at_the_crash_is_executed, executed_attempt_is_found_after_a_crash,
    executed_attempt_is_found_after_a_timeout, unanswered_probe_is_repeated,
    unanswered_probes_are_bounded,
};
pub use script::{ProbeResponse, UpstreamResponse, UpstreamScript};

/// Timeout of an attempt in the suite; retry delays are much shorter.
const ATTEMPT: Duration = Duration::from_mins(1);

/// Real-time limit of a case; a longer case has hung.
const HANG_TIMEOUT: Duration = Duration::from_secs(30);

/// Provider and its upstream.
pub struct ProviderFixture {
    /// Provider under test.
    pub provider: Arc<dyn Provider>,
    /// Effect that the provider executes.
    pub effect: EffectName,
    /// Script of the upstream.
    pub script: Arc<UpstreamScript>,
}

/// Creates a test for each case. The argument is an expression that returns a future of a new
/// [`ProviderFixture`]. After `maybe` it returns a future of an `Option`, and `None` skips the tests. A
/// list after a semicolon selects the cases.
#[macro_export]
macro_rules! provider_suite {
    ($fixture:expr) => {
        $crate::provider_suite!($fixture;
            success_returns_the_upstream_response
            rejection_is_permanent
            unanswered_attempt_times_out
            timed_out_attempt_retries_with_the_same_key
            transient_errors_retry_with_the_same_key
            retry_after_is_a_minimum
            breaker_opens_probes_and_closes
            redelivery_keeps_the_key
            dropping_cancels_and_releases_the_permit
            crash_between_call_and_result_resumes_with_the_same_key
            unresolvable_doubt_is_not_retried_when_forbidden
        );
    };
    (maybe $fixture:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            if let Some(fixture) = $fixture.await {
                $crate::provider_suite::$case(fixture).await;
            }
        })*
    };
    ($fixture:expr; $($case:ident)*) => {
        $(#[tokio::test]
        async fn $case() {
            $crate::provider_suite::$case($fixture.await).await;
        })*
    };
}

/// Fixture with an effect executor.
struct ProviderScenario {
    fixture: ProviderFixture,
    clock: Arc<SimClock>,
    executor: Arc<EffectExecutor>,
}

impl ProviderScenario {
    fn new(
        fixture: ProviderFixture,
        responses: impl IntoIterator<Item = UpstreamResponse>,
        policy: Policy,
    ) -> Self {
        fixture.script.set(responses);
        let clock = SimClock::new(START);
        let upstream = Upstream::effects(
            "upstream",
            vec![fixture.effect.clone()],
            Arc::clone(&fixture.provider),
            policy,
        );
        let executor = EffectExecutor::new(upstream, Arc::clone(&clock) as Arc<dyn Clock>);
        Self {
            fixture,
            clock,
            executor,
        }
    }

    /// Executes an item. Retry delays pass immediately; the timeout of an attempt passes if the upstream
    /// does not respond.
    async fn execute(&self, number: u128) -> ExecutionResult {
        self.resume(number, ExecutionProgress::default()).await
    }

    async fn resume(&self, number: u128, progress: ExecutionProgress) -> ExecutionResult {
        let mut item = item(&self.fixture.effect, number);
        let observed = self.fixture.script.silences.load(Ordering::SeqCst);
        let within = async {
            tokio::select! {
                biased;
                done = self.executor.execute_for(&mut item, progress, &()) => done.expect("the upstream is not retired"),
                () = self.advance_time(observed) => unreachable!("time advances without end"),
            }
        };
        let done = tokio::time::timeout(HANG_TIMEOUT, within)
            .await
            .expect("the case hangs");
        // The receipt of a worker belongs to the commit, which the suite does not have. Messages of attempts differ.
        ExecutionResult {
            receipt: None,
            attempt_log: None,
            ..done
        }
    }

    async fn advance_time(&self, mut observed: usize) {
        loop {
            let due = tokio::select! {
                due = self.clock.due_within(ATTEMPT / 2) => due,
                () = self.silence(observed + 1) => {
                    observed += 1;
                    self.clock.due_within(ATTEMPT).await
                }
            };
            self.clock.advance_to(due);
            tokio::task::yield_now().await;
        }
    }

    /// Waits for the `nth` call without response.
    async fn silence(&self, nth: usize) {
        self.fixture
            .script
            .until(|script| script.silences.load(Ordering::SeqCst) >= nth)
            .await;
    }

    /// Abandons an item when the upstream does not respond to it.
    async fn abandon(&self, number: u128) {
        let lost = item(&self.fixture.effect, number);
        tokio::select! {
            done = self.executor.execute(&lost) => panic!("the upstream does not respond, but the result is {done:?}"),
            () = self.silence(1) => {}
        }
    }

    fn keys(&self, number: u128, times: usize) -> Vec<String> {
        vec![item(&self.fixture.effect, number).id.to_string(); times]
    }

    fn passed(&self) -> Duration {
        self.clock.now().duration_since(START)
    }
}

fn policy() -> Policy {
    Policy {
        attempt_timeout: ATTEMPT,
        deadline: None,
        ..Policy::default()
    }
}

fn success_outcome() -> WorkOutcome {
    WorkOutcome::succeeded(None, json!({"receipt": "r-1"}))
}

fn done() -> UpstreamResponse {
    UpstreamResponse::Done(json!({"receipt": "r-1"}))
}

/// The result of the upstream is the payload of the outcome.
pub async fn success_returns_the_upstream_response(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [done()], policy());
    assert_eq!(scenario.execute(1).await, ended(1));
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        scenario.keys(1, 1)
    );
}

/// A business rejection is not retried and does not count as a fault of the upstream.
pub async fn rejection_is_permanent(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [UpstreamResponse::Rejected], policy());
    let ExecutionResult {
        outcome, attempts, ..
    } = scenario.execute(1).await;
    assert!(matches!(outcome, WorkOutcome::Failed { .. }), "{outcome:?}");
    assert_eq!(
        (attempts, scenario.fixture.script.requested_keys().len()),
        (1, 1)
    );
}

/// It is unknown whether the effect was executed: the outcome is a timeout, not a failure.
pub async fn unanswered_attempt_times_out(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(
        fixture,
        [UpstreamResponse::NoResponse],
        Policy {
            max_attempts: Some(1),
            ..policy()
        },
    );
    let ExecutionResult {
        outcome, attempts, ..
    } = scenario.execute(1).await;
    assert!(
        matches!(outcome, WorkOutcome::TimedOut { .. }),
        "{outcome:?}"
    );
    assert_eq!((attempts, scenario.passed()), (1, ATTEMPT));
}

/// A retry uses the same key.
pub async fn timed_out_attempt_retries_with_the_same_key(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [UpstreamResponse::NoResponse, done()], policy());
    assert_eq!(scenario.execute(1).await, ended(2));
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        scenario.keys(1, 2)
    );
}

/// Faults and throttling are transient and are retried.
pub async fn transient_errors_retry_with_the_same_key(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(
        fixture,
        [
            UpstreamResponse::Unavailable,
            UpstreamResponse::Throttled(None),
            done(),
        ],
        policy(),
    );
    assert_eq!(scenario.execute(1).await, ended(3));
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        scenario.keys(1, 3)
    );
}

/// `Retry-After` is a minimum delay.
pub async fn retry_after_is_a_minimum(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(
        fixture,
        [
            UpstreamResponse::Throttled(Some(Duration::from_secs(7))),
            done(),
        ],
        policy(),
    );
    assert_eq!(scenario.execute(1).await, ended(2));
    assert!(
        scenario.passed() >= Duration::from_secs(7),
        "{:?}",
        scenario.passed()
    );
}

/// An item waits while the breaker is open, then probes whether the upstream is available.
pub async fn breaker_opens_probes_and_closes(fixture: ProviderFixture) {
    let breaker = breaker::BreakerOptions {
        failure_threshold: 2,
        rate: None,
        open_duration: Duration::from_secs(5),
    };
    let responses = [
        UpstreamResponse::Unavailable,
        UpstreamResponse::Unavailable,
        UpstreamResponse::Unavailable,
        done(),
    ];
    let scenario = ProviderScenario::new(
        fixture,
        responses,
        Policy {
            breaker: Some(breaker),
            ..policy()
        },
    );
    assert_eq!(scenario.execute(1).await, ended(4));
    let status = scenario.executor.status();
    assert_eq!(
        (status.breaker, status.breaker_open_count, status.in_flight),
        (Some(BreakerState::Closed), 2, 0)
    );
    assert!(
        scenario.passed() >= Duration::from_secs(10),
        "{:?}",
        scenario.passed()
    );
}

/// The upstream can detect that both deliveries are the same item.
pub async fn redelivery_keeps_the_key(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [done(), done(), done()], policy());
    for number in [1, 1, 2] {
        assert_eq!(scenario.execute(number).await.outcome, success_outcome());
    }
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        [scenario.keys(1, 2), scenario.keys(2, 1)].concat()
    );
}

/// The call of the upstream ends, and the next item gets the permit.
pub async fn dropping_cancels_and_releases_the_permit(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(
        fixture,
        [UpstreamResponse::NoResponse, done()],
        Policy {
            max_concurrency: 1,
            ..policy()
        },
    );
    scenario.abandon(1).await;
    let abandoned = scenario
        .fixture
        .script
        .until(|script| script.abandoned.load(Ordering::SeqCst) == 1);
    tokio::time::timeout(HANG_TIMEOUT, abandoned)
        .await
        .expect("the abandoned call is cancelled at the upstream");
    assert_eq!(scenario.executor.status().in_flight, 0);
    assert_eq!(scenario.execute(2).await, ended(1));
}

/// The process crashes between the call of the upstream and its response; the next owner of the item
/// uses the same key.
pub async fn crash_between_call_and_result_resumes_with_the_same_key(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [UpstreamResponse::NoResponse, done()], policy());
    scenario.abandon(1).await;
    let in_doubt = ExecutionProgress {
        in_doubt: true,
        ..ExecutionProgress::default()
    };
    assert_eq!(scenario.resume(1, in_doubt).await, ended(1));
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        scenario.keys(1, 2)
    );
}

/// The outcome is unknown, and the upstream is not called a second time.
pub async fn unresolvable_doubt_is_not_retried_when_forbidden(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(
        fixture,
        [UpstreamResponse::NoResponse],
        Policy {
            in_doubt: InDoubtPolicy::Fail,
            ..policy()
        },
    );
    scenario.abandon(1).await;
    let ExecutionResult {
        outcome, attempts, ..
    } = scenario
        .resume(
            1,
            ExecutionProgress {
                in_doubt: true,
                ..ExecutionProgress::default()
            },
        )
        .await;
    assert!(
        matches!(&outcome, WorkOutcome::TimedOut { failure } if failure.code == "in_doubt"),
        "{outcome:?}"
    );
    assert_eq!(
        (attempts, scenario.fixture.script.requested_keys().len()),
        (0, 1)
    );
}

fn ended(attempts: u32) -> ExecutionResult {
    ExecutionResult {
        attempts,
        ..ExecutionResult::without_attempt(success_outcome())
    }
}
