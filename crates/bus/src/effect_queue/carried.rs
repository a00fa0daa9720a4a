//! Result of an effect in the attributes of a fact.
//!
//! A fact whose data is the payload of a result carries the result, so that both are one message.
//! What a fact has anyway is not repeated: its time is the time of the result, and its cause is
//! `outcome:<command id>`.

use compact_str::{CompactString, ToCompactString as _};
use orlog_model::{EventType, Failure, Timestamp, WorkOutcome};
use serde_json::Value;
use std::borrow::Cow;
use uuid::Uuid;

use super::result::{EffectResult, ResultRef, trace_of};
use crate::Message;
use crate::codec::{CARRIED_RESULT, DecodeError, header_text, header_value};

const RESULT: &str = "ce-orlogresult";
const EVENT: &str = "ce-orlogevent";
const ATTEMPTS: &str = "ce-orlogattempts";
const ATTEMPT_LOG: &str = "ce-orlogattemptlog";
const ERROR_CODE: &str = "ce-orlogerrorcode";
const ERROR_MESSAGE: &str = "ce-orlogerrormessage";
/// Prefix of the cause of a fact that a result caused.
const CAUSE: &str = "outcome:";

/// Adds the result to the attributes of the fact that it caused.
///
/// # Errors
/// If the payload of the result is not the data of the fact, or if the message would exceed `limit`
/// bytes: returns the fact unchanged. The result needs a message of its own.
pub fn carry(mut fact: Message, result: &ResultRef<'_>, limit: usize) -> Result<Message, Message> {
    let Some(name) = result_type(result) else {
        return Err(fact);
    };

    // The size is known only with all attributes, so they are added first and removed if they do
    // not fit.
    let count = fact.headers.len();
    let mut put = |name, value| fact.headers.push((CompactString::const_new(name), value));

    put(CARRIED_RESULT, header_value(result.effect.as_str()));
    put(RESULT, CompactString::const_new(name));
    if result.attempts != 1 {
        put(ATTEMPTS, result.attempts.to_compact_string());
    }
    if let WorkOutcome::Succeeded {
        event: Some(event), ..
    }
    | WorkOutcome::Failed {
        event: Some(event), ..
    } = result.outcome
    {
        put(EVENT, header_value(event.as_str()));
    }
    if let Some(failure) = result.outcome.failure() {
        put(ERROR_CODE, header_value(&failure.code));
        put(ERROR_MESSAGE, header_value(&failure.message));
    }
    if let Some(log) = result.attempt_log {
        let json = serde_json::to_string(log).expect("a log of attempts can be serialized as JSON");
        put(ATTEMPT_LOG, header_value(&json));
    }

    // A fact is never rejected because of the result that it could carry.
    if fact.size() <= limit {
        return Ok(fact);
    }
    fact.headers.truncate(count);
    Err(fact)
}

/// Returns the type of a result that a fact can carry.
fn result_type(result: &ResultRef<'_>) -> Option<&'static str> {
    match result.outcome {
        WorkOutcome::Succeeded {
            schema_version: 1, ..
        } if result.payload.is_some() => Some("Succeeded"),
        WorkOutcome::Failed { .. } if result.payload.is_some() => Some("Failed"),
        WorkOutcome::TimedOut { .. } => Some("TimedOut"),
        WorkOutcome::Succeeded { .. } | WorkOutcome::Failed { .. } | WorkOutcome::Accepted => None,
    }
}

/// Decodes the result that a fact carries; `None` if it carries none.
///
/// # Errors
/// If an attribute of the result is missing or malformed.
#[must_use]
pub fn decode_carried(fact: &Message) -> Option<Result<EffectResult, DecodeError>> {
    is_carrier(fact).then(|| decode(fact))
}

/// Returns whether a fact carries a result.
fn is_carrier(fact: &Message) -> bool {
    header(fact, CARRIED_RESULT).is_some()
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let found = message
        .headers
        .iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

/// Returns an attribute of a fact.
fn optional<'a>(fact: &'a Message, name: &str) -> Result<Option<Cow<'a, str>>, DecodeError> {
    header(fact, name)
        .map(|value| header_text(name, value))
        .transpose()
}

