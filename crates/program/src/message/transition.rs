//! Parts that the programs of sent and received messages share: effects, timers, and the
//! transition.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{
    Effect, EffectName, Failure, InDoubtPolicy, Name, NodeName, Priority, Reference, RunChange,
    Status, TimerChange, Timestamp, Transition, Wait, WaitKind, Work,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::content::Message;
use super::{EFFECT, EFFECTS, THREAD};
use crate::contract::ProgramOutput;

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

/// Change of an instance, without its state.
pub(super) struct Change {
    pub(super) status: Status,
    pub(super) work: Vec<Work>,
    pub(super) timer_before: TimerState,
    pub(super) timer_after: TimerState,
    /// What the instance waits for.
    pub(super) wait_kind: WaitKind,
    pub(super) wait_name: &'static str,
    pub(super) thread: String,
    pub(super) failure: Option<Failure>,
    pub(super) note: String,
}

impl Change {
    /// Returns the transition to an encoded state.
    pub(super) fn into_output(self, state: Vec<u8>) -> ProgramOutput {
        let Self {
            status,
            work,
            timer_before,
            timer_after,
            wait_kind,
            wait_name,
            thread,
            failure,
            note,
        } = self;

        let mut timers = Vec::new();
        if timer_before != timer_after {
            timers.extend(timer_before.map(|(timer, _)| TimerChange::Cancel { name: name(timer) }));
            timers.extend(timer_after.map(|(timer, due)| TimerChange::Arm {
                name: name(timer),
                due,
            }));
        }

        let due = timer_after.map(|(_, due)| due);
        let wait = Wait::new(wait_kind, name(wait_name), due);
        ProgramOutput::Applied(Box::new(Transition {
            run: RunChange::default(),
            state,
            status,
            work,
            timers,
            tasks: Vec::new(),
            waits: Some(wait)
                .filter(|_| !status.is_final())
                .into_iter()
                .collect(),
            reference: Some(Reference::Parts(Box::new(BTreeMap::from([(
                THREAD.to_owned(),
                thread,
            )])))),
            failure: failure.filter(|_| status == Status::Failed).map(Into::into),
            variables: Vec::new(),
            note,
        }))
    }
}
