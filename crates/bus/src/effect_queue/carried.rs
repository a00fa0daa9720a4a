//! Result of an effect in the attributes of a fact.
//!
//! A fact whose data is the payload of a result carries the result, so that both are one message. What a fact has
//! anyway is not repeated: its time is the time of the result, and its cause is `outcome:<command id>`.

use compact_str::{CompactString, ToCompactString as _};
use orlog_model::{EventType, Failure, Timestamp, WorkOutcome};
use serde_json::Value;
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
/// If the payload of the result is not the data of the fact, or if the message would exceed `limit` bytes: returns the
/// fact unchanged. The result needs a message of its own.
pub fn carry(mut fact: Message, result: &ResultRef<'_>, limit: usize) -> Result<Message, Message> {
    let Some(name) = result_type(result) else { return Err(fact) };
    let count = fact.headers.len();
    let mut put = |name, value| fact.headers.push((CompactString::const_new(name), value));
    put(CARRIED_RESULT, header_value(result.effect.as_str()));
    put(RESULT, CompactString::const_new(name));
    if result.attempts != 1 {
        put(ATTEMPTS, result.attempts.to_compact_string());
    }
    if let WorkOutcome::Succeeded { event: Some(event), .. }
    | WorkOutcome::Failed { event: Some(event), .. } = result.outcome
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
    if fact.size() <= limit {
        return Ok(fact);
    }
    fact.headers.truncate(count);
    Err(fact)
}

/// Returns the type of a result that a fact can carry.
fn result_type(result: &ResultRef<'_>) -> Option<&'static str> {
    match result.outcome {
        WorkOutcome::Succeeded { schema_version: 1, .. } if result.payload.is_some() => Some("Succeeded"),
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
pub(crate) fn is_carrier(fact: &Message) -> bool {
    header(fact, CARRIED_RESULT).is_some()
}

fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    let found = message.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.as_str())
}

fn decode(fact: &Message) -> Result<EffectResult, DecodeError> {
    let optional = |name| header(fact, name).map(|value| header_text(name, value)).transpose();
    let missing = |name: &str| DecodeError::Missing {
        attribute: name.to_owned(),
        rule: "a fact with the attribute orlogeffect carries the result of that effect",
    };
    let required = |name| optional(name)?.ok_or_else(|| missing(name));
    let cause = required("ce-causationid")?;
    let command_id = cause.strip_prefix(CAUSE).and_then(|id| id.parse::<Uuid>().ok());
    let command_id = command_id.ok_or_else(|| {
        DecodeError::invalid("ce-causationid", "it must be outcome:<id of the command>", &cause)
    })?;
    let time = required("ce-time")?;
    let stored_at = Timestamp::parse(&time)
        .map_err(|_| DecodeError::invalid("ce-time", "it must be an RFC 3339 time", &time))?;
    let event = optional(EVENT)?
        .map(|text| {
            EventType::new(text.as_ref()).map_err(|e| DecodeError::invalid(EVENT, e.to_string(), &text))
        })
        .transpose()?;
    let data = || match &*fact.payload {
        [] => Ok(Value::Null),
        body => serde_json::from_slice(body)
            .map_err(|error| DecodeError::Json { part: "the body", reason: error.to_string() }),
    };
    let failure = || {
        let message = optional(ERROR_MESSAGE)?.unwrap_or_default().into_owned();
        Ok::<_, DecodeError>(Failure { code: required(ERROR_CODE)?.into_owned(), message })
    };
    let result_type = required(RESULT)?;
    let outcome = match &*result_type {
        "Succeeded" => WorkOutcome::succeeded(event, data()?),
        "Failed" => WorkOutcome::Failed { event, failure: failure()?, payload: data()? },
        "TimedOut" => WorkOutcome::TimedOut { failure: failure()? },
        other => {
            return Err(DecodeError::invalid(RESULT, "it must be Succeeded, Failed or TimedOut", other));
        }
    };
    let attempts = optional(ATTEMPTS)?.map(|text| {
        text.parse().map_err(|_| DecodeError::invalid(ATTEMPTS, "it must be a whole number", &text))
    });
    let attempt_log = optional(ATTEMPT_LOG)?.map(|text| {
        serde_json::from_str(&text)
            .map_err(|error| DecodeError::Json { part: ATTEMPT_LOG, reason: error.to_string() })
    });
    Ok(EffectResult {
        command_id,
        outcome,
        attempts: attempts.transpose()?.unwrap_or(1),
        facts: Vec::new(),
        trace: trace_of(fact),
        attempt_log: attempt_log.transpose()?.map(Box::new),
        stored_at: Some(stored_at),
    })
}
