//! Page: what a batch requests as an effect, and the saga that requests it in another shard.

use orlog_model::{
    CorrelationId, DefinitionRef, Effect, EffectName, Event, Fact, Failure, InDoubtPolicy, Name, Status,
    Transition, Wait, WaitKind, Work, WorkOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::spec::{BatchAction, Selection};
use super::{PAGE_EFFECT, PAGE_SAGA};
use crate::built_in::{decode, encode, event_type, reference};
use crate::contract::{Context, EventSubscription, Manifest, ProgramError, ProgramInput, ProgramOutput};
use crate::program::Program;

/// Tag of the work of a page.
pub(super) const TAG: &str = "page";
/// Start event of a page in another shard; its data is a [`PageRequest`].
const START: &str = "orlog.batch.page.start";
/// Fact with which a page in another shard ends; its data is a [`PageOutcome`].
const END: &str = "orlog.batch.page.ended";

/// Request of one page. It concerns the instances in the shard of the requesting instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PageRequest {
    /// Instances.
    pub selection: Selection,
    /// What to do.
    pub task: PageTask,
}

/// Task of a page.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PageTask {
    /// Count the instances after a cursor.
    Count {
        /// The cursor of the previous page.
        cursor: Option<String>,
    },
    /// Return the first instances after a cursor.
    Select {
        /// The cursor of the previous page.
        cursor: Option<String>,
        /// Maximum number of instances.
        limit: u32,
    },
    /// Send the instruction to these instances. A repetition has no second effect.
    Apply {
        /// Instruction.
        action: BatchAction,
        /// User, for the history of the instances.
        user: Option<String>,
        /// Reason, for the history of the instances.
        reason: Option<String>,
        /// Correlation ids.
        instances: Vec<CorrelationId>,
    },
}

/// Outcome of one page.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PageOutcome {
    /// Cursor of the next page; `None` after the last one.
    pub cursor: Option<String>,
    /// Number of counted instances.
    pub matched: u64,
    /// Number of instances for which the filter failed.
    pub filter_errors: u64,
    /// Reason of the first filter error.
    pub first_filter_error: Option<String>,
    /// Selected instances.
    pub instances: Vec<CorrelationId>,
    /// Number of instances that applied the instruction.
    pub done: u64,
    /// Number of instances to which the instruction does not apply.
    pub skipped: u64,
    /// Number of instances that failed.
    pub failed: u64,
    /// First instances to which the instruction does not apply.
    pub skips: Vec<InstanceReason>,
    /// First instances that failed.
    pub failures: Vec<InstanceReason>,
}

/// Instance that did not apply the instruction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceReason {
    /// Correlation id.
    pub correlation: CorrelationId,
    /// Reason.
    pub reason: String,
}

/// Returns the effect of a page.
pub(super) fn effect(round: u64, request: Value) -> Work {
    Work::Effect(Effect {
        tag: tag(),
        round,
        name: EffectName::new(PAGE_EFFECT).expect("the name is short"),
        payload: request,
        timeout: None,
        retry: None,
        schema_version: 1,
        in_doubt: Some(InDoubtPolicy::Retry),
        priority: orlog_model::Priority::Normal,
    })
}

pub(super) fn tag() -> Name {
    Name::new(TAG).expect("the name is short")
}

/// Program of pages in another shard: a child saga of the batch that requests one page and returns its outcome.
#[derive(Debug)]
pub struct BatchPageProgram {
    reference: DefinitionRef,
    manifest: Manifest,
}

impl Default for BatchPageProgram {
    fn default() -> Self {
        let start = EventSubscription { kind: event_type(START), starts: true };
        let manifest = Manifest { subscriptions: vec![start], ..Manifest::default() };
        Self { reference: reference(PAGE_SAGA), manifest }
    }
}

/// State of a page: nothing but its format.
#[derive(Debug, Serialize, Deserialize)]
struct PageState {
    format: u16,
}

const FORMAT: u16 = 1;

impl Program for BatchPageProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        Err(ProgramError::SchemaMismatch(format!("only a batch starts a page, not the event {}", event.kind)))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        _: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let state = state.map(|state| decode(state, FORMAT, |state: &PageState| state.format)).transpose()?;
        match (state, input) {
            (None, ProgramInput::Event(event)) => {
                let state = PageState { format: FORMAT };
                transition(&state, Status::Running, vec![effect(0, event.data.clone())], None)
            }
            (Some(state), ProgramInput::WorkResult { outcome, .. }) => ended(&state, outcome),
            (None, _) => Ok(ProgramOutput::Ignored("the page does not exist".into())),
            (Some(_), ProgramInput::Event(_) | ProgramInput::Timer { .. }) => {
                Ok(ProgramOutput::Ignored("a page waits for its effect only".into()))
            }
            (
                Some(_),
                ProgramInput::Cancel { .. }
                | ProgramInput::Retry
                | ProgramInput::Skip
                | ProgramInput::ForceComplete,
            ) => Ok(ProgramOutput::Rejected("a page ends by itself; stop its batch".into())),
        }
    }

    fn view_state(&self, _: &[u8]) -> Option<Value> {
        Some(json!({}))
    }
}

fn ended(state: &PageState, outcome: &WorkOutcome) -> Result<ProgramOutput, ProgramError> {
    match outcome {
        WorkOutcome::Succeeded { payload, .. } => {
            let end = Fact::new(event_type(END), payload.clone());
            transition(state, Status::Completed, vec![Work::Fact(end)], None)
        }
        WorkOutcome::Accepted => {
            Ok(ProgramOutput::Ignored("a page waits for the result of its effect".into()))
        }
        WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
            transition(state, Status::Failed, Vec::new(), Some(failure.clone()))
        }
    }
}

fn transition(
    state: &PageState,
    status: Status,
    work: Vec<Work>,
    failure: Option<Failure>,
) -> Result<ProgramOutput, ProgramError> {
    let wait = Wait::new(WaitKind::WorkResult, tag(), None);
    Ok(ProgramOutput::Applied(Box::new(Transition {
        run: orlog_model::RunChange::default(),
        state: encode(state)?,
        status,
        work,
        timers: Vec::new(),
        tasks: Vec::new(),
        waits: Some(wait).filter(|_| status == Status::Running).into_iter().collect(),
        reference: None,
        failure: failure.map(Into::into),
        variables: Vec::new(),
        note: status.to_string(),
    })))
}
