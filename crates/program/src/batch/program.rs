//! Program of batches: maps the inputs of an instance to transitions of the batch.

use orlog_model::{
    CorrelationId, DefinitionRef, Event, Failure, Name, Status, TimerChange, Transition, Wait,
    WaitKind, Work, WorkOutcome,
};
use serde_json::Value;

use super::page::PageOutcome;
use super::spec::{BatchSpec, check_id};
use super::state::{BatchState, BatchStatus, FORMAT};
use super::{CREATE, PAUSE, RESUME, SAGA, STOP};
use crate::built_in::page::tag;
use crate::built_in::{decode, encode, event_type, reference};
use crate::contract::{Context, Manifest, ProgramError, ProgramInput, ProgramOutput};
use crate::program::Program;

/// Name of the timer of the next page.
const TIMER: &str = "next";
/// Number of history entries of a batch. A batch of a million instances has twenty thousand pages.
const HISTORY_LIMIT: u64 = 1_000;

/// Program of batches. Each batch is an instance; its correlation id is the id of the batch.
#[derive(Debug)]
pub struct BatchProgram {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl Default for BatchProgram {
    fn default() -> Self {
        let manifest = Manifest {
            started_by_signal: Some(event_type(CREATE)),
            history_limit: Some(HISTORY_LIMIT),
            ..Manifest::default()
        };
        Self {
            reference: reference(SAGA),
            manifest,
        }
    }
}

impl Program for BatchProgram {
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
        let state = state.map(BatchState::decode).transpose()?;
        match (state, input) {
            (state, ProgramInput::Event(event)) => signal(state, event, context),
            (None, _) => Ok(ProgramOutput::Ignored("the batch does not exist".into())),
            (Some(state), ProgramInput::Timer { .. }) => timer(state, context),
            (Some(state), ProgramInput::WorkResult { outcome, .. }) => {
                page_ended(state, outcome, context)
            }
            (Some(state), ProgramInput::Cancel { .. }) => stop(state, context),
            (Some(_), ProgramInput::Retry | ProgramInput::Skip | ProgramInput::ForceComplete) => {
                Ok(ProgramOutput::Rejected("a batch is never stuck".into()))
            }
        }
    }

    fn view_state(&self, state: &[u8]) -> Option<Value> {
        serde_json::to_value(BatchState::decode(state).ok()?).ok()
    }
}

impl BatchState {
    /// Decodes a stored state.
    ///
    /// # Errors
    /// If it is damaged, or of a newer release.
    pub fn decode(state: &[u8]) -> Result<Self, ProgramError> {
        decode(state, FORMAT, |state: &Self| state.format)
    }
}

fn signal(
    state: Option<BatchState>,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    match (event.kind.as_str(), state) {
        (CREATE, state) => create(state, event, context),
        (PAUSE | RESUME | STOP, None) => {
            Ok(ProgramOutput::Rejected("the batch does not exist".into()))
        }
        (STOP, Some(state)) => stop(state, context),
        (PAUSE | RESUME, Some(state))
            if state.status.is_final() || state.status == BatchStatus::Stopping =>
        {
            Ok(ProgramOutput::Rejected(
                format!("the batch is {}", state.status.as_str()).into(),
            ))
        }
        (PAUSE, Some(state)) if state.status == BatchStatus::Paused => {
            Ok(ProgramOutput::Ignored("it is already paused".into()))
        }
        // Paused before the approval, a resume would be ambiguous.
        (PAUSE, Some(state)) if state.status == BatchStatus::AwaitingApproval => {
            Ok(ProgramOutput::Ignored("it waits for an approval".into()))
        }
        (PAUSE, Some(mut state)) => {
            state.status = BatchStatus::Paused;
            advance(state, "paused", context)
        }
        (RESUME, Some(state)) if state.status == BatchStatus::Running => {
            Ok(ProgramOutput::Ignored("it is not paused".into()))
        }
        (RESUME, Some(mut state)) => {
            let is_approval = state.status == BatchStatus::AwaitingApproval;
            state.is_approved |= is_approval;

            state.status = BatchStatus::Running;
            advance(
                state,
                if is_approval { "approved" } else { "resumed" },
                context,
            )
        }
        (_, _) => Ok(ProgramOutput::Ignored(
            "a batch does not handle this event".into(),
        )),
    }
}

