//! Dedupe keys: identities of inputs.

use std::fmt;

use uuid::Uuid;

use crate::ids::digest;
use crate::{ControlAction, ControlRequest, Event, Input};

/// Identity of an input within its instance: a 128-bit hash. CloudEvents identifies an event by its
/// source and its id together, so two sources may use the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DedupeKey(Uuid);

impl DedupeKey {
    fn of(parts: &[&[u8]]) -> Self {
        let digest = digest(parts.iter().copied());
        Self(Uuid::from_bytes(
            *digest
                .first_chunk()
                .expect("a digest is longer than a UUID"),
        ))
    }

    /// Returns the key with this value, as read from a store.
    #[must_use]
    pub fn from_uuid(value: Uuid) -> Self {
        Self(value)
    }

    /// Returns the value.
    #[must_use]
    pub fn as_uuid(&self) -> &Uuid {
        &self.0
    }

    /// Returns a hash of the key and a part: FNV-1a, 64 bit.
    #[must_use]
    pub fn hash_with(self, part: &[u8]) -> u64 {
        let bytes = self.0.as_bytes().iter().chain(part);
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
}

impl fmt::Display for DedupeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Event {
    /// Returns the identity of the event: its source and its id.
    #[must_use]
    pub fn dedupe_key(&self) -> DedupeKey {
        DedupeKey::of(&[
            b"event",
            self.source.as_bytes(),
            self.id.as_str().as_bytes(),
        ])
    }
}

impl Input {
    /// Returns the dedupe key. Work results and timers need none: the id of the work and the token
    /// of the timer detect a second delivery.
    #[must_use]
    pub fn dedupe_key(&self) -> Option<DedupeKey> {
        self.has_dedupe_key().then(|| self.identity())
    }

    /// Returns whether a second delivery is detected by a dedupe key.
    #[must_use]
    pub fn has_dedupe_key(&self) -> bool {
        match self {
            Input::Event(_) | Input::Control(_) | Input::Workflow(_) => true,
            Input::Early(early) => early.input.has_dedupe_key(),
            Input::WorkResult(_) | Input::Timer(_) => false,
        }
    }

    /// Returns the identity of the input. It does not depend on the time of a decision.
    #[must_use]
    pub fn identity(&self) -> DedupeKey {
        match self {
            Input::Event(event) => event.dedupe_key(),
            // A signal over the bus carries an event, and both have one identity: a second delivery
            // is a no-op, also if it arrives the other way.
            Input::Control(ControlRequest {
                action: ControlAction::Deliver { event, .. },
                ..
            }) => event.dedupe_key(),
            Input::Control(control) => DedupeKey::of(&[b"control", control.id.as_str().as_bytes()]),
            Input::Workflow(command) => {
                DedupeKey::of(&[b"workflow", command.id.as_str().as_bytes()])
            }
            // The id of a work item is a hash already, and it is unique within the instance.
            Input::WorkResult(result) => DedupeKey(result.work_id),
            Input::Timer(timer) => DedupeKey::of(&[
                b"timer",
                timer.name.as_str().as_bytes(),
                &timer.token.to_le_bytes(),
            ]),
            Input::Early(early) => early.input.identity(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::{EventId, EventType, TenantId, Timestamp};

    fn event(source: &str, id: &str) -> Event {
        Event {
            id: EventId::new(id).unwrap(),
            tenant: TenantId::default_tenant(),
            kind: EventType::new("OrderPlaced").unwrap(),
            source: source.to_owned(),
            subject: None,
            time: Timestamp::from_millis(0),
            correlation: None,
            causation: None,
            trace: None,
            schema_version: 1,
            data: Value::Null,
            user: None,
            attributes: None,
        }
    }

    #[test]
    fn source_and_id_identify_an_event() {
        let key = event("urn:shop", "1").dedupe_key();
        assert_eq!(
            key,
            Event {
                kind: EventType::new("Other").unwrap(),
                ..event("urn:shop", "1")
            }
            .dedupe_key()
        );
        assert_ne!(key, event("urn:bank", "1").dedupe_key());
        assert_ne!(key, event("urn:shop", "2").dedupe_key());
        assert_ne!(event("a", "bc").dedupe_key(), event("ab", "c").dedupe_key());
    }
}
