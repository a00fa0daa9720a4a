//! Dead letters of commands, with the original message, the reason, the node and the time (requirement
//! E9).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use orlog_model::{TenantId, Timestamp};
use serde_json::{Value, json};

use crate::Message;
use crate::subject::{Subject, SubjectKind, tenant_of};

/// Encodes the dead letter of a command that no worker can execute. A body that is not text is encoded
/// in base64, as `payload_base64`.
#[must_use]
pub fn encode(command: &Message, sequence: u64, reason: &str, node: &str, at: Timestamp) -> Message {
    let tenant = tenant_of(&command.subject).unwrap_or_else(|_| TenantId::default_tenant());
    let headers: serde_json::Map<String, Value> =
        command.headers.iter().map(|(name, value)| (name.to_string(), Value::from(value.as_str()))).collect();
    let mut original = json!({ "subject": command.subject, "headers": headers });
    match std::str::from_utf8(&command.payload) {
        Ok(text) => original["payload"] = Value::from(text),
        Err(_) => original["payload_base64"] = Value::from(STANDARD.encode(&command.payload)),
    }
    let body = json!({
        "tenant_id": tenant, "reason": reason, "node": node, "at": at.to_string(), "original": original,
    });
    Message {
        subject: Subject::new(tenant, SubjectKind::DeadLetter, "effect", sequence.to_string()).to_string(),
        id: Some(format!("dead:{sequence}:{}", command.subject)),
        headers: vec![("content-type".into(), "application/json".into())],
        payload: Bytes::from(body.to_string()),
    }
}
