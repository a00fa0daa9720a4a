//! Native front-end: a saga as a Rust type, with state and events typed by serde.
//!
//! For sagas that are programs rather than lists of steps. The author must follow the rules of
//! [`Program`]: no clock, no random numbers, no I/O. The author also implements compensation,
//! timeouts and late results; definitions provide them.
//!
//! ```
//! use orlog_program::{EventSubscription, NativeProgram, NativeSaga, Program};
//! use orlog_program::{SagaDecision, TransitionBuilder};
//! use orlog_model::{EventType, Status};
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//! use std::time::Duration;
//!
//! #[derive(Serialize, Deserialize)]
//! enum Fine { Sent { amount: u32 }, Paid }
//!
//! #[derive(Deserialize)]
//! #[serde(tag = "type", content = "data")]
//! enum FineEvent { FineSent { amount: u32 }, Payment { } }
//!
//! struct Fines;
//!
//! impl NativeSaga for Fines {
//!     type State = Fine;
//!     type Event = FineEvent;
//!
//!     fn subscriptions(&self) -> Vec<EventSubscription> {
//!         let kind = |name| EventType::new(name).expect("a valid event type");
//!         vec![
//!             EventSubscription { kind: kind("FineSent"), starts: true },
//!             EventSubscription { kind: kind("Payment"), starts: false },
//!         ]
//!     }
//!
//!     fn on_event(
//!         &self,
//!         state: Option<Fine>,
//!         event: FineEvent,
//!         transition: &mut TransitionBuilder<'_>,
//!     ) -> SagaDecision<Fine> {
//!         match (state, event) {
//!             (None, FineEvent::FineSent { amount }) => {
//!                 transition.arm_timer("penalty", Duration::from_hours(60 * 24));
//!                 SagaDecision::Transition(Fine::Sent { amount })
//!             }
//!             (Some(Fine::Sent { .. }), FineEvent::Payment {}) => {
//!                 transition.cancel_timer("penalty");
//!                 transition.set_status(Status::Completed);
//!                 SagaDecision::Transition(Fine::Paid)
//!             }
//!             (_, _) => SagaDecision::Ignore("nothing to do"),
//!         }
//!     }
//!
//!     fn on_timer(
//!         &self,
//!         state: Fine,
//!         _name: &str,
//!         transition: &mut TransitionBuilder<'_>,
//!     ) -> SagaDecision<Fine> {
//!         transition.command("penalty", "fines", "AddPenalty", json!({}));
//!         SagaDecision::Transition(state)
//!     }
//! }
//!
//! let program = NativeProgram::new("fine", 1, Fines).expect("a valid name");
//! assert_eq!(program.manifest().subscriptions.len(), 2);
//! ```

mod transition;

use std::time::Duration;

