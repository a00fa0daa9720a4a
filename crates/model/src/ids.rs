//! Validated identifiers.
//!
//! Every id is short, printable text: no control characters, and a maximum length in bytes. `new`
//! and deserialization validate an id once; `for_input` and `for_path` also reject texts that
//! stored ids may have. A valid id may be used in a key, a log record or, percent-encoded, a
//! subject.

use std::fmt;

use compact_str::CompactString;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::Timestamp;

/// Error for an invalid id. The message contains the kind, the rule and the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// The text is empty, but a value is required.
    #[error("{kind} must not be empty")]
    Empty {
        /// Kind of the id, for example `correlation id`.
        kind: &'static str,
    },
    /// The text exceeds the limit of the stored keys.
    #[error("{kind} has {length} bytes, the limit is {limit}; shorten or hash it")]
    TooLong {
        /// Kind of the id.
        kind: &'static str,
        /// Actual length, in bytes.
        length: usize,
        /// Maximum length, in bytes.
        limit: usize,
    },
    /// The text is `.` or `..`, which URLs cannot contain as a segment: parsers remove it, also if
    /// it is encoded.
    #[error("{kind} must not be \".\" or \"..\", because no URL can contain it")]
    Dots {
        /// Kind of the id.
        kind: &'static str,
    },
    /// The text contains a control character (NUL, newline, DEL …).
    #[error("{kind} contains control character {character:?} at byte {position}; remove it")]
    Control {
        /// Kind of the id.
        kind: &'static str,
        /// Control character.
        character: char,
        /// Byte offset of the character.
        position: usize,
    },
    /// The text contains a character that changes the displayed order of other characters.
    #[error("{kind} contains bidirectional control {character:?} at byte {position}; remove it")]
    Direction {
        /// Kind of the id.
        kind: &'static str,
        /// Bidirectional control.
        character: char,
        /// Byte offset of the character.
        position: usize,
    },
}

/// Returns whether a character is invisible and changes the displayed order of other characters, so
/// that a text reads like another one (Unicode `Bidi_Control`).
#[must_use]
pub fn is_direction_control(character: char) -> bool {
    matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

fn check(kind: &'static str, text: &str, limit: usize, may_be_empty: bool) -> Result<(), IdError> {
    if text.is_empty() && !may_be_empty {
        return Err(IdError::Empty { kind });
    }
    if text.len() > limit {
        return Err(IdError::TooLong {
            kind,
            length: text.len(),
            limit,
        });
    }

    match text.char_indices().find(|(_, c)| c.is_control()) {
        Some((position, character)) => Err(IdError::Control {
            kind,
            character,
            position,
        }),
        None => Ok(()),
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $max:literal, empty: $empty:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "CompactString")]
        pub struct $name(CompactString);

        impl $name {
            /// Maximum length, in bytes of UTF-8.
            pub const MAX_BYTES: usize = $max;

            /// Validates the text and creates the id.
            ///
            /// # Errors
            /// The text is empty (if that is not allowed), too long, or contains a control
            /// character.
            pub fn new(text: impl Into<CompactString>) -> Result<Self, IdError> {
                let text = text.into();
                check($kind, &text, $max, $empty)?;
                Ok(Self(text))
            }

            /// Validates the text like `new`, and rejects bidirectional controls: an id of a new
            /// event. Ids of stored data are not rejected.
            ///
            /// # Errors
            /// The errors of `new`, and [`IdError::Direction`].
            pub fn for_input(text: impl Into<CompactString>) -> Result<Self, IdError> {
                let id = Self::new(text)?;
                let control = id
                    .as_str()
                    .char_indices()
                    .find(|(_, character)| is_direction_control(*character));
                match control {
                    Some((position, character)) => Err(IdError::Direction {
                        kind: $kind,
                        character,
                        position,
                    }),
                    None => Ok(id),
                }
            }

            /// Validates the text like `for_input`, and rejects `.` and `..`: an id in the path of
            /// a URL. Ids of stored data are not rejected.
            ///
            /// # Errors
            /// The errors of `for_input`, and [`IdError::Dots`].
            pub fn for_path(text: impl Into<CompactString>) -> Result<Self, IdError> {
                let id = Self::for_input(text)?;
                if matches!(id.as_str(), "." | "..") {
                    return Err(IdError::Dots { kind: $kind });
                }
                Ok(id)
            }

            /// Returns the text.
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

        impl std::str::FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                Self::new(text)
            }
        }
    };
}

id!(
    /// Tenant id. The empty tenant is the default of a deployment without tenants.
    TenantId, "tenant id", 64, empty: true
);
id!(
    /// Id of an actor: an identity with keys, independent of tenants. It is the user name of its
    /// requests.
    ActorId, "actor id", 64, empty: false
);
id!(
    /// Name of a saga definition, for example `order`.
    SagaName, "saga name", 64, empty: false
);
id!(
    /// Correlation id: identifier that all events of one instance share, for example the order
    /// number.
    CorrelationId, "correlation id", 256, empty: false
);
id!(
    /// Id with which an event was published. It is used for deduplication.
    EventId, "event id", 128, empty: false
);
id!(
    /// Type of an event, for example `OrderPlaced`.
    EventType, "event type", 128, empty: false
);
id!(
    /// Name of an effect, for example `payments.charge`.
    EffectName, "effect name", 128, empty: false
);
id!(
    /// Other short name: step, timer, aggregate type or tag.
    Name, "name", 256, empty: false
);

