//! Transition of an execution, with the pending waits and the business reference for users and
//! queries.

use std::collections::BTreeMap;

use orlog_model::{
    EventType, Failure, Name, Reference, RunChange, Transition, TransitionFailure, Wait, WaitKind,
};
use serde_json::Value;

use super::compiled::{CompiledAction, RETRY, prefixed_name};
use super::execution::Execution;
use super::state::StepEntry;
use super::step_state::{Phase, StepState};
use crate::contract::{FailureCause, ProgramError};
use crate::definition::AfterHandler;

/// Returns the transition of an execution.
pub(super) fn into_transition(mut run: Execution<'_>) -> Result<Transition, ProgramError> {
    // Before the state is encoded, because `forget_next` advances the version that it contains.
    let run_change = RunChange {
        begins_at: run.new_run,
        forgets: run.state.run.forget_next(),
    };

    Ok(Transition {
        run: run_change,
        state: run.state.encode()?,
        status: run.state.phase.status(),
        waits: waits(&run),
        reference: reference(&run),
        work: run.work,
        timers: run.timers,
        tasks: run.tasks,
        failure: run.failure.map(|cause| Box::new(transition_failure(cause))),
        variables: run.variables,
        note: run.note,
    })
}

/// Returns a failure as the transition reports it.
fn transition_failure(cause: FailureCause) -> TransitionFailure {
    let FailureCause {
        code,
        message,
        step,
    } = cause;
    TransitionFailure {
        failure: Failure { code, message },
        step: Name::new(step).ok(),
    }
}

/// Returns the business reference of the instance; `None` while an expression of it has no value.
fn reference(run: &Execution<'_>) -> Option<Reference> {
    match run
        .saga
        .reference
        .as_ref()?
        .evaluate(&run.saga_bindings())
        .ok()?
    {
        Value::Object(parts) => {
            let parts = parts
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), text_of(value)?)));
            let parts: BTreeMap<_, _> = parts.collect();
            (!parts.is_empty()).then(|| Reference::Parts(Box::new(parts)))
        }
        value => text_of(&value).map(Reference::Name),
    }
}

fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Returns the waits in the order of the definition.
fn waits(run: &Execution<'_>) -> Vec<Wait> {
    let mut waits = Vec::new();
    // A late result can still arrive, but users need not wait for it.
    if run.state.phase.status().is_final() {
        return waits;
    }

    // Elements and past rounds wait by themselves, so the waits are those of the units.
    for step in 0..run.saga.steps.len() {
        for at in run.units_of(step) {
            let entry = run.state.entry(at);
            let is_compensation = entry.state.is_compensation();
            match entry.state {
                StepState::Running | StepState::Compensating => {
                    wait_for(
                        run.action_of(at, is_compensation),
                        || run.tag_of(at, is_compensation),
                        entry,
                        &mut waits,
                    );
                }
                StepState::Retrying | StepState::CompensationRetrying => {
                    waits.push(Wait::new(
                        WaitKind::Timer,
                        prefixed_name(RETRY, &run.tag_of(at, is_compensation)),
                        entry.deadline,
                    ));
                }
                StepState::InDoubt | StepState::InDoubtAbandoned => {
                    waits.push(Wait::new(WaitKind::Task, run.tag_of(at, false), None));
                }
                StepState::ChildAwaited => {
                    waits.push(Wait::new(WaitKind::Saga, run.tag_of(at, false), None));
                }
                // An operator can decide only when nothing else is in progress.
                StepState::Blocked | StepState::CompensationFailed
                    if run.state.phase == Phase::Stuck =>
                {
                    waits.push(Wait::new(
                        WaitKind::Operator,
                        run.tag_of(at, is_compensation),
                        None,
                    ));
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

    let children = run.state.run.events.children.iter();
    waits.extend(children.map(|child| Wait::new(WaitKind::Saga, child.tag.clone(), None)));

    // Only a handler that ends the saga can still change it.
    if run.saga.keep_active && waits.is_empty() && run.state.phase == Phase::Running {
        let ending = run
            .saga
            .handlers
            .iter()
            .filter(|handler| handler.then != AfterHandler::Continue);
        for event in ending.flat_map(|handler| &handler.event) {
            push_event(
                Wait::new(WaitKind::Event, event_name(event), run.state.until),
                &mut waits,
            );
        }
    }
    waits
}

fn event_name(event: &EventType) -> Name {
    Name::new(event.as_str()).expect("the maximum length of a name exceeds that of an event type")
}

/// Adds the wait for an event.
fn push_event(wait: Wait, waits: &mut Vec<Wait>) {
    // Steps that await the same event share a wait, which lasts while one of them waits.
    match waits.iter_mut().find(|other| other.is_like(&wait)) {
        Some(other) => other.is_new &= wait.is_new,
        None => waits.push(wait),
    }
}

fn wait_for(
    action: &CompiledAction,
    tag: impl Fn() -> Name,
    entry: StepEntry,
    waits: &mut Vec<Wait>,
) {
    if !action.awaits_event() {
        return waits.push(Wait::new(action.kind.traits().wait, tag(), entry.deadline));
    }

    for matcher in action.options.ok.iter().chain(&action.options.fail) {
        let wait = Wait::new(WaitKind::Event, event_name(&matcher.event), entry.deadline);
        push_event(
            Wait {
                is_new: entry.is_new,
                ..wait
            },
            waits,
        );
    }
}