fn create(
    state: Option<BatchState>,
    event: &Event,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let invalid = |error: String| ProgramError::SchemaMismatch(format!("{CREATE}: {error}"));
    let spec: BatchSpec =
        serde_json::from_value(event.data.clone()).map_err(|error| invalid(error.to_string()))?;

    check_id(context.key.correlation.as_str()).map_err(invalid)?;
    match state {
        None => advance(BatchState::new(spec), "created", context),
        Some(state) if state.spec == spec => Ok(ProgramOutput::Ignored("the batch exists".into())),
        Some(_) => Ok(ProgramOutput::Rejected(
            "a batch with this id and another content exists".into(),
        )),
    }
}

fn stop(mut state: BatchState, context: &Context<'_>) -> Result<ProgramOutput, ProgramError> {
    if state.status.is_final() || state.status == BatchStatus::Stopping {
        return Ok(ProgramOutput::Ignored("it is already stopped".into()));
    }
    state.status = BatchStatus::Stopping;
    advance(state, "stopping", context)
}

fn timer(mut state: BatchState, context: &Context<'_>) -> Result<ProgramOutput, ProgramError> {
    // A clock that was set back can be behind the timer.
    state.next_at = None;
    advance(state, "next page", context)
}

fn page_ended(
    mut state: BatchState,
    outcome: &WorkOutcome,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    // Effects of a batch follow each other, so a result belongs to the page in flight.
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
            output(&state, work, progress(&state), None)
        }
        WorkOutcome::Accepted => Ok(ProgramOutput::Ignored("a page has a result".into())),
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            state.status = BatchStatus::Failed;
            state.error = Some(failure.message.clone());
            output(
                &state,
                Vec::new(),
                failure.to_string(),
                Some(failure.clone()),
            )
        }
    }
}

fn advance(
    mut state: BatchState,
    note: &str,
    context: &Context<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let work = state.advance(context.key, context.now);
    let work = work.into_iter().collect();
    output(&state, work, note.to_owned(), None)
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

fn output(
    state: &BatchState,
    work: Vec<Work>,
    note: String,
    failure: Option<Failure>,
) -> Result<ProgramOutput, ProgramError> {
    let name = Name::new(TIMER).expect("the name is short");
    let due = state
        .next_at
        .filter(|_| state.status == BatchStatus::Running && state.in_flight.is_none());

    let timer = match due {
        Some(due) => TimerChange::Arm {
            name: name.clone(),
            due,
        },
        None => TimerChange::Cancel { name: name.clone() },
    };

    let wait = match due {
        _ if state.in_flight.is_some() => Wait::new(WaitKind::WorkResult, tag(), None),
        Some(due) => Wait::new(WaitKind::Timer, name, Some(due)),
        None => Wait::new(
            WaitKind::Operator,
            Name::new("resume").expect("the name is short"),
            None,
        ),
    };

    let status = match state.status {
        BatchStatus::Completed => Status::Completed,
        BatchStatus::Stopped => Status::Cancelled,
        BatchStatus::Failed => Status::Failed,
        BatchStatus::Running
        | BatchStatus::Paused
        | BatchStatus::AwaitingApproval
        | BatchStatus::Stopping => Status::Running,
    };

    Ok(ProgramOutput::Applied(Box::new(Transition {
        run: orlog_model::RunChange::default(),
        state: encode(state)?,
        status,
        work,
        timers: vec![timer],
        tasks: Vec::new(),
        waits: Some(wait)
            .filter(|_| !status.is_final())
            .into_iter()
            .collect(),
        reference: Some(state.spec.selection.saga.to_string().into()),
        failure: failure.map(Into::into),
        variables: Vec::new(),
        note,
    })))
}
