//! Applies a result to its step: completed, failed, retried or compensated.

use compact_str::format_compact;
use orlog_model::{DISCARDED_WITH_NULL, Fact, Failure, ParentEndPolicy, VariableChange, Work};
use serde_json::Value;

use super::collect::{CollectOutcome, collect};
use super::compensate::{
    compensate_unknown, fail_compensation, lacks_value, request_compensation, schedule_retry,
};
use super::complete::complete_step;
use super::execution::{Execution, NoTransition};
use super::fail::{end_round, fail_step};
use super::in_doubt::{close_in_doubt_task, open_in_doubt_task, request_again};
use super::outcome_table::{self, StepOutcome, StepUpdate};
use super::state::{Flags, StepEntry, StepIndex};
use super::step_input::{Certainty, StepInput, expression_error};
use super::step_state::StepState;
use crate::contract::{FailureCause, ProgramError};
use crate::expression::EventData;
use crate::steps::kind::EXPRESSION_ERROR;
use crate::steps::{CompiledActionKind, set_element};

/// Returns the update of a unit by a result. A success also counts for a compensation that waits for
/// what the step saves: the step timed out before.
pub(super) fn update_of(run: &Execution<'_>, at: StepIndex, result: StepOutcome) -> StepUpdate {
    match result {
        StepOutcome::Ok if waits_for_value(run, at) => StepUpdate::SupplyValues,
        // An event that resembles its confirmation confirms no request.
        StepOutcome::Compensated if waits_for_value(run, at) => {
            StepUpdate::Ignore("the compensation of the step lacks a value")
        }
        _ => outcome_table::update_for(run.state.entry(at).state, result),
    }
}

/// Returns whether the compensation of a step lacks a value, and is not requested.
fn waits_for_value(run: &Execution<'_>, at: StepIndex) -> bool {
    let is_open = matches!(
        run.state.entry(at).state,
        StepState::CompensationPending | StepState::CompensationFailed
    );
    is_open && lacks_value(run, at)
}

/// Returns whether an operator discarded the result, and allows the compensation without it.
fn allows_null(step_input: &StepInput<'_>) -> bool {
    let mut failures = step_input.failure.iter();
    failures.any(|failure| failure.code == DISCARDED_WITH_NULL)
}

