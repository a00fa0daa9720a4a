//! In-doubt decisions: it is unknown whether an effect was executed, and the definition requires an
//! operator decision.
//!
//! The decision is a human task under the tag of the step, with two outcomes. [`EXECUTED`], with
//! the result data of the effect, is a success of the effect. [`NOT_EXECUTED`] requests the effect
//! again under a new key, because an effect that was not executed cannot be executed twice; if the
//! step is no longer needed, it is discarded. The saga does not end before the decision, because an
//! executed effect must be compensated.

use orlog_model::{EventType, Failure, TaskChange, TaskSpec};
use serde_json::{Value, json};

use super::compiled::CompiledAction;
use super::execution::Execution;
use super::fail::fail_to_start;
use super::request::request_action;
use super::state::StepIndex;
use super::step_state::{Phase, StepState};
use crate::steps::checked;

/// Outcome: the effect was executed.
pub const EXECUTED: &str = "Executed";
/// Outcome: the effect was not executed.
pub const NOT_EXECUTED: &str = "NotExecuted";

/// Opens the in-doubt task for an operator; no other result is awaited.
pub(super) fn open_in_doubt_task(
    run: &mut Execution<'_>,
    at: StepIndex,
    step_state: StepState,
    failure: Option<&Failure>,
) {
    // Cancels the timer of the step: the decision of an operator has no time limit.
    run.finish_wait(at, step_state);
    run.add_step_note(at, "in doubt");

    let action = run.action_of(at, false);
    let tag = run.tag_of(at, false);
    let spec = TaskSpec {
        title: format!("Was {} done? (step {tag})", effect_name(action)),
        round: run.state.round(&tag),
        tag,
        roles: Vec::new(),
        assignee: None,
        due: None,
        outcomes: [EXECUTED, NOT_EXECUTED]
            .map(|outcome| EventType::new(outcome).expect("the constants are valid event types"))
            .into(),
        data: question(run, at, action, failure),
        not_by: Vec::new(),
        is_in_doubt: true,
    };

    run.tasks.push(TaskChange::Open(spec));
}

/// Returns the data of the task: the effect, its arguments as far as they can be evaluated, and the
/// last failure.
fn question(
    run: &Execution<'_>,
    at: StepIndex,
    action: &CompiledAction,
    failure: Option<&Failure>,
) -> Value {
    let mut data = json!({ "effect": effect_name(action) });
    if let Some(Failure { code, message }) = failure {
        data["failure"] = json!({ "code": code, "message": message });
    }

    // The expressions are evaluated again, because the state does not store the payload of the
    // request.
    let template = action.kind.kind().effect().map(|(_, template)| template);
    let payload = template.and_then(|template| template.evaluate(&run.bindings(at)).ok());
    let Some(payload) = payload.filter(|payload| !payload.is_null()) else {
        return data;
    };

    // The payload is a help for the operator; a task without it can still be decided.
    let mut with_payload = data.clone();
    with_payload["payload"] = payload;
    checked(with_payload, &action.tag).unwrap_or(data)
}

/// Requests an effect that was not executed again.
pub(super) fn request_again(run: &mut Execution<'_>, at: StepIndex) {
    run.add_step_note(at, "not executed, requested again");
    run.state.begin_round(run.tag_of(at, false));

    // The attempt is counted, although it follows a decision and not a failure.
    let entry = run.state.entry_mut(at);
    entry.retries = entry.retries.saturating_add(1);

    // No step starts while the saga is stuck; the next advance requests the pending step.
    if run.state.phase == Phase::Stuck {
        run.state.entry_mut(at).state = StepState::Pending;
    } else if let Err(error) = request_action(run, at, false) {
        fail_to_start(run, at, error.into());
    }
}

/// Closes the in-doubt task of a step or element, if there is one.
pub(super) fn close_in_doubt_task(run: &mut Execution<'_>, at: StepIndex) {
    if run.state.entry(at).state.is_in_doubt() {
        run.tasks.push(TaskChange::Close {
            tag: run.tag_of(at, false),
        });
    }
}

/// Closes all in-doubt tasks, and awaits no child saga of an abandoned step any more.
pub(super) fn stop_late_waits(run: &mut Execution<'_>) {
    run.state.run.events.children.clear();
    for step in 0..run.saga.steps.len() {
        for at in run.step_and_elements(step) {
            let state = run.state.entry(at).state;
            if state.is_in_doubt() || state.is_awaited_late() {
                close_in_doubt_task(run, at);
                run.finish_wait(at, StepState::Abandoned);
            }
        }
    }
}

/// Returns true if the execution of an abandoned effect is still in doubt, or the child saga of an
/// abandoned step has not ended.
pub(super) fn has_late_wait(run: &Execution<'_>) -> bool {
    let mut all = (0..run.saga.steps.len()).flat_map(|step| run.step_and_elements(step));
    all.any(|at| run.state.entry(at).state.is_awaited_late())
}

/// Returns the name of the effect.
fn effect_name(action: &CompiledAction) -> &str {
    action
        .kind
        .kind()
        .effect()
        .map_or(action.tag.as_str(), |(name, _)| name.as_str())
}
