//! The items of `given`: what happens, or what is expected in between.

#![expect(clippy::option_option, reason = "outside: it could be read; inside: there is something")]

use orlog_model::{EventId, EventType, Timestamp};
use orlog_program::document::{Entry, Item, suggestion};
use serde_json::Value;

use super::expect::expect;
use super::parser::{Reading, find};
use crate::step::{EventMove, Move, RESERVED, Verb};
use crate::test_file::{Step, What};

/// Words that stand alone.
const PLAIN: [&str; 6] = ["pause", "resume", "retry", "skip", "force-complete", "duplicate"];

/// What may stand beside a verb.
fn beside(verb: &str) -> &'static [&'static str] {
    match verb {
        "event" => &["event", "version", "id", "time", "correlation", "data", "of", "refused"],
        "ok" => &["ok", "event", "data", "of", "refused"],
        "fail" => &["fail", "event", "code", "message", "data", "of", "refused"],
        "task" => &["task", "outcome", "by", "data", "of", "refused"],
        "signal" => &["signal", "data", "of", "refused"],
        "expect" => &["expect"],
        "advance" => &["advance"],
        "at" => &["at"],
        "timeout" => &["timeout", "of"],
        "doubt" => &["doubt", "of"],
        "cancel" => &["cancel", "of", "refused"],
        "pause" => &["pause", "of", "refused"],
        "resume" => &["resume", "of", "refused"],
        "retry" => &["retry", "of", "refused"],
        "skip" => &["skip", "of", "refused"],
        "force-complete" => &["force-complete", "of", "refused"],
        _ => &["duplicate"],
    }
}

/// Reads one item.
pub(super) fn step(reading: &mut Reading, item: &Item<'_>) -> Option<Step> {
    if let Some(word) = item.text() {
        let one = plain(word).or_else(|| unknown_word(reading, item, word))?;
        return Some(Step { line: item.line(), of: None, what: What::Move { one, refused: None } });
    }
    let Some(entries) = item.map() else {
        return reading.wrong(item.must_be("something that happens, as `- OrderPlaced: {…}`"));
    };
    // `event` stands beside `ok` and `fail` too.
    let verbs = || entries.iter().filter(|entry| RESERVED.contains(&entry.name));
    let verb = verbs().find(|entry| entry.name != "event").or_else(|| verbs().next());
    let Some(verb) = verb else { return short_event(reading, item, &entries) };
    let valid = beside(verb.name);
    let unknown: Vec<_> = entries.iter().filter(|entry| !valid.contains(&entry.name)).collect();
    if !unknown.is_empty() {
        reading.problems.extend(unknown.into_iter().map(|entry| entry.unknown(valid)));
        return None;
    }
    if verb.name == "expect" {
        let (of, expected) = expect(reading, &verb.item)?;
        return Some(Step { line: item.line(), of, what: What::Expect(Box::new(expected)) });
    }
    let of = match find(&entries, "of") {
        Some(item) => Some(reading.text(item)?),
        None => None,
    };
    let refused = match find(&entries, "refused") {
        Some(item) if item.json() == Value::Bool(true) => Some(String::new()),
        Some(item) => Some(reading.text(item)?),
        None => None,
    };
    let one = of_verb(reading, verb, &entries)?;
    Some(Step { line: item.line(), of, what: What::Move { one, refused } })
}

fn plain(word: &str) -> Option<Move> {
    Some(match word {
        "cancel" => Move::Operator(Verb::Cancel(String::new())),
        "pause" => Move::Operator(Verb::Pause),
        "resume" => Move::Operator(Verb::Resume),
        "retry" => Move::Operator(Verb::Retry),
        "skip" => Move::Operator(Verb::Skip),
        "force-complete" => Move::Operator(Verb::ForceComplete),
        "duplicate" => Move::Duplicate,
        _ => return None,
    })
}

