//! Dead letters of commands, with the original message, the reason, the node and the time
//! (requirement E9).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orlog_model::{TenantId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::Message;
use crate::codec::{DecodeError, MAX_MESSAGE_BYTES};
use crate::subject::{Subject, SubjectKind, tenant_of};

/// Name in the subjects of these dead letters: `deadletter.effect.<sequence>`.
pub const DEAD_LETTER_NAME: &str = "effect";

/// Dead letter of a command that no worker can execute.
#[derive(Clone, Debug, PartialEq)]
pub struct EffectDeadLetter {
    /// Reason.
    pub reason: String,
    /// Node of the worker.
    pub node: String,
    /// The command.
    pub original: Message,
}

#[derive(Serialize, Deserialize)]
struct Envelope {
    tenant_id: TenantId,
    reason: String,
    #[serde(default)]
    node: String,
    #[serde(default)]
    at: String,
    original: Original,
}

#[derive(Serialize, Deserialize)]
struct Original {
    subject: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload: Option<String>,
    /// Body that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
}

/// Encodes the dead letter of a command that no worker can execute. A body that is not text is
/// encoded in base64, as `payload_base64`.
///
/// # Panics
/// Never: an envelope can always be serialized as JSON.
#[must_use]
pub fn encode(
    command: &Message,
    sequence: u64,
    reason: &str,
    node: &str,
    at: Timestamp,
) -> Message {
    // A subject without a valid tenant can be the reason of the dead letter.
    let tenant = tenant_of(&command.subject).unwrap_or_else(|_| TenantId::default_tenant());
    let (payload, payload_base64) = match std::str::from_utf8(&command.payload) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(STANDARD.encode(&command.payload))),
    };

    let headers = command
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), value.to_string()));
    let original = Original {
        subject: command.subject.clone(),
        headers: headers.collect(),
        payload,
        payload_base64,
    };

    let envelope = Envelope {
        tenant_id: tenant.clone(),
        reason: reason.to_owned(),
        node: node.to_owned(),
        at: at.to_string(),
        original,
    };
    let body = serde_json::to_vec(&envelope).expect("an envelope can be serialized as JSON");

    let subject = Subject::new(
        tenant,
        SubjectKind::DeadLetter,
        DEAD_LETTER_NAME,
        sequence.to_string(),
    );

    Message {
        subject: subject.to_string(),
        // The worker retries the write until it is confirmed, so the id makes it idempotent.
        id: Some(format!("dead:{sequence}:{}", command.subject)),
        headers: vec![("content-type".into(), "application/json".into())],
        payload: Bytes::from(body),
    }
}

/// Decodes the dead letter of a command.
///
/// # Errors
/// If it is not a dead letter, or if its original is not an effect command of the tenant in its
/// subject: a redrive publishes the original.
pub fn decode(message: &Message) -> Result<EffectDeadLetter, DecodeError> {
    let size = message.size();
    if size > MAX_MESSAGE_BYTES {
        return Err(DecodeError::TooLarge {
            size,
            limit: MAX_MESSAGE_BYTES,
        });
    }

    let format =
        |reason: String| DecodeError::Format(format!("not a dead letter of an effect: {reason}"));
    let envelope: Envelope =
        serde_json::from_slice(&message.payload).map_err(|error| format(error.to_string()))?;
    let Envelope {
        tenant_id,
        reason,
        node,
        original,
        ..
    } = envelope;

    let expected = tenant_of(&message.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    let command =
        Subject::parse(&original.subject).map_err(|e| DecodeError::Subject(e.to_string()))?;
    // A redrive publishes the original: it must not reach another tenant, or be another message.
    let claimed = [&tenant_id, &command.tenant];
    if let Some(other) = claimed.into_iter().find(|tenant| **tenant != expected) {
        return Err(DecodeError::Tenant {
            claimed: other.to_string(),
            expected: expected.to_string(),
        });
    }

    if command.kind != SubjectKind::Effect {
        let kind = command.kind.token();
        return Err(format(format!(
            "its original has the subject of a message of the kind {kind}"
        )));
    }

    let payload = match (original.payload, original.payload_base64) {
        (Some(text), None) => text.into_bytes(),
        (None, Some(bytes)) => STANDARD
            .decode(bytes)
            .map_err(|error| format(error.to_string()))?,
        _ => {
            return Err(format(
                "its original requires either payload or payload_base64".to_owned(),
            ));
        }
    };

    let headers = original
        .headers
        .into_iter()
        .map(|(name, value)| (name.into(), value.into()))
        .collect();
    let original = Message {
        subject: original.subject,
        id: None,
        headers,
        payload: payload.into(),
    };

    Ok(EffectDeadLetter {
        reason,
        node,
        original,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn command(subject: &str, payload: &[u8]) -> Message {
        let headers = vec![("ce-type".into(), "orlog.effect.command".into())];
        Message {
            subject: subject.to_owned(),
            id: None,
            headers,
            payload: payload.to_vec().into(),
        }
    }

    #[track_caller]
    fn check_rejected(message: &Message, expected: &str) {
        let error = decode(message).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn dead_letter_keeps_its_command() {
        for payload in [b"{\"a\": 1}".as_slice(), &[0xff, 0, 7]] {
            let command = command("tenant.acme.effect.mail%2Esend.1", payload);
            let encoded = encode(
                &command,
                7,
                "not JSON",
                "worker-1",
                Timestamp::from_millis(0),
            );
            assert_eq!(encoded.subject, "tenant.acme.deadletter.effect.7");
            let decoded = decode(&encoded).unwrap();
            assert_eq!(
                (decoded.reason.as_str(), decoded.node.as_str()),
                ("not JSON", "worker-1")
            );
            assert_eq!(decoded.original, command);
        }
    }

    #[test]
    fn original_of_another_tenant_or_kind_is_rejected() {
        let at = Timestamp::from_millis(0);
        let mut foreign = encode(&command("tenant.acme.effect.a.1", b"{}"), 7, "r", "n", at);
        foreign.subject = "tenant.other.deadletter.effect.7".to_owned();
        check_rejected(&foreign, "other");
        check_rejected(
            &encode(&command("workflow.order.o-1", b"{}"), 7, "r", "n", at),
            "of the kind workflow",
        );
        check_rejected(
            &command("deadletter.effect.7", b"{}"),
            "not a dead letter of an effect",
        );
    }
}
