//! Attempts of the state machine as effects of a node.

use std::time::Duration;

use orlog_model::{Effect, Name, Priority, RetryPolicy, Timestamp, Work};
use orlog_program::{ProgramError, check_payload};
use serde_json::{Value as Json, json};

use super::compiled::{TaskEffect, WorkflowProgram};
use crate::machine::Attempt;
use crate::retry::{Retry, UNDO};
use crate::state::{State, Work as BranchWork};
use crate::value::Value;

/// Prefix of the tag of a compensation.
pub(super) const COMPENSATE: &str = "compensate:";

impl WorkflowProgram {
    /// Returns the work of an attempt. The deadline of the branch becomes that of all attempts.
    pub(super) fn request(
        &self,
        attempt: Attempt,
        state: &mut State,
        now: Timestamp,
    ) -> Result<Work, ProgramError> {
        match attempt {
            Attempt::Task(attempt) => {
                let branch = state
                    .branch_mut(attempt.branch)
                    .expect("the task of a branch has started");
                let policy = self.policy(branch.at);
                let timeout = limit(policy.timeout_ms, policy.retry);
                if let BranchWork::Task { deadline_ms, .. } = &mut branch.work {
                    *deadline_ms = timeout
                        .map(|timeout| now.saturating_add(timeout))
                        .map(millis);
                }

                let effect = &self.effects(branch.at).task;
                let tag = attempt.context.path.display();
                let retry = hint(policy.retry, Retry::default(), effect);
                let payload = json_of(&attempt.input)?;
                self.effect(effect, &tag, payload, timeout, retry)
            }
            Attempt::Undo(attempt) => {
                let last = state
                    .compensations
                    .last()
                    .expect("a compensation is in progress");
                let policy = self.policy(last.step);
                let effects = self.effects(last.step);

                let is_known = last.output.is_some();
                let effect = if is_known {
                    &effects.undo
                } else {
                    &effects.undo_unknown
                };
                let retry = if is_known {
                    policy.undo
                } else {
                    policy.undo_unknown
                }
                .unwrap_or_default();

                let effect = effect
                    .as_ref()
                    .expect("only tasks with a compensation are recorded");

                let mut payload = json!({ "input": json_of(&attempt.input)? });
                if let Some(output) = &attempt.output {
                    payload["output"] = json_of(output)?;
                }

                // Another tag than that of the task: both are work of one step.
                let tag = format!("{COMPENSATE}{}", attempt.context.path.display());
                let timeout = limit(policy.timeout_ms, retry);
                self.effect(effect, &tag, payload, timeout, hint(retry, UNDO, effect))
            }
        }
    }

    fn effect(
        &self,
        effect: &TaskEffect,
        tag: &str,
        payload: Json,
        timeout: Option<Duration>,
        retry: Option<RetryPolicy>,
    ) -> Result<Work, ProgramError> {
        let evaluation = |error: String| ProgramError::Evaluation(format!("step {tag}: {error}"));
        // A payload that the node cannot store must fail this step, not the commit.
        check_payload(&payload).map_err(|large| evaluation(large.to_string()))?;

        Ok(Work::Effect(Effect {
            tag: Name::new(tag).map_err(|error| evaluation(error.to_string()))?,
            // The path contains the rounds of loops, so each request of a task has its own tag.
            round: 0,
            name: effect.name.clone(),
            payload,
            timeout,
            retry,
            in_doubt: None,
            // The version selects the functions of this process.
            schema_version: if effect.is_remote {
                1
            } else {
                self.reference.version
            },
            priority: Priority::Normal,
        }))
    }
}

/// Returns the retry policy of an effect; `None` is that of the upstream, which applies to an
/// effect that is performed elsewhere unless the workflow sets another policy than the default.
fn hint(retry: Retry, default: Retry, effect: &TaskEffect) -> Option<RetryPolicy> {
    let policy = RetryPolicy {
        max_attempts: Some(retry.max_attempts()),
        initial_backoff: Some(retry.first_delay()),
    };
    Some(policy).filter(|_| !effect.is_remote || retry != default)
}

/// Returns the time limit of all attempts together, so that each can last as long as its timeout.
fn limit(timeout_ms: Option<u64>, retry: Retry) -> Option<Duration> {
    timeout_ms.map(|timeout| retry.longest(Duration::from_millis(timeout)))
}

fn json_of(value: &Value) -> Result<Json, ProgramError> {
    value.json().map_err(ProgramError::Evaluation)
}

/// Returns a point in time in milliseconds since 1970.
pub(super) fn millis(time: Timestamp) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(0)
}

/// Returns the point in time of milliseconds since 1970.
pub(super) fn timestamp(millis: u64) -> Timestamp {
    Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
}
