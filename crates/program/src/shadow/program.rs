//! Program of shadows: maps the inputs of an instance to transitions of the shadow.

use orlog_model::{
    CorrelationId, DefinitionRef, Event, Failure, Name, Status, TimerChange, Transition, Wait,
    WaitKind, Work, WorkOutcome,
};
use serde_json::Value;

use super::page::PageOutcome;
use super::spec::ShadowSpec;
use super::state::{FORMAT, ShadowState, ShadowStatus};
use super::{PROMOTED, SAGA, START, STOP};
use crate::built_in::page::tag;
use crate::built_in::{decode, encode, event_type, reference};
use crate::contract::{
    Context, EventSubscription, Manifest, ProgramError, ProgramInput, ProgramOutput,
};
use crate::program::Program;

/// Name of the timer of the next page.
const TIMER: &str = "next";
/// Number of history entries of a shadow, which requests a page every two seconds.
const HISTORY_LIMIT: u64 = 1_000;

/// Program of shadows. The correlation id of a shadow is the name of its saga.
#[derive(Debug)]
pub struct ShadowProgram {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl Default for ShadowProgram {
    fn default() -> Self {
        let start = EventSubscription {
            kind: event_type(START),
            starts: true,
        };
        let manifest = Manifest {
            subscriptions: vec![start],
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        };
        Self {
            reference: reference(SAGA),
            manifest,
        }
    }
}

impl Program for ShadowProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        Err(ProgramError::SchemaMismatch(format!(
            "only a request starts a shadow, not the event {}",
            event.kind
        )))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let state = state.map(ShadowState::decode).transpose()?;
        match (state, input) {
            (None, ProgramInput::Event(event)) if event.kind.as_str() == START => {
                start(event, context)
            }
            (None, _) => Ok(ProgramOutput::Ignored("the shadow does not exist".into())),
            (Some(state), ProgramInput::Event(event)) => signal(state, event, context),
            (Some(mut state), ProgramInput::Timer { .. }) => {
                // A clock that was set back can be behind the timer.
                state.next_at = None;
                advance(state, "next page", context)
            }
            (Some(state), ProgramInput::WorkResult { outcome, .. }) => {
                page_ended(state, outcome, context)
            }
            (Some(state), ProgramInput::Cancel { .. }) => {
                end(state, ShadowStatus::Stopped, "stopping", context)
            }
            (Some(_), ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete) => {
                Ok(ProgramOutput::Rejected("a shadow is never stuck".into()))
            }
        }
    }

    fn view_state(&self, state: &[u8]) -> Option<Value> {
        serde_json::to_value(ShadowState::decode(state).ok()?).ok()
    }
}

impl ShadowState {
    /// Decodes a stored state.
    ///
    /// # Errors
    /// If it is damaged, or of a newer release.
    pub fn decode(state: &[u8]) -> Result<Self, ProgramError> {
        decode(state, FORMAT, |state: &Self| state.format)
    }
}

fn start(event: &Event, context: &Context<'_>) -> Result<ProgramOutput, ProgramError> {
    let spec: ShadowSpec = serde_json::from_value(event.data.clone())
        .map_err(|error| ProgramError::SchemaMismatch(format!("{START}: {error}")))?;
    advance(ShadowState::new(spec), "started", context)
}

fn signal(
    state: ShadowState,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    match event.kind.as_str() {
        STOP => end(state, ShadowStatus::Stopped, "stopping", context),
        PROMOTED => end(state, ShadowStatus::Promoted, "promoted", context),
        _ => Ok(ProgramOutput::Ignored(
            "a shadow does not handle this event".into(),
        )),
    }
}

fn end(
    mut state: ShadowState,
    status: ShadowStatus,
    note: &str,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    if state.status.is_final() {
        return Ok(ProgramOutput::Ignored("it has ended".into()));
    }
    state.end(status);
    advance(state, note, context)
}

fn page_ended(
    mut state: ShadowState,
    outcome: &WorkOutcome,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let Some(page) = state.in_flight.take() else {
        return Ok(ProgramOutput::Ignored("no page is in flight".into()));
    };
    match outcome {
        WorkOutcome::Succeeded { payload, .. } => {
            let outcome =
                serde_json::from_value::<PageOutcome>(payload.clone()).map_err(|error| {
                    ProgramError::SchemaMismatch(format!("outcome of a page: {error}"))
                })?;
            let work = state.page_ended(page, outcome, context.key, context.now);
            let note = format!("{} equal, {} different", state.equal, state.different);
            output(&state, work, note, None)
        }
        WorkOutcome::Accepted => Ok(ProgramOutput::Ignored("a page has a result".into())),
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            state.status = ShadowStatus::Failed;
            state.error = Some(failure.message.clone());
            output(&state, None, failure.to_string(), Some(failure.clone()))
        }
    }
}

fn advance(
    mut state: ShadowState,
    note: &str,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let work = state.advance(context.key, context.now);
    output(&state, work, note.to_owned(), None)
}

fn output(
    state: &ShadowState,
    work: Option<Work>,
    note: String,
    failure: Option<Failure>,
) -> Result<ProgramOutput, ProgramError> {
    let name = Name::new(TIMER).expect("the name is short");
    let due = state
        .next_at
        .filter(|_| !state.status.is_final() && state.in_flight.is_none());

    let timer = match due {
        Some(due) => TimerChange::Arm {
            name: name.clone(),
            due,
        },
        None => TimerChange::Cancel { name: name.clone() },
    };

    let wait = match due {
        Some(due) => Wait::new(WaitKind::Timer, name, Some(due)),
        None => Wait::new(WaitKind::WorkResult, tag(), None),
    };

    let status = match state.status {
        ShadowStatus::Running | ShadowStatus::Ending => Status::Running,
        ShadowStatus::Completed | ShadowStatus::Promoted | ShadowStatus::Superseded => {
            Status::Completed
        }
        ShadowStatus::Stopped => Status::Cancelled,
        ShadowStatus::Failed => Status::Failed,
    };

    Ok(ProgramOutput::Applied(Box::new(Transition {
        run: orlog_model::RunChange::default(),
        state: encode(state)?,
        status,
        work: work.into_iter().collect(),
        timers: vec![timer],
        tasks: Vec::new(),
        waits: Some(wait)
            .filter(|_| status == Status::Running)
            .into_iter()
            .collect(),
        reference: None,
        failure: failure.map(Into::into),
        variables: Vec::new(),
        note,
    })))
}
