//! Saga of batches: maps the inputs of an instance to transitions of the batch.

use orlog_model::{Event, Status, WaitKind, WorkOutcome};

use super::page::PageOutcome;
use super::spec::{BatchSpec, check_id};
use super::state::{BatchState, BatchStatus, FORMAT};
use super::{CREATE, PAUSE, RESUME, SAGA, STOP};
use crate::event_types::event_type;
use crate::page::{TAG, outcome_of};
use orlog_program::{
    Manifest, NativeProgram, NativeResult, NativeSaga, NativeWorkResult, ProgramError,
    SagaDecision, SagaState, TransitionBuilder, event_data,
};

/// Name of the timer of the next page.
const TIMER: &str = "next";
/// Number of history entries of a batch. A batch of a million instances has twenty thousand pages.
const HISTORY_LIMIT: u64 = 1_000;

/// Saga of batches. Each batch is an instance; its correlation id is the id of the batch.
#[derive(Debug)]
pub struct BatchSaga;

/// Returns the program of batches.
#[must_use]
pub fn program() -> NativeProgram<BatchSaga> {
    NativeProgram::new(SAGA, 1, BatchSaga).expect("the name is valid")
}

impl SagaState for BatchState {
    const FORMAT: u16 = FORMAT;

    fn format(&self) -> u16 {
        self.format
    }
}

impl NativeSaga for BatchSaga {
    type State = BatchState;
    const NOUN: &'static str = "batch";

    fn manifest(&self) -> Manifest {
        Manifest {
            started_by_signal: Some(event_type(CREATE)),
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        }
    }

    fn on_event(
        &self,
        state: Option<BatchState>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<BatchState> {
        let Some(state) = state else {
            return create(None, event, transition);
        };

        match event.kind.as_str() {
            CREATE => create(Some(state), event, transition),
            STOP => stop(state, transition),
            PAUSE | RESUME if state.status.is_final() || state.status == BatchStatus::Stopping => {
                SagaDecision::reject(format!("the batch is {}", state.status.as_str()))
            }
            PAUSE => pause(state, transition),
            RESUME => resume(state, transition),
            _ => SagaDecision::ignore("a batch does not handle this event"),
        }
    }

    fn on_work_result(
        &self,
        mut state: BatchState,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<BatchState> {
        // Effects of a batch follow each other, so a result belongs to the page in flight.
        let Some(page) = state.in_flight.take() else {
            return SagaDecision::ignore("no page is in flight");
        };

        match result.outcome {
            WorkOutcome::Succeeded { payload, .. } => {
                let outcome: PageOutcome = outcome_of(payload)?;
                let key = transition.context().key;
                for work in state.page_ended(page, outcome, key, transition.now()) {
                    transition.work(work);
                }
                let note = progress(&state);
                Ok(store(state, note, transition))
            }
            WorkOutcome::Accepted => SagaDecision::ignore("a page has a result"),
            WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
                state.status = BatchStatus::Failed;
                state.error = Some(failure.message.clone());
                transition.failure(failure.clone());
                Ok(store(state, failure.to_string(), transition))
            }
        }
    }

    fn on_timer(
        &self,
        mut state: BatchState,
        _name: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<BatchState> {
        // A clock that was set back can be behind the timer.
        state.next_at = None;
        Ok(advance(state, "next page", transition))
    }

    fn on_cancel(
        &self,
        state: BatchState,
        _reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<BatchState> {
        stop(state, transition)
    }
}

fn create(
    state: Option<BatchState>,
    event: &Event,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<BatchState> {
    let spec: BatchSpec = event_data(event)?;
    check_id(transition.context().key.correlation.as_str())
        .map_err(|error| ProgramError::SchemaMismatch(format!("{CREATE}: {error}")))?;

    match state {
        None => Ok(advance(BatchState::new(spec), "created", transition)),
        Some(state) if state.spec == spec => SagaDecision::ignore("the batch exists"),
        Some(_) => SagaDecision::reject("a batch with this id and another content exists"),
    }
}

fn pause(
    mut state: BatchState,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<BatchState> {
    match state.status {
        BatchStatus::Paused => SagaDecision::ignore("it is already paused"),
        // Paused before the approval, a resume would be ambiguous.
        BatchStatus::AwaitingApproval => SagaDecision::ignore("it waits for an approval"),
        _ => {
            state.status = BatchStatus::Paused;
            Ok(advance(state, "paused", transition))
        }
    }
}

fn resume(
    mut state: BatchState,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<BatchState> {
    let note = match state.status {
        BatchStatus::Running => return SagaDecision::ignore("it is not paused"),
        BatchStatus::AwaitingApproval => {
            state.is_approved = true;
            "approved"
        }
        _ => "resumed",
    };

    state.status = BatchStatus::Running;
    Ok(advance(state, note, transition))
}

fn stop(mut state: BatchState, transition: &mut TransitionBuilder<'_>) -> NativeResult<BatchState> {
    if state.status.is_final() || state.status == BatchStatus::Stopping {
        return SagaDecision::ignore("it is already stopped");
    }
    state.status = BatchStatus::Stopping;
    Ok(advance(state, "stopping", transition))
}

/// Requests the next page, if one is due.
fn advance(
    mut state: BatchState,
    note: &str,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<BatchState> {
    if let Some(work) = state.advance(transition.context().key, transition.now()) {
        transition.work(work);
    }
    store(state, note.to_owned(), transition)
}

/// Returns the note of a page.
fn progress(state: &BatchState) -> String {
    if !state.is_counted {
        return format!("{} matched", state.matched);
    }

    let BatchState {
        done,
        skipped,
        failed,
        status,
        ..
    } = state;
    format!(
        "{}: {done} done, {skipped} skipped, {failed} failed",
        status.as_str()
    )
}

/// Stores the state, with what it waits for.
fn store(
    state: BatchState,
    note: String,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<BatchState> {
    let is_in_flight = state.in_flight.is_some();
    let due = state
        .next_at
        .filter(|_| state.status == BatchStatus::Running && !is_in_flight);

    match due {
        Some(due) => transition.arm_timer_at(TIMER, due),
        None => transition.cancel_timer(TIMER),
    }
    match due {
        _ if is_in_flight => transition.wait_for(WaitKind::WorkResult, TAG, None),
        Some(due) => transition.wait_for(WaitKind::Timer, TIMER, Some(due)),
        None => transition.wait_for(WaitKind::Operator, "resume", None),
    }

    transition.set_status(match state.status {
        BatchStatus::Completed => Status::Completed,
        BatchStatus::Stopped => Status::Cancelled,
        BatchStatus::Failed => Status::Failed,
        BatchStatus::Running
        | BatchStatus::Paused
        | BatchStatus::AwaitingApproval
        | BatchStatus::Stopping => Status::Running,
    });
    transition.reference(state.spec.selection.saga.to_string());
    transition.note(note);
    SagaDecision::Transition(state)
}
