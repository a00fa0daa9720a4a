//! Messages to one saga instance: `[tenant.<tenant>.]workflow.<saga>.<correlation>`.
//!
//! Two kinds travel there, both as CloudEvents. One of the type [`ORDER`] is what sagas say to each other: begin, stop, and how
//! it ended; its data is a [`WorkflowOrder`]. Any other is a signal: an event from whoever wants this very instance to
//! have it.

use orlog_model::{
    CorrelationId, Event, EventId, EventType, InstanceKey, SagaName, Timestamp, WorkflowCommand,
    WorkflowOrder,
};

use crate::codec::{self, DecodeError};
use crate::subject::{self, Kind, Subject};
use crate::{Error, Message};

/// The type of the events that carry orders.
pub const ORDER: &str = "orlog.order";

/// What a message to one instance says.
#[derive(Clone, Debug, PartialEq)]
pub enum Word {
    /// From another saga.
    Order(WorkflowCommand),
    /// From anybody.
    Signal(Event),
}

/// The message that brings an order to an instance. Its id is made of the command's, so that it is delivered once.
///
/// # Panics
/// Never: an order can be written as JSON.
#[must_use]
pub fn encode(to: &InstanceKey, from: &InstanceKey, command: &WorkflowCommand) -> Message {
    let event = Event {
        id: command.id.clone(),
        tenant: to.tenant.clone(),
        kind: EventType::new(ORDER).expect("a short word"),
        source: format!("orlog:{}", from.saga),
        subject: Some(from.correlation.to_string()),
        time: command.at,
        correlation: Some(to.correlation.clone()),
        causation: None,
        trace: command.trace.clone(),
        schema_version: 1,
        data: serde_json::to_value(&command.order).expect("an order can be written as JSON"),
    };
    let subject = Subject::new(to.tenant.clone(), Kind::Workflow, to.saga.as_str(), to.correlation.as_str());
    codec::encode(&event, subject.to_string())
}

/// The message that brings an event to one instance.
#[must_use]
pub fn signal(to: &InstanceKey, event: &Event) -> Message {
    let subject = Subject::new(to.tenant.clone(), Kind::Workflow, to.saga.as_str(), to.correlation.as_str());
    codec::encode(event, subject.to_string())
}

/// Whether a message is for one instance. Looks at the beginning of its subject only.
#[must_use]
pub fn is_addressed(subject: &str) -> bool {
    let own = subject.strip_prefix("tenant.").and_then(|rest| rest.split_once('.')).map(|(_, rest)| rest);
    own.unwrap_or(subject).starts_with("workflow.")
}

/// The instance that a message is for.
///
/// # Errors
/// When the subject names no instance.
pub fn address(subject: &str) -> Result<InstanceKey, Error> {
    let Subject { tenant, kind: _, name, id } = Subject::parse(subject)?;
    let refuse = |reason: orlog_model::IdError| Error::Subject {
        subject: subject.to_owned(),
        what: "address of an instance",
        reason: reason.to_string(),
    };
    let saga = SagaName::new(name).map_err(refuse)?;
    let correlation = CorrelationId::new(id).map_err(refuse)?;
    Ok(InstanceKey { tenant, saga, correlation })
}

/// Reads a message to one instance; `published_at` is the time of one that states none.
///
/// # Errors
/// When it is no event, or an order that is malformed or names an instance of another tenant.
pub fn decode(message: &Message, published_at: Timestamp) -> Result<Word, DecodeError> {
    let event = codec::decode(message, published_at)?;
    if event.kind.as_str() != ORDER {
        return Ok(Word::Signal(event));
    }
    let order: WorkflowOrder = serde_json::from_value(event.data)
        .map_err(|error| DecodeError::Format(format!("the order is malformed: {error}")))?;
    let named = match &order {
        WorkflowOrder::Start { parent, .. } => Some(&parent.key),
        WorkflowOrder::Stop { from, .. } => Some(from),
        WorkflowOrder::Ended(_) => None,
    };
    if let Some(other) = named.filter(|key| key.tenant != event.tenant) {
        let claimed = other.tenant.to_string();
        return Err(DecodeError::Tenant { claimed, expected: event.tenant.to_string() });
    }
    Ok(Word::Order(WorkflowCommand { id: event.id, at: event.time, trace: event.trace, order }))
}

