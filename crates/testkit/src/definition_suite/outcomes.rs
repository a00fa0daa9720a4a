//! Outcomes of work for tests.

use orlog_model::{Failure, IN_DOUBT, WorkOutcome};
use serde_json::Value;

/// Returns a success with this payload.
#[must_use]
pub fn succeeded(payload: Value) -> WorkOutcome {
    WorkOutcome::succeeded(None, payload)
}

/// Returns an unknown outcome.
#[must_use]
pub fn in_doubt() -> WorkOutcome {
    let message = "the outcome is unknown".to_owned();
    WorkOutcome::TimedOut {
        failure: Failure {
            code: IN_DOUBT.to_owned(),
            message,
        },
    }
}

/// Returns a permanent failure with this code.
#[must_use]
pub fn failed(code: &str) -> WorkOutcome {
    let failure = Failure {
        code: code.to_owned(),
        message: format!("failed with {code}"),
    };
    WorkOutcome::Failed {
        event: None,
        failure,
        payload: Value::Null,
    }
}
