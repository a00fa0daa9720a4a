//! Cases of providers that probe: an attempt in doubt is resolved by a question to the upstream.

use std::sync::atomic::Ordering;
use std::time::Duration;

use orlog_effect::retry::Backoff;
use orlog_effect::{ExecutionProgress, ExecutionResult, Policy};
use orlog_model::{InDoubtPolicy, WorkOutcome};
use serde_json::json;

use super::{ProviderFixture, ProviderScenario, UpstreamResponse, done, policy, success_outcome};

/// Creates a test for each case of a provider that probes; the argument is as of
/// [`provider_suite!`](crate::provider_suite!). A list after a semicolon selects the cases.
#[macro_export]
macro_rules! probe_suite {
    ($fixture:expr) => {
        $crate::provider_suite!($fixture;
            executed_attempt_is_found_after_a_crash
            attempt_unexecuted_at_the_crash_is_executed
            executed_attempt_is_found_after_a_timeout
            unanswered_probe_is_repeated
            unanswered_probes_are_bounded
        );
    };
}

/// Policy that forbids a retry: only a probe can resolve the doubt.
fn strict() -> Policy {
    let backoff = Backoff {
        max: Duration::from_secs(1),
        ..Backoff::default()
    };
    Policy {
        in_doubt: InDoubtPolicy::Fail,
        backoff,
        ..policy()
    }
}

fn in_doubt() -> ExecutionProgress {
    ExecutionProgress {
        in_doubt: true,
        ..ExecutionProgress::default()
    }
}

fn executed_silently() -> UpstreamResponse {
    UpstreamResponse::DoneWithoutResponse(json!({"receipt": "r-1"}))
}

/// The process stops after the upstream has executed the effect: the result of that attempt is found.
pub async fn executed_attempt_is_found_after_a_crash(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [executed_silently()], strict());
    scenario.abandon(1).await;
    assert_eq!(
        scenario.resume(1, in_doubt()).await.outcome,
        success_outcome()
    );
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        scenario.keys(1, 1),
        "it is executed once"
    );
}

/// The process stops before the upstream has executed the effect: it is executed now, although the policy forbids a
/// retry in doubt.
pub async fn attempt_unexecuted_at_the_crash_is_executed(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [UpstreamResponse::NoResponse, done()], strict());
    scenario.abandon(1).await;
    assert_eq!(
        scenario.resume(1, in_doubt()).await.outcome,
        success_outcome()
    );
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        scenario.keys(1, 2)
    );
}

/// The response is lost: the upstream is probed before a retry.
pub async fn executed_attempt_is_found_after_a_timeout(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [executed_silently()], strict());
    assert_eq!(scenario.execute(1).await.outcome, success_outcome());
    assert_eq!(
        scenario.fixture.script.requested_keys(),
        scenario.keys(1, 1),
        "it is executed once"
    );
}

/// The upstream is unavailable during the first probes.
pub async fn unanswered_probe_is_repeated(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [executed_silently()], strict());
    scenario
        .fixture
        .script
        .unavailable_probes
        .store(3, Ordering::SeqCst);
    scenario.abandon(1).await;
    assert_eq!(
        scenario.resume(1, in_doubt()).await.outcome,
        success_outcome()
    );
    let script = &scenario.fixture.script;
    assert_eq!((script.probes(), script.requested_keys().len()), (4, 1));
}

/// The upstream stays unavailable: the policy decides after a bounded number of probes.
pub async fn unanswered_probes_are_bounded(fixture: ProviderFixture) {
    let scenario = ProviderScenario::new(fixture, [executed_silently()], strict());
    scenario
        .fixture
        .script
        .unavailable_probes
        .store(usize::MAX, Ordering::SeqCst);
    scenario.abandon(1).await;
    let ExecutionResult {
        outcome, attempts, ..
    } = scenario.resume(1, in_doubt()).await;
    let WorkOutcome::TimedOut { failure } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(failure.code, "in_doubt");
    assert!(
        failure.message.contains("10 probes without an answer"),
        "{failure}"
    );
    let script = &scenario.fixture.script;
    assert_eq!(
        (attempts, script.probes(), script.requested_keys().len()),
        (0, 10, 1)
    );
}
