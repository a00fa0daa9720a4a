//! Transition of an execution, with the pending waits and the business reference for users and queries.

use orlog_model::{Name, RunChange, Timestamp, Transition, Wait, WaitKind};
use serde_json::Value;

use super::compiled::{CompiledAction, RETRY, prefixed_name};
use super::execution::Execution;
use super::step_state::{Phase, StepState};
use crate::contract::ProgramError;

/// Returns the transition of an execution.
pub(super) fn into_transition(mut run: Execution<'_>) -> Result<Transition, ProgramError> {
    let run_change = RunChange { begins_at: run.new_run, forgets: run.state.run.forget_next() };
    Ok(Transition {
        run: run_change,
        state: run.state.encode()?,
        status: run.state.phase.status(),
        waits: waits(&run),
        reference: reference(&run),
        work: run.work,
        timers: run.timers,
        tasks: run.tasks,
        failure: run.failure,
        variables: run.variables,
        note: run.note,
    })
}

/// Returns the business reference of the instance; `None` while the expression has no value.
fn reference(run: &Execution<'_>) -> Option<String> {
    match run.saga.reference.as_ref()?.evaluate(&run.saga_bindings()).ok()? {
        Value::String(text) => Some(text),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the waits in the order of the definition.
fn waits(run: &Execution<'_>) -> Vec<Wait> {
    let mut waits = Vec::new();
    if run.state.phase.status().is_final() {
        return waits;
    }
    for step in 0..run.saga.steps.len() {
        for at in run.units_of(step) {
            let entry = run.state.entry(at);
            let is_compensation = entry.state.is_compensation();
            match entry.state {
                StepState::Running | StepState::Compensating => {
                    wait_for(
                        run.action_of(at, is_compensation),
                        || run.tag_of(at, is_compensation),
                        entry.deadline,
                        &mut waits,
                    );
                }
                StepState::Retrying | StepState::CompensationRetrying => {
                    waits.push(wait(
                        WaitKind::Timer,
                        prefixed_name(RETRY, &run.tag_of(at, is_compensation)),
                        entry.deadline,
                    ));
                }
                StepState::InDoubt | StepState::InDoubtAbandoned => {
                    waits.push(wait(WaitKind::Task, run.tag_of(at, false), None));
                }
                StepState::ChildAwaited => waits.push(wait(WaitKind::Saga, run.tag_of(at, false), None)),
                StepState::Blocked | StepState::CompensationFailed if run.state.phase == Phase::Stuck => {
                    waits.push(wait(WaitKind::Operator, run.tag_of(at, is_compensation), None));
                }
                StepState::Pending
                | StepState::Skipped
                | StepState::Completed
                | StepState::Failed
                | StepState::Abandoned
                | StepState::CompensationFailed
                | StepState::Compensated
                | StepState::Bypassed
                | StepState::CompensationPending
                | StepState::Blocked => {}
            }
        }
    }
    waits
}

fn wait_for(
    action: &CompiledAction,
    tag: impl Fn() -> Name,
    until: Option<Timestamp>,
    waits: &mut Vec<Wait>,
) {
    if !action.awaits_event() {
        return waits.push(wait(action.kind.traits().wait, tag(), until));
    }
    for matcher in action.options.ok.iter().chain(&action.options.fail) {
        let name = Name::new(matcher.event.as_str())
            .expect("the maximum length of a name exceeds that of an event type");
        let one = wait(WaitKind::Event, name, until);
        if !waits.contains(&one) {
            waits.push(one);
        }
    }
}

fn wait(kind: WaitKind, name: Name, until: Option<Timestamp>) -> Wait {
    Wait { kind, name, until }
}
