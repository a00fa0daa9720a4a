//! Why something is no event.

/// A message or a JSON document that cannot be read as an event. None of these goes away by trying again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// It is larger than any message may be.
    #[error("the message is {size} bytes long, the limit is {limit}")]
    TooLarge {
        /// Bytes found.
        size: usize,
        /// Bytes allowed.
        limit: usize,
    },
    /// Its subject is malformed.
    #[error("{0}")]
    Subject(String),
    /// It is in no known format.
    #[error("the message is no event: {0}")]
    Format(String),
    /// A part that must be JSON is not (or is nested deeper than 127 levels).
    #[error("{part} is not JSON: {reason}")]
    Json {
        /// `the body`, `payload_json` ….
        part: &'static str,
        /// What the parser says, with line and column.
        reason: String,
    },
    /// A required attribute is not there.
    #[error("the attribute {attribute} is missing; {rule}")]
    Missing {
        /// As it is called in the format at hand.
        attribute: String,
        /// What it must be.
        rule: &'static str,
    },
    /// An attribute breaks a rule.
    #[error("the attribute {attribute} is wrong: {rule}; found {found}")]
    Invalid {
        /// As it is called in the format at hand.
        attribute: String,
        /// The rule it breaks.
        rule: String,
        /// What was found, shortened.
        found: String,
    },
    /// The event names another tenant than the request or the subject does.
    #[error("the event says it belongs to tenant {claimed:?}, but it came in for tenant {expected:?}")]
    Tenant {
        /// In the event.
        claimed: String,
        /// In the header or the subject.
        expected: String,
    },
}

impl DecodeError {
    /// An attribute with a value that breaks a rule.
    pub(super) fn invalid(attribute: &str, rule: impl Into<String>, found: &str) -> Self {
        let found = format!("{:?}", found.chars().take(64).collect::<String>());
        Self::Invalid { attribute: attribute.to_owned(), rule: rule.into(), found }
    }

    /// A JSON member of the wrong type.
    pub(super) fn wrong_type(attribute: &str, rule: &'static str, found: &serde_json::Value) -> Self {
        let text = match found {
            serde_json::Value::Array(_) => "an array".to_owned(),
            serde_json::Value::Object(_) => "an object".to_owned(),
            other => other.to_string().chars().take(64).collect(),
        };
        Self::Invalid { attribute: attribute.to_owned(), rule: rule.to_owned(), found: text }
    }
}
