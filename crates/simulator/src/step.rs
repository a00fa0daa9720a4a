//! Moves: everything that can be done to an instance, in the words of a test file.

use std::fmt;
use std::time::Duration;

use orlog_model::{EventId, EventType, Timestamp};
use serde_json::{Map, Value, json};

/// One thing that happens to an instance from outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Move {
    /// An event arrives.
    Event(EventMove),
    /// Time passes; timers fire in order.
    Advance(Duration),
    /// It becomes that time; timers fire in order.
    At(Timestamp),
    /// Work is answered with success.
    Ok {
        /// Its tag.
        tag: String,
        /// What the success is called, where there are several names for it.
        event: Option<EventType>,
        /// The payload.
        data: Value,
    },
    /// Work fails.
    Fail {
        /// Its tag.
        tag: String,
        /// What the failure is called.
        event: Option<EventType>,
        /// Why, for programs. With it, a command is refused rather than answered by an event.
        code: Option<String>,
        /// Why, for people.
        message: Option<String>,
        /// The payload.
        data: Value,
    },
    /// Its time runs out: its timer fires, or, where it has none, the provider's deadline passes.
    Timeout {
        /// Its tag.
        tag: String,
    },
    /// The provider does not know whether it was done, and does not try again.
    Doubt {
        /// Its tag.
        tag: String,
    },
    /// A person decides a task.
    Task {
        /// Its tag.
        tag: String,
        /// What was chosen; the first success without it.
        outcome: Option<EventType>,
        /// Who.
        by: Option<String>,
        /// What the person entered.
        data: Value,
    },
    /// An operator says so.
    Operator(Verb),
    /// An event for this instance alone.
    Signal {
        /// Its type.
        kind: EventType,
        /// Its payload.
        data: Value,
    },
    /// The last input comes a second time.
    Duplicate,
}

/// An event that arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct EventMove {
    /// Its type.
    pub kind: EventType,
    /// Its payload.
    pub data: Value,
    /// The version of its payload.
    pub version: u32,
    /// Its id; made where there is none.
    pub id: Option<EventId>,
    /// Its time; the present where there is none.
    pub time: Option<Timestamp>,
    /// The correlation id of its envelope; that of the instance where there is none.
    pub correlation: Option<String>,
}

impl EventMove {
    /// An event without particulars.
    #[must_use]
    pub fn new(kind: EventType, data: Value) -> Self {
        Self { kind, data, version: 1, id: None, time: None, correlation: None }
    }
}

/// What an operator can say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Turn back.
    Cancel(String),
    /// Keep inputs, apply none.
    Pause,
    /// Go on.
    Resume,
    /// Try again what made it stuck.
    Retry,
    /// Leave out what made it stuck.
    Skip,
    /// End it.
    ForceComplete,
}

impl Verb {
    /// As it stands in a test file.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Verb::Cancel(_) => "cancel",
            Verb::Pause => "pause",
            Verb::Resume => "resume",
            Verb::Retry => "retry",
            Verb::Skip => "skip",
            Verb::ForceComplete => "force-complete",
        }
    }
}

/// As an item of `given` in a test file: one line of flow YAML.
impl fmt::Display for Move {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = match self {
            Move::Event(event) => return event.fmt(f),
            Move::Advance(by) => json!({ "advance": duration(*by) }),
            Move::At(time) => json!({ "at": time.to_string() }),
            Move::Ok { tag, event, data } => {
                fields("ok", tag, [("event", text(event.as_ref())), ("data", some(data))])
            }
            Move::Fail { tag, event, code, message, data } => {
                let more = [
                    ("event", text(event.as_ref())),
                    ("code", code.clone().map(Value::from)),
                    ("message", message.clone().map(Value::from)),
                    ("data", some(data)),
                ];
                fields("fail", tag, more)
            }
            Move::Timeout { tag } => json!({ "timeout": tag }),
            Move::Doubt { tag } => json!({ "doubt": tag }),
            Move::Task { tag, outcome, by, data } => {
                let more = [
                    ("outcome", text(outcome.as_ref())),
                    ("by", by.clone().map(Value::from)),
                    ("data", some(data)),
                ];
                fields("task", tag, more)
            }
            Move::Operator(Verb::Cancel(reason)) => json!({ "cancel": reason }),
            Move::Operator(verb) => return f.write_str(verb.word()),
            Move::Signal { kind, data } => fields("signal", kind.as_str(), [("data", some(data))]),
            Move::Duplicate => return f.write_str("duplicate"),
        };
        write_flow(&item, f)
    }
}

