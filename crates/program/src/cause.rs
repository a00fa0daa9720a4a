//! Why a saga turned back.

use serde::{Deserialize, Serialize};

/// Why the saga does not go forward; `failure` in expressions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cause {
    pub(crate) code: String,
    pub(crate) message: String,
    /// The step's id; empty where the saga as a whole is meant.
    pub(crate) step: String,
}
