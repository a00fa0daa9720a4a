//! Simulation steps: all inputs of an instance, in the notation of a test file.

use std::fmt;
use std::time::Duration;

use orlog_model::{EventAttributes, EventId, EventType, Timestamp};
use serde_json::{Map, Value, json};

/// External input of an instance.
#[derive(Clone, Debug, PartialEq)]
pub enum SimulationStep {
    /// An event arrives.
    Event(EventStep),
    /// Time advances by a duration; timers fire in order.
    Advance(Duration),
    /// Time advances to a point in time; timers fire in order.
    At(Timestamp),
    /// Work succeeds.
    Ok {
        /// Tag of the work.
        tag: String,
        /// Name of the success, if there are several.
        event: Option<EventType>,
        /// Payload.
        data: Value,
    },
    /// Work fails.
    Fail {
        /// Tag of the work.
        tag: String,
        /// Name of the failure.
        event: Option<EventType>,
        /// Machine-readable reason. With a code, a command is rejected instead of completed by an
        /// event.
        code: Option<String>,
        /// Reason for users.
        message: Option<String>,
        /// Payload.
        data: Value,
    },
    /// Work times out: its timer fires or, without a timer, the deadline of the provider passes.
    Timeout {
        /// Tag of the work.
        tag: String,
    },
    /// The outcome is unknown to the provider, and the provider does not retry.
    InDoubt {
        /// Tag of the work.
        tag: String,
    },
    /// A user completes a task.
    Task {
        /// Tag of the task.
        tag: String,
        /// Selected outcome. Default: the first success.
        outcome: Option<EventType>,
        /// User who completes the task.
        user: Option<String>,
        /// Data that the user entered.
        data: Value,
    },
    /// An operator performs an action.
    Operator(OperatorAction),
    /// An event for this instance only.
    Signal {
        /// Event type.
        kind: EventType,
        /// Payload.
        data: Value,
    },
    /// The last input is delivered a second time.
    Duplicate,
}

/// Event that arrives.
#[derive(Clone, Debug, PartialEq)]
pub struct EventStep {
    /// Event type.
    pub kind: EventType,
    /// Payload.
    pub data: Value,
    /// Version of the payload.
    pub version: u32,
    /// Event id; generated if absent.
    pub id: Option<EventId>,
    /// Event time. Default: the current time.
    pub time: Option<Timestamp>,
    /// Correlation id of the envelope. Default: that of the instance.
    pub correlation: Option<String>,
    /// User who publishes the event. Default: `starter`.
    pub user: Option<String>,
    /// Source, subject and further attributes.
    pub envelope: Box<StepEnvelope>,
}

/// Attributes of an event in a test.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StepEnvelope {
    /// Source of the event. Default: `urn:simulator`.
    pub source: Option<String>,
    /// Subject of the event.
    pub subject: Option<String>,
    /// Further attributes.
    pub attributes: EventAttributes,
}

impl EventStep {
    /// Creates an event with default values for the other fields.
    #[must_use]
    pub fn new(kind: EventType, data: Value) -> Self {
        Self {
            kind,
            data,
            version: 1,
            id: None,
            time: None,
            correlation: None,
            user: None,
            envelope: Box::default(),
        }
    }
}

/// Action of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// Cancels the instance.
    Cancel(String),
    /// Buffers inputs without applying them.
    Pause,
    /// Resumes the instance.
    Resume,
    /// Retries the work that made the instance stuck.
    Retry,
    /// Skips the compensation that made the instance stuck.
    Skip,
    /// Ends the instance.
    ForceComplete,
}

impl OperatorAction {
    /// Returns the notation in a test file.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            OperatorAction::Cancel(_) => "cancel",
            OperatorAction::Pause => "pause",
            OperatorAction::Resume => "resume",
            OperatorAction::Retry => "retry",
            OperatorAction::Skip => "skip",
            OperatorAction::ForceComplete => "force-complete",
        }
    }
}

/// Formats the step as an item of `given` in a test file: one line of flow YAML.
impl fmt::Display for SimulationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let item = match self {
            SimulationStep::Event(event) => return event.fmt(f),
            SimulationStep::Advance(by) => json!({ "advance": duration(*by) }),
            SimulationStep::At(time) => json!({ "at": time.to_string() }),
            SimulationStep::Ok { tag, event, data } => fields(
                "ok",
                tag,
                [("event", text(event.as_ref())), ("data", some(data))],
            ),
            SimulationStep::Fail {
                tag,
                event,
                code,
                message,
                data,
            } => {
                let more = [
                    ("event", text(event.as_ref())),
                    ("code", code.clone().map(Value::from)),
                    ("message", message.clone().map(Value::from)),
                    ("data", some(data)),
                ];
                fields("fail", tag, more)
            }
            SimulationStep::Timeout { tag } => json!({ "timeout": tag }),
            SimulationStep::InDoubt { tag } => json!({ "in_doubt": tag }),
            SimulationStep::Task {
                tag,
                outcome,
                user,
                data,
            } => {
                let more = [
                    ("outcome", text(outcome.as_ref())),
                    ("user", user.clone().map(Value::from)),
                    ("data", some(data)),
                ];
                fields("task", tag, more)
            }
            SimulationStep::Operator(OperatorAction::Cancel(reason)) => json!({ "cancel": reason }),
            SimulationStep::Operator(action) => return f.write_str(action.as_str()),
            SimulationStep::Signal { kind, data } => {
                fields("signal", kind.as_str(), [("data", some(data))])
            }
            SimulationStep::Duplicate => return f.write_str("duplicate"),
        };

        write_flow(&item, f)
    }
}