/// Returns an attribute that each fact with a result has.
fn required<'a>(fact: &'a Message, name: &str) -> Result<Cow<'a, str>, DecodeError> {
    optional(fact, name)?.ok_or_else(|| DecodeError::Missing {
        attribute: name.to_owned(),
        rule: "a fact with the attribute orlogeffect carries the result of that effect",
    })
}

fn decode(fact: &Message) -> Result<EffectResult, DecodeError> {
    // The cause of the fact is not repeated in an attribute of its own; it contains the command.
    let cause = required(fact, "ce-causationid")?;
    let command_id = cause
        .strip_prefix(CAUSE)
        .and_then(|id| id.parse::<Uuid>().ok());

    let command_id = command_id.ok_or_else(|| {
        DecodeError::invalid(
            "ce-causationid",
            "it must be outcome:<id of the command>",
            &cause,
        )
    })?;

    let time = required(fact, "ce-time")?;
    let stored_at = Timestamp::parse(&time)
        .map_err(|_| DecodeError::invalid("ce-time", "it must be an RFC 3339 time", &time))?;

    let event = optional(fact, EVENT)?
        .map(|text| {
            EventType::new(text.as_ref())
                .map_err(|e| DecodeError::invalid(EVENT, e.to_string(), &text))
        })
        .transpose()?;

    let data = || match &*fact.payload {
        [] => Ok(Value::Null),
        body => serde_json::from_slice(body).map_err(|error| DecodeError::Json {
            part: "the body",
            reason: error.to_string(),
        }),
    };
    let failure = || {
        let message = optional(fact, ERROR_MESSAGE)?
            .unwrap_or_default()
            .into_owned();
        Ok::<_, DecodeError>(Failure {
            code: required(fact, ERROR_CODE)?.into_owned(),
            message,
        })
    };

    let result_type = required(fact, RESULT)?;
    let outcome = match &*result_type {
        "Succeeded" => WorkOutcome::succeeded(event, data()?),
        "Failed" => WorkOutcome::Failed {
            event,
            failure: failure()?,
            payload: data()?,
        },
        "TimedOut" => WorkOutcome::TimedOut {
            failure: failure()?,
        },
        other => {
            return Err(DecodeError::invalid(
                RESULT,
                "it must be Succeeded, Failed or TimedOut",
                other,
            ));
        }
    };

    let attempts = optional(fact, ATTEMPTS)?.map(|text| {
        text.parse()
            .map_err(|_| DecodeError::invalid(ATTEMPTS, "it must be a whole number", &text))
    });
    let attempt_log = optional(fact, ATTEMPT_LOG)?.map(|text| {
        serde_json::from_str(&text).map_err(|error| DecodeError::Json {
            part: ATTEMPT_LOG,
            reason: error.to_string(),
        })
    });

    Ok(EffectResult {
        command_id,
        outcome,
        attempts: attempts.transpose()?.unwrap_or(1),
        // The other facts of the result are messages of their own.
        facts: Vec::new(),
        trace: trace_of(fact),
        attempt_log: attempt_log.transpose()?.map(Box::new),
        stored_at: Some(stored_at),
    })
}

#[cfg(test)]
mod tests {
    use orlog_model::{AttemptLog, EffectName, Fact, InstanceKey, TenantId};
    use serde_json::json;

    use super::*;
    use crate::codec::{self, EventRef};

    const AT: Timestamp = Timestamp::from_millis(1_700_000_000_123);

