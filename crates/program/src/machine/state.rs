//! The state of a saga instance as it is stored: compact MessagePack, a few bytes a step.

use orlog_model::{Status, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::cause::Cause;
use crate::limits::MAX_PAYLOAD_BYTES;
use crate::program::Fault;

/// The format of the state; another one is refused.
const FORMAT: u8 = 1;

/// Everything that is remembered between two inputs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    format: u8,
    pub(super) phase: Phase,
    /// By step, in the order of the definition.
    pub(super) steps: Vec<Slot>,
    /// Steps that are done and not yet being undone, in the order of their completion.
    pub(super) done: Vec<u16>,
    pub(super) vars: Map<String, Value>,
    /// Why it does not go forward.
    pub(super) cause: Option<Cause>,
    /// It was cancelled, so it ends in `cancelled` and tells nobody.
    pub(super) cancelled: bool,
    /// The final fact is out.
    pub(super) told: bool,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Slot {
    pub(super) mark: Mark,
    /// When its answer, or that of its undo, is due.
    pub(super) until: Option<Timestamp>,
}

macro_rules! coded {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $code:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(into = "u8", try_from = "u8")]
        pub(super) enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        impl From<$name> for u8 {
            fn from(value: $name) -> u8 {
                match value {
                    $($name::$variant => $code),+
                }
            }
        }

        impl TryFrom<u8> for $name {
            type Error = String;

            fn try_from(code: u8) -> Result<Self, String> {
                match code {
                    $($code => Ok($name::$variant),)+
                    other => Err(format!(concat!(stringify!($name), " {} is unknown"), other)),
                }
            }
        }
    };
}

coded!(
    /// Where a step stands. The codes are stored.
    Mark {
        /// Its predecessors are not over.
        Waiting = 0,
        /// Asked for, no answer yet.
        Open = 1,
        /// Its condition was false.
        Skipped = 2,
        /// Done.
        Done = 3,
        /// Refused or failed.
        Failed = 4,
        /// No longer waited for: its time ran out, or the saga turned back.
        GivenUp = 5,
        /// Its undo is asked for.
        Undoing = 6,
        /// Its undo failed.
        UndoFailed = 7,
        /// Its undo is confirmed, or it needs none.
        Undone = 8,
    }
);

coded!(
    /// Where the saga stands. The codes are stored.
    Phase {
        /// Going forward.
        Running = 0,
        /// Undoing.
        Compensating = 1,
        /// Every step done or skipped.
        Completed = 2,
        /// Everything undone after a failure.
        Failed = 3,
        /// Everything undone after a cancellation.
        Cancelled = 4,
        /// An undo failed.
        Stuck = 5,
    }
);

impl Phase {
    pub(super) fn status(self) -> Status {
        match self {
            Phase::Running => Status::Running,
            Phase::Compensating => Status::Compensating,
            Phase::Completed => Status::Completed,
            Phase::Failed => Status::Failed,
            Phase::Cancelled => Status::Cancelled,
            Phase::Stuck => Status::Stuck,
        }
    }
}

impl State {
    pub(super) fn new(steps: usize) -> Self {
        Self {
            format: FORMAT,
            phase: Phase::Running,
            steps: vec![Slot { mark: Mark::Waiting, until: None }; steps],
            done: Vec::new(),
            vars: Map::new(),
            cause: None,
            cancelled: false,
            told: false,
        }
    }

    pub(super) fn decode(bytes: &[u8], steps: usize) -> Result<Self, Fault> {
        let state: Self = rmp_serde::from_slice(bytes).map_err(|error| Fault::State(error.to_string()))?;
        if state.format != FORMAT {
            return Err(Fault::State(format!("its format is {}, this program reads {FORMAT}", state.format)));
        }
        let unknown = state.done.iter().any(|step| usize::from(*step) >= steps);
        if state.steps.len() != steps || unknown {
            return Err(Fault::State(format!(
                "it has {} steps, the definition has {steps}",
                state.steps.len()
            )));
        }
        Ok(state)
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, Fault> {
        let mut bytes = Vec::with_capacity(256);
        rmp_serde::encode::write(&mut bytes, self).map_err(|error| Fault::State(error.to_string()))?;
        if bytes.len() > MAX_PAYLOAD_BYTES {
            let message =
                format!("the state would be {} bytes, the limit is {MAX_PAYLOAD_BYTES}", bytes.len());
            return Err(Fault::Program(message));
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_three_steps_is_small_and_survives_storing() {
        let mut state = State::new(3);
        state.vars.insert("orderId".to_owned(), Value::from("o-1"));
        let bytes = state.encode().unwrap();
        assert!(bytes.len() < 40, "{} bytes", bytes.len());
        assert_eq!(State::decode(&bytes, 3).unwrap(), state);
    }

    #[test]
    fn a_state_of_another_definition_is_refused() {
        let bytes = State::new(3).encode().unwrap();
        assert!(matches!(State::decode(&bytes, 2), Err(Fault::State(_))));
        assert!(matches!(State::decode(b"junk", 3), Err(Fault::State(_))));
    }
}
