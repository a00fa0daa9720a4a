//! Failures: a code for programs and a message for operators.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{Name, Timestamp};

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

/// Failure that a transition reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitionFailure {
    /// Code and message.
    pub failure: Failure,
    /// Failed step; `None` if the failure concerns the whole saga, or the program has no steps.
    pub step: Option<Name>,
}

impl From<Failure> for Box<TransitionFailure> {
    fn from(failure: Failure) -> Self {
        Box::new(TransitionFailure {
            failure,
            step: None,
        })
    }
}

/// Last failure of an instance, and the failure with which it stopped running forward.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceFailure {
    /// Code for programs, as in [`Failure`].
    pub code: String,
    /// Message for operators.
    pub message: String,
    /// Failed step, or tag of the failed work; `None` if the failure concerns the whole saga.
    #[serde(default)]
    pub step: Option<Name>,
    /// Number of attempts of the work that failed; `None` if no work failed.
    #[serde(default)]
    pub attempts: Option<u32>,
    /// Time of the transition; `None` if an earlier release recorded the failure.
    #[serde(default)]
    pub at: Option<Timestamp>,
    /// Whether the instance stopped running forward with this failure: it compensates, or it is
    /// stuck.
    #[serde(default)]
    pub is_cause: bool,
    /// Failure with which the instance stopped running forward, if this one came later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<Box<InstanceFailure>>,
}

impl From<Failure> for InstanceFailure {
    fn from(Failure { code, message }: Failure) -> Self {
        Self {
            code,
            message,
            step: None,
            attempts: None,
            at: None,
            is_cause: false,
            cause: None,
        }
    }
}

impl fmt::Display for InstanceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}
