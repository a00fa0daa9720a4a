//! Program of schedules: maps the inputs of an instance to transitions of the schedule.

use orlog_model::{
    CorrelationId, DefinitionRef, Event, Name, Status, TimerChange, Timestamp, Transition, Wait,
    WaitKind, WorkOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::spec::ScheduleSpec;
use super::state::{Counts, DueRun, FORMAT, Requests, Schedule, ScheduleState, compile_spec};
use super::{DELETE, PAUSE, PUT, RESUME, SAGA, TRIGGER};
use crate::built_in::{decode, encode, event_type, reference};
use crate::contract::{Context, Manifest, ProgramError, ProgramInput, ProgramOutput};
use crate::program::Program;

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

/// Program of schedules. Each schedule is an instance; its correlation id is the name of the
/// schedule.
#[derive(Debug)]
pub struct ScheduleProgram {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl Default for ScheduleProgram {
    fn default() -> Self {
        let manifest = Manifest {
            started_by_signal: Some(event_type(PUT)),
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        };
        Self {
            reference: reference(SAGA),
            manifest,
        }
    }
}

impl Program for ScheduleProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        Err(ProgramError::SchemaMismatch(format!(
            "{} is a signal, not an event",
            event.kind
        )))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let state = state.map(ScheduleState::decode).transpose()?;
        match (state, input) {
            (state, ProgramInput::Event(event)) => signal(state, event, context),
            (None, _) => Ok(ProgramOutput::Ignored("the schedule does not exist".into())),
            (Some(state), ProgramInput::Timer { .. }) => timer(state, context),
            (Some(state), ProgramInput::WorkResult { tag, outcome }) => {
                run_ended(state, tag, outcome, context)
            }
            (Some(state), ProgramInput::Cancel { .. }) => delete(state),
            (Some(_), ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete) => {
                Ok(ProgramOutput::Rejected("a schedule is never stuck".into()))
            }
        }
    }

    fn view_state(&self, state: &[u8]) -> Option<Value> {
        serde_json::to_value(ScheduleState::decode(state).ok()?).ok()
    }
}

impl ScheduleState {
    /// Decodes a stored state.
    ///
    /// # Errors
    /// If it is damaged, or of a newer release.
    pub fn decode(state: &[u8]) -> Result<Self, ProgramError> {
        decode(state, FORMAT, |state: &Self| state.format)
    }
}

fn signal(
    state: Option<ScheduleState>,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    match (event.kind.as_str(), state) {
        (PUT, state) => put(state, event, context),
        (PAUSE | RESUME | TRIGGER | DELETE, None) => Ok(ProgramOutput::Rejected(
            "the schedule does not exist".into(),
        )),
        (DELETE, Some(state)) => delete(state),
        (PAUSE | RESUME | TRIGGER, Some(state)) if state.has_ended() => {
            Ok(ProgramOutput::Rejected("the schedule has ended".into()))
        }
        (PAUSE, Some(state)) if state.paused => {
            Ok(ProgramOutput::Ignored("it is already paused".into()))
        }
        (PAUSE, Some(mut state)) => {
            state.paused = true;
            change(state, context.now, context)
        }
        (RESUME, Some(state)) if !state.paused => {
            Ok(ProgramOutput::Ignored("it is not paused".into()))
        }
        // A resume continues after now: due times of the pause are not made up for.
        (RESUME, Some(state)) => transition(state, context, |state, own, _| {
            state.paused = false;
            state.pass(own, context.now);
            true
        }),
        (TRIGGER, Some(mut state)) => {
            // The due time is the id of a run, so two runs in one millisecond need different times.
            let after_last = Timestamp::from_millis(state.triggered_at.as_millis() + 1);

            state.triggered_at = context.now.max(after_last);
            let due = DueRun {
                at: state.triggered_at,
                triggered: true,
            };
            transition(state, context, |state, own, requests| {
                state.decide(own, requests, due, context.now);
                true
            })
        }
        (_, _) => Ok(ProgramOutput::Ignored(
            "a schedule does not handle this event".into(),
        )),
    }
}

