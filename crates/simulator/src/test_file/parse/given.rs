//! Parser of the items of `given`: inputs, or expectations between them.

#![expect(
    clippy::option_option,
    reason = "outer: parsed or not; inner: present or not"
)]

use std::collections::BTreeMap;

use orlog_model::{EventAttributes, EventId, EventType, Timestamp};
use orlog_program::document::{Entry, Item, did_you_mean};
use serde_json::Value;

use super::expect::expect;
use super::parser::{Parser, find};
use crate::step::{EventStep, OperatorAction, RESERVED, SimulationStep, StepEnvelope};
use crate::test_file::{TestStep, TestStepKind};

/// Keywords without a value.
const BARE_STEPS: [&str; 6] = [
    "pause",
    "resume",
    "retry",
    "skip",
    "force-complete",
    "duplicate",
];

/// Returns the fields that are allowed with a verb.
fn valid_fields(verb: &str) -> &'static [&'static str] {
    match verb {
        "event" => &[
            "event",
            "version",
            "id",
            "time",
            "correlation",
            "user",
            "source",
            "subject",
            "datacontenttype",
            "dataschema",
            "extensions",
            "data",
            "instance",
            "rejected",
        ],
        "ok" => &["ok", "event", "data", "instance", "rejected"],
        "fail" => &[
            "fail", "event", "code", "message", "data", "instance", "rejected",
        ],
        "task" => &["task", "outcome", "user", "data", "instance", "rejected"],
        "signal" => &["signal", "data", "instance", "rejected"],
        "expect" => &["expect"],
        "advance" => &["advance"],
        "at" => &["at"],
        "timeout" => &["timeout", "instance"],
        "in_doubt" => &["in_doubt", "instance"],
        "cancel" => &["cancel", "instance", "rejected"],
        "pause" => &["pause", "instance", "rejected"],
        "resume" => &["resume", "instance", "rejected"],
        "retry" => &["retry", "instance", "rejected"],
        "skip" => &["skip", "instance", "rejected"],
        "force-complete" => &["force-complete", "instance", "rejected"],
        // The verbs are those of `RESERVED`, of which this is the last one.
        _ => &["duplicate"],
    }
}

/// Parses one item.
pub(super) fn step(parser: &mut Parser, item: &Item<'_>) -> Option<TestStep> {
    if let Some(keyword) = item.text() {
        let step = bare_step(keyword).or_else(|| unknown_keyword(parser, item, keyword))?;
        return Some(TestStep {
            line: item.line(),
            instance: None,
            kind: TestStepKind::Step {
                step,
                rejected: None,
            },
        });
    }
    let Some(entries) = item.map() else {
        return parser.error(item.type_error("an input such as `- OrderPlaced: {…}`"));
    };
    // `event` is also allowed with `ok` and `fail`.
    let verbs = || {
        entries
            .iter()
            .filter(|entry| RESERVED.contains(&entry.name))
    };
    let verb = verbs()
        .find(|entry| entry.name != "event")
        .or_else(|| verbs().next());

    let Some(verb) = verb else {
        return short_event(parser, item, &entries);
    };

    let valid = valid_fields(verb.name);
    let unknown: Vec<_> = entries
        .iter()
        .filter(|entry| !valid.contains(&entry.name))
        .collect();
    if !unknown.is_empty() {
        parser
            .problems
            .extend(unknown.into_iter().map(|entry| entry.unknown_field(valid)));
        return None;
    }

    if verb.name == "expect" {
        let (instance, expected) = expect(parser, &verb.item)?;
        return Some(TestStep {
            line: item.line(),
            instance,
            kind: TestStepKind::Expect(Box::new(expected)),
        });
    }

    let instance = match find(&entries, "instance") {
        Some(item) => Some(parser.text(item)?),
        None => None,
    };
    let rejected = match find(&entries, "rejected") {
        // `true` accepts each reason: every text contains the empty one.
        Some(item) if item.json() == Value::Bool(true) => Some(String::new()),
        Some(item) => Some(parser.text(item)?),
        None => None,
    };

    let step = step_of(parser, verb, &entries)?;
    Some(TestStep {
        line: item.line(),
        instance,
        kind: TestStepKind::Step { step, rejected },
    })
}

fn bare_step(keyword: &str) -> Option<SimulationStep> {
    Some(match keyword {
        "cancel" => SimulationStep::Operator(OperatorAction::Cancel(String::new())),
        "pause" => SimulationStep::Operator(OperatorAction::Pause),
        "resume" => SimulationStep::Operator(OperatorAction::Resume),
        "retry" => SimulationStep::Operator(OperatorAction::Retry),
        "skip" => SimulationStep::Operator(OperatorAction::Skip),
        "force-complete" => SimulationStep::Operator(OperatorAction::ForceComplete),
        "duplicate" => SimulationStep::Duplicate,
        _ => return None,
    })
}

/// Parses an unknown keyword: a keyword that starts with a capital letter is an event without data.
fn unknown_keyword(parser: &mut Parser, item: &Item<'_>, keyword: &str) -> Option<SimulationStep> {
    if keyword.starts_with(char::is_uppercase) {
        return Some(SimulationStep::Event(EventStep::new(
            parser.name(item, EventType::new)?,
            Value::Null,
        )));
    }

    let mut problem = item.diagnostic(format!("unknown input `{keyword}`"));

    problem.suggestion = Some(did_you_mean(keyword, BARE_STEPS).unwrap_or_else(|| {
        format!(
            "valid without a value: {}; others such as `- advance: 5m`",
            BARE_STEPS.join(", ")
        )
    }));
    parser.error(problem)
}

