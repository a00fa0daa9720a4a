//! Native front-end: a saga as a Rust type, with a state that serde stores.
//!
//! For sagas that are programs rather than lists of steps, as the built-in ones are. The author
//! must follow the rules of [`Program`]: no clock, no random numbers, no I/O. The author also
//! implements compensation, timeouts and late results; definitions provide them.
//!
//! ```
//! use orlog_model::{Event, EventType, Status};
//! use orlog_program::{
//!     EventSubscription, Manifest, NativeProgram, NativeResult, NativeSaga, Program,
//!     SagaDecision, SagaState, TransitionBuilder, event_data,
//! };
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//! use std::time::Duration;
//!
//! #[derive(Serialize, Deserialize)]
//! enum Fine { Sent { amount: u32 }, Paid }
//!
//! impl SagaState for Fine {}
//!
//! #[derive(Deserialize)]
//! struct FineSent { amount: u32 }
//!
//! struct Fines;
//!
//! impl NativeSaga for Fines {
//!     type State = Fine;
//!     const NOUN: &'static str = "fine";
//!
//!     fn manifest(&self) -> Manifest {
//!         let kind = |name| EventType::new(name).expect("a valid event type");
//!         Manifest {
//!             subscriptions: vec![
//!                 EventSubscription { kind: kind("FineSent"), starts: true },
//!                 EventSubscription { kind: kind("Payment"), starts: false },
//!             ],
//!             ..Manifest::default()
//!         }
//!     }
//!
//!     fn on_event(
//!         &self,
//!         state: Option<Fine>,
//!         event: &Event,
//!         transition: &mut TransitionBuilder<'_>,
//!     ) -> NativeResult<Fine> {
//!         match (event.kind.as_str(), state) {
//!             ("FineSent", None) => {
//!                 let FineSent { amount } = event_data(event)?;
//!                 transition.arm_timer("penalty", Duration::from_hours(60 * 24));
//!                 Ok(SagaDecision::Transition(Fine::Sent { amount }))
//!             }
//!             ("Payment", Some(Fine::Sent { .. })) => {
//!                 transition.cancel_timer("penalty");
//!                 transition.set_status(Status::Completed);
//!                 Ok(SagaDecision::Transition(Fine::Paid))
//!             }
//!             (_, _) => SagaDecision::ignore("nothing to do"),
//!         }
//!     }
//!
//!     fn on_timer(
//!         &self,
//!         state: Fine,
//!         _name: &str,
//!         transition: &mut TransitionBuilder<'_>,
//!     ) -> NativeResult<Fine> {
//!         transition.command("penalty", "fines", "AddPenalty", json!({}));
//!         Ok(SagaDecision::Transition(state))
//!     }
//! }
//!
//! let program = NativeProgram::new("fine", 1, Fines).expect("a valid name");
//! assert_eq!(program.manifest().subscriptions.len(), 2);
//! ```

mod transition;

use std::borrow::Cow;

use orlog_model::{CorrelationId, DefinitionRef, Event, IdError, SagaName, WorkOutcome};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

pub use transition::TransitionBuilder;

use crate::built_in::is_built_in;
use crate::contract::{Context, Manifest, ProgramError, ProgramInput, ProgramOutput};
use crate::program::Program;

/// State of a native saga. It is stored as MessagePack with field names, so that fields with
/// `#[serde(default)]` can be added without a new format.
pub trait SagaState: Serialize + DeserializeOwned {
    /// Format that this release writes, and the newest one that it reads.
    const FORMAT: u16 = 1;

    /// Returns the format in which the state was stored, for a state that contains it.
    fn format(&self) -> u16 {
        Self::FORMAT
    }

    /// Decodes a stored state.
    ///
    /// # Errors
    /// [`ProgramError::InvalidState`] if it is damaged, or of a newer release.
    fn decode(state: &[u8]) -> Result<Self, ProgramError> {
        let state: Self = rmp_serde::from_slice(state)
            .map_err(|error| ProgramError::InvalidState(error.to_string()))?;

        let found = state.format();
        if found > Self::FORMAT {
            return Err(ProgramError::InvalidState(format!(
                "format {found} is newer than this release, which reads {}",
                Self::FORMAT
            )));
        }
        Ok(state)
    }

