//! Failures: a code for programs and a message for operators.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Failure of work or of an instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Code for programs, for example `card_declined` or `http_503`.
    pub code: String,
    /// Message for operators.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}