impl fmt::Display for EventMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = Self::new(self.kind.clone(), self.data.clone());
        if *self == plain && !RESERVED.contains(&self.kind.as_str()) {
            return write_flow(&json!({ self.kind.as_str(): self.data }), f);
        }
        let more = [
            ("version", Some(self.version).filter(|v| *v != 1).map(Value::from)),
            ("id", text(self.id.as_ref())),
            ("time", self.time.map(|time| Value::from(time.to_string()))),
            ("correlation", self.correlation.clone().map(Value::from)),
            ("data", some(&self.data)),
        ];
        write_flow(&fields("event", self.kind.as_str(), more), f)
    }
}

/// Names that an event in the short form cannot have.
pub(crate) const RESERVED: [&str; 17] = [
    "event",
    "advance",
    "at",
    "ok",
    "fail",
    "timeout",
    "doubt",
    "task",
    "cancel",
    "pause",
    "resume",
    "retry",
    "skip",
    "force-complete",
    "signal",
    "duplicate",
    "expect",
];

fn text(name: Option<&impl fmt::Display>) -> Option<Value> {
    name.map(|name| Value::from(name.to_string()))
}

fn some(data: &Value) -> Option<Value> {
    Some(data.clone()).filter(|data| !data.is_null())
}

fn fields<const N: usize>(verb: &str, of: &str, more: [(&str, Option<Value>); N]) -> Value {
    let mut map = Map::new();
    map.insert(verb.to_owned(), Value::from(of));
    map.extend(more.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    Value::Object(map)
}

/// JSON is flow YAML; only the outer braces get room. The map keeps the order of names, the verb is found by its name.
fn write_flow(item: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Value::Object(map) = item else { return write!(f, "{item}") };
    f.write_str("{ ")?;
    for (index, (name, value)) in map.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        write!(f, "{}: {value}", Value::from(name.as_str()))?;
    }
    f.write_str(" }")
}

/// A duration as the language writes it: `1h30m`.
pub(crate) fn duration(duration: Duration) -> String {
    let mut millis = duration.as_millis();
    let mut text = String::new();
    for (unit, size) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)] {
        let count = millis / size;
        millis %= size;
        if count > 0 {
            text += &count.to_string();
            text += unit;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(one: &Move, expected: &str) {
        assert_eq!(one.to_string(), expected);
    }

    #[test]
    fn moves_read_as_they_are_written_in_a_test_file() {
        let kind = |name: &str| EventType::new(name).unwrap();
        check(
            &Move::Event(EventMove::new(kind("Placed"), json!({"id": "o1"}))),
            r#"{ "Placed": {"id":"o1"} }"#,
        );
        check(&Move::Event(EventMove::new(kind("retry"), Value::Null)), r#"{ "event": "retry" }"#);
        check(&Move::Advance(Duration::from_secs(5430)), r#"{ "advance": "1h30m30s" }"#);
        check(&Move::Operator(Verb::Retry), "retry");
        let fail = Move::Fail {
            tag: "ship".to_owned(),
            event: None,
            code: Some("declined".to_owned()),
            message: None,
            data: Value::Null,
        };
        check(&fail, r#"{ "code": "declined", "fail": "ship" }"#);
    }
}
