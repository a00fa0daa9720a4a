//! Attempts in doubt: probes of the upstream, and the policy if the outcome stays unknown.
//!
//! | probe | next |
//! |---|---|
//! | executed, failed | ends with this result |
//! | not executed | the next attempt |
//! | no result yet; the next attempt determines it | the next attempt |
//! | no answer | another probe after a delay, at most 10 before the deadline; then unknown |
//! | unknown | the policy: the next attempt, or ends as timed out with the code `in_doubt` |

use std::time::Duration;

use orlog_model::{Clock, Failure, InDoubtPolicy, WorkItem, WorkOutcome};

use crate::attempt::before;
use crate::effect_execution::{EffectExecution, FinishedExecution, probed_result};
use crate::observer::{EffectObserver, ProbeOutcome};
use crate::provider::{Probe, ProbeResult, Provider};
use crate::retry::RetryDecision;
use crate::upstream::Upstream;

/// State of the doubt about earlier attempts.
pub(crate) enum Doubt {
    /// The work item has a final result.
    Ended(FinishedExecution),
    /// Another attempt is allowed.
    AttemptAllowed,
    /// The upstream must be probed again after this delay.
    ProbeAgain(Duration),
}

/// Probes the earlier attempts of an execution in doubt, and applies the policy if they stay
/// unknown.
pub(crate) async fn resolve(
    upstream: &Upstream,
    clock: &dyn Clock,
    observer: &dyn EffectObserver,
    item: &WorkItem,
    execution: &mut EffectExecution,
) -> Doubt {
    let result = ask(upstream, clock, item).await;
    let can_probe = item
        .work
        .effect()
        .is_some_and(|effect| upstream.provider.can_probe(&effect.name));
    // A provider without probes answers `unknown` at once. That is no probe, so the metrics do not
    // count it.
    let outcome = ProbeOutcome::from(&result);
    if can_probe || outcome != ProbeOutcome::Unknown {
        observer.probe_finished(&upstream.name, outcome);
    }

    match result {
        ProbeResult::NotDone => {
            execution.in_doubt = false;
            Doubt::AttemptAllowed
        }
        // Another process determines the outcome with the next attempt, so the doubt stays.
        ProbeResult::Pending => Doubt::AttemptAllowed,
        ProbeResult::Unknown => unknown(upstream, item, execution, None).await,
        ProbeResult::Unanswered {
            failure,
            retry_after,
        } => {
            tracing::debug!(
                upstream = upstream.name,
                item = %item.id,
                %failure,
                "probe without an answer"
            );

            execution.probes += 1;
            let backoff = upstream.policy.backoff_for(item);
            match execution.next_probe(&backoff, retry_after, item, clock.steady()) {
                RetryDecision::Retry(delay) => Doubt::ProbeAgain(delay),
                RetryDecision::Abandon => unknown(upstream, item, execution, Some(&failure)).await,
            }
        }
        result @ (ProbeResult::Done(_) | ProbeResult::Failed(_)) => {
            probed_result(item, result).map_or(Doubt::AttemptAllowed, Doubt::Ended)
        }
    }
}

/// Applies the policy of an unknown outcome. The saga decides whether it asks an operator.
pub(crate) async fn unknown(
    upstream: &Upstream,
    item: &WorkItem,
    execution: &mut EffectExecution,
    probe: Option<&Failure>,
) -> Doubt {
    if upstream.policy.in_doubt(item) == InDoubtPolicy::Retry {
        return Doubt::AttemptAllowed;
    }

    let outcome = execution.unknown(item, &upstream.name, probe);
    Doubt::Ended(report_outcome(upstream.provider.as_ref(), item, outcome).await)
}

/// Reports the final outcome to the provider, unless the provider has another result.
pub(crate) async fn report_outcome(
    provider: &dyn Provider,
    item: &WorkItem,
    outcome: WorkOutcome,
) -> FinishedExecution {
    // With a queue, the first message under the subject of the result decides, also against this
    // outcome.
    let result = provider.abandon(item, &outcome).await;
    probed_result(item, result).unwrap_or_else(|| outcome.into())
}

/// Probes the provider for the result of earlier attempts, within the attempt timeout.
async fn ask(upstream: &Upstream, clock: &dyn Clock, item: &WorkItem) -> ProbeResult {
    let timeout = upstream.policy.attempt_timeout;
    let until = (timeout != Duration::MAX).then(|| clock.steady().saturating_add(timeout));

    let probe = Probe {
        timeout,
        at: clock.now(),
    };

    before(clock, until, upstream.provider.probe(item, probe).as_mut())
        .await
        .unwrap_or_else(|| {
            let message = format!("{} did not respond to the probe in time", upstream.name);
            ProbeResult::Unanswered {
                failure: Failure {
                    code: "timeout".to_owned(),
                    message,
                },
                retry_after: None,
            }
        })
}
