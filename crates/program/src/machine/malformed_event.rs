//! Malformed events: events of the type of a waiting step that lack what its condition reads. Any
//! publisher can send one, so it does not fail the step.

use orlog_model::EventType;

use super::execution::Execution;
use super::match_event::is_wait;
use super::state::StepIndex;
use super::step_state::StepState;
use crate::contract::FailureCause;
use crate::expression::{EvalError, EventData};
use crate::steps::kind::EXPRESSION_ERROR;

/// Event that lacks what the condition of a waiting step reads.
pub(super) struct MalformedEvent {
    at: StepIndex,
    error: EvalError,
}

/// Returns the first waiting step whose condition has no value for the event.
pub(super) fn malformed_event(
    run: &Execution<'_>,
    kind: &EventType,
    event: EventData<'_>,
) -> Option<MalformedEvent> {
    let entries = run.saga.entries.get(kind)?;
    for entry in entries.iter().filter(|entry| is_wait(run, **entry)) {
        for at in run.units_of(entry.step) {
            if run.state.entry(at).state == StepState::Running
                && let Err(error) = run.satisfies(at, *entry, event)
            {
                return Some(MalformedEvent { at, error });
            }
        }
    }
    None
}

/// Records an event that lacks what a waiting step reads: the step waits on, and the instance says
/// why. Returns whether it is one.
pub(super) fn record_malformed(
    run: &mut Execution<'_>,
    kind: &EventType,
    event: EventData<'_>,
) -> bool {
    let Some(malformed) = malformed_event(run, kind, event) else {
        return false;
    };

    let message = format!("{kind} does not match: {}", malformed.error);
    run.add_step_note(malformed.at, &message);
    // A failure of a step in the same transition has the more important reason.
    let step = run.step(malformed.at).id.to_string();
    run.failure.get_or_insert_with(|| FailureCause {
        code: EXPRESSION_ERROR.to_owned(),
        message,
        step,
    });
    true
}
