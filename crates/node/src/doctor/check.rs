//! Result of one check: subject, status, message and remedy.

use serde::{Deserialize, Serialize};

/// Status of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckStatus {
    /// No action is required.
    Ok,
    /// The node works, but may fail soon.
    Warn,
    /// The node does not work.
    Error,
}

impl CheckStatus {
    /// Returns the name in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CheckStatus::Ok => "ok",
            CheckStatus::Warn => "warn",
            CheckStatus::Error => "error",
        }
    }
}

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckResult {
    /// Subject of the check.
    pub name: String,
    /// Status of the check.
    pub status: CheckStatus,
    /// Message of the check.
    pub message: String,
    /// Remedy; empty if no action is required.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl CheckResult {
    /// Creates a result without findings.
    pub fn ok(check: &str, found: impl Into<String>) -> Self {
        Self {
            name: check.to_owned(),
            status: CheckStatus::Ok,
            message: found.into(),
            remedy: String::new(),
        }
    }

    /// Creates a warning.
    pub fn warn(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            name: check.to_owned(),
            status: CheckStatus::Warn,
            message: found.into(),
            remedy: remedy.into(),
        }
    }

    /// Creates an error.
    pub fn error(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            name: check.to_owned(),
            status: CheckStatus::Error,
            message: found.into(),
            remedy: remedy.into(),
        }
    }
}
