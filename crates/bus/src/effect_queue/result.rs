//! What became of an effect: the envelope of requirement R5.

use bytes::Bytes;
use orlog_model::{
    Effect, EffectName, EventType, Fact, Failure, TenantId, Timestamp, TraceParent, Verdict, WorkItem,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::headers::headers;
use super::result_subject;
use crate::Message;
use crate::codec::DecodeError;
use crate::subject::{Kind, Subject};

/// The `ce-type` of a result.
const TYPE: &str = "orlog.effect.result";

/// What was said of an effect.
#[derive(Clone, Debug, PartialEq)]
pub struct Said {
    /// Of which.
    pub command_id: Uuid,
    /// How it ended.
    pub verdict: Verdict,
    /// Attempts that whoever performed it made.
    pub attempts: u32,
    /// What there is to tell everybody besides.
    pub facts: Vec<Fact>,
    /// The span in which it was performed, where whoever did it says so: the header `traceparent`.
    pub trace: Option<TraceParent>,
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
    facts: Vec<Told>,
    #[serde(default)]
    attempts: u32,
}

#[derive(Serialize, Deserialize)]
struct Told {
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    data: Value,
}

/// The message that says what became of an effect. It has no id for deduplication: whether it is the first is decided by
/// what lies under its subject, not by who says it.
///
/// # Panics
/// Never: an envelope can be written as JSON.
#[must_use]
pub fn encode(item: &WorkItem, effect: &Effect, said: &Said, at: Timestamp) -> Message {
    let (result_type, event, error, payload) = match &said.verdict {
        Verdict::Succeeded { event, payload } => {
            (ResultType::Succeeded, event.clone(), None, payload.clone())
        }
        Verdict::Accepted => (ResultType::Succeeded, None, None, Value::Null),
        Verdict::Failed { event, failure, payload } => {
            (ResultType::Failed, event.clone(), Some(failure.clone()), payload.clone())
        }
        Verdict::TimedOut { failure } => (ResultType::TimedOut, None, Some(failure.clone()), Value::Null),
    };
    let told = |fact: &Fact| Told { kind: fact.kind.clone(), data: fact.data.clone() };
    let envelope = Envelope {
        tenant_id: item.instance.tenant.clone(),
        command_id: item.id,
        effect_name: effect.name.clone(),
        result_type,
        payload,
        timestamp: at.to_string(),
        event,
        error,
        facts: said.facts.iter().map(told).collect(),
        attempts: said.attempts,
    };
    let body = serde_json::to_vec(&envelope).expect("an envelope can be written as JSON");
    Message {
        subject: result_subject(item, &effect.name),
        id: None,
        headers: headers(item, TYPE, at),
        payload: Bytes::from(body),
    }
}

/// Reads what was said.
///
/// # Errors
/// When it is no result, or its body names another tenant, effect or id than its subject.
pub fn decode(message: &Message) -> Result<Said, DecodeError> {
    let subject = Subject::parse(&message.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    let format = |reason: String| DecodeError::Format(format!("no result of an effect: {reason}"));
    let envelope: Envelope =
        serde_json::from_slice(&message.payload).map_err(|error| format(error.to_string()))?;
    if envelope.tenant_id != subject.tenant {
        return Err(DecodeError::Tenant {
            claimed: envelope.tenant_id.to_string(),
            expected: subject.tenant.to_string(),
        });
    }
    let named = (Kind::EffectResult, envelope.effect_name.as_str(), envelope.command_id.to_string());
    if named != (subject.kind, subject.name.as_str(), subject.id.clone()) {
        let reason = format!(
            "its body names {} {}, its subject {} {}",
            envelope.effect_name, envelope.command_id, subject.name, subject.id
        );
        return Err(format(reason));
    }
    let Envelope { command_id, result_type, payload, event, error, facts, attempts, .. } = envelope;
    let failure = |code: &str| {
        error.unwrap_or_else(|| Failure { code: code.to_owned(), message: "no reason was given".to_owned() })
    };
    let verdict = match result_type {
        ResultType::Succeeded => Verdict::Succeeded { event, payload },
        ResultType::Failed => Verdict::Failed { event, failure: failure("failed"), payload },
        ResultType::TimedOut => Verdict::TimedOut { failure: failure("timed_out") },
    };
    let facts = facts.into_iter().map(|told| Fact { kind: told.kind, data: told.data }).collect();
    Ok(Said { command_id, verdict, attempts, facts, trace: trace_of(message) })
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
    fn check(verdict: Verdict) {
        let item = item();
        let Work::Effect(effect) = &item.work else { panic!("it is an effect") };
        let fact = Fact { kind: EventType::new("PointsEarned").unwrap(), data: json!({"points": 3}) };
        let trace = item.trace.clone();
        let said = Said { command_id: item.id, verdict, attempts: 2, facts: vec![fact], trace };
        let message = encode(&item, effect, &said, Timestamp::from_millis(5));
        assert_eq!(decode(&message).unwrap(), said);
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let failure = Failure { code: "no_funds".to_owned(), message: "the card is empty".to_owned() };
        let event = Some(EventType::new("Charged").unwrap());
        check(Verdict::Succeeded { event: event.clone(), payload: json!({"id": 3}) });
        check(Verdict::Failed { event, failure: failure.clone(), payload: json!([1]) });
        check(Verdict::TimedOut { failure });
    }

    #[test]
    fn the_least_that_a_worker_says_is_enough() {
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
        let Verdict::Failed { failure, .. } = decode(&message).unwrap().verdict else { panic!("it failed") };
        assert_eq!((failure.code.as_str(), failure.message.as_str()), ("failed", "no reason was given"));
        let elsewhere = Message { subject: format!("tenant.acme.effect_result.a%2Eb.{id}"), ..message };
        assert!(matches!(decode(&elsewhere), Err(DecodeError::Tenant { .. })));
    }
}
