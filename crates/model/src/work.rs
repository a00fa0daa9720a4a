//! Work that programs request, and the work items of the outbox.

use std::time::Duration;

use compact_str::{CompactString, format_compact};
use serde::ser::SerializeStruct as _;
use serde::{Deserialize, Serialize, Serializer};

use serde_json::Value;
use uuid::Uuid;

use crate::outcome::first_version;
use crate::{
    ChildResult, CorrelationId, EffectName, EventId, EventType, InstanceKey, Name, ParentEndPolicy,
    Priority, ResultEvent, SagaName, TenantId, Timestamp, TraceParent,
};

/// Work that a program requests. It is dispatched after the requesting transition is durable.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Work {
    /// Sends a command to an aggregate through the gateway.
    Command(Command),
    /// Calls an external system through a provider; the result is an input.
    Effect(Effect),
    /// Publishes a fact about the saga (a workflow event).
    Fact(Fact),
    /// Starts a child saga; its end is an input.
    StartChild(StartChild),
    /// Cancels a child saga.
    CancelChild(CancelChild),
    /// Notifies the parent of this saga about its end.
    NotifyParent(NotifyParent),
    /// Publishes the result of an effect, if no fact is published with it. Programs never request
    /// it.
    PublishResult(Box<ResultEvent>),
}

/// Command to an aggregate. Its result is an event of the aggregate, not a work result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Command {
    /// Tag that the program assigned. A rejection and, if requested, the acceptance have the same
    /// tag.
    pub tag: Name,
    /// Round of the tag. See [`WorkItem::id`].
    #[serde(skip)]
    pub round: u64,
    /// Aggregate type, for example `inventory`.
    pub aggregate_type: Name,
    /// Aggregate id. Default: the correlation id.
    pub aggregate_id: String,
    /// Name of the command, for example `ReserveStock`.
    pub name: Name,
    /// Arguments.
    pub payload: Value,
    /// Gateway responses that become inputs.
    pub confirmation: Confirmation,
    /// Timeout from the time of the transition, after which the command is not sent; `None`:
    /// retried until accepted or rejected.
    pub timeout: Option<Duration>,
    /// Priority class, stored in the work item.
    #[serde(skip)]
    pub priority: Priority,
}

/// Gateway responses that become inputs of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Confirmation {
    /// Only a rejection or an exceeded deadline; the result is an event.
    RejectionOnly,
    /// Also the acceptance, which is the result.
    Acceptance,
}

/// Effect on an external system. Its result is an input of the instance.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Effect {
    /// Tag that the program assigned; the result has the same tag.
    pub tag: Name,
    /// Round of the tag. See [`WorkItem::id`].
    #[serde(skip)]
    pub round: u64,
    /// Name of the effect, for example `payments.charge`.
    pub name: EffectName,
    /// Arguments.
    pub payload: Value,
    /// Timeout of all attempts together, from the time of the transition; `None`: the timeout of
    /// the provider.
    pub timeout: Option<Duration>,
    /// Retry policy of the definition; `None`: the policy of the provider.
    pub retry: Option<RetryPolicy>,
    /// Policy of the definition for an attempt with an unknown outcome; `None`: the policy of the
    /// provider.
    #[serde(default)]
    pub in_doubt: Option<InDoubtPolicy>,
    /// Schema version of the arguments.
    #[serde(default = "first_version")]
    pub schema_version: u32,
    /// Priority class, stored in the work item.
    #[serde(skip)]
    pub priority: Priority,
}

impl Serialize for Effect {
    /// Rows are read by position: a last field is absent if it has its default and no later field
    /// is present.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // A present field needs all fields before it.
        let has_version = self.schema_version != first_version();
        let has_in_doubt = has_version || self.in_doubt.is_some();
        let fields = 5 + usize::from(has_in_doubt) + usize::from(has_version);

        let mut row = serializer.serialize_struct("Effect", fields)?;
        row.serialize_field("tag", &self.tag)?;
        row.serialize_field("name", &self.name)?;
        row.serialize_field("payload", &self.payload)?;
        row.serialize_field("timeout", &self.timeout)?;
        row.serialize_field("retry", &self.retry)?;

        if has_in_doubt {
            row.serialize_field("in_doubt", &self.in_doubt)?;
        }
        if has_version {
            row.serialize_field("schema_version", &self.schema_version)?;
        }

        row.end()
    }
}

/// Policy for an attempt with an unknown outcome, if a status query of the upstream does not
/// determine it either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InDoubtPolicy {
    /// Retry with the same key.
    Retry,
    /// Fail as timed out, as if no response arrived.
    Fail,
    /// Ask an operator.
    Ask,
}

