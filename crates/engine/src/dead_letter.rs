//! Dead letters: an input that cannot be applied is kept whole, and everything else goes on.

use orlog_model::{
    Commit, DeadLetter, DeadLetterReason, Input, InstanceKey, Original, TenantId, Timestamp, derived_id,
};

use crate::context::cleared;

/// Why an input is set aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grounds {
    /// For programs.
    pub reason: DeadLetterReason,
    /// For people.
    pub message: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// The commit that sets an input aside. Its outbox or timer row goes, so that it is not offered or fired for ever.
#[must_use]
pub fn set_aside(key: &InstanceKey, input: &Input, grounds: Grounds, now: Timestamp, node: &str) -> Commit {
    let mut commit = cleared(key, input, now);
    let id = derived_id(
        input.at(),
        &[
            key.tenant.as_str().as_bytes(),
            key.saga.as_str().as_bytes(),
            key.correlation.as_str().as_bytes(),
            input.id().as_str().as_bytes(),
        ],
    );
    commit.dead_letter = Some(Box::new(DeadLetter {
        id,
        tenant: key.tenant.clone(),
        instance: Some(key.clone()),
        reason: grounds.reason,
        message: grounds.message,
        original: Original::Input(Box::new(input.clone())),
        attempts: grounds.attempts,
        node: node.to_owned(),
        at: now,
    }));
    commit
}

/// The letter for a message that is no event, or that names no instance.
#[must_use]
pub fn dead_letter(
    tenant: TenantId,
    original: Original,
    reason: DeadLetterReason,
    message: String,
    node: &str,
    at: Timestamp,
) -> DeadLetter {
    let id = match &original {
        Original::Input(input) => {
            derived_id(at, &[tenant.as_str().as_bytes(), input.id().as_str().as_bytes()])
        }
        Original::Message { subject, payload, .. } => {
            derived_id(at, &[tenant.as_str().as_bytes(), subject.as_bytes(), payload])
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
