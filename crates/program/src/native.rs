//! The native front-end: a saga as a Rust type, with state and events typed by serde.
//!
//! For sagas that are programs rather than lists of steps. The author keeps the rules of [`Program`]: no clock, no chance, no
//! I/O. Compensation, timeouts and late answers are the author's to decide; definitions decide them for you.
//!
//! ```
//! use orlog_program::{Answer, Native, NativeProgram, Orders, Outcome, Program, Trigger};
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
//! enum Seen { FineSent { amount: u32 }, Payment { } }
//!
//! struct Fines;
//!
//! impl Native for Fines {
//!     type State = Fine;
//!     type Event = Seen;
//!
//!     fn triggers(&self) -> Vec<Trigger> {
//!         let kind = |name| EventType::new(name).expect("a short word");
//!         vec![
//!             Trigger { kind: kind("FineSent"), starts: true },
//!             Trigger { kind: kind("Payment"), starts: false },
//!         ]
//!     }
//!
//!     fn on(&self, state: Option<Fine>, event: Seen, orders: &mut Orders<'_>) -> Answer<Fine> {
//!         match (state, event) {
//!             (None, Seen::FineSent { amount }) => {
//!                 orders.arm("penalty", Duration::from_hours(60 * 24));
//!                 Answer::Become(Fine::Sent { amount })
//!             }
//!             (Some(Fine::Sent { .. }), Seen::Payment {}) => {
//!                 orders.disarm("penalty");
//!                 orders.end(Status::Completed);
//!                 Answer::Become(Fine::Paid)
//!             }
//!             (_, _) => Answer::Ignore("nothing to do"),
//!         }
//!     }
//!
//!     fn on_timer(&self, state: Fine, _name: &str, orders: &mut Orders<'_>) -> Answer<Fine> {
//!         orders.command("penalty", "fines", "AddPenalty", json!({}));
//!         Answer::Become(state)
//!     }
//! }
//!
//! let program = NativeProgram::new("fine", 1, Fines).expect("a good name");
//! assert_eq!(program.manifest().triggers.len(), 2);
//! ```

mod transition;

use std::time::Duration;

use orlog_model::{CorrelationId, EffectName, Event, IdError, ProgramRef, SagaName, Transition, Verdict};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

pub use transition::Orders;

use crate::contract::{Context, Fault, Manifest, Reaction, Stimulus, Trigger};
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::program::Program;

/// A saga written in Rust. All methods are pure.
pub trait Native: Send + Sync + 'static {
    /// What is remembered; stored as MessagePack with field names, so that fields with `#[serde(default)]` can be added.
    type State: Serialize + DeserializeOwned;
    /// The events it takes, as `#[serde(tag = "type", content = "data")]` enum: the variant's name is the event's type.
    type Event: DeserializeOwned;

    /// The events it takes, and which of them begin an instance.
    fn triggers(&self) -> Vec<Trigger>;

    /// The effects it asks for; checked against the providers at start-up.
    fn effects(&self) -> Vec<EffectName> {
        Vec::new()
    }

    /// How long events that come before the instance are kept for it; zero: not at all.
    fn early(&self) -> Duration {
        crate::DEFAULT_EARLY
    }

    /// The correlation id of an event; the envelope's without other word.
    ///
    /// # Errors
    /// A sentence about what is missing.
    fn correlate(&self, event: &Event) -> Result<CorrelationId, String> {
        event.correlation.clone().ok_or_else(|| format!("{} carries no correlation id", event.kind))
    }

    /// An event. `state` is `None` only for an event that begins an instance.
    fn on(
        &self,
        state: Option<Self::State>,
        event: Self::Event,
        orders: &mut Orders<'_>,
    ) -> Answer<Self::State>;

    /// What became of work it asked for under that tag.
    fn on_outcome(
        &self,
        state: Self::State,
        outcome: Outcome<'_>,
        orders: &mut Orders<'_>,
    ) -> Answer<Self::State> {
        let (_, _, _) = (state, outcome, orders);
        Answer::Ignore("this saga has no use for outcomes")
    }

    /// A timer fell due.
    fn on_timer(&self, state: Self::State, name: &str, orders: &mut Orders<'_>) -> Answer<Self::State> {
        let (_, _, _) = (state, name, orders);
        Answer::Ignore("this saga has no use for timers")
    }

    /// An operator cancels it.
    fn on_cancel(&self, state: Self::State, reason: &str, orders: &mut Orders<'_>) -> Answer<Self::State> {
        let (_, _, _) = (state, reason, orders);
        Answer::Refuse("this saga cannot be cancelled")
    }

    /// An operator says that what made it stuck is seen to.
    fn on_skip(&self, state: Self::State, orders: &mut Orders<'_>) -> Answer<Self::State> {
        let (_, _) = (state, orders);
        Answer::Refuse("this saga has nothing to skip")
    }

    /// An operator ends it as it is. The default ends it `failed`.
    fn on_force_complete(&self, state: Self::State, orders: &mut Orders<'_>) -> Answer<Self::State> {
        orders.end(orlog_model::Status::Failed);
        Answer::Become(state)
    }

    /// An operator retries it.
    fn on_retry(&self, state: Self::State, orders: &mut Orders<'_>) -> Answer<Self::State> {
        let (_, _) = (state, orders);
        Answer::Refuse("this saga cannot be retried")
    }
}

/// What became of work.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The tag the work was asked for under.
    pub tag: &'a str,
    /// What happened.
    pub verdict: &'a Verdict,
}