/// Failure code of an effect that is not retried because its outcome is unknown.
pub const IN_DOUBT: &str = "in_doubt";
/// Failure code of work whose result an operator discarded.
pub const RESULT_DISCARDED: &str = "result_discarded";
/// The same if the operator also allows a compensation without the values of the result.
pub const DISCARDED_WITH_NULL: &str = "result_discarded_with_null";

/// Retry policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Maximum number of attempts, at least 1; `None`: limited only by the deadline.
    pub max_attempts: Option<u32>,
    /// Delay before the second attempt.
    pub initial_backoff: Option<Duration>,
}

/// Workflow event that a saga publishes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fact {
    /// Event type, for example `OrderCompleted`.
    pub kind: EventType,
    /// Payload.
    pub data: Value,
    /// Identity of the fact within its run, next to its type: the same key is the same event.
    /// Default: the input that caused it, and its position in the transition.
    #[serde(skip)]
    pub key: Option<CompactString>,
    /// Result of the effect that caused the fact; it is published with the fact. Programs never set
    /// it. It is the last field, because rows are read by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Box<ResultEvent>>,
}

impl Fact {
    /// Creates a fact whose identity is its cause.
    #[must_use]
    pub fn new(kind: EventType, data: Value) -> Self {
        Self {
            kind,
            data,
            key: None,
            result: None,
        }
    }
}

/// Start of a child saga. Its end is an input of the instance.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartChild {
    /// Tag that the program assigned; the end has the same tag.
    pub tag: Name,
    /// Round of the tag. See [`WorkItem::id`].
    #[serde(skip)]
    pub round: u64,
    /// Name of the saga.
    pub saga: SagaName,
    /// Correlation id of the instance.
    pub correlation: CorrelationId,
    /// Start event. Default: the first start event of the saga.
    pub event: Option<EventType>,
    /// Data of that event.
    pub data: Value,
    /// Policy for the child if it is no longer awaited. Only the commit of the start reads it.
    #[serde(skip)]
    pub on_parent_end: ParentEndPolicy,
}

/// Cancellation of a saga that has not ended. It has no result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CancelChild {
    /// Name of the saga.
    pub saga: SagaName,
    /// Correlation id of the instance.
    pub correlation: CorrelationId,
    /// Reason, for the record.
    pub reason: String,
}

/// Notification of the parent at the end of a child saga. Programs never request it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NotifyParent {
    /// Parent instance.
    pub to: InstanceKey,
    /// Result of the child, with the work item that started it.
    pub ended: ChildResult,
}

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkKind {
    /// See [`Command`].
    Command,
    /// See [`Effect`].
    Effect,
    /// See [`Fact`] and [`ResultEvent`].
    Fact,
    /// See [`StartChild`], [`CancelChild`] and [`NotifyParent`].
    Saga,
}

/// Destination of work: kind, tenant, name and priority. Work of one destination is dispatched in
/// order and blocks no other destination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Destination {
    /// Kind of the work.
    pub kind: WorkKind,
    /// Tenant of the requesting instance.
    pub tenant: TenantId,
    /// Aggregate type, effect name or saga name; empty for facts and results.
    pub name: CompactString,
    /// Priority class. It is the last field and absent if it is normal, because rows are read by
    /// position.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
}

/// Position of a work item in the outbox: its destination, then the order of commits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OutboxKey {
    /// Destination.
    pub destination: Destination,
    /// Sequence, assigned by the store at commit. It only increases within a shard.
    pub sequence: u64,
}

/// Work item, as stored in the outbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkItem {
    /// UUID v7: the idempotency key of all attempts.
    ///
    /// It derives from the run, the tag and the round. A request with the same tag and round has
    /// the same id, before and after a crash, a takeover or the restore of a backup. A program
    /// begins a new round when it is certain that the work of the previous one was not executed.
    pub id: Uuid,
    /// Requesting instance.
    pub instance: InstanceKey,
    /// Requested work.
    pub work: Work,
    /// Deadline, after which the work is not started.
    pub deadline: Option<Timestamp>,
    /// Id of the input that caused the work.
    pub causation: EventId,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
    /// Time of the transition.
    pub created_at: Timestamp,
    /// Priority class: the order in which work of a tenant that waits for an upstream is executed.
    /// It is the last field and absent if it is normal, because rows are read by position.
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    pub priority: Priority,
}

impl WorkItem {
    /// Returns the destination of the work item.
    #[must_use]
    pub fn destination(&self) -> Destination {
        let name = match &self.work {
            Work::Command(c) => c.aggregate_type.as_str(),
            Work::Effect(e) => e.name.as_str(),
            // Facts and results share one destination for each tenant, which preserves their order.
            Work::Fact(_) | Work::PublishResult(_) => "",
            Work::StartChild(s) => s.saga.as_str(),
            Work::CancelChild(s) => s.saga.as_str(),
            Work::NotifyParent(e) => e.to.saga.as_str(),
        };

        Destination {
            kind: self.work.kind(),
            tenant: self.instance.tenant.clone(),
            name: CompactString::from(name),
            priority: self.priority,
        }
    }
}

