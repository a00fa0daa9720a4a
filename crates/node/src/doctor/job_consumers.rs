//! Check of the consumers that deliver jobs to the effect workers of a node.

use orlog_actors::WorkerPool;
use orlog_bus::effect_queue::SubscriptionState;

use super::check::CheckResult;

/// Name of the check.
const NAME: &str = "effect consumers";

/// Returns a finding for each group of workers that receives no jobs, or whose consumer has other
/// settings.
pub(super) fn findings(workers: &WorkerPool) -> Vec<CheckResult> {
    let subscriptions = workers.subscriptions();
    let count = subscriptions.len();
    let mut findings: Vec<CheckResult> = Vec::new();
    for (group, state) in subscriptions {
        let finding = match state {
            SubscriptionState::Open {
                difference: None, ..
            } => continue,
            SubscriptionState::Open {
                consumer,
                difference: Some(difference),
            } => CheckResult::warn(
                NAME,
                format!("the consumer {consumer} has other settings than this node: {difference}"),
                "set the same [queue] on all nodes, or run `orlog streams apply` with the \
                 configuration of this node",
            ),
            SubscriptionState::Opening(reason) => CheckResult::error(
                NAME,
                format!(
                    "jobs of {group} are not received: {}",
                    reason.as_deref().unwrap_or("its consumer is not open yet")
                ),
                "see the log for the reason, and check the permissions of the account on NATS \
                 (docs/nats.md)",
            ),
            SubscriptionState::Conflict(reason) => CheckResult::error(
                NAME,
                format!("jobs of {group} are not received: {reason}"),
                "stop the effect nodes, run `orlog streams apply` with their configuration, and \
                 start them again (docs/runbooks/effect-consumers.md)",
            ),
        };

        findings.push(finding);
    }

    // A node without groups of workers has no jobs to receive.
    if findings.is_empty() && count > 0 {
        let found = format!("the jobs of {count} groups of workers are received");
        findings.push(CheckResult::ok(NAME, found));
    }

    findings
}