/// What a saga makes of an input.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer<S> {
    /// This is the state from now on; the orders given are carried out.
    Become(S),
    /// Nothing changes, and that is right. The text says why, for the log.
    Ignore(&'static str),
    /// The status forbids it. The text says why.
    Refuse(&'static str),
    /// The input cannot be applied; it becomes a dead letter with this reason.
    Reject(String),
}

/// A [`Native`] saga as a [`Program`].
#[derive(Debug)]
pub struct NativeProgram<N> {
    reference: ProgramRef,
    manifest: Manifest,
    native: N,
}

impl<N: Native> NativeProgram<N> {
    /// Names a saga. Its identity is its name and version: whoever changes what it does gives it a new version.
    ///
    /// # Errors
    /// When the name is none.
    pub fn new(saga: &str, version: u32, native: N) -> Result<Self, IdError> {
        let digest = Sha256::digest(format!("native:{saga}:{version}").as_bytes());
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);
        let mut manifest = Manifest {
            triggers: native.triggers(),
            effects: native.effects(),
            early: native.early(),
            ..Manifest::default()
        };
        manifest.triggers.sort_by(|a, b| a.kind.cmp(&b.kind));
        manifest.effects.sort();
        Ok(Self { reference: ProgramRef { saga: SagaName::new(saga)?, version, hash }, manifest, native })
    }

    fn event(
        &self,
        state: Option<N::State>,
        event: &Event,
        orders: &mut Orders<'_>,
    ) -> Result<Answer<N::State>, Fault> {
        let known = self.manifest.triggers.iter().find(|trigger| trigger.kind == event.kind);
        match (&state, known) {
            (_, None) => return Ok(Answer::Ignore("the saga does not take this event")),
            (None, Some(trigger)) if !trigger.starts => {
                return Ok(Answer::Ignore("there is no instance, and this does not begin one"));
            }
            (_, Some(_)) => {}
        }
        let typed = json!({ "type": event.kind.as_str(), "data": event.data });
        let typed = serde_json::from_value(typed);
        let typed = typed.map_err(|error| Fault::Schema(format!("{}: {error}", event.kind)))?;
        Ok(self.native.on(state, typed, orders))
    }

    fn other(
        &self,
        state: Option<N::State>,
        stimulus: &Stimulus<'_>,
        orders: &mut Orders<'_>,
    ) -> Result<Answer<N::State>, Fault> {
        let Some(state) = state else { return Ok(Answer::Ignore("there is no instance")) };
        Ok(match stimulus {
            Stimulus::Event(event) => return self.event(Some(state), event, orders),
            Stimulus::Outcome { tag, verdict } => {
                self.native.on_outcome(state, Outcome { tag, verdict }, orders)
            }
            Stimulus::Timer { name } => self.native.on_timer(state, name, orders),
            Stimulus::Cancel { reason } => self.native.on_cancel(state, reason, orders),
            Stimulus::Retry => self.native.on_retry(state, orders),
            Stimulus::Skip => self.native.on_skip(state, orders),
            Stimulus::ForceComplete => self.native.on_force_complete(state, orders),
        })
    }
}

impl<N: Native> Program for NativeProgram<N> {
    fn reference(&self) -> &ProgramRef {
        &self.reference
    }

    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn correlate(&self, event: &Event) -> Result<CorrelationId, Fault> {
        self.native.correlate(event).map_err(Fault::Schema)
    }

    fn apply(
        &self,
        state: Option<&[u8]>,
        stimulus: &Stimulus<'_>,
        context: &Context<'_>,
    ) -> Result<Reaction, Fault> {
        let decoded = state.map(rmp_serde::from_slice).transpose();
        let decoded = decoded.map_err(|error| Fault::State(error.to_string()))?;
        let mut orders = Orders::new(context);
        let answer = match stimulus {
            Stimulus::Event(event) => self.event(decoded, event, &mut orders)?,
            Stimulus::Outcome { .. }
            | Stimulus::Timer { .. }
            | Stimulus::Cancel { .. }
            | Stimulus::Retry
            | Stimulus::Skip
            | Stimulus::ForceComplete => self.other(decoded, stimulus, &mut orders)?,
        };
        match (answer, orders.wrong.take()) {
            (Answer::Ignore(why), _) => Ok(Reaction::Ignored(why.into())),
            (Answer::Refuse(why), _) => Ok(Reaction::Refused(why.into())),
            (Answer::Reject(why), _) => Err(Fault::Schema(why)),
            (Answer::Become(_), Some(wrong)) => Err(Fault::Program(wrong)),
            (Answer::Become(state), None) => transition(&state, orders, stimulus),
        }
    }

    /// The state as JSON.
    fn show(&self, state: &[u8]) -> Option<Value> {
        let state: N::State = rmp_serde::from_slice(state).ok()?;
        serde_json::to_value(state).ok()
    }
}

fn transition<S: Serialize>(
    state: &S,
    orders: Orders<'_>,
    stimulus: &Stimulus<'_>,
) -> Result<Reaction, Fault> {
    let bytes = rmp_serde::to_vec_named(state).map_err(|error| Fault::Program(error.to_string()))?;
    if bytes.len() > MAX_PAYLOAD_BYTES {
        let message = format!("the state would be {} bytes, the limit is {MAX_PAYLOAD_BYTES}", bytes.len());
        return Err(Fault::Program(message));
    }
    Ok(Reaction::Applied(Box::new(Transition {
        state: bytes,
        status: orders.status,
        work: orders.work,
        timers: orders.timers,
        tasks: Vec::new(),
        waits: orders.waits,
        reference: orders.reference,
        failure: orders.failure,
        note: orders.note.unwrap_or_else(|| stimulus.label()),
    })))
}
