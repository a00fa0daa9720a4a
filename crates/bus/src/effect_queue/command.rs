//! Commands to the workers of an effect: the envelope of requirement R5.

use std::time::Duration;

use bytes::Bytes;
use orlog_model::{
    CorrelationId, Effect, EffectName, EventId, InDoubtPolicy, InstanceKey, Name, Priority,
    RetryPolicy, SagaName, TenantId, Timestamp, TraceParent, Work, WorkItem,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::command_subject;
use super::headers::{headers, push_version};
use crate::Message;
use crate::codec::{DecodeError, MAX_MESSAGE_BYTES};
use crate::subject::{Subject, SubjectKind};

/// `ce-type` of a command.
const TYPE: &str = "orlog.effect.command";

/// Content of an effect command.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectCommand {
    /// Work item of the command. Its id is the idempotency key.
    pub item: WorkItem,
    /// Number of this dispatch, from 1. The relay repeats a dispatch if it receives no response.
    pub dispatch_count: u32,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    tenant_id: TenantId,
    command_id: Uuid,
    effect_name: EffectName,
    payload: Value,
    /// Schema version of the payload; absent if it is 1.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    version: u32,
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    saga: SagaName,
    correlation_id: CorrelationId,
    causation_id: EventId,
    tag: Name,
    idempotency_key: Uuid,
    created_at: String,
    #[serde(default)]
    deadline: Option<String>,
    #[serde(default = "first")]
    dispatch_count: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_attempts: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    initial_backoff_ms: Option<u64>,
    /// Whether the effect has a retry policy, even one without limits of attempts or delay.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    retry: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    in_doubt: Option<InDoubtPolicy>,
    #[serde(default, skip_serializing_if = "Priority::is_normal")]
    priority: Priority,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
}

/// Encodes the command of an effect. The deduplication id is the id of the command, and another one
/// for each repeated dispatch.
///
/// # Panics
/// Never: an envelope can always be serialized as JSON.
#[must_use]
pub fn encode(item: &WorkItem, effect: &Effect, dispatch_count: u32) -> Message {
    let metadata = Metadata {
        saga: item.instance.saga.clone(),
        correlation_id: item.instance.correlation.clone(),
        causation_id: item.causation.clone(),
        tag: effect.tag.clone(),
        idempotency_key: item.id,
        created_at: item.created_at.to_string(),
        deadline: item.deadline.map(|deadline| deadline.to_string()),
        dispatch_count,
        max_attempts: effect.retry.and_then(|retry| retry.max_attempts),
        initial_backoff_ms: effect
            .retry
            .and_then(|retry| retry.initial_backoff)
            .map(millis),
        retry: effect.retry.is_some(),
        in_doubt: effect.in_doubt,
        priority: item.priority,
        trace_id: item.trace.as_ref().map(|trace| trace.trace_id().to_owned()),
        traceparent: item.trace.as_ref().map(|trace| trace.as_str().to_owned()),
    };

    let envelope = Envelope {
        tenant_id: item.instance.tenant.clone(),
        command_id: item.id,
        effect_name: effect.name.clone(),
        payload: effect.payload.clone(),
        version: effect.schema_version,
        metadata,
    };

    let body = serde_json::to_vec(&envelope).expect("an envelope can be serialized as JSON");
    // With the id of the first dispatch, the stream would drop a repeated one as a duplicate.
    let suffix = if dispatch_count > 1 {
        format!("#{dispatch_count}")
    } else {
        String::new()
    };

    let mut id = Uuid::encode_buffer();
    let id: &str = item.id.hyphenated().encode_lower(&mut id);
    let mut headers = headers(
        &item.instance,
        id,
        item.causation.as_str(),
        item.trace.as_ref(),
        TYPE,
        item.created_at,
    );
    push_version(&mut headers, effect.schema_version);

    Message {
        subject: command_subject(item, &effect.name),
        id: Some(format!("{}{suffix}", item.id)),
        headers,
        payload: Bytes::from(body),
    }
}

