//! What a test expects of an instance; what is not named is free.

use std::time::Duration;

use orlog_model::Status;
use serde_json::{Map, Value};

/// Expectations of one instance at one moment.
#[derive(Clone, Debug, Default)]
pub struct Expect {
    /// Where it stands; `Some(None)`: there is no such instance.
    pub status: Option<Option<Status>>,
    /// Everything it asked for so far and the timers that fired, in order.
    pub work: Option<Vec<WorkItemForm>>,
    /// A part of its state in its program's words.
    pub state: Option<Value>,
    /// The names of what it waits for, in any order.
    pub waits: Option<Vec<String>>,
    /// The names of its armed timers, with their time from now where it is said.
    pub timers: Option<Vec<Deadline>>,
    /// The tags of its open tasks, with parts of what they say.
    pub tasks: Option<Vec<(String, Fields)>>,
    /// What the business calls it.
    pub reference: Option<Reference>,
    /// Parts of what went wrong last; `Some(None)`: nothing did.
    pub failure: Option<Option<Fields>>,
    /// Notes that stand in its history, in this order, others between them.
    pub history: Option<Vec<String>>,
    /// Reasons for which inputs were set aside, in order.
    pub dead_letters: Option<Vec<String>>,
    /// Whether it is paused.
    pub paused: Option<bool>,
    /// Every rule that `explore` watches has held so far.
    pub sound: bool,
}

/// A reference, or that there is none.
pub type Reference = Option<String>;
/// Fields that must be there with these values; others are free.
pub type Fields = Map<String, Value>;

/// An armed timer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadline {
    /// Its name.
    pub name: String,
    /// When it fires, from now.
    pub within: Option<Duration>,
}

/// One piece of work.
#[derive(Clone, Debug, PartialEq)]
pub struct WorkItemForm {
    /// Its line: `command inventory.ReserveStock`, `effect payments.charge`, `timer charge`, `fact OrderCancelled`,
    /// `task approve`, `start equipment`, `stop equipment`.
    pub line: String,
    /// Parts of its payload.
    pub data: Option<Value>,
    /// The aggregate's id, or the correlation id of a saga.
    pub id: Option<Value>,
    /// Its tag.
    pub tag: Option<String>,
}

/// Whether `expected` is a part of `actual`: fields that are named must be there, lists must be as long.
pub(super) fn is_part(expected: &Value, actual: &Value) -> bool {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            expected.iter().all(|(name, value)| is_part(value, actual.get(name).unwrap_or(&Value::Null)))
        }
        (Value::Array(expected), Value::Array(actual)) => {
            expected.len() == actual.len() && expected.iter().zip(actual).all(|(e, a)| is_part(e, a))
        }
        (Value::Number(expected), Value::Number(actual)) => {
            expected == actual || expected.as_f64() == actual.as_f64()
        }
        _ => expected == actual,
    }
}

/// Where the two differ, as `path: expected …, is …`.
pub(super) fn differences(expected: &Value, actual: &Value, path: &str, into: &mut Vec<String>) {
    match (expected, actual) {
        (Value::Object(expected), Value::Object(actual)) => {
            for (name, value) in expected {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                differences(value, actual.get(name).unwrap_or(&Value::Null), &path, into);
            }
        }
        (Value::Array(expected), Value::Array(actual)) if expected.len() == actual.len() => {
            for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
                differences(expected, actual, &format!("{path}[{index}]"), into);
            }
        }
        _ if is_part(expected, actual) => {}
        _ => into.push(format!("{path}: expected {expected}, is {actual}")),
    }
}
