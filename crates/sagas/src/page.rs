//! Pages of built-in sagas: effects that read or change the instances of one shard.
//!
//! A page concerns the shard of the requesting instance. For another shard, a child saga there
//! requests the page as an effect, and returns its outcome. Pods need no credentials for each
//! other.

use std::ops::Range;

use orlog_model::{
    CorrelationId, Effect, EffectName, Event, Fact, InDoubtPolicy, InstanceKey, Name,
    ParentEndPolicy, SagaName, SlotAssigner, StartChild, Status, WaitKind, Work, WorkOutcome,
};
use orlog_program::{
    EventSubscription, Manifest, NativeProgram, NativeResult, NativeSaga, NativeWorkResult,
    ProgramError, SagaDecision, SagaState, TransitionBuilder,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::event_types::event_type;

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
    /// Returns the program of these pages in another shard.
    pub(crate) fn program(&'static self) -> NativeProgram<PageSaga> {
        NativeProgram::new(self.saga, 1, PageSaga { names: self }).expect("the name is valid")
    }

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

/// Returns the outcome of a page from the result of its work.
pub(crate) fn outcome_of<T: DeserializeOwned>(payload: &Value) -> Result<T, ProgramError> {
    T::deserialize(payload)
        .map_err(|error| ProgramError::SchemaMismatch(format!("outcome of a page: {error}")))
}

/// Saga of pages in another shard: a child saga that requests one page and returns its outcome.
#[derive(Debug)]
pub struct PageSaga {
    names: &'static PageNames,
}

/// State of a page: nothing but its format.
#[derive(Debug, Serialize, Deserialize)]
pub struct PageState {
    format: u16,
}

impl SagaState for PageState {
    fn format(&self) -> u16 {
        self.format
    }
}

impl NativeSaga for PageSaga {
    type State = PageState;
    const NOUN: &'static str = "page";

    fn manifest(&self) -> Manifest {
        Manifest {
            subscriptions: vec![EventSubscription {
                kind: event_type(self.names.start),
                starts: true,
            }],
            ..Manifest::default()
        }
    }

    fn on_event(
        &self,
        state: Option<PageState>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<PageState> {
        if state.is_some() {
            return SagaDecision::ignore("a page waits for its effect only");
        }

        transition.work(self.names.effect(0, event.data.clone()));
        transition.wait_for(WaitKind::WorkResult, TAG, None);
        transition.note(Status::Running.to_string());
        Ok(SagaDecision::Transition(PageState {
            format: PageState::FORMAT,
        }))
    }

    fn on_work_result(
        &self,
        state: PageState,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<PageState> {
        let status = match result.outcome {
            WorkOutcome::Succeeded { payload, .. } => {
                let end = Fact::new(event_type(self.names.end), payload.clone());
                // Not `emit`, which limits the size: its batch would wait for a large page for ever.
                transition.work(Work::Fact(end));
                Status::Completed
            }
            WorkOutcome::Accepted => {
                return SagaDecision::ignore("a page waits for the result of its effect");
            }
            WorkOutcome::Failed { failure, .. } | WorkOutcome::TimedOut { failure } => {
                transition.failure(failure.clone());
                Status::Failed
            }
        };

        transition.set_status(status);
        transition.note(status.to_string());
        Ok(SagaDecision::Transition(state))
    }

    fn on_cancel(
        &self,
        _state: PageState,
        _reason: &str,
        _transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<PageState> {
        SagaDecision::reject("a page ends by itself; stop the instance that requested it")
    }

    fn view(&self, _state: &PageState) -> Option<Value> {
        Some(json!({}))
    }
}