fn short_event(parser: &mut Parser, item: &Item<'_>, entries: &[Entry<'_>]) -> Option<TestStep> {
    let [entry] = entries else {
        let mut problem = item.diagnostic("an item has exactly one input");
        problem.suggestion =
            Some("write the event as `- event: OrderPlaced`, with `data`".to_owned());
        return parser.error(problem);
    };

    let kind = match EventType::new(entry.name) {
        Ok(kind) => kind,
        Err(error) => return parser.error(entry.item.diagnostic(error.to_string())),
    };

    let step = SimulationStep::Event(EventStep::new(kind, entry.item.json()));
    Some(TestStep {
        line: item.line(),
        instance: None,
        kind: TestStepKind::Step {
            step,
            rejected: None,
        },
    })
}

fn step_of(parser: &mut Parser, verb: &Entry<'_>, fields: &[Entry<'_>]) -> Option<SimulationStep> {
    let item = &verb.item;
    let data = find(fields, "data").map_or(Value::Null, Item::json);

    Some(match verb.name {
        "event" => SimulationStep::Event(event(parser, item, fields, data)?),
        "advance" => match item.duration() {
            Ok(by) => SimulationStep::Advance(by),
            Err(problem) => return parser.error(problem),
        },
        "at" => SimulationStep::At(parser.time(item)?),
        "ok" => SimulationStep::Ok {
            tag: parser.text(item)?,
            event: kind(parser, fields, "event")?,
            data,
        },
        "fail" => SimulationStep::Fail {
            tag: parser.text(item)?,
            event: kind(parser, fields, "event")?,
            code: optional(parser, fields, "code")?,
            message: optional(parser, fields, "message")?,
            data,
        },
        "timeout" => SimulationStep::Timeout {
            tag: parser.text(item)?,
        },
        "in_doubt" => SimulationStep::InDoubt {
            tag: parser.text(item)?,
        },
        "task" => SimulationStep::Task {
            tag: parser.text(item)?,
            outcome: kind(parser, fields, "outcome")?,
            user: optional(parser, fields, "user")?,
            data,
        },
        "signal" => SimulationStep::Signal {
            kind: parser.name(item, EventType::new)?,
            data,
        },
        "cancel" => SimulationStep::Operator(OperatorAction::Cancel(parser.text(item)?)),
        keyword => bare_step(keyword).or_else(|| unknown_keyword(parser, item, keyword))?,
    })
}

fn event(
    parser: &mut Parser,
    item: &Item<'_>,
    fields: &[Entry<'_>],
    data: Value,
) -> Option<EventStep> {
    let version = match find(fields, "version") {
        None => 1,
        Some(item) => match item
            .json()
            .as_u64()
            .and_then(|number| u32::try_from(number).ok())
        {
            Some(version) => version,
            None => return parser.error(item.type_error("a whole number")),
        },
    };

    let id = match find(fields, "id") {
        Some(item) => Some(parser.name(item, EventId::new)?),
        None => None,
    };

    let time: Option<Timestamp> = match find(fields, "time") {
        Some(item) => Some(parser.time(item)?),
        None => None,
    };

    let correlation = optional(parser, fields, "correlation")?;
    let user = optional(parser, fields, "user")?;
    let source = optional(parser, fields, "source")?;
    let subject = optional(parser, fields, "subject")?;
    let attributes = EventAttributes {
        content_type: optional(parser, fields, "datacontenttype")?,
        data_schema: optional(parser, fields, "dataschema")?,
        extensions: match find(fields, "extensions") {
            Some(item) => extensions(parser, item)?,
            None => BTreeMap::new(),
        },
    };

    let kind = parser.name(item, EventType::new)?;
    let envelope = Box::new(StepEnvelope {
        source,
        subject,
        attributes,
    });

    Some(EventStep {
        kind,
        data,
        version,
        id,
        time,
        correlation,
        user,
        envelope,
    })
}

/// Parses the extensions of an event. Each value is a text, as in binary mode.
fn extensions(parser: &mut Parser, item: &Item<'_>) -> Option<BTreeMap<String, String>> {
    let Some(entries) = item.map() else {
        return parser.error(item.type_error("a map of extensions"));
    };

    let mut extensions = BTreeMap::new();
    for entry in entries {
        if !entry
            .name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
        {
            let message = format!(
                "`{}` is not an extension; its name consists of a to z and 0 to 9",
                entry.name
            );
            return parser.error(entry.item.diagnostic(message));
        }

        let text = match entry.item.json() {
            Value::String(text) => text,
            Value::Bool(flag) => flag.to_string(),
            // CloudEvents has no fractions.
            Value::Number(number) if !number.is_f64() => number.to_string(),
            _ => return parser.error(entry.item.type_error("a text, a whole number or a boolean")),
        };
        extensions.insert(entry.name.to_owned(), text);
    }
    Some(extensions)
}

/// Returns `None` if the field is invalid, `Some(None)` if it is absent.
fn kind(parser: &mut Parser, fields: &[Entry<'_>], name: &str) -> Option<Option<EventType>> {
    match find(fields, name) {
        Some(item) => parser.name(item, EventType::new).map(Some),
        None => Some(None),
    }
}

fn optional(parser: &mut Parser, fields: &[Entry<'_>], name: &str) -> Option<Option<String>> {
    match find(fields, name) {
        Some(item) => parser.text(item).map(Some),
        None => Some(None),
    }
}
