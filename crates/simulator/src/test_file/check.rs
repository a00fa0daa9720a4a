//! Compares what is expected with how an instance stands.

use std::time::Duration;

use orlog_model::{InstanceKey, Name, TaskForm, Timestamp, Work};
use serde_json::{Value, json};

use super::diff::diff;
use super::expect::{Deadline, Expect, Fields, WorkItemForm, differences, is_part};
use crate::explore::end_is_reachable;
use crate::invariants::Watch;
use crate::runner::Player;
use crate::simulator::{Did, Entry, Lab};
use crate::step::duration;

/// Everything that is not as expected, each in lines for people.
pub(super) fn misses(
    expect: &Expect,
    key: Option<&InstanceKey>,
    player: &Player,
    watch: &Watch,
) -> Vec<String> {
    let lab = &player.lab;
    let entry = key.and_then(|key| lab.entry(key));
    let mut misses = Vec::new();
    if let Some(expected) = expect.status {
        let actual = entry.and_then(Entry::status);
        if expected != actual {
            let word = |status: Option<orlog_model::Status>| status.map_or("none", |s| s.as_str());
            misses.push(format!("status: expected {}, is {}", word(expected), word(actual)));
        }
    }
    let judged = [
        expect.work.as_ref().and_then(|work| judge_work(work, entry)),
        expect.state.as_ref().and_then(|state| judge_state(state, key, lab)),
        expect.waits.as_ref().and_then(|waits| judge_waits(waits, entry)),
        expect.timers.as_ref().and_then(|timers| judge_timers(timers, entry, lab.now())),
        expect.tasks.as_ref().and_then(|tasks| judge_tasks(tasks, entry)),
        expect.failure.as_ref().and_then(|failure| judge_failure(failure.as_ref(), entry)),
        expect.history.as_ref().and_then(|notes| judge_history(notes, entry)),
        expect.dead_letters.as_ref().and_then(|letters| judge_letters(letters, entry)),
    ];
    misses.extend(judged.into_iter().flatten());
    if let Some(expected) = &expect.reference {
        let actual = entry.and_then(Entry::instance).and_then(|instance| instance.reference.as_ref());
        if expected.as_ref() != actual {
            misses.push(format!("reference: expected {}, is {}", json!(expected), json!(actual)));
        }
    }
    if let Some(expected) = expect.paused {
        let actual = entry.and_then(Entry::instance).is_some_and(|instance| instance.paused);
        if expected != actual {
            misses.push(format!("paused: expected {expected}, is {actual}"));
        }
    }
    if expect.sound {
        misses.extend(watch.broken().iter().map(|broken| format!("not sound: {broken}")));
        misses.extend(end_is_reachable(player).err().map(|broken| format!("not sound: {broken}")));
    }
    misses
}

fn judge_work(expected: &[WorkItemForm], entry: Option<&Entry>) -> Option<String> {
    let actual: Vec<_> = entry.map_or(&[][..], Entry::did).iter().map(Line::of).collect();
    let whole = expected.len() == actual.len() && expected.iter().zip(&actual).all(|(e, a)| a.matches(e));
    if whole {
        return None;
    }
    let lines = diff(expected, &actual, |e, a| a.matches(e), show_form, |line| line.text.clone());
    let mut text = block("work", &lines);
    for (expected, actual) in expected.iter().zip(&actual).filter(|(e, a)| e.line == a.text && !a.matches(e))
    {
        let mut found = Vec::new();
        if let Some(data) = &expected.data {
            differences(data, &actual.data, "data", &mut found);
        }
        if let Some(id) = expected.id.as_ref().filter(|id| **id != actual.id) {
            found.push(format!("id: expected {id}, is {}", actual.id));
        }
        text.extend(found.iter().map(|line| format!("\n    {}: {line}", actual.text)));
    }
    Some(text)
}

/// A piece of work as a test sees it.
struct Line {
    text: String,
    data: Value,
    id: Value,
    tag: Option<String>,
}

