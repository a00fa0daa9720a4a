//! Input of a step, and the failures that the machine itself detects.

use orlog_model::{EventType, Failure, WorkOutcome};
use serde_json::Value;

use super::compiled::CompiledStep;
use super::outcome_table::StepOutcome;
use super::state::StepIndex;
use crate::contract::{FailureCause, ProgramInput};
use crate::expression::{EvalError, EventData};
use crate::steps::CompiledTimeLimit;
use crate::steps::kind::{EXPRESSION_ERROR, UNDO_WITHOUT_VALUE};

/// Program input, resolved to one step or element.
#[derive(Debug)]
pub(super) struct StepInput<'a> {
    pub(super) at: StepIndex,
    pub(super) result: StepOutcome,
    /// `event` and `envelope` in the step's `save`.
    pub(super) event: EventData<'a>,
    /// Name of the result, if it has one.
    pub(super) named: Option<EventType>,
    /// Failure, if the result is one.
    pub(super) failure: Option<Failure>,
    /// Knowledge about the execution of the action, if the result is no success.
    pub(super) certainty: Certainty,
    /// Key of the event if the step collects events, otherwise 0.
    pub(super) event_key: u64,
}

/// Knowledge about the execution of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Certainty {
    /// It is known whether the action was executed.
    Known,
    /// The action may have been executed. The result of its work is pending and decides.
    Pending,
    /// The action may have been executed, and no result is pending.
    Unknown,
}

pub(super) static NOTHING: Value = Value::Null;

/// Returns the payload of a program input, which is checked first.
pub(super) fn payload<'a>(input: &ProgramInput<'a>) -> Option<&'a Value> {
    match input {
        ProgramInput::Event(event) => Some(&event.data),
        ProgramInput::WorkResult {
            outcome: WorkOutcome::Succeeded { payload, .. } | WorkOutcome::Failed { payload, .. },
            ..
        } => Some(payload),
        ProgramInput::WorkResult {
            outcome: WorkOutcome::Accepted | WorkOutcome::TimedOut { .. },
            ..
        }
        | ProgramInput::Timer { .. }
        | ProgramInput::Cancel { .. }
        | ProgramInput::Retry
        | ProgramInput::Skip
        | ProgramInput::ForceComplete => None,
    }
}

impl<'a> StepInput<'a> {
    /// Returns the failure of the step by this input.
    pub(super) fn failed(&self, failure: Failure) -> StepInput<'a> {
        let failure = Some(failure);
        StepInput {
            result: StepOutcome::Failed,
            failure,
            named: None,
            ..*self
        }
    }

    /// Returns the cause of a failed result.
    pub(super) fn cause(&self, step: &CompiledStep) -> FailureCause {
        let Failure { code, message } = self
            .failure
            .clone()
            .unwrap_or_else(|| timed_out("step", None));
        FailureCause {
            code,
            message,
            step: step.id.to_string(),
        }
    }
}

/// Returns the failure of an expression without a value.
pub(super) fn expression_error(error: &EvalError) -> Failure {
    let code = if error.lacks_value {
        UNDO_WITHOUT_VALUE
    } else {
        EXPRESSION_ERROR
    };
    Failure {
        code: code.to_owned(),
        message: error.to_string(),
    }
}

/// Returns the reason in a failed result.
pub(super) fn failure_message(kind: &EventType, data: &Value) -> String {
    let reason = ["message", "reason"]
        .iter()
        .find_map(|field| data.get(field)?.as_str());
    // The data comes from outside, and the instance stores the message.
    reason.map_or_else(|| kind.to_string(), |text| text.chars().take(500).collect())
}

/// Returns the failure of a timeout.
pub(super) fn timed_out(label: &str, timeout: Option<&CompiledTimeLimit>) -> Failure {
    let within = match timeout.map(CompiledTimeLimit::constant) {
        Some(Some(timeout)) => format!(" within {timeout:?}"),
        Some(None) => " within the computed timeout".to_owned(),
        None => String::new(),
    };
    Failure {
        code: "timeout".to_owned(),
        message: format!("{label}: no response{within}"),
    }
}
