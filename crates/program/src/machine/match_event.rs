//! Event matching: resolves the step, compensation or element that awaits an event, and its
//! meaning.

use orlog_model::{EventType, Failure};

use super::apply_outcome::update_of;
use super::compiled::EventBinding;
use super::execution::Execution;
use super::outcome_table::{StepOutcome, StepUpdate};
use super::state::StepIndex;
use super::step_input::{Certainty, StepInput, expression_error, failure_message};
use super::step_state::StepState;
use crate::expression::EventData;
use crate::steps::kind::Completion;

/// Returns the first match, in the order of the definition, that awaits this event and whose
/// condition holds. Without one, returns the first abandoned command that the event would have
/// confirmed.
pub(super) fn match_event<'e>(
    run: &Execution<'_>,
    kind: &EventType,
    event: EventData<'e>,
) -> Result<StepInput<'e>, &'static str> {
    let entries = run
        .saga
        .entries
        .get(kind)
        .ok_or("the saga does not consume this event")?;

    let mut last_reason = "no condition of the steps that await this event holds";

    // A step that awaits the event takes precedence over one that no longer does.
    for late in [false, true] {
        for entry in entries {
            // The event answers no request of an abandoned wait, so a later step may want it first.
            if late && is_wait(run, *entry) {
                continue;
            }
            for at in run.units_of(entry.step) {
                match update_of(run, at, result(*entry)) {
                    // Kept for the log: with several candidates, the last one explains why the
                    // event has no effect.
                    StepUpdate::Ignore(reason) => last_reason = reason,
                    update if late != is_late(update) => {}
                    _ => {
                        if let Some(step_input) = step_input_of(run, at, *entry, kind, event, late)
                        {
                            return Ok(step_input);
                        }
                    }
                }
            }
        }
    }
    Err(last_reason)
}

/// Returns the first abandoned wait that the event would have completed. It only counts if no later
/// step wants the event.
pub(super) fn match_late_wait<'e>(
    run: &Execution<'_>,
    kind: &EventType,
    event: EventData<'e>,
) -> Option<StepInput<'e>> {
    for entry in run.saga.entries.get(kind)? {
        if !is_wait(run, *entry) {
            continue;
        }
        for at in run.units_of(entry.step) {
            if is_late(update_of(run, at, result(*entry)))
                && let Some(step_input) = step_input_of(run, at, *entry, kind, event, true)
            {
                return Some(step_input);
            }
        }
    }
    None
}

/// Returns whether the event confirms a step that no longer awaits it.
fn is_late(update: StepUpdate) -> bool {
    matches!(update, StepUpdate::CompleteLate | StepUpdate::SupplyValues)
}

/// Returns the meaning of the event at a step if its condition holds.
fn step_input_of<'e>(
    run: &Execution<'_>,
    at: StepIndex,
    entry: EventBinding,
    kind: &EventType,
    event: EventData<'e>,
    late: bool,
) -> Option<StepInput<'e>> {
    let step_input = |result, failure| StepInput {
        at,
        result,
        event,
        named: None,
        failure,
        certainty: Certainty::Known,
        event_key: 0,
    };

    match run.satisfies(at, entry, event) {
        Ok(false) => None,
        Ok(true) if entry.is_success => Some(step_input(result(entry), None)),
        Ok(true) => {
            let message = failure_message(kind, event.data);
            Some(step_input(
                result(entry),
                Some(Failure {
                    code: kind.to_string(),
                    message,
                }),
            ))
        }
        // A late or duplicate result, or one during a retry delay, must not fail the step. Nor must
        // an event that any publisher can send to a step that waits, or one that was kept for a
        // step that starts in this transition: it answers no request.
        Err(_)
            if late
                || is_wait(run, entry)
                || run.state.entry(at).is_new
                || !matches!(
                    run.state.entry(at).state,
                    StepState::Running | StepState::Compensating
                ) =>
        {
            None
        }
        // A condition without a value fails the step whose request the event answers.
        Err(error) => {
            let failed = if entry.is_compensation {
                StepOutcome::NotCompensated
            } else {
                StepOutcome::Failed
            };
            Some(step_input(failed, Some(expression_error(&error))))
        }
    }
}

/// Returns whether the step waits for the event, and does not request it.
pub(super) fn is_wait(run: &Execution<'_>, entry: EventBinding) -> bool {
    let traits = run.saga.steps[entry.step].action.kind.traits();
    !entry.is_compensation && traits.completion == Completion::Event
}

fn result(entry: EventBinding) -> StepOutcome {
    match (entry.is_compensation, entry.is_success) {
        (false, true) => StepOutcome::Ok,
        (false, false) => StepOutcome::Failed,
        (true, true) => StepOutcome::Compensated,
        (true, false) => StepOutcome::NotCompensated,
    }
}