pub(super) fn apply_step_input(
    run: &mut Execution<'_>,
    step_input: &StepInput<'_>,
) -> Result<(), NoTransition> {
    let at = step_input.at;
    let update = if allows_null(step_input) && waits_for_value(run, at) {
        StepUpdate::RequestWithNull
    } else {
        update_of(run, at, step_input.result)
    };
    // Before any change: a duplicate must neither emit its fact again nor close a task.
    if let StepUpdate::Ignore(reason) = update {
        return Err(NoTransition::Ignored(reason));
    }

    let policy = run.action_of(at, false).kind.kind().on_parent_end();
    let is_late = matches!(
        update,
        StepUpdate::CompleteLate | StepUpdate::CompensateUnknown
    );

    // The definition does not need the end of a child that it abandons (ADR 0065).
    if is_late && policy == ParentEndPolicy::Abandon {
        return Err(NoTransition::Ignored("the child saga was abandoned"));
    }

    // Only successes are collected: a `fail` event ends the step at once.
    if let Some(collection) = run.action_of(at, false).kind.collection()
        && matches!(step_input.result, StepOutcome::Ok)
    {
        // The events of an abandoned step are deleted, so a single one must not complete it late.
        if update != StepUpdate::Complete {
            return Err(NoTransition::Ignored("the step no longer collects events"));
        }
        match collect(run, at, collection, step_input)? {
            CollectOutcome::Complete => {}
            CollectOutcome::Waiting => return Ok(()),
            CollectOutcome::Failed(failure) => {
                handle_failure(run, at, StepState::Failed, &step_input.failed(failure));
                return Ok(());
            }
        }
    }

    emit_result(run, step_input);

    // Any result ends the doubt, not only the decision of the operator.
    close_in_doubt_task(run, at);

    match update {
        StepUpdate::Complete => complete(run, at, step_input.event)?,
        StepUpdate::Fail(step_state) => handle_failure(run, at, step_state, step_input),
        StepUpdate::CompleteLate => complete_late(run, at, step_input.event),
        StepUpdate::SupplyValues => {
            // A result that cannot be saved is a dead letter, and the compensation still waits.
            save_result(run, at, step_input.event)?;
            run.add_step_note(at, "ok, late");
            continue_compensation(run, at);
        }
        StepUpdate::RequestWithNull => {
            run.state.entry_mut(at).null_allowed = true;
            run.add_step_note(at, "compensated without values");
            continue_compensation(run, at);
        }
        StepUpdate::ConfirmCompensation => {
            run.finish_wait(at, StepState::Compensated);
            // Compensation is sequential: the next advance requests the one before it (ADR 0005).
            run.state.compensating_step = None;
            run.add_step_note(at, "compensated");
        }
        StepUpdate::MarkStuck => {
            // Before the retry is scheduled, because a new request needs a new idempotency key.
            end_round(run, at, true, step_input.certainty);
            fail_compensation(run, at, step_input.cause(run.step(at)));
        }
        StepUpdate::OpenInDoubtTask(step_state) => {
            open_in_doubt_task(run, at, step_state, step_input.failure.as_ref());
        }
        StepUpdate::CompensateUnknown => {
            // The end of an awaited child changes the state even if there is nothing to compensate.
            let is_awaited = run.state.entry(at).state == StepState::ChildAwaited;
            if is_awaited {
                run.finish_wait(at, StepState::Abandoned);
            }
            if !compensate_unknown(run, at) && !is_awaited {
                return Err(NoTransition::Ignored("the step was abandoned"));
            }
            run.state.entry_mut(at).null_allowed = allows_null(step_input);
        }
        StepUpdate::RequestAgain => request_again(run, at),
        StepUpdate::Discard => {
            let is_child = run.state.entry(at).state == StepState::ChildAwaited;
            run.finish_wait(at, StepState::Abandoned);
            run.add_step_note(
                at,
                if is_child {
                    "child saga ended"
                } else {
                    "not executed"
                },
            );
        }
        StepUpdate::Ignore(_) => {}
    }
    Ok(())
}

/// Emits a named result as a fact if no other component publishes it and the definition does not
/// disable it.
fn emit_result(run: &mut Execution<'_>, step_input: &StepInput<'_>) {
    let at = step_input.at;
    let is_published = matches!(step_input.result, StepOutcome::Ok | StepOutcome::Failed)
        && run.step(at).publishes_result
        && run.action_of(at, false).reports_named_result();
    let Some(kind) = step_input.named.clone().filter(|_| is_published) else {
        return;
    };

    // The fact has one id for each round of the step (ADR 0015).
    let tag = run.tag_of(at, false);
    let key = Some(format_compact!("{tag}#{}", run.state.round(&tag)));
    run.work.push(Work::Fact(Fact {
        key,
        ..Fact::new(kind, step_input.event.data.clone())
    }));
}

fn complete(
    run: &mut Execution<'_>,
    at: StepIndex,
    event: EventData<'_>,
) -> Result<(), ProgramError> {
    // Before any change of the step: a result that cannot be saved is a dead letter, and the step
    // keeps waiting.
    save_result(run, at, event)?;

    run.finish_wait(at, StepState::Completed);
    run.state.done.push(at);
    run.add_step_note(at, "ok");

    // A step with elements completes with the last of them (`start_next_elements`).
    if at.element.is_none() {
        complete_step(run, at.step);
    }
    Ok(())
}

/// Schedules the compensation of a step that succeeded after it was abandoned.
fn complete_late(run: &mut Execution<'_>, at: StepIndex, event: EventData<'_>) {
    // The result is no longer awaited: if it cannot be saved, the step is compensated all the same.
    let saved = save_result(run, at, event);

    *run.state.entry_mut(at) = StepEntry::of(StepState::CompensationPending);
    run.state.done.push(at);
    run.add_step_note(
        at,
        &saved.map_or_else(
            |error| format!("ok, late: {error}"),
            |()| "ok, late".to_owned(),
        ),
    );
}

