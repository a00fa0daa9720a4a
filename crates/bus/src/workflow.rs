//! Messages to one saga instance: `[tenant.<tenant>.]workflow.<saga>.<correlation>`.
//!
//! There are two kinds, both CloudEvents. An event of the type [`WORKFLOW_COMMAND`] is a message
//! between sagas: start, stop, or result; its data is a [`WorkflowAction`]. Any other event is a
//! signal: it is delivered to this instance only. The extension attributes `orlogexpectedversion`
//! and `orlogwaittoken` make it conditional; `orlogdueat` is the time of its delivery.

use compact_str::format_compact;
use orlog_model::{
    ControlAction, ControlRequest, CorrelationId, Event, EventId, InstanceKey, SagaName, Timestamp,
    WorkflowAction, WorkflowCommand,
};

use crate::codec::{self, DecodeError, EventRef, SignalConditions};
use crate::subject::{self, Subject, SubjectKind, format_subject};
use crate::{Error, Message};

/// Type of the events that contain workflow commands.
pub const WORKFLOW_COMMAND: &str = "orlog.workflow_command";

/// Message to one instance.
#[derive(Clone, Debug, PartialEq)]
pub enum WorkflowMessage {
    /// Workflow command from another saga.
    Command(WorkflowCommand),
    /// Signal from any sender.
    Signal(Event),
    /// Signal with conditions, or for a later time.
    ConditionalSignal(ControlRequest),
}

/// Encodes a workflow command to an instance. Its deduplication id is derived from the command, so
/// that it is delivered once.
///
/// # Panics
/// Never: a workflow command can always be serialized as JSON.
#[must_use]
pub fn encode(to: &InstanceKey, from: &InstanceKey, command: &WorkflowCommand) -> Message {
    let data = serde_json::to_value(&command.action)
        .expect("a workflow command can be serialized as JSON");
    let event = EventRef {
        id: command.id.as_str(),
        tenant: &to.tenant,
        kind: WORKFLOW_COMMAND,
        source: &format_compact!("orlog:{}", from.saga),
        subject: Some(from.correlation.as_str()),
        time: command.at,
        correlation: Some(to.correlation.as_str()),
        causation: None,
        trace: command.trace.as_ref(),
        schema_version: 1,
        data: &data,
        user: None,
        attributes: None,
    };
    codec::encode(event, instance_subject(to))
}

/// Encodes a signal to one instance.
#[must_use]
pub fn encode_signal(to: &InstanceKey, event: &Event) -> Message {
    codec::encode(event, instance_subject(to))
}

fn instance_subject(to: &InstanceKey) -> String {
    format_subject(
        &to.tenant,
        SubjectKind::Workflow,
        to.saga.as_str(),
        to.correlation.as_str(),
    )
}

/// Returns whether a message is for one instance. Examines only the start of its subject.
#[must_use]
pub fn is_instance_subject(subject: &str) -> bool {
    let own = subject
        .strip_prefix("tenant.")
        .and_then(|rest| rest.split_once('.'))
        .map(|(_, rest)| rest);
    own.unwrap_or(subject).starts_with("workflow.")
}

/// Returns the instance of a subject.
///
/// # Errors
/// If the subject has no instance; every subject of another kind has none.
pub fn instance_of(subject: &str) -> Result<InstanceKey, Error> {
    let Subject {
        tenant,
        kind,
        name,
        id,
    } = Subject::parse(subject)?;
    let invalid = |reason: String| Error::InvalidSubject {
        subject: subject.to_owned(),
        kind: "instance subject",
        reason,
    };

    // The key of an aggregate or a fact has the same form. A shard that took it for an instance
    // would decide by a key that no shard owns.
    if kind != SubjectKind::Workflow {
        let found = kind.token();
        return Err(invalid(format!("its kind is {found:?}, not \"workflow\"")));
    }

    let saga = SagaName::new(name).map_err(|error| invalid(error.to_string()))?;
    let correlation = CorrelationId::new(id).map_err(|error| invalid(error.to_string()))?;

    Ok(InstanceKey {
        tenant,
        saga,
        correlation,
    })
}

