//! Work items: what a transition wants done, and what became of it.

use std::time::Duration;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    CorrelationId, EffectName, Ended, EventId, EventType, Failure, InstanceKey, Name, SagaName, Timestamp,
    TraceParent,
};

/// What a program asks for. Nothing happens before the transition that asks is durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Ask an aggregate to do something, through the Gateway.
    Command(Command),
    /// Act on the world through a provider; the outcome comes back as an input.
    Effect(Effect),
    /// Tell everybody that something happened to the saga (a workflow event).
    Fact(Fact),
    /// Begin another saga; its end comes back as an input.
    Start(Start),
    /// Cancel a saga that was begun.
    Stop(Stop),
    /// Tell the saga that began this one how it ended.
    End(End),
}

/// A command to an aggregate. Its answer is an event of the aggregate, not an outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// The program's own label; comes back with a refusal or, where asked for, with the acceptance.
    pub tag: Name,
    /// For example `inventory`.
    pub aggregate_type: Name,
    /// Which aggregate; the correlation id where nothing else is said.
    pub aggregate_id: String,
    /// What it shall do, for example `ReserveStock`.
    pub name: Name,
    /// Arguments.
    pub payload: Value,
    /// What the program wants to hear.
    pub confirmation: Confirmation,
    /// Not sent any more this long after the transition's time; `None`: tried until accepted or refused.
    pub timeout: Option<Duration>,
}

/// Which answers of the Gateway become inputs of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confirmation {
    /// Only a refusal or a passed deadline; the answer proper is an event.
    RefusalOnly,
    /// The acceptance too: it is the answer.
    Acceptance,
}

/// An act on the world. The outcome is an input of the instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// The program's own label; comes back with the outcome.
    pub tag: Name,
    /// Which effect, for example `payments.charge`.
    pub name: EffectName,
    /// Arguments.
    pub payload: Value,
    /// The whole time allowed, all attempts together, from the transition's time; `None`: the provider's.
    pub timeout: Option<Duration>,
    /// What the definition says about attempts; `None`: the provider's policy.
    pub retry: Option<Retry>,
    /// What the definition says about an attempt of which nobody knows whether it was done; `None`: the provider's policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_doubt: Option<InDoubt>,
}

/// What happens when nobody knows whether an attempt was done, not even the upstream when it is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubt {
    /// It is tried again, with the same key.
    Retry,
    /// It has timed out, as if it had not answered.
    Fail,
    /// A person is asked.
    Ask,
}

/// The code of the failure of an effect that is not tried again because nobody knows whether it was done.
pub const IN_DOUBT: &str = "in_doubt";

/// Hints for attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// Attempts in all, at least 1; `None`: as many as the deadline allows.
    pub attempts: Option<u32>,
    /// Pause before the second attempt.
    pub backoff: Option<Duration>,
}

/// A workflow event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// For example `OrderCompleted`.
    pub kind: EventType,
    /// The payload.
    pub data: Value,
}

/// A saga to begin. Its end is an input of the instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    /// The program's own label; comes back with the end.
    pub tag: Name,
    /// Which saga.
    pub saga: SagaName,
    /// Which instance of it.
    pub correlation: CorrelationId,
    /// The event that begins it; its first start event without one.
    pub event: Option<EventType>,
    /// The data of that event.
    pub data: Value,
}

/// A saga to cancel, if it has not ended. Nobody waits for that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// Which saga.
    pub saga: SagaName,
    /// Which instance of it.
    pub correlation: CorrelationId,
    /// For the record.
    pub reason: String,
}

/// The end of a saga, for the one that began it. Never asked for by a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct End {
    /// The instance that began it.
    pub to: InstanceKey,
    /// How it ended, and as which work it was begun.
    pub ended: Ended,
}

/// The kinds of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// See [`Command`].
    Command,
    /// See [`Effect`].
    Effect,
    /// See [`Fact`].
    Fact,
    /// See [`Start`], [`Stop`] and [`End`].
    Saga,
}