    /// Encodes the state. Its size is limited by the node, as that of every instance.
    ///
    /// # Errors
    /// [`ProgramError::Evaluation`] if serde cannot serialize it.
    fn encode(&self) -> Result<Vec<u8>, ProgramError> {
        rmp_serde::to_vec_named(self).map_err(|error| ProgramError::Evaluation(error.to_string()))
    }
}

/// Decision of a native saga, or the reason why the input becomes a dead letter.
pub type NativeResult<S> = Result<SagaDecision<S>, ProgramError>;

/// Saga written in Rust. All methods are pure.
pub trait NativeSaga: Send + Sync + 'static {
    /// State of an instance.
    type State: SagaState;

    /// What an instance is called in answers, for example `batch`.
    const NOUN: &'static str;

    /// Returns the consumed events, the signal that starts an instance, the effects and the limits.
    fn manifest(&self) -> Manifest;

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

    /// Handles an event or a signal. `state` is `None` only for what starts an instance.
    ///
    /// # Errors
    /// [`ProgramError::SchemaMismatch`] if the data is invalid; [`event_data`] returns it.
    fn on_event(
        &self,
        state: Option<Self::State>,
        event: &Event,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<Self::State>;

    /// Handles the result of work that was requested under this tag.
    ///
    /// # Errors
    /// [`ProgramError::SchemaMismatch`] if the saga cannot read the result.
    fn on_work_result(
        &self,
        state: Self::State,
        result: NativeWorkResult<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<Self::State> {
        let _ = (state, result, transition);
        SagaDecision::ignore("this saga does not handle work results")
    }

    /// Handles a due timer.
    ///
    /// # Errors
    /// If the saga cannot compute its next state.
    fn on_timer(
        &self,
        state: Self::State,
        name: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<Self::State> {
        let _ = (state, name, transition);
        SagaDecision::ignore("this saga does not handle timers")
    }

    /// Handles the cancellation by an operator.
    ///
    /// # Errors
    /// If the saga cannot compute its next state.
    fn on_cancel(
        &self,
        state: Self::State,
        reason: &str,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<Self::State> {
        let _ = (state, reason, transition);
        SagaDecision::reject(format!("a {} cannot be cancelled", Self::NOUN))
    }

    /// Handles the request of an operator for a stuck instance. Default: it is rejected, as a saga
    /// that never sets the status `stuck` needs none.
    ///
    /// # Errors
    /// If the saga cannot compute its next state.
    fn on_resolution(
        &self,
        state: Self::State,
        resolution: Resolution,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<Self::State> {
        let _ = (state, resolution, transition);
        SagaDecision::reject(format!("a {} is never stuck", Self::NOUN))
    }

    /// Returns the readable form of a state. Default: its fields.
    fn view(&self, state: &Self::State) -> Option<Value> {
        serde_json::to_value(state).ok()
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

/// Request of an operator for a stuck instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// Execute the failed work again.
    Retry,
    /// Continue without the failed work, because an operator resolved it.
    Skip,
    /// End the instance.
    ForceComplete,
}

/// Decision of a saga about an input.
#[derive(Clone, Debug, PartialEq)]
pub enum SagaDecision<S> {
    /// New state; the requested work and timers are applied.
    Transition(S),
    /// No change; the input has no effect. Contains the reason for the log.
    Ignore(Cow<'static, str>),
    /// The status does not permit the input. Contains the reason.
    Reject(Cow<'static, str>),
}

impl<S> SagaDecision<S> {
    /// Returns the decision to ignore the input, as the result of a method of [`NativeSaga`].
    ///
    /// # Errors
    /// Never.
    pub fn ignore(reason: impl Into<Cow<'static, str>>) -> NativeResult<S> {
        Ok(Self::Ignore(reason.into()))
    }

    /// Returns the decision to reject the input, as the result of a method of [`NativeSaga`].
    ///
    /// # Errors
    /// Never.
    pub fn reject(reason: impl Into<Cow<'static, str>>) -> NativeResult<S> {
        Ok(Self::Reject(reason.into()))
    }
}

/// Returns the data of an event.
///
/// # Errors
/// [`ProgramError::SchemaMismatch`] with the event type and the invalid field.
pub fn event_data<'a, T: Deserialize<'a>>(event: &'a Event) -> Result<T, ProgramError> {
    T::deserialize(&event.data)
        .map_err(|error| ProgramError::SchemaMismatch(format!("{}: {error}", event.kind)))
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
    /// requires a new version. Instances are pinned to this identity.
    ///
    /// # Errors
    /// If the name is invalid.
    pub fn new(saga: &str, version: u32, native: N) -> Result<Self, IdError> {
        let digest = Sha256::digest(format!("native:{saga}:{version}").as_bytes());
        let hash = std::array::from_fn(|index| digest[index]);

        let mut manifest = native.manifest();
        // The contract of the manifest requires sorted subscriptions; authors need not sort them.
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

    /// Returns whether an event or a signal of this type starts an instance.
    fn is_start(&self, event: &Event) -> bool {
        let by_event = self
            .manifest
            .subscriptions
            .iter()
            .any(|subscription| subscription.starts && subscription.kind == event.kind);

        by_event || self.manifest.started_by_signal.as_ref() == Some(&event.kind)
    }

    fn decide(
        &self,
        state: Option<N::State>,
        input: &ProgramInput<'_>,
        transition: &mut TransitionBuilder<'_>,
    ) -> NativeResult<N::State> {
        let saga = &self.native;
        let noun = N::NOUN;

        match (state, input) {
            (None, ProgramInput::Event(event)) if self.is_start(event) => {
                saga.on_event(None, event, transition)
            }
            // A request has a caller who waits for the response.
            (
                None,
                ProgramInput::Event(_)
                | ProgramInput::Cancel { .. }
                | ProgramInput::Retry
                | ProgramInput::Skip
                | ProgramInput::ForceComplete,
            ) => SagaDecision::reject(format!("the {noun} does not exist")),
            (None, ProgramInput::WorkResult { .. } | ProgramInput::Timer { .. }) => {
                SagaDecision::ignore(format!("the {noun} does not exist"))
            }
            (Some(state), ProgramInput::Event(event)) => {
                saga.on_event(Some(state), event, transition)
            }
            (Some(state), ProgramInput::WorkResult { tag, outcome }) => {
                saga.on_work_result(state, NativeWorkResult { tag, outcome }, transition)
            }
            (Some(state), ProgramInput::Timer { name }) => saga.on_timer(state, name, transition),
            (Some(state), ProgramInput::Cancel { reason }) => {
                saga.on_cancel(state, reason, transition)
            }
            (Some(state), ProgramInput::Retry) => {
                saga.on_resolution(state, Resolution::Retry, transition)
            }
            (Some(state), ProgramInput::Skip) => {
                saga.on_resolution(state, Resolution::Skip, transition)
            }
            (Some(state), ProgramInput::ForceComplete) => {
                saga.on_resolution(state, Resolution::ForceComplete, transition)
            }
        }
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
        let saga = self.reference.saga.as_str();
        if is_built_in(saga) {
            // A publisher must not start or change them past the rights of the API.
            return Err(ProgramError::SchemaMismatch(format!(
                "only a request or a parent saga sends {} to {saga}, not an event",
                event.kind
            )));
        }

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
        // Decoded before the decision: a saga never sees a state that this release cannot read.
        let state = state.map(N::State::decode).transpose()?;
        let mut transition = TransitionBuilder::new(context);

        match self.decide(state, input, &mut transition)? {
            SagaDecision::Ignore(reason) => Ok(ProgramOutput::Ignored(reason)),
            SagaDecision::Reject(reason) => Ok(ProgramOutput::Rejected(reason)),
            SagaDecision::Transition(state) => {
                let transition = transition.finish(state.encode()?, input)?;
                Ok(ProgramOutput::Applied(Box::new(transition)))
            }
        }
    }

    fn view_state(&self, state: &[u8]) -> Option<Value> {
        self.native.view(&N::State::decode(state).ok()?)
    }
}
