//! Results of effects: the envelope of requirement R5.

use bytes::Bytes;
use orlog_model::{
    AttemptLog, Effect, EffectName, EventType, Fact, Failure, TenantId, Timestamp, TraceParent, WorkItem,
    WorkOutcome,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::headers::headers;
use super::result_subject;
use crate::Message;
use crate::codec::DecodeError;
use crate::subject::{Subject, SubjectKind};

/// `ce-type` of a result.
const TYPE: &str = "orlog.effect.result";

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
}

#[derive(Clone, Copy, Serialize, Deserialize)]
enum ResultType {
    Succeeded,
    Failed,
    TimedOut,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    tenant_id: TenantId,
    command_id: Uuid,
    effect_name: EffectName,
    result_type: ResultType,
    #[serde(default)]
    payload: Value,
    timestamp: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<EventType>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<Failure>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    facts: Vec<FactEnvelope>,
    #[serde(default)]
    attempts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt_log: Option<Box<AttemptLog>>,
}

#[derive(Serialize, Deserialize)]
struct FactEnvelope {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    data: Value,
}

/// Encodes the result of an effect. It has no deduplication id: the message that is stored under its
/// subject decides which result is the first.
///
/// # Panics
/// Never: an envelope can always be serialized as JSON.
#[must_use]
pub fn encode(item: &WorkItem, effect: &Effect, result: &EffectResult, at: Timestamp) -> Message {
    let (result_type, event, error, payload) = match &result.outcome {
        WorkOutcome::Succeeded { event, payload } => {
            (ResultType::Succeeded, event.clone(), None, payload.clone())
        }
        WorkOutcome::Accepted => (ResultType::Succeeded, None, None, Value::Null),
        WorkOutcome::Failed { event, failure, payload } => {
            (ResultType::Failed, event.clone(), Some(failure.clone()), payload.clone())
        }
        WorkOutcome::TimedOut { failure } => (ResultType::TimedOut, None, Some(failure.clone()), Value::Null),
    };
    let fact_envelope = |fact: &Fact| FactEnvelope { kind: fact.kind.clone(), data: fact.data.clone() };
    let envelope = Envelope {
        tenant_id: item.instance.tenant.clone(),
        command_id: item.id,
        effect_name: effect.name.clone(),
        result_type,
        payload,
        timestamp: at.to_string(),
        event,
        error,
        facts: result.facts.iter().map(fact_envelope).collect(),
        attempts: result.attempts,
        attempt_log: result.attempt_log.clone(),
    };
    let body = serde_json::to_vec(&envelope).expect("an envelope can be serialized as JSON");
    Message {
        subject: result_subject(item, &effect.name),
        id: None,
        headers: headers(item, TYPE, at),
        payload: Bytes::from(body),
    }
}

/// Decodes a result.
///
/// # Errors
/// If it is not a result, or if the tenant, effect or id in its body differs from its subject.
pub fn decode(message: &Message) -> Result<EffectResult, DecodeError> {
    let subject = Subject::parse(&message.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    let format = |reason: String| DecodeError::Format(format!("not an effect result: {reason}"));
    let envelope: Envelope =
        serde_json::from_slice(&message.payload).map_err(|error| format(error.to_string()))?;
    if envelope.tenant_id != subject.tenant {
        return Err(DecodeError::Tenant {
            claimed: envelope.tenant_id.to_string(),
            expected: subject.tenant.to_string(),
        });
    }
    let named = (SubjectKind::EffectResult, envelope.effect_name.as_str(), envelope.command_id.to_string());
    if named != (subject.kind, subject.name.as_str(), subject.id.clone()) {
        let reason = format!(
            "body has {} {}, but the subject has {} {}",
            envelope.effect_name, envelope.command_id, subject.name, subject.id
        );
        return Err(format(reason));
    }
    let Envelope { command_id, result_type, payload, event, error, facts, attempts, attempt_log, .. } =
        envelope;
    let failure = |code: &str| {
        error.unwrap_or_else(|| Failure { code: code.to_owned(), message: "no reason was given".to_owned() })
    };
    let outcome = match result_type {
        ResultType::Succeeded => WorkOutcome::Succeeded { event, payload },
        ResultType::Failed => WorkOutcome::Failed { event, failure: failure("failed"), payload },
        ResultType::TimedOut => WorkOutcome::TimedOut { failure: failure("timed_out") },
    };
    let facts = facts
        .into_iter()
        .map(|fact_envelope| Fact { kind: fact_envelope.kind, data: fact_envelope.data, key: None })
        .collect();
    Ok(EffectResult { command_id, outcome, attempts, facts, trace: trace_of(message), attempt_log })
}

fn trace_of(message: &Message) -> Option<TraceParent> {
    let found = message.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("traceparent"));
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
        let Work::Effect(effect) = &item.work else { panic!("it is an effect") };
        let fact =
            Fact { kind: EventType::new("PointsEarned").unwrap(), data: json!({"points": 3}), key: None };
        let trace = item.trace.clone();
        let attempt_log = Some(Box::new(AttemptLog { records: Vec::new(), omitted: 3 }));
        let result =
            EffectResult { command_id: item.id, outcome, attempts: 2, facts: vec![fact], trace, attempt_log };
        let message = encode(&item, effect, &result, Timestamp::from_millis(5));
        assert_eq!(decode(&message).unwrap(), result);
    }

    #[test]
    fn result_encoding_round_trips() {
        let failure = Failure { code: "no_funds".to_owned(), message: "the card is empty".to_owned() };
        let event = Some(EventType::new("Charged").unwrap());
        check(WorkOutcome::Succeeded { event: event.clone(), payload: json!({"id": 3}) });
        check(WorkOutcome::Failed { event, failure: failure.clone(), payload: json!([1]) });
        check(WorkOutcome::TimedOut { failure });
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
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("failed", "no reason was given"));
        let other_tenant = Message { subject: format!("tenant.acme.effect_result.a%2Eb.{id}"), ..message };
        assert!(matches!(decode(&other_tenant), Err(DecodeError::Tenant { .. })));
    }
}
