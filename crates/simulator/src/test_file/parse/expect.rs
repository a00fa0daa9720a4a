//! `expect`: what must be so.

#![expect(clippy::option_option, reason = "outside: it could be read; inside: there is something")]

use orlog_model::Status;
use orlog_program::document::{Entry, Item, suggestion};
use serde_json::{Map, Value};

use super::parser::{Reading, find};
use crate::test_file::expect::{Deadline, Expect, Fields, WorkItemForm};

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
    "sound",
    "of",
];
/// What a piece of work can be.
const KINDS: [&str; 7] = ["command", "effect", "fact", "timer", "task", "start", "stop"];

/// Reads `expect`, and which instance it is about.
pub(super) fn expect(reading: &mut Reading, item: &Item<'_>) -> Option<(Option<String>, Expect)> {
    let fields = reading.fields(item, &EXPECT)?;
    if fields.is_empty() {
        return reading.wrong(item.problem("nothing is expected"));
    }
    let mut expected = Expect::default();
    let mut of = None;
    for Entry { name, item, .. } in &fields {
        match *name {
            "status" => expected.status = status(reading, item),
            "work" => expected.work = list(reading, item, work),
            "state" => expected.state = Some(item.json()),
            "waits" => expected.waits = list(reading, item, Reading::text),
            "timers" => expected.timers = timers(reading, item),
            "tasks" => expected.tasks = list(reading, item, task),
            "reference" => expected.reference = reference(reading, item),
            "failure" => expected.failure = failure(reading, item),
            "history" => expected.history = list(reading, item, Reading::text),
            "dead_letters" => expected.dead_letters = list(reading, item, Reading::text),
            "paused" => expected.paused = flag(reading, item),
            "sound" => expected.sound = flag(reading, item).unwrap_or(false),
            _ => of = reading.text(item),
        }
    }
    Some((of, expected))
}

fn status(reading: &mut Reading, item: &Item<'_>) -> Option<Option<Status>> {
    let text = reading.text(item)?;
    if text == "none" {
        return Some(None);
    }
    let found = Status::ALL.into_iter().find(|status| status.as_str() == text);
    if found.is_none() {
        let known: Vec<_> = Status::ALL.iter().map(|status| status.as_str()).chain(["none"]).collect();
        let mut problem = item.problem(format!("`{text}` is no status"));
        problem.suggestion =
            Some(suggestion(&text, &known).unwrap_or_else(|| format!("there are {}", known.join(", "))));
        return reading.wrong(problem);
    }
    Some(found)
}

fn flag(reading: &mut Reading, item: &Item<'_>) -> Option<bool> {
    match item.json() {
        Value::Bool(flag) => Some(flag),
        _ => reading.wrong(item.must_be("true or false")),
    }
}

fn reference(reading: &mut Reading, item: &Item<'_>) -> Option<Option<String>> {
    if item.json().is_null() { Some(None) } else { reading.text(item).map(Some) }
}

/// A code alone, fields, or null: nothing went wrong.
fn failure(reading: &mut Reading, item: &Item<'_>) -> Option<Option<Fields>> {
    match item.json() {
        Value::Null => Some(None),
        Value::Object(fields) => {
            reading.fields(item, &["code", "message"])?;
            Some(Some(fields))
        }
        _ => {
            let code = reading.text(item)?;
            Some(Some(Map::from_iter([("code".to_owned(), Value::from(code))])))
        }
    }
}

fn list<T>(
    reading: &mut Reading,
    item: &Item<'_>,
    read: impl Fn(&mut Reading, &Item<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    match item.list() {
        Some(items) => Some(items.iter().filter_map(|item| read(reading, item)).collect()),
        None => reading.wrong(item.must_be("a list")),
    }
}

fn work(reading: &mut Reading, item: &Item<'_>) -> Option<WorkItemForm> {
    if item.text().is_some() {
        let line = reading.text(item)?;
        let kind = line.split(' ').next().unwrap_or_default();
        if !KINDS.contains(&kind) || !line.contains(' ') {
            let mut problem = item.problem(format!("`{line}` is no work"));
            let example = || "write it as in `effect payments.charge`".to_owned();
            problem.suggestion = Some(suggestion(kind, &KINDS).unwrap_or_else(example));
            return reading.wrong(problem);
        }
        return Some(WorkItemForm { line, data: None, id: None, tag: None });
    }
    let valid: Vec<_> = KINDS.iter().copied().chain(["data", "id", "tag"]).collect();
    let fields = reading.fields(item, &valid)?;
    let mut kinds = fields.iter().filter(|entry| KINDS.contains(&entry.name));
    let (Some(kind), None) = (kinds.next(), kinds.next()) else {
        return reading.wrong(item.problem(format!("name one of {}", KINDS.join(", "))));
    };
    let line = format!("{} {}", kind.name, reading.text(&kind.item)?);
    let tag = match find(&fields, "tag") {
        Some(item) => Some(reading.text(item)?),
        None => None,
    };
    let json = |name: &str| find(&fields, name).map(Item::json);
    Some(WorkItemForm { line, data: json("data"), id: json("id"), tag })
}

/// A list of names, or a map of names to the time from now.
fn timers(reading: &mut Reading, item: &Item<'_>) -> Option<Vec<Deadline>> {
    let Some(entries) = item.map() else {
        let name = |reading: &mut Reading, item: &Item<'_>| {
            reading.text(item).map(|name| Deadline { name, within: None })
        };
        return list(reading, item, name);
    };
    let deadline = |entry: &Entry<'_>| match entry.item.duration() {
        Ok(within) => Some(Deadline { name: entry.name.to_owned(), within: Some(within) }),
        Err(problem) => reading.wrong(problem),
    };
    Some(entries.iter().filter_map(deadline).collect())
}

fn task(reading: &mut Reading, item: &Item<'_>) -> Option<(String, Fields)> {
    if item.text().is_some() {
        return reading.text(item).map(|tag| (tag, Map::new()));
    }
    let valid = ["task", "title", "roles", "assignee", "due", "outcomes", "data"];
    let fields = reading.fields(item, &valid)?;
    let tag = reading.required(item, &fields, "task").cloned()?;
    let mut form = item.json().as_object().cloned().unwrap_or_default();
    form.remove("task");
    Some((reading.text(&tag)?, form))
}