fn put(
    state: Option<ScheduleState>,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let PutSchedule { spec, file } = serde_json::from_value(event.data.clone())
        .map_err(|error| ProgramError::SchemaMismatch(format!("{PUT}: {error}")))?;
    let invalid = |error: String| ProgramError::SchemaMismatch(format!("{PUT}: {error}"));
    let name = context.key.correlation.as_str();
    let next = compile_spec(&spec).map_err(invalid)?;
    super::check_name(name).map_err(invalid)?;

    let Some(mut state) = state else {
        return change(
            ScheduleState::new(spec, file, context.now),
            context.now,
            context,
        );
    };

    if !state.deleted && state.spec == spec && state.file == file {
        return Ok(ProgramOutput::Ignored("the schedule is unchanged".into()));
    }

    let mut requests = Requests::default();
    if state.deleted {
        // The cursor may be ahead of a clock that was set forward. The ids of the runs prevent a
        // second start.
        state.deleted = false;
        state.paused = false;
        state.counts = Counts::default();
        state.cursor = context.now;

        // The number tells the runs of the new schedule from those of the deleted one.
        state.recreations += 1;
    } else if let Ok(compiled) = compile_spec(&state.spec) {
        state.finish(
            &Schedule {
                name,
                compiled: &compiled,
            },
            &next,
            &mut requests,
            context.now,
        );
    } else {
        // An earlier release wrote the specification, and this one cannot read it.
        state.cursor = state.cursor.max(context.now);
    }

    // Runs in progress continue.
    state.spec = spec;
    state.file = file;
    state.advance(
        &Schedule {
            name,
            compiled: &next,
        },
        &mut requests,
        context.now,
    );
    output(&state, requests)
}

fn timer(state: ScheduleState, context: &Context<'_>) -> Result<ProgramOutput, ProgramError> {
    // A clock that was set back can be behind the timer.
    let now = state
        .fires_at
        .map_or(context.now, |fires| fires.max(context.now));
    change(state, now, context)
}

fn run_ended(
    state: ScheduleState,
    tag: &str,
    outcome: &WorkOutcome,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let failure = match outcome {
        WorkOutcome::Succeeded { .. } | WorkOutcome::Accepted => None,
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            Some(failure.clone())
        }
    };

    transition(state, context, |state, _, requests| {
        state.run_ended(requests, tag, failure, context.now)
    })
}

/// Ends the schedule; its runs continue.
fn delete(mut state: ScheduleState) -> Result<ProgramOutput, ProgramError> {
    if state.deleted {
        return Ok(ProgramOutput::Ignored(
            "the schedule is already deleted".into(),
        ));
    }
    state.deleted = true;
    state.queued = None;
    state.fires_at = None;
    output(&state, Requests::default())
}

/// Decides the due times up to `now` after a change of the state.
fn change(
    state: ScheduleState,
    now: Timestamp,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    transition(state, &Context { now, ..*context }, |_, _, _| true)
}

/// Applies a change, then decides the due times.
fn transition(
    mut state: ScheduleState,
    context: &Context<'_>,
    apply: impl FnOnce(&mut ScheduleState, &Schedule<'_>, &mut Requests) -> bool,
) -> Result<ProgramOutput, ProgramError> {
    let compiled = compile_spec(&state.spec).map_err(ProgramError::InvalidState)?;
    let own = Schedule {
        name: context.key.correlation.as_str(),
        compiled: &compiled,
    };

    let mut requests = Requests::default();
    if !apply(&mut state, &own, &mut requests) {
        return Ok(ProgramOutput::Ignored("the run is unknown".into()));
    }

    state.advance(&own, &mut requests, context.now);
    output(&state, requests)
}

fn output(state: &ScheduleState, requests: Requests) -> Result<ProgramOutput, ProgramError> {
    let name = Name::new(TIMER).expect("the name is short");
    let timer = match state.fires_at {
        Some(due) => TimerChange::Arm {
            name: name.clone(),
            due,
        },
        None => TimerChange::Cancel { name: name.clone() },
    };

    let waits = state
        .fires_at
        .map(|due| Wait::new(WaitKind::Timer, name, Some(due)));

    // A deleted schedule whose runs continue has ended: they are child sagas of their own.
    let status = if state.has_ended() {
        Status::Completed
    } else {
        Status::Running
    };
    let note = match (&requests.notes[..], state.fires_at) {
        ([], Some(next)) => format!("next {next}"),
        ([], None) if state.deleted => "deleted".to_owned(),
        ([], None) if state.paused => "paused".to_owned(),
        ([], None) => "no further time".to_owned(),
        (notes, _) => notes.join(", "),
    };

    Ok(ProgramOutput::Applied(Box::new(Transition {
        run: orlog_model::RunChange::default(),
        state: encode(state)?,
        status,
        work: requests.work,
        timers: vec![timer],
        tasks: Vec::new(),
        waits: waits.into_iter().collect(),
        reference: Some(state.spec.saga.clone().into()),
        failure: None,
        variables: Vec::new(),
        note,
    })))
}