/// Decodes a message to one instance; `published_at` is the time of a message without a time.
///
/// # Errors
/// If it is not an event, or if it is a workflow command that is malformed or names an instance of
/// another tenant.
pub fn decode(message: &Message, published_at: Timestamp) -> Result<WorkflowMessage, DecodeError> {
    let (event, conditions) = codec::decode_signal(message, published_at)?;
    if event.kind.as_str() != WORKFLOW_COMMAND {
        return Ok(if conditions == SignalConditions::default() {
            WorkflowMessage::Signal(event)
        } else {
            WorkflowMessage::ConditionalSignal(conditional(event, conditions))
        });
    }

    let action: WorkflowAction = serde_json::from_value(event.data)
        .map_err(|error| DecodeError::Format(format!("malformed workflow command: {error}")))?;

    let named = match &action {
        WorkflowAction::Start { parent, .. } => Some(&parent.key),
        WorkflowAction::Cancel { from, .. } => Some(from),
        WorkflowAction::ChildEnded(_) => None,
    };
    // A command of another tenant could start or cancel the instances of this one.
    if let Some(other) = named.filter(|key| key.tenant != event.tenant) {
        let claimed = other.tenant.to_string();
        return Err(DecodeError::Tenant {
            claimed,
            expected: event.tenant.to_string(),
        });
    }

    Ok(WorkflowMessage::Command(WorkflowCommand {
        id: event.id,
        at: event.time,
        trace: event.trace,
        action,
    }))
}

fn conditional(event: Event, conditions: SignalConditions) -> ControlRequest {
    let SignalConditions {
        expected_version,
        wait_token,
        due_at,
    } = conditions;
    ControlRequest {
        id: event.id.clone(),
        expected_version,
        at: event.time,
        user: event.user.clone(),
        reason: None,
        trace: event.trace.clone(),
        wait_token,
        action: ControlAction::Deliver {
            event: Box::new(event),
            due_at,
        },
    }
}

/// Returns the filters for all messages to instances.
#[must_use]
pub fn filters() -> Vec<String> {
    subject::filters(None, SubjectKind::Workflow, None)
}

/// Returns the id of a workflow command: that of its work item.
///
/// # Panics
/// Never: a UUID is short ASCII.
#[must_use]
pub fn command_event_id(work_id: uuid::Uuid) -> EventId {
    EventId::new(work_id.to_string()).expect("a UUID is short ASCII")
}

#[cfg(test)]
mod tests {
    use orlog_model::{ChildResult, Failure, ParentRef, TenantId};
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

    fn command(action: WorkflowAction) -> WorkflowCommand {
        let id = command_event_id(Uuid::from_u128(7));
        WorkflowCommand {
            id,
            at: Timestamp::from_millis(5),
            trace: None,
            action,
        }
    }

    fn start(parent: InstanceKey) -> WorkflowAction {
        let parent = ParentRef {
            key: parent,
            work_id: Uuid::from_u128(7),
            depth: 1,
        };
        WorkflowAction::Start {
            parent,
            event: None,
            data: json!({ "a": [1, "ä"] }),
            user: Some("ada ä".to_owned()),
        }
    }

    #[test]
    fn command_round_trips() {
        let (from, to) = (key("acme", "trip", "t.1"), key("acme", "hotel", "a b>"));
        let failure = Some(Failure {
            code: "child_failed".to_owned(),
            message: "no".to_owned(),
        });
        let work_id = Uuid::from_u128(7);
        let ended = ChildResult {
            work_id,
            failure,
            event: None,
            data: json!(null),
        };
        let stop = WorkflowAction::Cancel {
            from: from.clone(),
            reason: "abandoned".to_owned(),
        };
        for action in [start(from.clone()), stop, WorkflowAction::ChildEnded(ended)] {
            let sent = command(action);
            let message = encode(&to, &from, &sent);
            assert!(is_instance_subject(&message.subject), "{}", message.subject);
            assert_eq!(instance_of(&message.subject).unwrap(), to);
            assert_eq!(
                decode(&message, Timestamp::from_millis(9)).unwrap(),
                WorkflowMessage::Command(sent)
            );
        }
    }

    #[test]
    fn command_cannot_cross_tenants() {
        let sent = command(start(key("other", "trip", "t-1")));
        let message = encode(
            &key("acme", "hotel", "h-1"),
            &key("acme", "trip", "t-1"),
            &sent,
        );
        let error = decode(&message, Timestamp::from_millis(9)).unwrap_err();
        assert!(matches!(error, DecodeError::Tenant { .. }), "{error}");
    }

