//! The names things go by, checked at the door.
//!
//! Every id is short, printable text: no control characters, a stated maximum length in bytes. Checking happens once, in
//! `new` (and in deserialization); whoever holds an id may put it into a key, a log line or, percent-encoded, a subject.

use std::fmt;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::Timestamp;

/// An id that cannot be accepted; the text names the kind, the rule and what was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty where something is required.
    #[error("{kind} is empty; give at least one character")]
    Empty {
        /// Which id, for example `correlation id`.
        kind: &'static str,
    },
    /// The text is longer than the stored keys allow.
    #[error("{kind} is {length} bytes long, the limit is {limit}; shorten or hash it")]
    TooLong {
        /// Which id.
        kind: &'static str,
        /// Bytes found.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// A control character (NUL, newline, DEL …) stands in the text.
    #[error("{kind} holds the control character {character:?} at byte {position}; remove it")]
    Control {
        /// Which id.
        kind: &'static str,
        /// The character.
        character: char,
        /// Its byte offset.
        position: usize,
    },
}

fn check(kind: &'static str, text: &str, limit: usize, may_be_empty: bool) -> Result<(), IdError> {
    if text.is_empty() && !may_be_empty {
        return Err(IdError::Empty { kind });
    }
    if text.len() > limit {
        return Err(IdError::TooLong { kind, length: text.len(), limit });
    }
    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((position, character)) => Err(IdError::Control { kind, character, position }),
        None => Ok(()),
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, empty: $empty:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "CompactString", into = "CompactString")]
        pub struct $name(CompactString);

        impl $name {
            /// The longest allowed text, in bytes of UTF-8.
            pub const MAX_BYTES: usize = $max;

            /// Checks the text and takes it.
            ///
            /// # Errors
            /// When it is empty (where that is not allowed), too long, or holds a control character.
            pub fn new(text: impl Into<CompactString>) -> Result<Self, IdError> {
                let text = text.into();
                check($kind, &text, $max, $empty)?;
                Ok(Self(text))
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<CompactString> for $name {
            type Error = IdError;

            fn try_from(text: CompactString) -> Result<Self, IdError> {
                Self::new(text)
            }
        }

        impl From<$name> for CompactString {
            fn from(id: $name) -> CompactString {
                id.0
            }
        }

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
    };
}

id!(
    /// Whose data it is. The empty tenant is the default one of a deployment without tenants.
    TenantId, "tenant id", 64, empty: true
);
id!(
    /// The name of a saga definition, for example `order`.
    SagaName, "saga name", 64, empty: false
);
id!(
    /// What the events of one saga instance share, for example the order number.
    CorrelationId, "correlation id", 256, empty: false
);
id!(
    /// The id an event was published with; the key of deduplication.
    EventId, "event id", 128, empty: false
);
id!(
    /// What kind of fact an event states, for example `OrderPlaced`.
    EventType, "event type", 128, empty: false
);
id!(
    /// The name of an effect, for example `payments.charge`.
    EffectName, "effect name", 128, empty: false
);
id!(
    /// Any other short name: a step, a timer, an aggregate type, a tag.
    Name, "name", 256, empty: false
);

impl TenantId {
    /// The tenant of a deployment without tenants.
    #[must_use]
    pub const fn default_tenant() -> Self {
        Self(CompactString::const_new(""))
    }
}

impl Default for TenantId {
    fn default() -> Self {
        Self::default_tenant()
    }
}

/// Names one saga instance: unique within a deployment, and the unit of order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey {
    /// Whose instance it is.
    pub tenant: TenantId,
    /// The definition's name.
    pub saga: SagaName,
    /// What its events share.
    pub correlation: CorrelationId,
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.tenant, self.saga, self.correlation)
    }
}

/// A UUID v7 whose time is `at` and whose other bits are a hash of `parts`: the same inputs always make the same id.
///
/// Deciding the same event twice therefore commands the same thing under the same idempotency key.
#[must_use]
pub fn derived_id(at: Timestamp, parts: &[&[u8]]) -> Uuid {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    let mut random = [0u8; 10];
    random.copy_from_slice(&digest[..10]);
    let millis = u64::try_from(at.millis()).unwrap_or(0);
    uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_control_characters_and_names_the_place() {
        let error = CorrelationId::new("a\0b").unwrap_err();
        assert_eq!(error, IdError::Control { kind: "correlation id", character: '\0', position: 1 });
        assert!(CorrelationId::new("a\u{85}b").is_err());
    }

    #[test]
    fn refuses_what_is_too_long_and_names_the_limit() {
        let error = CorrelationId::new("x".repeat(257)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "correlation id is 257 bytes long, the limit is 256; shorten or hash it"
        );
    }

    #[test]
    fn only_the_tenant_may_be_empty() {
        assert!(TenantId::new("").is_ok());
        assert_eq!(SagaName::new(""), Err(IdError::Empty { kind: "saga name" }));
    }

    #[test]
    fn deserialization_checks_too() {
        assert!(serde_json::from_str::<SagaName>("\"a\\u0000\"").is_err());
        assert_eq!(serde_json::from_str::<SagaName>("\"order\"").unwrap().as_str(), "order");
    }

    #[test]
    fn derived_ids_are_version_7_and_depend_on_every_part() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let id = derived_id(at, &[b"ab", b"c"]);
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(id, derived_id(at, &[b"ab", b"c"]));
        assert_ne!(id, derived_id(at, &[b"a", b"bc"]));
        assert_eq!(id.get_timestamp().map(|t| t.to_unix().0), Some(1_700_000_000));
    }
}
