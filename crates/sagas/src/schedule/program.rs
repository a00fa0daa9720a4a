//! Saga of schedules: maps the inputs of an instance to transitions of the schedule.

use orlog_model::{Event, Status, Timestamp, WaitKind, WorkOutcome};
use orlog_program::{
    Manifest, NativeProgram, NativeResult, NativeSaga, NativeWorkResult, ProgramError,
    SagaDecision, SagaState, TransitionBuilder, event_data,
};
use serde::{Deserialize, Serialize};

use super::spec::{CompiledSchedule, ScheduleSpec};
use super::state::{Counts, DueRun, FORMAT, Requests, Schedule, ScheduleState, compile_spec};
use super::{DELETE, PAUSE, PUT, RESUME, SAGA, TRIGGER};
use crate::event_types::event_type;

/// Name of the timer of the next start.
const TIMER: &str = "next";
/// Number of history entries of a schedule. An instance that lives for years must not grow.
const HISTORY_LIMIT: u64 = 1_000;

/// Data of the signal [`PUT`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PutSchedule {
    /// Specification.
    pub spec: ScheduleSpec,
    /// Name of its file, if a deployment creates the schedule.
    #[serde(default)]
    pub file: Option<String>,
}

/// Saga of schedules. Each schedule is an instance; its correlation id is the name of the schedule.
#[derive(Debug)]
pub struct ScheduleSaga;

/// Returns the program of schedules.
#[must_use]
pub fn program() -> NativeProgram<ScheduleSaga> {
    NativeProgram::new(SAGA, 1, ScheduleSaga).expect("the name is valid")
}

impl SagaState for ScheduleState {
    const FORMAT: u16 = FORMAT;

    fn format(&self) -> u16 {
        self.format
    }
}

impl NativeSaga for ScheduleSaga {
    type State = ScheduleState;
    const NOUN: &'static str = "schedule";

    fn manifest(&self) -> Manifest {
        Manifest {
            started_by_signal: Some(event_type(PUT)),
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        }
    }