use orlog_model::{
    CorrelationId, DefinitionRef, EffectName, Event, IdError, SagaName, Transition, WorkOutcome,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use transition::TransitionBuilder;

use crate::contract::{
    Context, EventSubscription, Manifest, ProgramError, ProgramInput, ProgramOutput,
};
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::program::Program;

/// Saga written in Rust. All methods are pure.
pub trait NativeSaga: Send + Sync + 'static {
    /// State of an instance; stored as MessagePack with field names, so that fields with
    /// `#[serde(default)]` can be added.
    type State: Serialize + DeserializeOwned;
    /// Consumed events, as `#[serde(tag = "type", content = "data")]` enum: the variant name is the
    /// event type.
    type Event: DeserializeOwned;

    /// Returns the event subscriptions, including the start events.
    fn subscriptions(&self) -> Vec<EventSubscription>;

    /// Returns the effects that the saga requests; checked against the providers at start.
    fn effects(&self) -> Vec<EffectName> {
        Vec::new()
    }

    /// Returns the time to live of early events; zero: early events are not buffered.
    fn early_event_ttl(&self) -> Duration {
        crate::DEFAULT_EARLY_EVENT_TTL
    }

    /// Returns the correlation id of an event. Default: that of the envelope.
    ///
    /// # Errors
    /// A message that names the missing data.
    fn correlate(&self, event: &Event) -> Result<CorrelationId, String> {
        event
            .correlation
            .clone()
            .ok_or_else(|| format!("{} has no correlation id", event.kind))
    }

    /// Handles an event. `state` is `None` only for a start event.
    fn on_event(
        &self,
        state: Option<Self::State>,
        event: Self::Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> SagaDecision<Self::State>;

    /// Handles the result of work that was requested under this tag.
    fn on_work_result(
        &self,
        state: Self::State,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> SagaDecision<Self::State> {
        let _ = (state, result, transition);
        SagaDecision::Ignore("this saga does not handle work results")
    }

    /// Handles a due timer.
    fn on_timer(
        &self,
        state: Self::State,
        name: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> SagaDecision<Self::State> {
        let _ = (state, name, transition);
        SagaDecision::Ignore("this saga does not handle timers")
    }

    /// Handles the cancellation by an operator.
    fn on_cancel(
        &self,
        state: Self::State,
        reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> SagaDecision<Self::State> {
        let _ = (state, reason, transition);
        SagaDecision::Reject("this saga cannot be cancelled")
    }

    /// Handles the skip request of an operator for a stuck instance.
    fn on_skip(
        &self,
        state: Self::State,
        transition: &mut TransitionBuilder<'_>,
    ) -> SagaDecision<Self::State> {
        let _ = (state, transition);
        SagaDecision::Reject("this saga does not support skip")
    }

    /// Handles the force-complete request of an operator. The default ends the instance `failed`.
    fn on_force_complete(
        &self,
        state: Self::State,
        transition: &mut TransitionBuilder<'_>,
    ) -> SagaDecision<Self::State> {
        transition.set_status(orlog_model::Status::Failed);
        SagaDecision::Transition(state)
    }

    /// Handles the retry request of an operator.
    fn on_retry(
        &self,
        state: Self::State,
        transition: &mut TransitionBuilder<'_>,
    ) -> SagaDecision<Self::State> {
        let _ = (state, transition);
        SagaDecision::Reject("this saga does not support retry")
    }
}

/// Result of work.
#[derive(Clone, Copy, Debug)]
pub struct NativeWorkResult<'a> {
    /// Tag of the requested work.
    pub tag: &'a str,
    /// Outcome of the work.
    pub outcome: &'a WorkOutcome,
}

/// Decision of a saga about an input.
#[derive(Clone, Debug, PartialEq)]
pub enum SagaDecision<S> {
    /// New state; the requested work and timers are applied.
    Transition(S),
    /// No change; the input has no effect. Contains the reason for the log.
    Ignore(&'static str),
    /// The status does not permit the input. Contains the reason.
    Reject(&'static str),
    /// The input cannot be applied; it becomes a dead letter with this reason.
    DeadLetter(String),
}

/// [`Program`] implementation of a [`NativeSaga`].
#[derive(Debug)]
pub struct NativeProgram<N> {
    reference: DefinitionRef,
    manifest: Manifest,
    native: N,
}

impl<N: NativeSaga> NativeProgram<N> {
    /// Creates a program from a saga. Its identity is its name and version: a change of behavior
    /// requires a new version.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn new(saga: &str, version: u32, native: N) -> Result<Self, IdError> {
        let digest = Sha256::digest(format!("native:{saga}:{version}").as_bytes());
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);

        let mut manifest = Manifest {
            subscriptions: native.subscriptions(),
            effects: native.effects(),
            early_event_ttl: native.early_event_ttl(),
            ..Manifest::default()
        };
        manifest.subscriptions.sort_by(|a, b| a.kind.cmp(&b.kind));
        manifest.effects.sort();

        Ok(Self {
            reference: DefinitionRef {
                saga: SagaName::for_path(saga)?,
                version,
                hash,
            },
            manifest,
            native,
        })
    }

    fn event(
        &self,
        state: Option<N::State>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> Result<SagaDecision<N::State>, ProgramError> {
        let known = self
            .manifest
            .subscriptions
            .iter()
            .find(|subscription| subscription.kind == event.kind);

        match (&state, known) {
            (_, None) => return Ok(SagaDecision::Ignore("the saga does not consume this event")),
            (None, Some(trigger)) if !trigger.starts => {
                return Ok(SagaDecision::Ignore(
                    "the instance does not exist, and this is not a start event",
                ));
            }
            (_, Some(_)) => {}
        }

        // The variant of the enum of events is the event type.
        let typed = json!({ "type": event.kind.as_str(), "data": event.data });
        let typed = serde_json::from_value(typed)
            .map_err(|error| ProgramError::SchemaMismatch(format!("{}: {error}", event.kind)))?;
        Ok(self.native.on_event(state, typed, transition))
    }

    fn decide(
        &self,
        state: Option<N::State>,
        input: &ProgramInput<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> Result<SagaDecision<N::State>, ProgramError> {
        Ok(match (state, input) {
            (state, ProgramInput::Event(event)) => return self.event(state, event, transition),
            (None, _) => SagaDecision::Ignore("the instance does not exist"),
            (Some(state), ProgramInput::WorkResult { tag, outcome }) => {
                self.native
                    .on_work_result(state, NativeWorkResult { tag, outcome }, transition)
            }
            (Some(state), ProgramInput::Timer { name }) => {
                self.native.on_timer(state, name, transition)
            }
            (Some(state), ProgramInput::Cancel { reason }) => {
                self.native.on_cancel(state, reason, transition)
            }
            (Some(state), ProgramInput::Retry) => self.native.on_retry(state, transition),
            (Some(state), ProgramInput::Skip) => self.native.on_skip(state, transition),
            (Some(state), ProgramInput::ForceComplete) => {
                self.native.on_force_complete(state, transition)
            }
        })
    }
}

impl<N: NativeSaga> Program for NativeProgram<N> {
    fn definition_ref(&self) -> &DefinitionRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, ProgramError> {
        self.native
            .correlate(event)
            .map_err(ProgramError::SchemaMismatch)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        input: &ProgramInput<'_>,
        context: &Context<'_>,
    ) -> Result<ProgramOutput, ProgramError> {
        let decoded = state
            .map(rmp_serde::from_slice)
            .transpose()
            .map_err(|error| ProgramError::InvalidState(error.to_string()))?;

        let mut transition = TransitionBuilder::new(context);
        let decision = self.decide(decoded, input, &mut transition)?;

        // An invalid name was recorded while the transition was built.
        match (decision, transition.error.take()) {
            (SagaDecision::Ignore(reason), _) => Ok(ProgramOutput::Ignored(reason.into())),
            (SagaDecision::Reject(reason), _) => Ok(ProgramOutput::Rejected(reason.into())),
            (SagaDecision::DeadLetter(reason), _) => Err(ProgramError::SchemaMismatch(reason)),
            (SagaDecision::Transition(_), Some(error)) => Err(ProgramError::Evaluation(error)),
            (SagaDecision::Transition(state), None) => into_output(&state, transition, input),
        }
    }

    /// Returns the state as JSON.
    fn view_state(&self, state: &[u8]) -> Option<Value> {
        let state: N::State = rmp_serde::from_slice(state).ok()?;
        serde_json::to_value(state).ok()
    }
}

fn into_output<S: Serialize>(
    state: &S,
    transition: TransitionBuilder<'_>,
    input: &ProgramInput<'_>,
) -> Result<ProgramOutput, ProgramError> {
    let bytes = rmp_serde::to_vec_named(state)
        .map_err(|error| ProgramError::Evaluation(error.to_string()))?;
    if bytes.len() > MAX_PAYLOAD_BYTES {
        let message = format!(
            "the state has {} bytes; the limit is {MAX_PAYLOAD_BYTES}",
            bytes.len()
        );
        return Err(ProgramError::Evaluation(message));
    }

    Ok(ProgramOutput::Applied(Box::new(Transition {
        run: orlog_model::RunChange::default(),
        state: bytes,
        status: transition.status,
        work: transition.work,
        timers: transition.timers,
        tasks: Vec::new(),
        waits: transition.waits,
        reference: transition.reference,
        variables: Vec::new(),
        failure: transition.failure.map(Into::into),
        note: transition.note.unwrap_or_else(|| input.label()),
    })))
}