/// A word alone that begins with a capital letter is an event without data.
fn unknown_word(reading: &mut Reading, item: &Item<'_>, word: &str) -> Option<Move> {
    if word.starts_with(char::is_uppercase) {
        return Some(Move::Event(EventMove::new(reading.name(item, EventType::new)?, Value::Null)));
    }
    let mut problem = item.problem(format!("`{word}` is nothing that happens"));
    let valid = || format!("alone stand {}; others as in `- advance: 5m`", PLAIN.join(", "));
    problem.suggestion = Some(suggestion(word, &PLAIN).unwrap_or_else(valid));
    reading.wrong(problem)
}

fn short_event(reading: &mut Reading, item: &Item<'_>, entries: &[Entry<'_>]) -> Option<Step> {
    let [entry] = entries else {
        let mut problem = item.problem("one thing happens at a time");
        problem.suggestion = Some("write the event as `- event: OrderPlaced`, with `data`".to_owned());
        return reading.wrong(problem);
    };
    let kind = match EventType::new(entry.name) {
        Ok(kind) => kind,
        Err(error) => return reading.wrong(entry.item.problem(error.to_string())),
    };
    let one = Move::Event(EventMove::new(kind, entry.item.json()));
    Some(Step { line: item.line(), of: None, what: What::Move { one, refused: None } })
}

fn of_verb(reading: &mut Reading, verb: &Entry<'_>, fields: &[Entry<'_>]) -> Option<Move> {
    let item = &verb.item;
    let data = find(fields, "data").map_or(Value::Null, Item::json);
    Some(match verb.name {
        "event" => Move::Event(event(reading, item, fields, data)?),
        "advance" => match item.duration() {
            Ok(by) => Move::Advance(by),
            Err(problem) => return reading.wrong(problem),
        },
        "at" => Move::At(reading.time(item)?),
        "ok" => Move::Ok { tag: reading.text(item)?, event: kind(reading, fields, "event")?, data },
        "fail" => Move::Fail {
            tag: reading.text(item)?,
            event: kind(reading, fields, "event")?,
            code: optional(reading, fields, "code")?,
            message: optional(reading, fields, "message")?,
            data,
        },
        "timeout" => Move::Timeout { tag: reading.text(item)? },
        "doubt" => Move::Doubt { tag: reading.text(item)? },
        "task" => Move::Task {
            tag: reading.text(item)?,
            outcome: kind(reading, fields, "outcome")?,
            by: optional(reading, fields, "by")?,
            data,
        },
        "signal" => Move::Signal { kind: reading.name(item, EventType::new)?, data },
        "cancel" => Move::Operator(Verb::Cancel(reading.text(item)?)),
        word => plain(word).or_else(|| unknown_word(reading, item, word))?,
    })
}

fn event(reading: &mut Reading, item: &Item<'_>, fields: &[Entry<'_>], data: Value) -> Option<EventMove> {
    let version = match find(fields, "version") {
        None => 1,
        Some(item) => match item.json().as_u64().and_then(|number| u32::try_from(number).ok()) {
            Some(version) => version,
            None => return reading.wrong(item.must_be("a whole number")),
        },
    };
    let id = match find(fields, "id") {
        Some(item) => Some(reading.name(item, EventId::new)?),
        None => None,
    };
    let time: Option<Timestamp> = match find(fields, "time") {
        Some(item) => Some(reading.time(item)?),
        None => None,
    };
    let correlation = optional(reading, fields, "correlation")?;
    let kind = reading.name(item, EventType::new)?;
    Some(EventMove { kind, data, version, id, time, correlation })
}

/// `None` when it is wrong, `Some(None)` when it is not there.
fn kind(reading: &mut Reading, fields: &[Entry<'_>], name: &str) -> Option<Option<EventType>> {
    match find(fields, name) {
        Some(item) => reading.name(item, EventType::new).map(Some),
        None => Some(None),
    }
}

fn optional(reading: &mut Reading, fields: &[Entry<'_>], name: &str) -> Option<Option<String>> {
    match find(fields, name) {
        Some(item) => reading.text(item).map(Some),
        None => Some(None),
    }
}