/// Decodes a command.
///
/// # Errors
/// If it is not a command, or if the tenant, effect or id in its body differs from its subject.
pub fn decode(message: &Message) -> Result<EffectCommand, DecodeError> {
    let size = message.size();
    if size > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge {
            size,
            limit: MAX_MESSAGE_BYTES,
        });
    }

    let subject =
        Subject::parse(&message.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    let format = |reason: String| DecodeError::Format(format!("not an effect command: {reason}"));
    let envelope: Envelope =
        serde_json::from_slice(&message.payload).map_err(|error| format(error.to_string()))?;
    let Envelope {
        tenant_id,
        command_id,
        effect_name,
        payload,
        version,
        metadata,
    } = envelope;

    if tenant_id != subject.tenant {
        return Err(DecodeError::Tenant {
            claimed: tenant_id.to_string(),
            expected: subject.tenant.to_string(),
        });
    }

    // A sender may have permission for its subject only; its body must not name another one.
    let named = (
        SubjectKind::Effect,
        effect_name.as_str(),
        command_id.to_string(),
    );
    if named != (subject.kind, subject.name.as_str(), subject.id.clone()) {
        let Subject { name, id, .. } = &subject;
        return Err(format(format!(
            "body has {effect_name} {command_id}, but the subject has {} {name} {id}",
            subject.kind.token()
        )));
    }

    let time = |text: &str| Timestamp::parse(text).map_err(|error| format(error.to_string()));
    let retry = RetryPolicy {
        max_attempts: metadata.max_attempts,
        initial_backoff: metadata.initial_backoff_ms.map(Duration::from_millis),
    };
    let hinted =
        metadata.retry || metadata.max_attempts.is_some() || metadata.initial_backoff_ms.is_some();

    let effect = Effect {
        round: 0,
        tag: metadata.tag,
        name: effect_name,
        payload,
        timeout: None,
        retry: hinted.then_some(retry),
        schema_version: version,
        in_doubt: metadata.in_doubt,
        priority: metadata.priority,
    };

    let instance = InstanceKey {
        tenant: tenant_id,
        saga: metadata.saga,
        correlation: metadata.correlation_id,
    };
    let item = WorkItem {
        id: command_id,
        instance,
        work: Work::Effect(effect),
        deadline: metadata.deadline.as_deref().map(time).transpose()?,
        causation: metadata.causation_id,
        trace: metadata.traceparent.as_deref().and_then(TraceParent::new),
        created_at: time(&metadata.created_at)?,
        priority: metadata.priority,
    };

    Ok(EffectCommand {
        item,
        dispatch_count: metadata.dispatch_count,
    })
}

fn first() -> u32 {
    1
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_first(version: &u32) -> bool {
    *version == 1
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    pub(in super::super) fn item() -> WorkItem {
        WorkItem {
            id: Uuid::from_u128(7),
            instance: InstanceKey {
                tenant: TenantId::new("acme").unwrap(),
                saga: SagaName::new("order").unwrap(),
                correlation: CorrelationId::new("o 1").unwrap(),
            },
            work: Work::Effect(Effect {
                round: 0,
                tag: Name::new("charge").unwrap(),
                name: EffectName::new("payments.charge").unwrap(),
                payload: json!({"amount": 3}),
                timeout: None,
                retry: Some(RetryPolicy {
                    max_attempts: Some(3),
                    initial_backoff: Some(Duration::from_millis(250)),
                }),
                schema_version: 2,
                in_doubt: Some(InDoubtPolicy::Fail),
                priority: Priority::High,
            }),
            deadline: Some(Timestamp::from_millis(90_000)),
            causation: EventId::new("e-1").unwrap(),
            trace: TraceParent::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
            created_at: Timestamp::from_millis(60_000),
            priority: Priority::High,
        }
    }

    fn effect(item: &WorkItem) -> &Effect {
        let Work::Effect(effect) = &item.work else {
            panic!("it is an effect")
        };
        effect
    }

    #[test]
    fn command_encoding_round_trips() {
        let item = item();
        let message = encode(&item, effect(&item), 2);
        assert_eq!(
            message.subject,
            "tenant.acme.effect.payments%2Echarge.00000000-0000-0000-0000-000000000007"
        );
        assert_eq!(
            message.id.as_deref(),
            Some("00000000-0000-0000-0000-000000000007#2")
        );
        assert_eq!(
            decode(&message).unwrap(),
            EffectCommand {
                item,
                dispatch_count: 2
            }
        );
    }

    #[test]
    fn envelope_matches_the_documentation() {
        let item = item();
        let body: Value = serde_json::from_slice(&encode(&item, effect(&item), 1).payload).unwrap();
        let expected = json!({
            "tenant_id": "acme",
            "command_id": "00000000-0000-0000-0000-000000000007",
            "effect_name": "payments.charge",
            "payload": {"amount": 3},
            "version": 2,
            "metadata": {
                "saga": "order", "correlation_id": "o 1", "causation_id": "e-1", "tag": "charge",
                "idempotency_key": "00000000-0000-0000-0000-000000000007",
                "created_at": "1970-01-01T00:01:00.000Z", "deadline": "1970-01-01T00:01:30.000Z",
                "dispatch_count": 1, "max_attempts": 3, "initial_backoff_ms": 250, "retry": true, "in_doubt": "fail",
                "priority": "high",
                "trace_id": "4bf92f3577b34da6a3ce929d0e0e4736",
                "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            },
        });
        assert_eq!(body, expected);
    }

    #[test]
    fn body_contradicting_its_subject_is_rejected() {
        let item = item();
        let message = encode(&item, effect(&item), 1);
        let under = |subject: &str| Message {
            subject: subject.to_owned(),
            ..message.clone()
        };
        let id = item.id;
        for (subject, expected) in [
            (
                format!("tenant.other.effect.payments%2Echarge.{id}"),
                "tenant \"acme\"",
            ),
            (
                format!("tenant.acme.effect.payments%2Erefund.{id}"),
                "the subject has effect payments.refund",
            ),
            (
                format!("tenant.acme.effect_result.payments%2Echarge.{id}"),
                "the subject has effect_result",
            ),
            (
                "tenant.acme.effect.payments%2Echarge.8".to_owned(),
                "payments.charge 8",
            ),
        ] {
            let error = decode(&under(&subject)).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
