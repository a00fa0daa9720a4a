//! Decode errors.

use std::fmt::Display;

/// Error for a message or JSON document that is not a valid event. All variants are permanent: a
/// retry does not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The message exceeds the maximum message size.
    #[error("message has {size} bytes, the limit is {limit}")]
    TooLarge {
        /// Actual size in bytes.
        size: usize,
        /// Maximum size in bytes.
        limit: usize,
    },
    /// The subject is malformed.
    #[error("{0}")]
    Subject(String),
    /// The format is unknown.
    #[error("message is not a valid event: {0}")]
    Format(String),
    /// A part that must be JSON is not valid JSON, or its nesting exceeds 127 levels.
    #[error("{part} is not valid JSON: {reason}")]
    Json {
        /// `the body`, `payload_json` ….
        part: &'static str,
        /// Message of the parser, with line and column.
        reason: String,
    },
    /// A required attribute is missing.
    #[error("attribute {attribute} is missing: {rule}")]
    Missing {
        /// Name of the attribute in the format of the message.
        attribute: String,
        /// Rule of the attribute.
        rule: &'static str,
    },
    /// An attribute violates a rule.
    #[error("attribute {attribute} is invalid: {rule}, got {found}")]
    Invalid {
        /// Name of the attribute in the format of the message.
        attribute: String,
        /// Violated rule.
        rule: String,
        /// Actual value, shortened.
        found: String,
    },
    /// The tenant of the event differs from the tenant of the request or subject.
    #[error("event has tenant {claimed:?}, but the subject has tenant {expected:?}")]
    Tenant {
        /// Tenant in the event.
        claimed: String,
        /// Tenant in the header or the subject.
        expected: String,
    },
}

impl DecodeError {
    /// Creates the error for an attribute value that violates a rule.
    pub(crate) fn invalid(attribute: impl Display, rule: impl Into<String>, found: &str) -> Self {
        let found = format!("{:?}", found.chars().take(64).collect::<String>());
        Self::Invalid {
            attribute: attribute.to_string(),
            rule: rule.into(),
            found,
        }
    }

    /// Creates the error for a JSON member of the wrong type.
    pub(super) fn invalid_type(
        attribute: &str,
        rule: &'static str,
        found: &serde_json::Value,
    ) -> Self {
        let text = match found {
            serde_json::Value::Array(_) => "an array".to_owned(),
            serde_json::Value::Object(_) => "an object".to_owned(),
            other => other.to_string().chars().take(64).collect(),
        };
        Self::Invalid {
            attribute: attribute.to_owned(),
            rule: rule.to_owned(),
            found: text,
        }
    }
}
