//! Results of effects: the envelope of requirement R5.

use std::borrow::Cow;
use std::num::NonZeroU32;

use bytes::Bytes;
use compact_str::{CompactString, ToCompactString as _};
use orlog_model::count::{Operation, count};
use orlog_model::{
    AttemptLog, Effect, EffectName, EventType, Fact, Failure, InstanceKey, TenantId, Timestamp,
    TraceParent, WorkItem, WorkOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::headers::{event_headers, headers, push_version};
use super::subject_of_result;
use crate::Message;
use crate::codec::DecodeError;
use crate::subject::{Subject, SubjectKind};

/// `ce-type` of a result.
const TYPE: &str = "orlog.effect.result";
/// Usual maximum size of a body, in bytes.
const BODY_BYTES: usize = 448;

/// Result of an effect.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectResult {
    /// Id of the command.
    pub command_id: Uuid,
    /// Outcome of the effect.
    pub outcome: WorkOutcome,
    /// Number of attempts that the worker made.
    pub attempts: u32,
    /// Facts that the worker emitted with the result.
    pub facts: Vec<Fact>,
    /// Span of the execution, if the worker reports it: the header `traceparent`.
    pub trace: Option<TraceParent>,
    /// How the attempts ended, if the first one did not succeed.
    pub attempt_log: Option<Box<AttemptLog>>,
    /// Time of the transition that stored the result, if it was published afterwards, by the node
    /// of its instance.
    pub stored_at: Option<Timestamp>,
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum ResultType {
    Succeeded,
    Failed,
    TimedOut,
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    tenant_id: Cow<'a, TenantId>,
    command_id: Uuid,
    effect_name: Cow<'a, EffectName>,
    result_type: ResultType,
    #[serde(default)]
    payload: Cow<'a, Value>,
    /// Schema version of the payload of a success; absent if it is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<NonZeroU32>,
    timestamp: CompactString,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<Cow<'a, EventType>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Cow<'a, Failure>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    facts: Vec<FactEnvelope<'a>>,
    #[serde(default)]
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt_log: Option<Cow<'a, AttemptLog>>,
    /// The instance has stored the result; the timestamp is the time of its transition.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    stored: bool,
    /// Reason why the payload and the attempts are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    left_out: Option<Cow<'a, str>>,
}

#[derive(Serialize, Deserialize)]
struct FactEnvelope<'a> {
    #[serde(rename = "type")]
    kind: Cow<'a, EventType>,
    #[serde(default)]
    data: Cow<'a, Value>,
}

/// Borrowed parts of a result. A publisher that has only the parts encodes them without copies.
#[derive(Clone, Copy, Debug)]
pub struct ResultRef<'a> {
    /// Instance that requested the effect.
    pub instance: &'a InstanceKey,
    /// Id of the command.
    pub command_id: Uuid,
    /// Name of the effect.
    pub effect: &'a EffectName,
    /// Id of the input that caused the command, if it is known.
    pub causation: Option<&'a str>,
    /// W3C trace context.
    pub trace: Option<&'a TraceParent>,
    /// Outcome of the effect.
    pub outcome: &'a WorkOutcome,
    /// Payload of the outcome, if it is the data of a fact.
    pub payload: Option<&'a Value>,
    /// Facts that the worker emitted with the result.
    pub facts: &'a [Fact],
    /// Number of attempts.
    pub attempts: u32,
    /// How the attempts ended, if the first one did not succeed.
    pub attempt_log: Option<&'a AttemptLog>,
    /// Time of the result.
    pub at: Timestamp,
}

/// Encodes the result of an effect. It has no deduplication id: the message that is stored under
/// its subject decides which result is the first.
#[must_use]
pub fn encode(item: &WorkItem, effect: &Effect, result: &EffectResult, at: Timestamp) -> Message {
    let mut id = Uuid::encode_buffer();
    let result = ResultRef {
        instance: &item.instance,
        command_id: item.id,
        effect: &effect.name,
        causation: Some(item.causation.as_str()),
        trace: item.trace.as_ref(),
        outcome: &result.outcome,
        payload: None,
        facts: &result.facts,
        attempts: result.attempts,
        attempt_log: result.attempt_log.as_deref(),
        at,
    };

    message_of(
        &result,
        item.id.hyphenated().encode_lower(&mut id),
        &envelope(&result),
    )
}

/// Encodes a result of at most `limit` bytes that the node of its instance publishes. It has a
/// deduplication id, so that it is published again after a crash without effect: the id of the
/// event. A larger result is published without its payload and its attempts; `left_out` contains
/// the reason.
#[must_use]
pub fn encode_event(result: &ResultRef<'_>, id: &str, limit: usize) -> Message {
    let stored = Envelope {
        stored: true,
        ..envelope(result)
    };
    let deduplicated = |message: Message| Message {
        id: Some(id.to_owned()),
        ..message
    };

    let message = deduplicated(message_of(result, id, &stored));
    let size = message.size();
    if size <= limit {
        return message;
    }

    // The outcome without the payload still shows consumers how the effect ended.
    let reason = format!("the result has {size} bytes, the limit of the bus is {limit}");
    let envelope = Envelope {
        payload: Cow::Owned(Value::Null),
        attempt_log: None,
        left_out: Some(reason.into()),
        ..stored
    };
    deduplicated(message_of(result, id, &envelope))
}