    fn on_event(
        &self,
        state: Option<ScheduleState>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ScheduleState> {
        let Some(state) = state else {
            return put(None, event, transition);
        };

        match event.kind.as_str() {
            PUT => put(Some(state), event, transition),
            DELETE => delete(state, transition),
            PAUSE | RESUME | TRIGGER if state.has_ended() => {
                SagaDecision::reject("the schedule has ended")
            }
            PAUSE => pause(state, transition),
            RESUME => resume(state, transition),
            TRIGGER => trigger(state, transition),
            _ => SagaDecision::ignore("a schedule does not handle this event"),
        }
    }

    fn on_work_result(
        &self,
        mut state: ScheduleState,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ScheduleState> {
        let failure = match result.outcome {
            WorkOutcome::Succeeded { .. } | WorkOutcome::Accepted => None,
            WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
                Some(failure.clone())
            }
        };

        let mut requests = Requests::default();
        if !state.run_ended(&mut requests, result.tag, failure, transition.now()) {
            return SagaDecision::ignore("the run is unknown");
        }

        let compiled = compile_stored(&state)?;
        let now = transition.now();
        Ok(advance(state, &compiled, requests, now, transition))
    }

    fn on_timer(
        &self,
        state: ScheduleState,
        _name: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ScheduleState> {
        // A clock that was set back can be behind the timer.
        let now = transition.now();
        let now = state.fires_at.map_or(now, |fires| fires.max(now));

        let compiled = compile_stored(&state)?;
        let requests = Requests::default();
        Ok(advance(state, &compiled, requests, now, transition))
    }

    fn on_cancel(
        &self,
        state: ScheduleState,
        _reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<ScheduleState> {
        delete(state, transition)
    }
}

fn pause(
    mut state: ScheduleState,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ScheduleState> {
    if state.paused {
        return SagaDecision::ignore("it is already paused");
    }
    state.paused = true;

    let compiled = compile_stored(&state)?;
    let now = transition.now();
    Ok(advance(
        state,
        &compiled,
        Requests::default(),
        now,
        transition,
    ))
}

fn resume(
    mut state: ScheduleState,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ScheduleState> {
    if !state.paused {
        return SagaDecision::ignore("it is not paused");
    }
    state.paused = false;

    // It continues after now: due times of the pause are not made up for.
    let compiled = compile_stored(&state)?;
    let now = transition.now();
    state.pass(&Schedule::of(&compiled, transition), now);
    Ok(advance(
        state,
        &compiled,
        Requests::default(),
        now,
        transition,
    ))
}

fn trigger(
    mut state: ScheduleState,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ScheduleState> {
    // The due time is the id of a run, so two runs in one millisecond need different times.
    let after_last = Timestamp::from_millis(state.triggered_at.as_millis() + 1);
    state.triggered_at = transition.now().max(after_last);
    let due = DueRun {
        at: state.triggered_at,
        triggered: true,
    };

    let mut requests = Requests::default();
    let compiled = compile_stored(&state)?;
    let now = transition.now();
    let own = Schedule::of(&compiled, transition);
    state.decide(&own, &mut requests, due, now);
    Ok(advance(state, &compiled, requests, now, transition))
}

fn put(
    state: Option<ScheduleState>,
    event: &Event,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ScheduleState> {
    let PutSchedule { spec, file } = event_data(event)?;
    let invalid = |error: String| ProgramError::SchemaMismatch(format!("{PUT}: {error}"));
    let next = compile_spec(&spec).map_err(invalid)?;
    super::check_name(transition.context().key.correlation.as_str()).map_err(invalid)?;

    let now = transition.now();
    let mut requests = Requests::default();
    let Some(mut state) = state else {
        let state = ScheduleState::new(spec, file, now);
        return Ok(advance(state, &next, requests, now, transition));
    };

    if !state.deleted && state.spec == spec && state.file == file {
        return SagaDecision::ignore("the schedule is unchanged");
    }

    if state.deleted {
        // The cursor may be ahead of a clock that was set forward. The ids of the runs prevent a
        // second start.
        state.deleted = false;
        state.paused = false;
        state.counts = Counts::default();
        state.cursor = now;

        // The number tells the runs of the new schedule from those of the deleted one.
        state.recreations += 1;
    } else if let Ok(compiled) = compile_spec(&state.spec) {
        let own = Schedule::of(&compiled, transition);
        state.finish(&own, &next, &mut requests, now);
    } else {
        // An earlier release wrote the specification, and this one cannot read it.
        state.cursor = state.cursor.max(now);
    }

    // Runs in progress continue.
    state.spec = spec;
    state.file = file;
    Ok(advance(state, &next, requests, now, transition))
}

/// Ends the schedule; its runs continue.
fn delete(
    mut state: ScheduleState,
    transition: &mut TransitionBuilder<'_>,
) -> NativeResult<ScheduleState> {
    if state.deleted {
        return SagaDecision::ignore("the schedule is already deleted");
    }
    state.deleted = true;
    state.queued = None;
    state.fires_at = None;
    Ok(store(state, Requests::default(), transition))
}

/// Decides the due times up to `now` after a change of the state.
fn advance(
    mut state: ScheduleState,
    compiled: &CompiledSchedule,
    mut requests: Requests,
    now: Timestamp,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<ScheduleState> {
    state.advance(&Schedule::of(compiled, transition), &mut requests, now);
    store(state, requests, transition)
}

/// Stores the state, with the timer of its next start.
fn store(
    state: ScheduleState,
    requests: Requests,
    transition: &mut TransitionBuilder<'_>,
) -> SagaDecision<ScheduleState> {
    let note = match (&requests.notes[..], state.fires_at) {
        ([], Some(next)) => format!("next {next}"),
        ([], None) if state.deleted => "deleted".to_owned(),
        ([], None) if state.paused => "paused".to_owned(),
        ([], None) => "no further time".to_owned(),
        (notes, _) => notes.join(", "),
    };

    match state.fires_at {
        Some(due) => {
            transition.arm_timer_at(TIMER, due);
            transition.wait_for(WaitKind::Timer, TIMER, Some(due));
        }
        None => transition.cancel_timer(TIMER),
    }

    // A deleted schedule whose runs continue has ended: they are child sagas of their own.
    if state.has_ended() {
        transition.set_status(Status::Completed);
    }

    for work in requests.work {
        transition.work(work);
    }
    transition.reference(state.spec.saga.clone());
    transition.note(note);
    SagaDecision::Transition(state)
}

/// Compiles the specification of a state.
fn compile_stored(state: &ScheduleState) -> Result<CompiledSchedule, ProgramError> {
    compile_spec(&state.spec).map_err(ProgramError::InvalidState)
}
