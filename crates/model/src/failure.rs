//! Failures: why something did not go well, for programs and for people.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Why something did not go well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// A short word for programs, for example `card_declined` or `http_503`.
    pub code: String,
    /// A sentence for people.
    pub message: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}