fn message_of(result: &ResultRef<'_>, id: &str, envelope: &Envelope<'_>) -> Message {
    count(Operation::EventEncode);
    let ResultRef {
        instance,
        command_id,
        effect,
        causation,
        trace,
        at,
        ..
    } = *result;

    let mut body = Vec::with_capacity(BODY_BYTES);
    serde_json::to_writer(&mut body, envelope).expect("an envelope can be serialized as JSON");
    let mut headers = match causation {
        Some(causation) => headers(instance, id, causation, trace, TYPE, at),
        // The other attributes of a command are in the body.
        None => event_headers(instance, id, trace, TYPE),
    };
    push_version(&mut headers, version_of(result.outcome));

    Message {
        subject: subject_of_result(&instance.tenant, effect, command_id),
        id: None,
        headers,
        payload: Bytes::from(body),
    }
}

fn version_of(outcome: &WorkOutcome) -> u32 {
    match outcome {
        WorkOutcome::Succeeded { schema_version, .. } => *schema_version,
        WorkOutcome::Accepted | WorkOutcome::Failed { .. } | WorkOutcome::TimedOut { .. } => 1,
    }
}

fn envelope<'a>(result: &ResultRef<'a>) -> Envelope<'a> {
    let ResultRef {
        instance, outcome, ..
    } = *result;
    let (result_type, event, error) = match outcome {
        WorkOutcome::Succeeded { event, .. } => (ResultType::Succeeded, event.as_ref(), None),
        WorkOutcome::Accepted => (ResultType::Succeeded, None, None),
        WorkOutcome::Failed { event, failure, .. } => {
            (ResultType::Failed, event.as_ref(), Some(failure))
        }
        WorkOutcome::TimedOut { failure } => (ResultType::TimedOut, None, Some(failure)),
    };

    let payload = result.payload.or_else(|| outcome.payload());
    let mut facts = Vec::with_capacity(result.facts.len());
    for fact in result.facts {
        facts.push(FactEnvelope {
            kind: Cow::Borrowed(&fact.kind),
            data: Cow::Borrowed(&fact.data),
        });
    }

    Envelope {
        tenant_id: Cow::Borrowed(&instance.tenant),
        command_id: result.command_id,
        effect_name: Cow::Borrowed(result.effect),
        result_type,
        payload: payload.map_or(Cow::Owned(Value::Null), Cow::Borrowed),
        version: NonZeroU32::new(version_of(outcome)).filter(|version| version.get() != 1),
        timestamp: result.at.to_compact_string(),
        event: event.map(Cow::Borrowed),
        error: error.map(Cow::Borrowed),
        facts,
        attempts: result.attempts,
        attempt_log: result.attempt_log.map(Cow::Borrowed),
        stored: false,
        left_out: None,
    }
}