/// Work of one kind for one destination. Each lane of the outbox is offered in order and blocks no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Lane {
    /// Which kind.
    pub kind: WorkKind,
    /// The aggregate type, the effect's name, the saga's name, or empty for facts.
    pub name: CompactString,
}

/// The place of a work item in the outbox: its lane, then the order of commits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OutboxKey {
    /// The lane.
    pub lane: Lane,
    /// Given by the store at commit; grows for ever within a shard.
    pub sequence: u64,
}

/// A piece of work as it lies in the outbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkItem {
    /// UUID v7, derived from (instance, state version, index): the idempotency key of all attempts.
    pub id: Uuid,
    /// Who asked.
    pub instance: InstanceKey,
    /// What to do.
    pub work: Work,
    /// Not begun any more after this.
    pub deadline: Option<Timestamp>,
    /// The id of the input that led here.
    pub causation: EventId,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
    /// The time of the transition.
    pub created_at: Timestamp,
}

impl Work {
    /// Which kind.
    #[must_use]
    pub fn kind(&self) -> WorkKind {
        match self {
            Work::Command(_) => WorkKind::Command,
            Work::Effect(_) => WorkKind::Effect,
            Work::Fact(_) => WorkKind::Fact,
            Work::Start(_) | Work::Stop(_) | Work::End(_) => WorkKind::Saga,
        }
    }

    /// The lane it travels in.
    #[must_use]
    pub fn lane(&self) -> Lane {
        let name = match self {
            Work::Command(c) => c.aggregate_type.as_str(),
            Work::Effect(e) => e.name.as_str(),
            Work::Fact(_) => "",
            Work::Start(s) => s.saga.as_str(),
            Work::Stop(s) => s.saga.as_str(),
            Work::End(e) => e.to.saga.as_str(),
        };
        Lane { kind: self.kind(), name: CompactString::from(name) }
    }

    /// What people call it: `inventory.ReserveStock`, `payments.charge`, `OrderCompleted`.
    #[must_use]
    pub fn label(&self) -> String {
        match self {
            Work::Command(c) => format!("{}.{}", c.aggregate_type, c.name),
            Work::Effect(e) => e.name.to_string(),
            Work::Fact(f) => f.kind.to_string(),
            Work::Start(s) => format!("start {}", s.saga),
            Work::Stop(s) => format!("stop {}", s.saga),
            Work::End(e) => format!("end for {}", e.to.saga),
        }
    }

    /// The program's tag; facts, stops and ends have none.
    #[must_use]
    pub fn tag(&self) -> Option<&Name> {
        match self {
            Work::Command(c) => Some(&c.tag),
            Work::Effect(e) => Some(&e.tag),
            Work::Start(s) => Some(&s.tag),
            Work::Fact(_) | Work::Stop(_) | Work::End(_) => None,
        }
    }

    /// The time allowed from the transition on.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Work::Command(c) => c.timeout,
            Work::Effect(e) => e.timeout,
            Work::Fact(_) | Work::Start(_) | Work::Stop(_) | Work::End(_) => None,
        }
    }
}

/// What became of a work item.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Which item.
    pub work_id: Uuid,
    /// Where it lies; the commit that stores the outcome removes it there.
    pub outbox: OutboxKey,
    /// What happened.
    pub verdict: Verdict,
    /// How many attempts were made, counted since the last start of the process.
    pub attempts: u32,
    /// When it was known.
    pub at: Timestamp,
    /// What there is to tell everybody besides.
    #[serde(default)]
    pub facts: Vec<Fact>,
    /// The span of the attempt that came to this, where somebody follows it. Last, because rows are read by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceParent>,
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// The Gateway took the command; the answer proper will be an event.
    Accepted,
    /// It was done.
    Succeeded {
        /// The success event a handler returned, where it names one.
        event: Option<EventType>,
        /// What the upstream answered.
        payload: Value,
    },
    /// It was refused, or it failed for good.
    Failed {
        /// The failure event a handler returned, where it names one.
        event: Option<EventType>,
        /// Why.
        failure: Failure,
        /// What the upstream answered.
        payload: Value,
    },
    /// The deadline passed; whether it was done is not known.
    TimedOut {
        /// The last that was heard.
        failure: Failure,
    },
}