impl TenantId {
    /// Returns the tenant of a deployment without tenants.
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

/// Key of one saga instance: unique within a deployment, and the unit of order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceKey {
    /// Tenant of the instance.
    pub tenant: TenantId,
    /// Name of the definition.
    pub saga: SagaName,
    /// Correlation id of its events.
    pub correlation: CorrelationId,
}

impl fmt::Display for InstanceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.tenant, self.saga, self.correlation)
    }
}

/// Returns a UUID v7 with the time `at` and a hash of `parts`: the same inputs always produce the
/// same id.
#[must_use]
pub fn derive_id(at: Timestamp, parts: &[&[u8]]) -> Uuid {
    // A UUID has no times before 1970.
    with_time(
        u64::try_from(at.as_millis()).unwrap_or(0),
        parts.iter().copied(),
    )
}

/// Returns a UUID v7 with the time of `parent` and a hash of `parent` and `parts`.
///
/// The ids of a run derive from its run id, so they are independent of the time of a decision.
#[must_use]
pub fn derive_child_id(parent: Uuid, parts: &[&[u8]]) -> Uuid {
    with_time(
        unix_millis(parent),
        std::iter::once(&parent.as_bytes()[..]).chain(parts.iter().copied()),
    )
}

/// Returns the time of a UUID v7, in milliseconds since 1970.
fn unix_millis(id: Uuid) -> u64 {
    // The time is in the first 48 bits.
    u64::try_from(id.as_u128() >> 80).unwrap_or(0)
}

fn with_time<'a>(millis: u64, parts: impl Iterator<Item = &'a [u8]>) -> Uuid {
    let digest = digest(parts);
    let random = digest
        .first_chunk()
        .expect("a digest is longer than the random part");
    uuid::Builder::from_unix_timestamp_millis(millis, random).into_uuid()
}

/// Returns the SHA-256 of the parts and their lengths.
pub(crate) fn digest<'a>(parts: impl Iterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    // The lengths keep the boundaries of the parts: `ab` and `c` must not equal `a` and `bc`.
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejects_control_characters_with_their_position() {
        let error = CorrelationId::new("a\0b").unwrap_err();
        assert_eq!(
            error,
            IdError::Control {
                kind: "correlation id",
                character: '\0',
                position: 1
            }
        );
        assert!(CorrelationId::new("a\u{85}b").is_err());
    }

    #[test]
    fn rejects_long_ids_with_the_limit() {
        let error = CorrelationId::new("x".repeat(257)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "correlation id has 257 bytes, the limit is 256; shorten or hash it"
        );
    }

    #[test]
    fn ids_in_paths_are_no_dots() {
        for dots in [".", ".."] {
            let error = CorrelationId::for_path(dots).unwrap_err();
            assert!(
                error.to_string().starts_with("correlation id must not be"),
                "{error}"
            );
            assert!(
                CorrelationId::new(dots).is_ok(),
                "stored ids are still readable"
            );
        }
        assert!(CorrelationId::for_path("...").is_ok() && CorrelationId::for_path("a..b").is_ok());
        assert!(CorrelationId::for_path("").is_err());
    }

    #[test]
    fn new_ids_have_no_bidirectional_controls_and_stored_ids_may() {
        let reversed = "o-\u{202e}1";
        let error = CorrelationId::for_path(reversed).unwrap_err();
        assert_eq!(
            error.to_string(),
            "correlation id contains bidirectional control '\\u{202e}' at byte 2; remove it"
        );
        for control in [
            '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{2066}', '\u{2069}',
        ] {
            assert!(
                EventId::for_input(format!("a{control}")).is_err(),
                "{control:?}"
            );
        }
        assert!(
            serde_json::from_value::<CorrelationId>(reversed.into()).is_ok(),
            "stored ids are still readable"
        );
        assert!(TenantId::for_input("שלום").is_ok() && TenantId::for_input("").is_ok());
    }

    #[test]
    fn only_the_tenant_may_be_empty() {
        assert!(TenantId::new("").is_ok());
        assert_eq!(SagaName::new(""), Err(IdError::Empty { kind: "saga name" }));
        assert_eq!(ActorId::new(""), Err(IdError::Empty { kind: "actor id" }));
    }

    #[test]
    fn deserialization_validates_ids() {
        assert!(serde_json::from_str::<SagaName>("\"a\\u0000\"").is_err());
        assert_eq!(
            serde_json::from_str::<SagaName>("\"order\"")
                .unwrap()
                .as_str(),
            "order"
        );
    }

    #[test]
    fn derived_ids_are_version_7_and_depend_on_every_part() {
        let at = Timestamp::from_millis(1_700_000_000_000);
        let id = derive_id(at, &[b"ab", b"c"]);
        assert_eq!(id.get_version_num(), 7);
        assert_eq!(id, derive_id(at, &[b"ab", b"c"]));
        assert_ne!(id, derive_id(at, &[b"a", b"bc"]));
        assert_eq!(
            id.get_timestamp().map(|t| t.to_unix().0),
            Some(1_700_000_000)
        );
    }

    #[test]
    fn child_ids_have_the_time_of_their_parent_and_depend_on_every_part() {
        let parent = derive_id(Timestamp::from_millis(1_700_000_000_000), &[b"run"]);
        let id = derive_child_id(parent, &[b"work", b"charge"]);
        assert_eq!(
            (id.get_version_num(), id.get_timestamp()),
            (7, parent.get_timestamp())
        );
        assert_eq!(id, derive_child_id(parent, &[b"work", b"charge"]));
        assert_ne!(id, derive_child_id(parent, &[b"workcharge"]));
        assert_ne!(
            id,
            derive_child_id(
                derive_id(Timestamp::from_millis(5), &[b"run"]),
                &[b"work", b"charge"]
            )
        );
    }
}
