//! What a stimulus says about a step, and the failures the machine itself finds.

use std::time::Duration;

use orlog_model::{EventType, Failure, Verdict};
use serde_json::Value;

use super::compiled::Step;
use super::outcome_table::Answer;
use super::state::At;
use crate::contract::Cause;
use crate::contract::Stimulus;
use crate::expression::EvalError;

/// What a stimulus says about one step or element.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) at: At,
    pub(super) answer: Answer,
    /// `event` in the step's `save`.
    pub(super) data: &'a Value,
    /// The name of the answer, where it has one.
    pub(super) named: Option<EventType>,
    /// Why, where it is bad news.
    pub(super) failure: Option<Failure>,
}

pub(super) static NOTHING: Value = Value::Null;

/// The code of a failure that is the definition's own; asking again would not help.
pub(super) const EXPRESSION_ERROR: &str = "expression_error";

/// The payload a stimulus carries, to be checked before anything else.
pub(super) fn payload<'a>(stimulus: &Stimulus<'a>) -> Option<&'a Value> {
    match stimulus {
        Stimulus::Event(event) => Some(&event.data),
        Stimulus::Outcome {
            verdict: Verdict::Succeeded { payload, .. } | Verdict::Failed { payload, .. },
            ..
        } => Some(payload),
        Stimulus::Outcome { verdict: Verdict::Accepted | Verdict::TimedOut { .. }, .. }
        | Stimulus::Timer { .. }
        | Stimulus::Cancel { .. }
        | Stimulus::Retry
        | Stimulus::Skip
        | Stimulus::ForceComplete => None,
    }
}

impl Reading<'_> {
    /// Why, where it is bad news.
    pub(super) fn cause(&self, step: &Step) -> Cause {
        let Failure { code, message } = self.failure.clone().unwrap_or_else(|| timed_out("step", None));
        Cause { code, message, step: step.id.to_string() }
    }
}

/// An expression had no value.
pub(super) fn expression_error(error: &EvalError) -> Failure {
    Failure { code: EXPRESSION_ERROR.to_owned(), message: error.to_string() }
}

/// What an answer says about its reason.
pub(super) fn told(kind: &EventType, data: &Value) -> String {
    let told = ["message", "reason"].iter().find_map(|field| data.get(field)?.as_str());
    told.map_or_else(|| kind.to_string(), |text| text.chars().take(500).collect())
}

/// The failure of something whose time ran out.
pub(super) fn timed_out(what: &str, timeout: Option<Duration>) -> Failure {
    let within = timeout.map(|t| format!(" within {t:?}")).unwrap_or_default();
    Failure { code: "timeout".to_owned(), message: format!("{what}: no answer{within}") }
}
