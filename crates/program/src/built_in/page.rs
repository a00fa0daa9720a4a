//! Pages of built-in sagas: effects that read or change the instances of one shard.
//!
//! A page concerns the shard of the requesting instance. For another shard, a child saga there
//! requests the page as an effect, and returns its outcome. Pods need no credentials for each
//! other.

use std::ops::Range;

use orlog_model::{
    CorrelationId, DefinitionRef, Effect, EffectName, Event, Fact, Failure, InDoubtPolicy,
    InstanceKey, Name, ParentEndPolicy, SagaName, SlotAssigner, StartChild, Status, Transition,
    Wait, WaitKind, Work, WorkOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{decode, encode, event_type, reference};
use crate::contract::{
    Context, EventSubscription, Manifest, ProgramError, ProgramInput, ProgramOutput,
};
use crate::program::Program;

/// Tag of the work of a page.
pub(crate) const TAG: &str = "page";

/// Names of the pages of a built-in saga.
#[derive(Debug)]
pub(crate) struct PageNames {
    /// Saga that requests a page in another shard.
    pub(crate) saga: &'static str,
    /// Effect that executes a page.
    pub(crate) effect: &'static str,
    /// Start event of the saga of pages; its data is the request.
    pub(crate) start: &'static str,
    /// Fact with which the saga of pages ends; its data is the outcome.
    pub(crate) end: &'static str,
}

impl PageNames {
    /// Returns the request of a page: an effect in the own shard, otherwise the start of a child
    /// saga in the shard with these slots.
    pub(crate) fn request(
        &self,
        own: &InstanceKey,
        slots: Option<&Range<u16>>,
        round: u64,
        request: Value,
    ) -> Work {
        match slots {
            Some(slots) if !slots.contains(&slot_of(own)) => {
                let correlation = self.correlation_in(slots, own, round);
                self.start(round, correlation, request)
            }
            Some(_) | None => self.effect(round, request),
        }
    }

    /// Returns the effect of a page.
    fn effect(&self, round: u64, request: Value) -> Work {
        Work::Effect(Effect {
            tag: tag(),
            round,
            name: EffectName::new(self.effect).expect("the name is short"),
            payload: request,
            timeout: None,
            retry: None,
            schema_version: 1,
            // A page only reads, or repeats control requests with the same ids (ADR 0063).
            in_doubt: Some(InDoubtPolicy::Retry),
            priority: orlog_model::Priority::Normal,
        })
    }

    fn start(&self, round: u64, correlation: CorrelationId, data: Value) -> Work {
        Work::StartChild(StartChild {
            tag: tag(),
            round,
            saga: SagaName::new(self.saga).expect("the name is short"),
            correlation,
            event: None,
            data,
            on_parent_end: ParentEndPolicy::default(),
        })
    }

    /// Returns a correlation id for a page in a shard: the first candidate whose slot the shard
    /// has.
    fn correlation_in(&self, slots: &Range<u16>, owner: &InstanceKey, page: u64) -> CorrelationId {
        let saga = SagaName::new(self.saga).expect("the name is short");
        let mut key = InstanceKey {
            tenant: owner.tenant.clone(),
            saga,
            correlation: owner.correlation.clone(),
        };

        // A page belongs to the shard that owns the slot of its id, so ids are tried until one
        // fits.
        for candidate in 0_u32.. {
            let id = format!("{}.{page}.{candidate}", owner.correlation);
            key.correlation =
                CorrelationId::new(id).expect("an id of a built-in saga and two numbers are short");
            if slots.contains(&slot_of(&key)) {
                break;
            }
        }

        key.correlation
    }

    /// Returns the owner of a page: the requesting instance of the saga, or the parent of the page
    /// in another shard.
    pub(crate) fn owner<'a>(
        &self,
        saga: &str,
        own: &'a InstanceKey,
        parent: Option<&'a InstanceKey>,
    ) -> Option<&'a InstanceKey> {
        match own.saga.as_str() {
            name if name == saga => Some(own),
            name if name == self.saga => parent.filter(|parent| parent.saga.as_str() == saga),
            _ => None,
        }
    }
}

pub(crate) fn tag() -> Name {
    Name::new(TAG).expect("the name is short")
}

/// Returns the slot of an instance of a key-sharded tenant.
fn slot_of(key: &InstanceKey) -> u16 {
    SlotAssigner::with_key_sharded([key.tenant.clone()])
        .slot_of(key)
        .0
}

/// Program of pages in another shard: a child saga that requests one page and returns its outcome.
#[derive(Debug)]
pub struct PageProgram {
    names: &'static PageNames,
    reference: DefinitionRef,
    manifest: Manifest,
}

impl PageProgram {
    pub(crate) fn new(names: &'static PageNames) -> Self {
        let start = EventSubscription {
            kind: event_type(names.start),
            starts: true,
        };
        let manifest = Manifest {
            subscriptions: vec![start],
            ..Manifest::default()
        };

        Self {
            names,
            reference: reference(names.saga),
            manifest,
        }
    }
}

/// State of a page: nothing but its format.
#[derive(Debug, Serialize, Deserialize)]
struct PageState {
    format: u16,
}

const FORMAT: u16 = 1;

impl Program for PageProgram {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        Err(ProgramError::SchemaMismatch(format!(
            "only its saga starts a page, not the event {}",
            event.kind
        )))
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        _: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let state = state
            .map(|state| decode(state, FORMAT, |state: &PageState| state.format))
            .transpose()?;

        match (state, input) {
            (None, ProgramInput::Event(event)) => {
                let state = PageState { format: FORMAT };
                transition(
                    &state,
                    Status::Running,
                    vec![self.names.effect(0, event.data.clone())],
                    None,
                )
            }
            (Some(state), ProgramInput::WorkResult { outcome, .. }) => self.ended(&state, outcome),
            (None, _) => Ok(ProgramOutput::Ignored("the page does not exist".into())),
            (Some(_), ProgramInput::Event(_) | ProgramInput::Timer { .. }) => Ok(
                ProgramOutput::Ignored("a page waits for its effect only".into()),
            ),
            (
                Some(_),
                ProgramInput::Cancel { .. }
                | ProgramInput::Retry
                | ProgramInput::Skip
                | ProgramInput::ForceComplete,
            ) => Ok(ProgramOutput::Rejected(
                "a page ends by itself; stop the instance that requested it".into(),
            )),
        }
    }

    fn view_state(&self, _: &[u8]) -> Option<Value> {
        Some(json!({}))
    }
}

impl PageProgram {
    fn ended(
        &self,
        state: &PageState,
        outcome: &WorkOutcome,
    ) -> Result<ProgramOutput, ProgramError> {
        match outcome {
            WorkOutcome::Succeeded { payload, .. } => {
                let end = Fact::new(event_type(self.names.end), payload.clone());
                transition(state, Status::Completed, vec![Work::Fact(end)], None)
            }
            WorkOutcome::Accepted => Ok(ProgramOutput::Ignored(
                "a page waits for the result of its effect".into(),
            )),
            WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
                transition(state, Status::Failed, Vec::new(), Some(failure.clone()))
            }
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
        waits: Some(wait)
            .filter(|_| status == Status::Running)
            .into_iter()
            .collect(),
        reference: None,
        failure: failure.map(Into::into),
        variables: Vec::new(),
        note: status.to_string(),
    })))
}