impl Work {
    /// Returns the effect; `None` for any other work.
    #[must_use]
    pub fn effect(&self) -> Option<&Effect> {
        match self {
            Self::Effect(effect) => Some(effect),
            Self::Command(_)
            | Self::Fact(_)
            | Self::StartChild(_)
            | Self::CancelChild(_)
            | Self::NotifyParent(_)
            | Self::PublishResult(_) => None,
        }
    }

    /// Returns the kind of the work.
    #[must_use]
    pub fn kind(&self) -> WorkKind {
        match self {
            Work::Command(_) => WorkKind::Command,
            Work::Effect(_) => WorkKind::Effect,
            Work::Fact(_) | Work::PublishResult(_) => WorkKind::Fact,
            Work::StartChild(_) | Work::CancelChild(_) | Work::NotifyParent(_) => WorkKind::Saga,
        }
    }

    /// Returns the display label: `inventory.ReserveStock`, `payments.charge`, `OrderCompleted`,
    /// `start_child equipment`.
    #[must_use]
    pub fn label(&self) -> CompactString {
        match self {
            Work::Command(c) => format_compact!("{}.{}", c.aggregate_type, c.name),
            Work::Effect(e) => e.name.as_str().into(),
            Work::Fact(f) => f.kind.as_str().into(),
            Work::StartChild(s) => format_compact!("start_child {}", s.saga),
            Work::CancelChild(s) => format_compact!("cancel_child {}", s.saga),
            Work::NotifyParent(e) => format_compact!("notify_parent {}", e.to.saga),
            Work::PublishResult(r) => format_compact!("publish_result {}", r.effect),
        }
    }

    /// Returns the tag of the program. Facts, cancellations and parent notifications have none.
    #[must_use]
    pub fn tag(&self) -> Option<&Name> {
        match self {
            Work::Command(c) => Some(&c.tag),
            Work::Effect(e) => Some(&e.tag),
            Work::StartChild(s) => Some(&s.tag),
            Work::Fact(_)
            | Work::CancelChild(_)
            | Work::NotifyParent(_)
            | Work::PublishResult(_) => None,
        }
    }

    /// Returns the payload: arguments, data of the fact or of the start event.
    #[must_use]
    pub fn payload(&self) -> Option<&Value> {
        match self {
            Work::Command(c) => Some(&c.payload),
            Work::Effect(e) => Some(&e.payload),
            Work::Fact(f) => Some(&f.data),
            Work::StartChild(s) => Some(&s.data),
            Work::NotifyParent(n) => Some(&n.ended.data),
            Work::PublishResult(r) => r.outcome.payload(),
            Work::CancelChild(_) => None,
        }
    }

    /// Returns the priority class; only commands and effects can have another one than the default.
    #[must_use]
    pub fn priority(&self) -> Priority {
        match self {
            Work::Command(c) => c.priority,
            Work::Effect(e) => e.priority,
            Work::Fact(_)
            | Work::StartChild(_)
            | Work::CancelChild(_)
            | Work::NotifyParent(_)
            | Work::PublishResult(_) => Priority::Normal,
        }
    }

    /// Returns the time until which the work is executed, if it is requested now.
    #[must_use]
    pub fn deadline(&self, now: Timestamp) -> Option<Timestamp> {
        self.timeout().map(|timeout| work_deadline(now, timeout))
    }

    /// Returns the timeout, counted from the transition.
    #[must_use]
    pub fn timeout(&self) -> Option<Duration> {
        match self {
            Work::Command(c) => c.timeout,
            Work::Effect(e) => e.timeout,
            Work::Fact(_)
            | Work::StartChild(_)
            | Work::CancelChild(_)
            | Work::NotifyParent(_)
            | Work::PublishResult(_) => None,
        }
    }
}

/// Maximum time between the end of the execution of work and the timer of its step: enough to store
/// the result, also of a remote executor, on a busy node.
const MAX_TIME_FOR_RESULT: Duration = Duration::from_millis(500);

/// Returns the time until which work with this timeout is executed. The timer of its step fires at
/// the end of the timeout and says no more than that, so the executor ends a little earlier: its
/// result contains the last error of the upstream.
#[must_use]
pub fn work_deadline(requested_at: Timestamp, timeout: Duration) -> Timestamp {
    let time_for_result = MAX_TIME_FOR_RESULT.min(timeout / 10);

    // The time counts from the decision, so that a backlog or an outage does not reduce it.
    requested_at.saturating_add(timeout.saturating_sub(time_for_result))
}
