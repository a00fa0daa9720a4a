//! Parser of `expect`.

#![expect(
    clippy::option_option,
    reason = "outer: parsed or not; inner: present or not"
)]

use orlog_model::Status;
use orlog_program::document::{Entry, Item, did_you_mean};
use serde_json::{Map, Value};

use super::parser::{Parser, find};
use crate::test_file::expect::{Expectation, ExpectedFields, TimerExpectation, WorkExpectation};

const EXPECT: [&str; 13] = [
    "status",
    "work",
    "state",
    "waits",
    "timers",
    "tasks",
    "reference",
    "failure",
    "history",
    "dead_letters",
    "paused",
    "invariants",
    "instance",
];
/// Kinds of work.
const KINDS: [&str; 7] = [
    "command",
    "effect",
    "fact",
    "timer",
    "task",
    "start_child",
    "cancel_child",
];

/// Parses `expect` and the instance that it refers to.
pub(super) fn expect(
    parser: &mut Parser,
    item: &Item<'_>,
) -> Option<(Option<String>, Expectation)> {
    let fields = parser.fields(item, &EXPECT)?;
    if fields.is_empty() {
        return parser.error(item.diagnostic("the expectation is empty"));
    }

    let mut expected = Expectation::default();
    let mut instance = None;
    for Entry { name, item, .. } in &fields {
        match *name {
            "status" => expected.status = status(parser, item),
            "work" => expected.work = list(parser, item, work),
            "state" => expected.state = Some(item.json()),
            "waits" => expected.waits = list(parser, item, Parser::text),
            "timers" => expected.timers = timers(parser, item),
            "tasks" => expected.tasks = list(parser, item, task),
            "reference" => expected.reference = reference(parser, item),
            "failure" => expected.failure = failure(parser, item),
            "history" => expected.history = list(parser, item, Parser::text),
            "dead_letters" => expected.dead_letters = list(parser, item, Parser::text),
            "paused" => expected.paused = flag(parser, item),
            "invariants" => expected.invariants = flag(parser, item).unwrap_or(false),
            // Only `instance` is left: other names were reported with the fields.
            _ => instance = parser.text(item),
        }
    }
    Some((instance, expected))
}

fn status(parser: &mut Parser, item: &Item<'_>) -> Option<Option<Status>> {
    let text = parser.text(item)?;
    if text == "none" {
        return Some(None);
    }

    let found = Status::ALL
        .into_iter()
        .find(|status| status.as_str() == text);

    if found.is_none() {
        let known: Vec<_> = Status::ALL
            .iter()
            .map(|status| status.as_str())
            .chain(["none"])
            .collect();
        let mut problem = item.diagnostic(format!("unknown status `{text}`"));
        problem.suggestion = Some(
            did_you_mean(&text, known.iter().copied())
                .unwrap_or_else(|| format!("valid: {}", known.join(", "))),
        );
        return parser.error(problem);
    }
    Some(found)
}

fn flag(parser: &mut Parser, item: &Item<'_>) -> Option<bool> {
    match item.json() {
        Value::Bool(flag) => Some(flag),
        _ => parser.error(item.type_error("true or false")),
    }
}

fn reference(parser: &mut Parser, item: &Item<'_>) -> Option<Option<String>> {
    if item.json().is_null() {
        Some(None)
    } else {
        parser.text(item).map(Some)
    }
}

/// Parses a code, a map of fields, or null for no failure.
fn failure(parser: &mut Parser, item: &Item<'_>) -> Option<Option<ExpectedFields>> {
    match item.json() {
        Value::Null => Some(None),
        Value::Object(fields) => {
            parser.fields(item, &["code", "message"])?;
            Some(Some(fields))
        }
        _ => {
            let code = parser.text(item)?;
            Some(Some(Map::from_iter([(
                "code".to_owned(),
                Value::from(code),
            )])))
        }
    }
}

fn list<T>(
    parser: &mut Parser,
    item: &Item<'_>,
    read: impl Fn(&mut Parser, &Item<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    match item.list() {
        Some(items) => Some(items.iter().filter_map(|item| read(parser, item)).collect()),
        None => parser.error(item.type_error("a list")),
    }
}

fn work(parser: &mut Parser, item: &Item<'_>) -> Option<WorkExpectation> {
    if item.text().is_some() {
        let line = parser.text(item)?;
        let kind = line.split(' ').next().unwrap_or_default();
        if !KINDS.contains(&kind) || !line.contains(' ') {
            let mut problem = item.diagnostic(format!("invalid work `{line}`"));
            problem.suggestion = Some(
                did_you_mean(kind, KINDS)
                    .unwrap_or_else(|| "use the form `effect payments.charge`".to_owned()),
            );
            return parser.error(problem);
        }
        return Some(WorkExpectation {
            line,
            data: None,
            id: None,
            tag: None,
        });
    }

    let valid: Vec<_> = KINDS.iter().copied().chain(["data", "id", "tag"]).collect();
    let fields = parser.fields(item, &valid)?;

    let mut kinds = fields.iter().filter(|entry| KINDS.contains(&entry.name));
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        return parser
            .error(item.diagnostic(format!("requires exactly one of {}", KINDS.join(", "))));
    };

    let line = format!("{} {}", kind.name, parser.text(&kind.item)?);
    let tag = match find(&fields, "tag") {
        Some(item) => Some(parser.text(item)?),
        None => None,
    };

    let json = |name: &str| find(&fields, name).map(Item::json);
    Some(WorkExpectation {
        line,
        data: json("data"),
        id: json("id"),
        tag,
    })
}

/// Parses a list of names, or a map of names to the remaining time.
fn timers(parser: &mut Parser, item: &Item<'_>) -> Option<Vec<TimerExpectation>> {
    let Some(entries) = item.map() else {
        return list(parser, item, |parser: &mut Parser, item: &Item<'_>| {
            parser
                .text(item)
                .map(|name| TimerExpectation { name, within: None })
        });
    };
    let mut timers = Vec::with_capacity(entries.len());
    for entry in &entries {
        match entry.item.duration() {
            Ok(within) => timers.push(TimerExpectation {
                name: entry.name.to_owned(),
                within: Some(within),
            }),
            Err(problem) => parser.problems.push(problem),
        }
    }
    Some(timers)
}

fn task(parser: &mut Parser, item: &Item<'_>) -> Option<(String, ExpectedFields)> {
    if item.text().is_some() {
        return parser.text(item).map(|tag| (tag, Map::new()));
    }

    let valid = [
        "task", "title", "roles", "not_by", "assignee", "due", "outcomes", "data",
    ];

    let fields = parser.fields(item, &valid)?;
    let tag = parser.required(item, &fields, "task").cloned()?;
    let mut form = item.json().as_object().cloned().unwrap_or_default();
    form.remove("task");
    Some((parser.text(&tag)?, form))
}
