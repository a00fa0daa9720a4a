//! Saga of shadows: maps the inputs of an instance to transitions of the shadow.

use orlog_model::{Event, Status, WaitKind, WorkOutcome};

use super::page::PageOutcome;
use super::spec::ShadowSpec;
use super::state::{FORMAT, ShadowState, ShadowStatus};
use super::{PROMOTED, SAGA, START, STOP};
use crate::event_types::event_type;
use crate::page::{TAG, outcome_of};
use orlog_program::{
    EventSubscription, Manifest, NativeProgram, NativeResult, NativeSaga, NativeWorkResult,
    SagaDecision, SagaState, TransitionBuilder, event_data,
};

/// Name of the timer of the next page.
const TIMER: &str = "next";
/// Number of history entries of a shadow, which requests a page every two seconds.
const HISTORY_LIMIT: u64 = 1_000;

/// Saga of shadows. The correlation id of a shadow is the name of its saga.
#[derive(Debug)]
pub struct ShadowSaga;

/// Returns the program of shadows.
#[must_use]
pub fn program() -> NativeProgram<ShadowSaga> {
    NativeProgram::new(SAGA, 1, ShadowSaga).expect("the name is valid")
}

impl SagaState for ShadowState {
    const FORMAT: u16 = FORMAT;

    fn format(&self) -> u16 {
        self.format
    }
}

impl NativeSaga for ShadowSaga {
    type State = ShadowState;
    const NOUN: &'static str = "shadow";

    fn manifest(&self) -> Manifest {
        Manifest {
            subscriptions: vec![EventSubscription {
                kind: event_type(START),
                starts: true,
            }],
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        }
    }

    fn on_event(
        &self,
        state: Option<ShadowState>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ShadowState> {
        let Some(state) = state else {
            let spec: ShadowSpec = event_data(event)?;
            return Ok(advance(ShadowState::new(spec), "started", transition));
        };

        match event.kind.as_str() {
            STOP => end(state, ShadowStatus::Stopped, "stopping", transition),
            PROMOTED => end(state, ShadowStatus::Promoted, "promoted", transition),
            _ => SagaDecision::ignore("a shadow does not handle this event"),
        }
    }

    fn on_work_result(
        &self,
        mut state: ShadowState,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ShadowState> {
        let Some(page) = state.in_flight.take() else {
            return SagaDecision::ignore("no page is in flight");
        };

        match result.outcome {
            WorkOutcome::Succeeded { payload, .. } => {
                let outcome: PageOutcome = outcome_of(payload)?;
                let key = transition.context().key;
                if let Some(work) = state.page_ended(page, outcome, key, transition.now()) {
                    transition.work(work);
                }
                let note = format!("{} equal, {} different", state.equal, state.different);
                Ok(store(state, note, transition))
            }
            WorkOutcome::Accepted => SagaDecision::ignore("a page has a result"),
            WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
                state.status = ShadowStatus::Failed;
                state.error = Some(failure.message.clone());
                transition.failure(failure.clone());
                Ok(store(state, failure.to_string(), transition))
            }
        }
    }

    fn on_timer(
        &self,
        mut state: ShadowState,
        _name: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ShadowState> {
        // A clock that was set back can be behind the timer.
        state.next_at = None;
        Ok(advance(state, "next page", transition))
    }

    fn on_cancel(
        &self,
        state: ShadowState,
        _reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ShadowState> {
        end(state, ShadowStatus::Stopped, "stopping", transition)
    }
}

fn end(
    mut state: ShadowState,
    status: ShadowStatus,
    note: &str,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ShadowState> {
    if state.status.is_final() {
        return SagaDecision::ignore("it has ended");
    }
    state.end(status);
    Ok(advance(state, note, transition))
}

/// Requests the next page, if one is due.
fn advance(
    mut state: ShadowState,
    note: &str,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<ShadowState> {
    if let Some(work) = state.advance(transition.context().key, transition.now()) {
        transition.work(work);
    }
    store(state, note.to_owned(), transition)
}

/// Stores the state, with what it waits for.
fn store(
    state: ShadowState,
    note: String,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<ShadowState> {
    let due = state
        .next_at
        .filter(|_| !state.status.is_final() && state.in_flight.is_none());

    if let Some(due) = due {
        transition.arm_timer_at(TIMER, due);
        transition.wait_for(WaitKind::Timer, TIMER, Some(due));
    } else {
        transition.cancel_timer(TIMER);
        transition.wait_for(WaitKind::WorkResult, TAG, None);
    }

    transition.set_status(match state.status {
        ShadowStatus::Running | ShadowStatus::Ending => Status::Running,
        ShadowStatus::Completed | ShadowStatus::Promoted | ShadowStatus::Superseded => {
            Status::Completed
        }
        ShadowStatus::Stopped => Status::Cancelled,
        ShadowStatus::Failed => Status::Failed,
    });
    transition.note(note);
    SagaDecision::Transition(state)
}