/// Requests a compensation that has failed because it lacked a value.
fn continue_compensation(run: &mut Execution<'_>, at: StepIndex) {
    // A pending one is requested when its turn comes.
    if run.state.entry(at).state == StepState::CompensationFailed {
        request_compensation(run, at);
    }
}

/// Stores the variables that the step saves from its result, and the result of a job.
fn save_result(
    run: &mut Execution<'_>,
    at: StepIndex,
    event: EventData<'_>,
) -> Result<(), ProgramError> {
    let step = run.step(at);
    let is_job = matches!(step.action.kind, CompiledActionKind::Job(_));

    for (name, template) in &step.save {
        let value = template.evaluate(&run.bindings(at).event(event));
        let value = value.map_err(|error| {
            ProgramError::SchemaMismatch(format!("cannot set vars.{name}: {error}"))
        })?;

        // The values of a past round belong to this round: only its compensation reads them.
        if let Some(past) = run.state.past_round_mut(at) {
            past.vars_of_mut(at.step).insert(name.clone(), value);
            continue;
        }

        // After a handled failure, the steps that follow decide by the variables of the saga, which
        // a late success must not change. Only its own `undo` reads its values.
        if let Some(own_vars) = run.state.own_vars_mut(at.step) {
            let stored = own_vars.entry(name.as_str()).or_insert(Value::Null);
            put(stored, at.element, value);
            continue;
        }

        let stored = run.state.vars.entry(name.as_str()).or_insert(Value::Null);
        let (name, before) = match at.element {
            None => (name.into(), stored.take()),
            Some(element) => (
                format_compact!("{name}[{element}]"),
                stored.get(element).cloned().unwrap_or_default(),
            ),
        };

        put(stored, at.element, value.clone());
        run.variables.push(VariableChange {
            name,
            before,
            after: value,
        });
    }

    if is_job && let Some(past) = run.state.past_round_mut(at) {
        past.results.insert(step.id.to_string(), event.data.clone());
    } else if is_job {
        let results = &mut run.state.extra_mut().results;
        put(
            results.entry(step.id.as_str()).or_insert(Value::Null),
            at.element,
            event.data.clone(),
        );
    }
    Ok(())
}

/// Handles a failure: retries while attempts are left, otherwise fails permanently.
fn handle_failure(
    run: &mut Execution<'_>,
    at: StepIndex,
    step_state: StepState,
    step_input: &StepInput<'_>,
) {
    let action = run.action_of(at, false);
    let mut cause = step_input.cause(run.step(at));
    let attempts = run.state.entry(at).retries.saturating_add(1);
    // An expression without a value would fail again, because its variables do not change in
    // between.
    let retries = attempts < action.max_attempts() && cause.code != EXPRESSION_ERROR;

    // A retry, also that of an operator past the pivot, needs another idempotency key: an upstream
    // that stores responses repeats the first rejection under the same key (ADR 0015).
    if retries || run.state.flags.has(Flags::PIVOTED) {
        end_round(run, at, false, step_input.certainty);
    }

    if retries {
        match schedule_retry(run, at, &cause.code, StepState::Retrying) {
            Ok(()) => return,
            // A computed delay without a value fails the step for good: no timer could be armed.
            Err(error) => {
                let Failure { code, message } = expression_error(&error);
                cause = FailureCause {
                    code,
                    message,
                    ..cause
                };
            }
        }
    }

    run.add_step_note(at, &cause.code);
    fail_step(run, at, step_state, cause);

    // The upstream may have executed the step although no response arrives (ADR 0016).
    if step_input.certainty == Certainty::Unknown {
        compensate_unknown(run, at);
        run.state.entry_mut(at).null_allowed = allows_null(step_input);
    }
}

/// Sets a value, or the value of an element in a list.
fn put(stored: &mut Value, element: Option<usize>, value: Value) {
    match element {
        None => *stored = value,
        Some(element) => set_element(stored, element, value),
    }
}
