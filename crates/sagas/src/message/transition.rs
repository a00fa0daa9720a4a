//! Parts that the sagas of sent and received messages share: effects, timers, and the reference.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{
    Effect, EffectName, Failure, InDoubtPolicy, Name, NodeName, Priority, Reference, Status,
    Timestamp, Work,
};
use orlog_program::TransitionBuilder;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::content::Message;
use super::{EFFECT, EFFECTS, THREAD};

/// Arguments of the effects [`EFFECTS`]. What it sends is the state of the instance that requests
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum PeerTask {
    /// Delivers a sent message.
    Deliver,
    /// Withdraws a sent message.
    Withdraw,
    /// Reports the status of a received message.
    Report {
        /// Number of the report.
        number: u64,
    },
}

impl PeerTask {
    /// Returns whether the arguments of the effect are those of a delivery.
    #[must_use]
    pub fn is_delivery(arguments: &Value) -> bool {
        arguments["type"] == "deliver"
    }

    /// Returns the tag of its work.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::Deliver => "deliver",
            Self::Withdraw => "withdraw",
            Self::Report { .. } => "report",
        }
    }

    /// Returns the effect for a message; without a timeout, its attempts end with the instance.
    pub(super) fn work(self, message: &Message, timeout: Option<Duration>) -> Work {
        let from = &message.from.node;
        let to = &message.to.node;
        let (round, own, peer) = match self {
            Self::Deliver | Self::Withdraw => (0, from, to),
            Self::Report { number } => (number, to, from),
        };

        Work::Effect(Effect {
            tag: name(self.tag()),
            round,
            name: EffectName::new(effect(own, peer)).expect("the name is short"),
            payload: json!(self),
            timeout,
            retry: None,
            schema_version: 1,
            // The other node ignores what it already has.
            in_doubt: Some(InDoubtPolicy::Retry),
            priority: Priority::Normal,
        })
    }
}

/// Returns the name of the effect whose requests go from a node to another one, or to itself.
fn effect(own: &NodeName, peer: &NodeName) -> &'static str {
    if own == peer {
        return EFFECT;
    }
    // A node that is away stops only the messages for the nodes with the same name of the effect
    // (ADR 0081).
    let others = &EFFECTS[1..];
    others[usize::from(Sha256::digest(peer.as_str())[0]) % others.len()]
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).expect("the name is short")
}

/// Timer of an instance: name and due time.
pub(super) type TimerState = Option<(&'static str, Timestamp)>;

/// Replaces the timer of an instance, if it changed.
pub(super) fn change_timer(
    before: TimerState,
    after: TimerState,
    transition: &mut TransitionBuilder<'_>,
) {
    if before == after {
        return;
    }
    if let Some((timer, _)) = before {
        transition.cancel_timer(timer);
    }
    if let Some((timer, due)) = after {
        transition.arm_timer_at(timer, due);
    }
}

/// Sets the status of an instance, with the failure of a failed one.
pub(super) fn set_status(
    status: Status,
    failure: Option<&Failure>,
    transition: &mut TransitionBuilder<'_>,
) {
    transition.set_status(status);
    if status == Status::Failed
        && let Some(failure) = failure
    {
        transition.failure(failure.clone());
    }
}

/// Returns the business reference of a message: its thread.
pub(super) fn thread_reference(thread: String) -> Reference {
    let parts = BTreeMap::from([(THREAD.to_owned(), thread)]);
    Reference::Parts(Box::new(parts))
}