impl Line {
    fn of(did: &Did) -> Self {
        let (text, data, id) = match did {
            Did::Fired(name, _) => (format!("timer {name}"), Value::Null, Value::Null),
            Did::Task(form) => (format!("task {}", form.tag), form.data.clone(), Value::Null),
            Did::Work(item) => match &item.work {
                Work::Command(c) => (
                    format!("command {}.{}", c.aggregate_type, c.name),
                    c.payload.clone(),
                    json!(c.aggregate_id),
                ),
                Work::Effect(e) => (format!("effect {}", e.name), e.payload.clone(), Value::Null),
                Work::Fact(f) => (format!("fact {}", f.kind), f.data.clone(), Value::Null),
                Work::Start(s) => {
                    (format!("start {}", s.saga), s.data.clone(), json!(s.correlation.as_str()))
                }
                Work::Stop(s) => (format!("stop {}", s.saga), Value::Null, json!(s.correlation.as_str())),
                Work::End(e) => {
                    (format!("end {}", e.to.saga), e.ended.data.clone(), json!(e.to.correlation.as_str()))
                }
            },
        };
        Self { text, data, id, tag: tag(did) }
    }

    fn matches(&self, form: &WorkItemForm) -> bool {
        self.text == form.line
            && form.data.as_ref().is_none_or(|data| is_part(data, &self.data))
            && form.id.as_ref().is_none_or(|id| *id == self.id)
            && form.tag.as_ref().is_none_or(|tag| Some(tag) == self.tag.as_ref())
    }
}

fn tag(did: &Did) -> Option<String> {
    match did {
        Did::Work(item) => item.work.tag().map(Name::to_string),
        Did::Fired(name, _) => Some(name.to_string()),
        Did::Task(form) => Some(form.tag.to_string()),
    }
}

fn show_form(form: &WorkItemForm) -> String {
    let more =
        [("data", form.data.clone()), ("id", form.id.clone()), ("tag", form.tag.clone().map(Value::from))];
    let more: Vec<_> =
        more.into_iter().filter_map(|(name, value)| Some(format!("{name}: {}", value?))).collect();
    if more.is_empty() { form.line.clone() } else { format!("{} {{ {} }}", form.line, more.join(", ")) }
}

fn judge_state(expected: &Value, key: Option<&InstanceKey>, lab: &Lab) -> Option<String> {
    let actual = key.and_then(|key| Some((lab.programs().of(&key.saga)?, lab.instance(key)?)));
    let actual = actual.and_then(|(program, instance)| program.show(&instance.state)).unwrap_or(Value::Null);
    let mut found = Vec::new();
    differences(&by_step(expected), &by_step(&actual), "", &mut found);
    (!found.is_empty()).then(|| block("state", &found))
}

/// Steps by name rather than as a list, so that a test names only those it is about: `steps: { ship: done }`.
fn by_step(state: &Value) -> Value {
    let mut state = state.clone();
    let Some(steps) = state.get_mut("steps") else { return state };
    if let Value::Array(list) = steps {
        let named =
            list.iter().filter_map(|step| Some((step["id"].as_str()?.to_owned(), step["state"].clone())));
        *steps = Value::Object(named.collect());
    }
    state
}

fn judge_waits(expected: &[String], entry: Option<&Entry>) -> Option<String> {
    let waits = entry.and_then(Entry::instance).map_or(&[][..], |instance| &instance.waits);
    let mut actual: Vec<_> = waits.iter().map(|wait| wait.name.to_string()).collect();
    let mut expected = expected.to_vec();
    actual.sort();
    expected.sort();
    let same = |e: &String, a: &String| e == a;
    (expected != actual).then(|| block("waits", &diff(&expected, &actual, same, Clone::clone, Clone::clone)))
}

fn judge_timers(expected: &[Deadline], entry: Option<&Entry>, now: Timestamp) -> Option<String> {
    let timers = entry.and_then(Entry::instance).map_or(&[][..], |instance| &instance.timers);
    let mut actual: Vec<_> = timers.iter().map(|t| (t.name.to_string(), t.due.since(now))).collect();
    let mut expected = expected.to_vec();
    actual.sort();
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    let same = |e: &Deadline, (name, due): &(String, Duration)| {
        e.name == *name && e.within.is_none_or(|within| within == *due)
    };
    let whole = expected.len() == actual.len() && expected.iter().zip(&actual).all(|(e, a)| same(e, a));
    let show = |name: &str, within: Option<Duration>| match within {
        Some(within) => format!("{name} in {}", duration(within)),
        None => name.to_owned(),
    };
    let lines =
        diff(&expected, &actual, same, |e| show(&e.name, e.within), |(name, due)| show(name, Some(*due)));
    (!whole).then(|| block("timers", &lines))
}