    fn key() -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new("acme").unwrap(),
            saga: "order".parse().unwrap(),
            correlation: "o-1".parse().unwrap(),
        }
    }

    fn fact(data: &Value) -> Message {
        let instance = key();
        let cause = format!("outcome:{}", Uuid::from_u128(7));
        let event = EventRef {
            id: "f-1",
            tenant: &instance.tenant,
            kind: "Charged",
            source: "orlog:order",
            subject: Some("o-1"),
            time: AT,
            correlation: Some("o-1"),
            causation: Some(&cause),
            trace: None,
            schema_version: 1,
            data,
            user: None,
            attributes: None,
        };
        codec::encode(event, "tenant.acme.workflow_event.order.o-1")
    }

    fn carry_on(
        data: &Value,
        outcome: &WorkOutcome,
        payload: Option<&Value>,
        limit: usize,
    ) -> Result<Message, Message> {
        let (instance, effect) = (key(), EffectName::new("payments.charge").unwrap());
        let log = AttemptLog {
            records: Vec::new(),
            omitted: 3,
        };
        let result = ResultRef {
            instance: &instance,
            command_id: Uuid::from_u128(7),
            effect: &effect,
            causation: None,
            trace: None,
            outcome,
            payload,
            facts: &[] as &[Fact],
            attempts: 2,
            attempt_log: Some(&log),
            at: AT,
        };
        carry(fact(data), &result, limit)
    }

    /// Requirements: R5, R9.
    #[test]
    fn fact_carries_the_result_that_caused_it() {
        let data = json!({ "receipt": 3 });
        let failure = Failure {
            code: "no_funds".to_owned(),
            message: "the card\nis \"empty\"".to_owned(),
        };
        let event = Some(EventType::new("Charged").unwrap());
        for outcome in [
            WorkOutcome::succeeded(None, data.clone()),
            WorkOutcome::succeeded(event.clone(), data.clone()),
            WorkOutcome::Failed {
                event,
                failure: failure.clone(),
                payload: data.clone(),
            },
            WorkOutcome::TimedOut { failure },
        ] {
            let message = carry_on(&data, &outcome, outcome.payload(), usize::MAX).unwrap();
            assert_eq!(message.payload, fact(&data).payload);
            let result = decode_carried(&message).unwrap().unwrap();
            assert_eq!(
                (result.command_id, result.stored_at),
                (Uuid::from_u128(7), Some(AT))
            );
            assert_eq!((result.outcome, result.attempts), (outcome, 2));
            assert_eq!(result.attempt_log.unwrap().omitted, 3);
            // A saga that consumes the fact reads the same event as without the result.
            assert_eq!(
                codec::decode(&message, AT).unwrap(),
                codec::decode(&fact(&data), AT).unwrap()
            );
        }
    }

    #[test]
    fn fact_carries_no_result_with_another_payload_version_or_size() {
        let data = json!({ "receipt": 3 });
        let outcome = WorkOutcome::succeeded(None, data.clone());
        assert_eq!(
            carry_on(&data, &outcome, None, usize::MAX),
            Err(fact(&data))
        );
        let newer = WorkOutcome::Succeeded {
            event: None,
            payload: data.clone(),
            schema_version: 2,
        };
        assert_eq!(
            carry_on(&data, &newer, Some(&data), usize::MAX),
            Err(fact(&data))
        );
        assert_eq!(
            carry_on(&data, &outcome, Some(&data), fact(&data).size()),
            Err(fact(&data))
        );
        assert!(decode_carried(&fact(&data)).is_none());
    }

    #[test]
    fn incomplete_result_is_rejected() {
        let data = json!(1);
        let outcome = WorkOutcome::succeeded(None, data.clone());
        for (name, value, expected) in [
            (
                "ce-causationid",
                "cmd-7",
                "it must be outcome:<id of the command>",
            ),
            (RESULT, "Done", "it must be Succeeded, Failed or TimedOut"),
            (ATTEMPTS, "many", "it must be a whole number"),
        ] {
            let mut message = carry_on(&data, &outcome, Some(&data), usize::MAX).unwrap();
            for (_, found) in message
                .headers
                .iter_mut()
                .filter(|(known, _)| known == name)
            {
                *found = value.into();
            }
            let error = decode_carried(&message).unwrap().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let mut message = carry_on(&data, &outcome, Some(&data), usize::MAX).unwrap();
        message.headers.retain(|(name, _)| name != RESULT);
        let error = decode_carried(&message).unwrap().unwrap_err().to_string();
        assert!(
            error.contains("attribute ce-orlogresult is missing"),
            "{error}"
        );
    }
}