    #[test]
    fn other_messages_are_signals_and_malformed_commands_are_rejected() {
        let to = key("", "hotel", "h-1");
        let mut message = encode(&to, &to, &command(start(to.clone())));
        for (name, value) in &mut message.headers {
            if name == "ce-type" {
                *value = "GuestArrived".into();
            }
        }
        let decoded = decode(&message, Timestamp::from_millis(9)).unwrap();
        assert!(
            matches!(decoded, WorkflowMessage::Signal(event) if event.kind.as_str() == "GuestArrived")
        );
        let mut message = encode(&to, &to, &command(start(to.clone())));
        message.payload = "{\"begin\": 1}".into();
        assert!(
            decode(&message, Timestamp::from_millis(9))
                .unwrap_err()
                .to_string()
                .contains("malformed")
        );
    }

    /// Requirements: E3.
    #[test]
    fn conditions_of_a_signal_are_read_in_both_modes() {
        let body = json!({ "specversion": "1.0", "id": "s-1", "type": "Approved", "source": "urn:desk",
            "orlogexpectedversion": 7, "orlogwaittoken": "0f3a91c2b4d5e678", "orlogdueat": "2026-11-21T08:30:00Z" });
        let header = |name: &str, value: &str| (name.into(), value.into());
        let binary = vec![
            header("ce-specversion", "1.0"),
            header("ce-id", "s-1"),
            header("ce-type", "Approved"),
            header("ce-source", "urn:desk"),
            header("ce-orlogexpectedversion", "7"),
            header("CE-OrlogWaitToken", "0F3A91C2B4D5E678"),
            header("ce-orlogdueat", "2026-11-21T08:30:00Z"),
        ];
        let message = |headers, payload: String| Message {
            subject: "tenant.acme.workflow.hotel.h-1".to_owned(),
            id: None,
            headers,
            payload: payload.into(),
        };
        for message in [
            message(Vec::new(), body.to_string()),
            message(binary, String::new()),
        ] {
            let WorkflowMessage::ConditionalSignal(request) =
                decode(&message, Timestamp::from_millis(9)).unwrap()
            else {
                panic!("it has conditions");
            };
            let token = "0f3a91c2b4d5e678".parse().unwrap();
            assert_eq!(
                (request.expected_version, request.wait_token),
                (Some(7), Some(token))
            );
            let ControlAction::Deliver { event, due_at } = request.action else {
                panic!("{request:?}")
            };
            assert_eq!(
                due_at,
                Some(Timestamp::parse("2026-11-21T08:30:00Z").unwrap())
            );
            assert_eq!(
                (event.kind.as_str(), event.source.as_str()),
                ("Approved", "urn:desk")
            );
        }
        for (name, value) in [
            ("orlogexpectedversion", "-1"),
            ("orlogwaittoken", "zz"),
            ("orlogdueat", "tomorrow"),
        ] {
            let mut invalid = body.clone();
            invalid[name] = value.into();
            let error = decode(
                &message(Vec::new(), invalid.to_string()),
                Timestamp::from_millis(9),
            )
            .unwrap_err();
            assert!(error.to_string().contains(name), "{error}");
        }
    }

    #[test]
    fn instance_subjects_are_recognized() {
        for (subject, expected) in [
            ("workflow.order.o-1", true),
            ("tenant.acme.workflow.order.o-1", true),
            ("tenant.workflow.aggregate.order.o-1", false),
            ("aggregate.workflow.o-1", false),
            ("workflow_event.order.o-1", false),
        ] {
            assert_eq!(is_instance_subject(subject), expected, "{subject}");
        }
    }

    #[test]
    fn subject_of_another_kind_has_no_instance() {
        assert_eq!(
            instance_of("tenant.acme.workflow.order.o-1").unwrap(),
            key("acme", "order", "o-1")
        );
        for subject in [
            "tenant.acme.aggregate.order.o-1",
            "tenant.acme.workflow_event.order.o-1",
            "effect_result.charge.c-1",
        ] {
            let error = instance_of(subject).unwrap_err().to_string();
            assert!(error.contains("not \"workflow\""), "{subject}: {error}");
        }
    }
}