fn judge_tasks(expected: &[(String, Fields)], entry: Option<&Entry>) -> Option<String> {
    let open = entry.into_iter().flat_map(Entry::tasks);
    let actual: Vec<_> = open.map(|task| (task.form.tag.to_string(), form(&task.form))).collect();
    let same = |(tag, fields): &(String, Fields), (name, form): &(String, Value)| {
        tag == name && is_part(&Value::Object(fields.clone()), form)
    };
    let whole = expected.len() == actual.len() && expected.iter().all(|e| actual.iter().any(|a| same(e, a)));
    let show =
        |tag: &str, fields: String| if fields == "{}" { tag.to_owned() } else { format!("{tag} {fields}") };
    let lines = diff(
        expected,
        &actual,
        same,
        |(tag, fields)| show(tag, Value::Object(fields.clone()).to_string()),
        |(tag, form)| show(tag, form.to_string()),
    );
    (!whole).then(|| block("tasks", &lines))
}

fn form(form: &TaskForm) -> Value {
    let outcomes: Vec<_> = form.outcomes.iter().map(AsRef::<str>::as_ref).collect();
    json!({
        "title": form.title,
        "roles": form.roles,
        "assignee": form.assignee,
        "due": form.due.map(|due| due.to_string()),
        "outcomes": outcomes,
        "data": form.data,
    })
}

fn judge_failure(expected: Option<&Fields>, entry: Option<&Entry>) -> Option<String> {
    let failure = entry.and_then(Entry::instance).and_then(|instance| instance.last_error.as_ref());
    let actual = failure.map(|failure| json!({ "code": failure.code, "message": failure.message }));
    match (expected, actual) {
        (None, None) => None,
        (None, Some(actual)) => Some(format!("failure: expected none, is {actual}")),
        (Some(_), None) => Some("failure: expected one, there is none".to_owned()),
        (Some(expected), Some(actual)) => {
            let mut found = Vec::new();
            differences(&Value::Object(expected.clone()), &actual, "", &mut found);
            (!found.is_empty()).then(|| block("failure", &found))
        }
    }
}

fn judge_history(expected: &[String], entry: Option<&Entry>) -> Option<String> {
    let actual: Vec<_> =
        entry.map_or(&[][..], Entry::history).iter().map(|record| record.note.clone()).collect();
    let mut rest = actual.iter();
    let whole = expected.iter().all(|note| rest.any(|actual| actual == note));
    let same = |e: &String, a: &String| e == a;
    (!whole).then(|| block("history", &diff(expected, &actual, same, Clone::clone, Clone::clone)))
}

fn judge_letters(expected: &[String], entry: Option<&Entry>) -> Option<String> {
    let letters = entry.map_or(&[][..], Entry::dead_letters);
    let actual: Vec<_> = letters.iter().map(|letter| letter.reason.as_str().to_owned()).collect();
    let same = |e: &String, a: &String| e == a;
    (*expected != actual)
        .then(|| block("dead_letters", &diff(expected, &actual, same, Clone::clone, Clone::clone)))
}

fn block(name: &str, lines: &[String]) -> String {
    let lines = lines.iter().map(|line| format!("\n    {line}")).collect::<Vec<_>>().concat();
    format!("{name}:{lines}")
}

/// The history of an instance, for people: one line a transition, with the time since the beginning.
#[must_use]
pub fn story(entry: &Entry, begins: Timestamp) -> Vec<String> {
    let line = |record: &orlog_model::Record| {
        let work: Vec<_> = record.work.iter().map(|(label, _)| format!("\n            → {label}")).collect();
        let work = work.concat();
        let since = format!("+{}", duration(record.at.since(begins)));
        format!("{since:<10} {} | {} | {}{work}", record.label, record.note, record.status)
    };
    let letters = entry
        .dead_letters()
        .iter()
        .map(|letter| format!("set aside: {} | {}", letter.reason.as_str(), letter.message));
    entry.history().iter().map(line).chain(letters).collect()
}