/// Decodes a result.
///
/// # Errors
/// If it is not a result, if the tenant, effect or id in its body differs from its subject, or if
/// its payload was left out.
pub fn decode(message: &Message) -> Result<EffectResult, DecodeError> {
    let subject =
        Subject::parse(&message.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    let format = |reason: String| DecodeError::Format(format!("not an effect result: {reason}"));
    let envelope: Envelope<'static> =
        serde_json::from_slice(&message.payload).map_err(|error| format(error.to_string()))?;

    // First: the payload in the body is null then, and no reader may apply it as the result.
    if let Some(reason) = envelope.left_out {
        return Err(format(format!("its payload was left out: {reason}")));
    }
    if *envelope.tenant_id != subject.tenant {
        return Err(DecodeError::Tenant {
            claimed: envelope.tenant_id.to_string(),
            expected: subject.tenant.to_string(),
        });
    }

    // A worker may have permission for its subject only; its body must not name another command.
    let named = (
        SubjectKind::EffectResult,
        envelope.effect_name.as_str(),
        envelope.command_id.to_string(),
    );
    if named != (subject.kind, subject.name.as_str(), subject.id.clone()) {
        let reason = format!(
            "body has {} {}, but the subject has {} {}",
            envelope.effect_name, envelope.command_id, subject.name, subject.id
        );
        return Err(format(reason));
    }

    let Envelope {
        command_id,
        result_type,
        payload,
        version,
        event,
        error,
        facts,
        attempts,
        attempt_log,
        ..
    } = envelope;

    let stored_at = if envelope.stored {
        let time = Timestamp::parse(&envelope.timestamp);
        Some(time.map_err(|error| format(error.to_string()))?)
    } else {
        None
    };
    let failure = |code: &str| match error {
        Some(error) => error.into_owned(),
        None => Failure {
            code: code.to_owned(),
            message: "no reason was given".to_owned(),
        },
    };
    let payload = payload.into_owned();
    let event = event.map(Cow::into_owned);
    let outcome = match result_type {
        ResultType::Succeeded => {
            let schema_version = version.map_or(1, NonZeroU32::get);
            WorkOutcome::Succeeded {
                event,
                payload,
                schema_version,
            }
        }
        ResultType::Failed => WorkOutcome::Failed {
            event,
            failure: failure("failed"),
            payload,
        },
        ResultType::TimedOut => WorkOutcome::TimedOut {
            failure: failure("timed_out"),
        },
    };

    let facts = facts
        .into_iter()
        .map(|fact_envelope| {
            Fact::new(
                fact_envelope.kind.into_owned(),
                fact_envelope.data.into_owned(),
            )
        })
        .collect();
    let attempt_log = attempt_log.map(|log| Box::new(log.into_owned()));
    let trace = trace_of(message);

    Ok(EffectResult {
        command_id,
        outcome,
        attempts,
        facts,
        trace,
        attempt_log,
        stored_at,
    })
}

pub(super) fn trace_of(message: &Message) -> Option<TraceParent> {
    let found = message
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
    found.and_then(|(_, value)| TraceParent::new(value))
}

#[cfg(test)]
mod tests {
    use orlog_model::Work;
    use serde_json::json;

    use super::super::command::tests::item;
    use super::*;

    #[track_caller]
    fn check(outcome: WorkOutcome) {
        let item = item();
        let Work::Effect(effect) = &item.work else {
            panic!("it is an effect")
        };
        let fact = Fact::new(
            EventType::new("PointsEarned").unwrap(),
            json!({"points": 3}),
        );
        let trace = item.trace.clone();
        let attempt_log = Some(Box::new(AttemptLog {
            records: Vec::new(),
            omitted: 3,
        }));
        let result = EffectResult {
            command_id: item.id,
            outcome,
            attempts: 2,
            facts: vec![fact],
            trace,
            attempt_log,
            stored_at: None,
        };
        let message = encode(&item, effect, &result, Timestamp::from_millis(5));
        assert_eq!(decode(&message).unwrap(), result);
    }

    #[test]
    fn result_encoding_round_trips() {
        let failure = Failure {
            code: "no_funds".to_owned(),
            message: "the card is empty".to_owned(),
        };
        let event = Some(EventType::new("Charged").unwrap());
        check(WorkOutcome::succeeded(event.clone(), json!({"id": 3})));
        check(WorkOutcome::Succeeded {
            event: None,
            payload: json!({"id": 3}),
            schema_version: 4,
        });
        check(WorkOutcome::Failed {
            event,
            failure: failure.clone(),
            payload: json!([1]),
        });
        check(WorkOutcome::TimedOut { failure });
    }

    #[test]
    fn result_event_has_the_time_of_its_transition_and_an_id() {
        let item = item();
        let Work::Effect(effect) = &item.work else {
            panic!("it is an effect")
        };
        let outcome = WorkOutcome::succeeded(None, Value::Null);
        let payload = json!({ "text": "x".repeat(1000) });
        let result = ResultRef {
            instance: &item.instance,
            command_id: item.id,
            effect: &effect.name,
            causation: None,
            trace: None,
            outcome: &outcome,
            payload: Some(&payload),
            facts: &[],
            attempts: 1,
            attempt_log: None,
            at: Timestamp::from_millis(5),
        };
        let message = encode_event(&result, "result-9", 4096);
        assert_eq!(message.id.as_deref(), Some("result-9"));
        assert_eq!(
            message.subject,
            super::super::result_subject(&item, &effect.name)
        );
        let decoded = decode(&message).unwrap();
        assert_eq!(decoded.stored_at, Some(Timestamp::from_millis(5)));
        assert_eq!(
            decoded.outcome,
            WorkOutcome::succeeded(None, payload.clone())
        );

        let small = encode_event(&result, "result-9", 1000);
        assert!(small.size() <= 1000 && small.id == message.id, "{small:?}");
        let error = decode(&small).unwrap_err().to_string();
        assert!(
            error.contains("its payload was left out: the result has"),
            "{error}"
        );
    }

    #[test]
    fn minimal_worker_result_is_accepted() {
        let id = Uuid::from_u128(7);
        let body = json!({
            "tenant_id": "", "command_id": id, "effect_name": "a.b", "result_type": "Failed",
            "timestamp": "2026-11-21T08:30:00Z",
        });
        let message = Message {
            subject: format!("effect_result.a%2Eb.{id}"),
            id: None,
            headers: Vec::new(),
            payload: body.to_string().into(),
        };
        let WorkOutcome::Failed { failure, .. } = decode(&message).unwrap().outcome else {
            panic!("it failed")
        };
        assert_eq!(
            (failure.code.as_str(), failure.message.as_str()),
            ("failed", "no reason was given")
        );
        let other_tenant = Message {
            subject: format!("tenant.acme.effect_result.a%2Eb.{id}"),
            ..message
        };
        assert!(matches!(
            decode(&other_tenant),
            Err(DecodeError::Tenant { .. })
        ));
    }
}
