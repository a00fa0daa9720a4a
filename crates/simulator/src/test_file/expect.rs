//! Expectations of a test about an instance. Fields that are not named are not checked.

use std::time::Duration;

use orlog_model::Status;
use serde_json::{Map, Value};

/// Expectations of one instance at one point in time.
#[derive(Clone, Debug, Default)]
pub struct Expectation {
    /// Status; `Some(None)`: no such instance exists.
    pub status: Option<Option<Status>>,
    /// All requested work so far and the fired timers, in order.
    pub work: Option<Vec<WorkExpectation>>,
    /// Subset of the state in the view of its program.
    pub state: Option<Value>,
    /// Names of the waits, in any order.
    pub waits: Option<Vec<String>>,
    /// Names of the armed timers, optionally with their remaining time.
    pub timers: Option<Vec<TimerExpectation>>,
    /// Tags of the open tasks, with subsets of their fields.
    pub tasks: Option<Vec<(String, ExpectedFields)>>,
    /// Business reference.
    pub reference: Option<ExpectedReference>,
    /// Subset of the last failure; `Some(None)`: no failure.
    pub failure: Option<Option<ExpectedFields>>,
    /// Notes in the history, in this order, with other notes between them.
    pub history: Option<Vec<String>>,
    /// Reasons of the dead-lettered inputs, in order.
    pub dead_letters: Option<Vec<String>>,
    /// Whether the instance is paused.
    pub paused: Option<bool>,
    /// Whether every invariant of `explore` has held so far.
    pub invariants: bool,
}

/// Business reference, or `None` if there must be none.
pub type ExpectedReference = Option<String>;
/// Fields that must have these values; other fields are not checked.
pub type ExpectedFields = Map<String, Value>;

/// Armed timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimerExpectation {
    /// Name of the timer.
    pub name: String,
    /// Remaining time until the timer fires.
    pub within: Option<Duration>,
}

/// Work item.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkExpectation {
    /// Line of the work: `command inventory.ReserveStock`, `effect payments.charge`,
    /// `timer charge`, `fact OrderCancelled`, `task approve`, `start_child
    /// equipment`, `cancel_child equipment`.
    pub line: String,
    /// Subset of the payload.
    pub data: Option<Value>,
    /// Id of the aggregate, or correlation id of the child saga.
    pub id: Option<Value>,
    /// Tag of the work.
    pub tag: Option<String>,
}

/// Returns whether `expected` is a subset of `actual`: named fields must be present, lists must
/// have the same length.
pub(super) fn is_subset(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => expected
            .iter()
            // A field that is expected to be null may be absent: a program leaves out empty fields.
            .all(|(name, value)| is_subset(value, actual.get(name).unwrap_or(&Value::Null))),
        (Value::Array(expected), Value::Array(actual)) => {
            expected.len() == actual.len()
                && expected.iter().zip(actual).all(|(e, a)| is_subset(e, a))
        }
        (Value::Number(expected), Value::Number(actual)) => {
            // A test may write `1` for a number that a payload contains as `1.0`.
            expected == actual || expected.as_f64() == actual.as_f64()
        }
        _ => expected == actual,
    }
}

/// Adds the differences as `path: expected …, is …`.
pub(super) fn differences(expected: &Value, actual: &Value, path: &str, into: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (name, value) in expected {
                let path = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                differences(value, actual.get(name).unwrap_or(&Value::Null), &path, into);
            }
        }
        // Lists of different lengths are one difference, because their items cannot be paired.
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                differences(expected, actual, &format!("{path}[{index}]"), into);
            }
        }
        _ if is_subset(expected, actual) => {}
        _ => into.push(format!("{path}: expected {expected}, is {actual}")),
    }
}