impl fmt::Display for EventStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The short notation has only a type and data; any other field needs the long one.
        let minimal = Self::new(self.kind.clone(), self.data.clone());

        // A type that is a keyword of the notation would be read as one.
        if *self == minimal && !RESERVED.contains(&self.kind.as_str()) {
            return write_flow(&json!({ self.kind.as_str(): self.data }), f);
        }

        let StepEnvelope {
            source,
            subject,
            attributes,
        } = &*self.envelope;

        let extensions = Some(&attributes.extensions).filter(|extensions| !extensions.is_empty());
        let more = [
            (
                "version",
                Some(self.version).filter(|v| *v != 1).map(Value::from),
            ),
            ("id", text(self.id.as_ref())),
            ("time", self.time.map(|time| Value::from(time.to_string()))),
            ("correlation", self.correlation.clone().map(Value::from)),
            ("user", self.user.clone().map(Value::from)),
            ("source", source.clone().map(Value::from)),
            ("subject", subject.clone().map(Value::from)),
            (
                "datacontenttype",
                attributes.content_type.clone().map(Value::from),
            ),
            (
                "dataschema",
                attributes.data_schema.clone().map(Value::from),
            ),
            ("extensions", extensions.map(|extensions| json!(extensions))),
            ("data", some(&self.data)),
        ];

        write_flow(&fields("event", self.kind.as_str(), more), f)
    }
}

/// Names that an event in the short notation cannot have.
pub(crate) const RESERVED: [&str; 17] = [
    "event",
    "advance",
    "at",
    "ok",
    "fail",
    "timeout",
    "in_doubt",
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
    map.extend(
        more.into_iter()
            .filter_map(|(name, value)| Some((name.to_owned(), value?))),
    );
    Value::Object(map)
}

/// Writes flow YAML. JSON is flow YAML; only the outer braces get spaces. The map keeps the order
/// of names; the verb is found by its name.
fn write_flow(item: &Value, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Value::Object(map) = item else {
        return write!(f, "{item}");
    };

    f.write_str("{ ")?;
    for (index, (name, value)) in map.iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        // Names are quoted as in JSON, so that none of them is read as another YAML value.
        write!(f, "{}: {value}", Value::from(name.as_str()))?;
    }

    f.write_str(" }")
}

/// Formats a duration in the notation of the language: `1h30m`.
pub(crate) fn duration(duration: Duration) -> String {
    // The largest unit first, so that each count is below the next larger unit.
    let mut millis = duration.as_millis();
    let mut text = String::new();
    for (unit, size) in [
        ("d", 86_400_000),
        ("h", 3_600_000),
        ("m", 60_000),
        ("s", 1000),
        ("ms", 1),
    ] {
        let count = millis / size;
        millis %= size;
        if count > 0 {
            text += &count.to_string();
            text += unit;
        }
    }

    if text.is_empty() {
        "0s".to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_an_event_are_in_its_notation() {
        let extensions = [("region".to_owned(), "eu".to_owned())].into();
        let attributes = EventAttributes {
            extensions,
            ..EventAttributes::default()
        };
        let envelope = StepEnvelope {
            source: Some("urn:shop".to_owned()),
            subject: None,
            attributes,
        };
        let event = EventStep {
            envelope: Box::new(envelope),
            ..EventStep::new(EventType::new("Placed").unwrap(), Value::Null)
        };
        let expected =
            r#"{ "event": "Placed", "extensions": {"region":"eu"}, "source": "urn:shop" }"#;
        assert_eq!(event.to_string(), expected);
    }

    #[track_caller]
    fn check(step: &SimulationStep, expected: &str) {
        assert_eq!(step.to_string(), expected);
    }

    #[test]
    fn simulation_steps_print_in_test_file_syntax() {
        let kind = |name: &str| EventType::new(name).unwrap();
        check(
            &SimulationStep::Event(EventStep::new(kind("Placed"), json!({"id": "o1"}))),
            r#"{ "Placed": {"id":"o1"} }"#,
        );
        check(
            &SimulationStep::Event(EventStep::new(kind("retry"), Value::Null)),
            r#"{ "event": "retry" }"#,
        );
        check(
            &SimulationStep::Advance(Duration::from_secs(5430)),
            r#"{ "advance": "1h30m30s" }"#,
        );
        check(&SimulationStep::Operator(OperatorAction::Retry), "retry");
        let fail = SimulationStep::Fail {
            tag: "ship".to_owned(),
            event: None,
            code: Some("declined".to_owned()),
            message: None,
            data: Value::Null,
        };
        check(&fail, r#"{ "code": "declined", "fail": "ship" }"#);
        let task = SimulationStep::Task {
            tag: "approve".to_owned(),
            outcome: None,
            user: Some("alice".to_owned()),
            data: Value::Null,
        };
        check(&task, r#"{ "task": "approve", "user": "alice" }"#);
        check(
            &SimulationStep::InDoubt {
                tag: "ship".to_owned(),
            },
            r#"{ "in_doubt": "ship" }"#,
        );
    }
}