/// The filters for all messages to instances.
#[must_use]
pub fn filters() -> Vec<String> {
    subject::filters(None, Kind::Workflow, None)
}

/// The id of an order: that of the work item behind it.
///
/// # Panics
/// Never: a UUID is short ASCII.
#[must_use]
pub fn order_id(work_id: uuid::Uuid) -> EventId {
    EventId::new(work_id.to_string()).expect("a UUID is short ASCII")
}

#[cfg(test)]
mod tests {
    use orlog_model::{Ended, Failure, Parent, TenantId};
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn key(tenant: &str, saga: &str, correlation: &str) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new(tenant).unwrap(),
            saga: SagaName::new(saga).unwrap(),
            correlation: CorrelationId::new(correlation).unwrap(),
        }
    }

    fn command(order: WorkflowOrder) -> WorkflowCommand {
        let id = order_id(Uuid::from_u128(7));
        WorkflowCommand { id, at: Timestamp::from_millis(5), trace: None, order }
    }

    fn start(parent: InstanceKey) -> WorkflowOrder {
        let parent = Parent { key: parent, work_id: Uuid::from_u128(7), depth: 1 };
        WorkflowOrder::Start { parent, event: None, data: json!({ "a": [1, "ä"] }) }
    }

    #[test]
    fn an_order_arrives_as_it_was_sent() {
        let (from, to) = (key("acme", "trip", "t.1"), key("acme", "hotel", "a b>"));
        let failure = Some(Failure { code: "child_failed".to_owned(), message: "no".to_owned() });
        let work_id = Uuid::from_u128(7);
        let ended = Ended { work_id, failure, event: None, data: json!(null) };
        let stop = WorkflowOrder::Stop { from: from.clone(), reason: "given up".to_owned() };
        for order in [start(from.clone()), stop, WorkflowOrder::Ended(ended)] {
            let sent = command(order);
            let message = encode(&to, &from, &sent);
            assert!(is_addressed(&message.subject), "{}", message.subject);
            assert_eq!(address(&message.subject).unwrap(), to);
            assert_eq!(decode(&message, Timestamp::from_millis(9)).unwrap(), Word::Order(sent));
        }
    }

    #[test]
    fn an_order_never_crosses_tenants() {
        let sent = command(start(key("other", "trip", "t-1")));
        let message = encode(&key("acme", "hotel", "h-1"), &key("acme", "trip", "t-1"), &sent);
        let error = decode(&message, Timestamp::from_millis(9)).unwrap_err();
        assert!(matches!(error, DecodeError::Tenant { .. }), "{error}");
    }

    #[test]
    fn what_is_no_order_is_a_signal_and_a_malformed_order_is_refused() {
        let to = key("", "hotel", "h-1");
        let mut message = encode(&to, &to, &command(start(to.clone())));
        for (name, value) in &mut message.headers {
            if name == "ce-type" {
                "GuestArrived".clone_into(value);
            }
        }
        let word = decode(&message, Timestamp::from_millis(9)).unwrap();
        assert!(matches!(word, Word::Signal(event) if event.kind.as_str() == "GuestArrived"));
        let mut message = encode(&to, &to, &command(start(to.clone())));
        message.payload = "{\"begin\": 1}".into();
        assert!(decode(&message, Timestamp::from_millis(9)).unwrap_err().to_string().contains("malformed"));
    }

    #[test]
    fn tells_addressed_messages_by_their_subject() {
        for (subject, expected) in [
            ("workflow.order.o-1", true),
            ("tenant.acme.workflow.order.o-1", true),
            ("tenant.workflow.aggregate.order.o-1", false),
            ("aggregate.workflow.o-1", false),
            ("workflow_event.order.o-1", false),
        ] {
            assert_eq!(is_addressed(subject), expected, "{subject}");
        }
    }
}
