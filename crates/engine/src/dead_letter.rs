//! Dead letters: stores an input that cannot be applied in full, and lets the instance continue.

use orlog_model::{
    Commit, DeadLetter, DeadLetterOriginal, DeadLetterReason, Input, InstanceKey, TenantId,
    Timestamp, derive_id,
};

use crate::context::cleanup_commit;

/// Cause of a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterCause {
    /// Reason, for programs.
    pub reason: DeadLetterReason,
    /// Message, for operators.
    pub message: String,
    /// Number of attempts.
    pub attempts: u32,
}

/// Returns the commit that dead-letters an input. It deletes the outbox or timer row of the input,
/// so that the input is not dispatched or fired again.
#[must_use]
pub fn dead_letter_input(
    key: &InstanceKey,
    input: &Input,
    cause: DeadLetterCause,
    now: Timestamp,
    node: &str,
) -> Commit {
    let mut commit = cleanup_commit(key, input, now);

    // Without the time of the decision, a second decision about the input has the same dead letter.
    let id = derive_id(
        input.at(),
        &[
            key.tenant.as_str().as_bytes(),
            key.saga.as_str().as_bytes(),
            key.correlation.as_str().as_bytes(),
            input.identity().as_uuid().as_bytes(),
        ],
    );

    commit.dead_letter = Some(Box::new(DeadLetter {
        id,
        tenant: key.tenant.clone(),
        instance: Some(key.clone()),
        reason: cause.reason,
        message: cause.message,
        original: DeadLetterOriginal::Input(Box::new(input.clone())),
        attempts: cause.attempts,
        node: node.to_owned(),
        at: now,
    }));

    commit
}

/// Returns the dead letter of a message that is not an event or that names no instance.
#[must_use]
pub fn dead_letter_message(
    tenant: TenantId,
    original: DeadLetterOriginal,
    reason: DeadLetterReason,
    message: String,
    node: &str,
    at: Timestamp,
) -> DeadLetter {
    let id = match &original {
        DeadLetterOriginal::Input(input) => derive_id(
            at,
            &[
                tenant.as_str().as_bytes(),
                input.identity().as_uuid().as_bytes(),
            ],
        ),
        // The id and the type of an event are headers.
        DeadLetterOriginal::Message {
            subject,
            headers,
            payload,
        } => {
            let mut parts: Vec<&[u8]> =
                vec![tenant.as_str().as_bytes(), subject.as_bytes(), payload];
            parts.extend(
                headers
                    .iter()
                    .flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]),
            );
            derive_id(at, &parts)
        }
    };

    DeadLetter {
        id,
        tenant,
        instance: None,
        reason,
        message,
        original,
        attempts: 1,
        node: node.to_owned(),
        at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_with_different_headers_are_different_dead_letters() {
        let id = |event: &str| {
            let original = DeadLetterOriginal::Message {
                subject: "orlog.acme.events.order.o-1".to_owned(),
                headers: vec![("ce-id".into(), event.into())],
                payload: b"{}".to_vec(),
            };
            let (tenant, at) = (TenantId::new("acme").unwrap(), Timestamp::from_millis(1));
            let reason = DeadLetterReason::Unauthenticated;
            dead_letter_message(tenant, original, reason, String::new(), "node", at).id
        };
        assert_eq!(
            id("1"),
            id("1"),
            "a message that is delivered again is one dead letter"
        );
        assert_ne!(id("1"), id("2"));
    }
}
