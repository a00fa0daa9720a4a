//! Comparison of expectations with the state of an instance.

use std::time::Duration;

use orlog_model::{InstanceKey, Name, TaskSpec, Timestamp, Work};
use serde_json::{Value, json};

use super::diff::diff;
use super::expect::{
    Expectation, ExpectedFields, TimerExpectation, WorkExpectation, differences, is_subset,
};
use crate::explore::end_is_reachable;
use crate::invariants::InvariantChecker;
use crate::runner::ScenarioRunner;
use crate::simulator::{RecordedAction, SimulatedInstance, Simulator};
use crate::step::duration;

/// Returns all mismatches, each in lines for users.
pub(super) fn mismatches(
    expect: &Expectation,
    key: Option<&InstanceKey>,
    runner: &ScenarioRunner,
    checker: &InvariantChecker,
) -> Vec<String> {
    let simulator = &runner.simulator;
    let entry = key.and_then(|key| simulator.simulated_instance(key));
    let mut mismatches = Vec::new();

    if let Some(expected) = expect.status {
        let actual = entry.and_then(SimulatedInstance::status);
        if expected != actual {
            let name = |status: Option<orlog_model::Status>| status.map_or("none", |s| s.as_str());
            mismatches.push(format!(
                "status: expected {}, is {}",
                name(expected),
                name(actual)
            ));
        }
    }

    let results = [
        expect
            .work
            .as_ref()
            .and_then(|work| check_work(work, entry)),
        expect
            .state
            .as_ref()
            .and_then(|state| check_state(state, key, simulator)),
        expect
            .waits
            .as_ref()
            .and_then(|waits| check_waits(waits, entry)),
        expect
            .timers
            .as_ref()
            .and_then(|timers| check_timers(timers, entry, simulator.now())),
        expect
            .tasks
            .as_ref()
            .and_then(|tasks| check_tasks(tasks, entry)),
        expect
            .failure
            .as_ref()
            .and_then(|failure| check_failure(failure.as_ref(), entry)),
        expect
            .history
            .as_ref()
            .and_then(|notes| check_history(notes, entry)),
        expect
            .dead_letters
            .as_ref()
            .and_then(|dead_letters| check_dead_letters(dead_letters, entry)),
    ];

    mismatches.extend(results.into_iter().flatten());

    if let Some(expected) = &expect.reference {
        let actual = entry
            .and_then(SimulatedInstance::instance)
            .and_then(|it| it.reference.as_ref());
        let actual = actual.map(ToString::to_string);
        if expected.as_ref() != actual.as_ref() {
            mismatches.push(format!(
                "reference: expected {}, is {}",
                json!(expected),
                json!(actual)
            ));
        }
    }

    if let Some(expected) = expect.paused {
        let actual = entry
            .and_then(SimulatedInstance::instance)
            .is_some_and(|instance| instance.paused);
        if expected != actual {
            mismatches.push(format!("paused: expected {expected}, is {actual}"));
        }
    }

    if expect.invariants {
        mismatches.extend(
            checker
                .violations()
                .iter()
                // Those that a definition or a test file states are reported at their input.
                .filter(|violation| !violation.is_defined())
                .map(|violation| format!("invariant violated: {violation}")),
        );
        mismatches.extend(
            end_is_reachable(runner)
                .err()
                .map(|violation| format!("invariant violated: {violation}")),
        );
    }

    mismatches
}

fn check_work(expected: &[WorkExpectation], entry: Option<&SimulatedInstance>) -> Option<String> {
    let actual: Vec<_> = entry
        .map_or(&[][..], SimulatedInstance::actions)
        .iter()
        .map(WorkLine::of)
        .collect();

    let is_equal =
        expected.len() == actual.len() && expected.iter().zip(&actual).all(|(e, a)| a.matches(e));
    if is_equal {
        return None;
    }

    let lines = diff(
        expected,
        &actual,
        |e, a| a.matches(e),
        format_expectation,
        |line| line.text.clone(),
    );

    let mut text = block("work", &lines);
    for (expected, actual) in expected
        .iter()
        .zip(&actual)
        // The diff shows the lines; equal lines with other data need the fields that differ.
        .filter(|(e, a)| e.line == a.text && !a.matches(e))
    {
        let mut found = Vec::new();
        if let Some(data) = &expected.data {
            differences(data, &actual.data, "data", &mut found);
        }
        if let Some(id) = expected.id.as_ref().filter(|id| **id != actual.id) {
            found.push(format!("id: expected {id}, is {}", actual.id));
        }

        text.extend(
            found
                .iter()
                .map(|line| format!("\n    {}: {line}", actual.text)),
        );
    }

    Some(text)
}

/// Work item as a test describes it.
struct WorkLine {
    text: String,
    data: Value,
    id: Value,
    tag: Option<String>,
}

impl WorkLine {
    fn of(action: &RecordedAction) -> Self {
        let (text, data, id) = match action {
            RecordedAction::TimerFired(name, _) => {
                (format!("timer {name}"), Value::Null, Value::Null)
            }
            RecordedAction::Task(spec) => {
                (format!("task {}", spec.tag), spec.data.clone(), Value::Null)
            }
            RecordedAction::Work(item) => match &item.work {
                Work::Command(c) => (
                    format!("command {}.{}", c.aggregate_type, c.name),
                    c.payload.clone(),
                    json!(c.aggregate_id),
                ),
                Work::Effect(e) => (format!("effect {}", e.name), e.payload.clone(), Value::Null),
                Work::Fact(f) => (format!("fact {}", f.kind), f.data.clone(), Value::Null),
                Work::StartChild(s) => (
                    format!("start_child {}", s.saga),
                    s.data.clone(),
                    json!(s.correlation.as_str()),
                ),
                Work::CancelChild(s) => (
                    format!("cancel_child {}", s.saga),
                    Value::Null,
                    json!(s.correlation.as_str()),
                ),
                Work::NotifyParent(e) => (
                    format!("notify_parent {}", e.to.saga),
                    e.ended.data.clone(),
                    json!(e.to.correlation.as_str()),
                ),
                Work::PublishResult(r) => (
                    format!("publish_result {}", r.effect),
                    Value::Null,
                    Value::Null,
                ),
            },
        };

        Self {
            text,
            data,
            id,
            tag: tag(action),
        }
    }

    fn matches(&self, spec: &WorkExpectation) -> bool {
        self.text == spec.line
            && spec
                .data
                .as_ref()
                .is_none_or(|data| is_subset(data, &self.data))
            && spec.id.as_ref().is_none_or(|id| *id == self.id)
            && spec
                .tag
                .as_ref()
                .is_none_or(|tag| Some(tag) == self.tag.as_ref())
    }
}

fn tag(action: &RecordedAction) -> Option<String> {
    match action {
        RecordedAction::Work(item) => item.work.tag().map(Name::to_string),
        RecordedAction::TimerFired(name, _) => Some(name.to_string()),
        RecordedAction::Task(spec) => Some(spec.tag.to_string()),
    }
}

fn format_expectation(spec: &WorkExpectation) -> String {
    let more = [
        ("data", spec.data.clone()),
        ("id", spec.id.clone()),
        ("tag", spec.tag.clone().map(Value::from)),
    ];

    let more: Vec<_> = more
        .into_iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}", value?)))
        .collect();

    if more.is_empty() {
        spec.line.clone()
    } else {
        format!("{} {{ {} }}", spec.line, more.join(", "))
    }
}

fn check_state(
    expected: &Value,
    key: Option<&InstanceKey>,
    simulator: &Simulator,
) -> Option<String> {
    let actual = key
        .and_then(|key| {
            let program = simulator.programs().of(&key.saga)?;
            program.view_state(&simulator.instance(key)?.state)
        })
        .unwrap_or(Value::Null);

    let mut found = Vec::new();
    differences(&by_step(expected), &by_step(&actual), "", &mut found);
    (!found.is_empty()).then(|| block("state", &found))
}

/// Converts the list of steps to a map by name, so that a test names only the relevant ones:
/// `steps: { ship: completed }`.
fn by_step(state: &Value) -> Value {
    let mut state = state.clone();
    let Some(steps) = state.get_mut("steps") else {
        return state;
    };

    if let Value::Array(list) = steps {
        let named = list
            .iter()
            .filter_map(|step| Some((step["id"].as_str()?.to_owned(), step["state"].clone())));
        *steps = Value::Object(named.collect());
    }
    state
}

fn check_waits(expected: &[String], entry: Option<&SimulatedInstance>) -> Option<String> {
    let waits = entry
        .and_then(SimulatedInstance::instance)
        .map_or(&[][..], |instance| &instance.waits);

    let mut actual: Vec<_> = waits.iter().map(|wait| wait.name.to_string()).collect();
    let mut expected = expected.to_vec();

    // An instance waits for all of them at once: their order means nothing.
    actual.sort();
    expected.sort();

    (expected != actual).then(|| {
        block(
            "waits",
            &diff(&expected, &actual, String::eq, Clone::clone, Clone::clone),
        )
    })
}

fn check_timers(
    expected: &[TimerExpectation],
    entry: Option<&SimulatedInstance>,
    now: Timestamp,
) -> Option<String> {
    let timers = entry
        .and_then(SimulatedInstance::instance)
        .map_or(&[][..], |instance| &instance.timers);

    let mut actual: Vec<_> = timers
        .iter()
        .map(|t| (t.name.to_string(), t.due.duration_since(now)))
        .collect();

    let mut expected = expected.to_vec();
    actual.sort();
    expected.sort_by(|a, b| a.name.cmp(&b.name));
    let same = |e: &TimerExpectation, timer: &(String, Duration)| {
        let (name, due) = timer;
        e.name == *name && e.within.is_none_or(|within| within == *due)
    };

    let is_equal =
        expected.len() == actual.len() && expected.iter().zip(&actual).all(|(e, a)| same(e, a));

    let show = |name: &str, within: Option<Duration>| match within {
        Some(within) => format!("{name} in {}", duration(within)),
        None => name.to_owned(),
    };

    let lines = diff(
        &expected,
        &actual,
        same,
        |e| show(&e.name, e.within),
        |(name, due)| show(name, Some(*due)),
    );

    (!is_equal).then(|| block("timers", &lines))
}

fn check_tasks(
    expected: &[(String, ExpectedFields)],
    entry: Option<&SimulatedInstance>,
) -> Option<String> {
    let actual: Vec<_> = entry
        .into_iter()
        .flat_map(SimulatedInstance::tasks)
        .map(|task| (task.spec.tag.to_string(), spec(&task.spec)))
        .collect();

    let same = |expected: &(String, ExpectedFields), actual: &(String, Value)| {
        let (tag, fields) = expected;
        let (name, spec) = actual;
        tag == name && is_subset(&Value::Object(fields.clone()), spec)
    };

    let is_equal = expected.len() == actual.len()
        // In any order: an instance offers its open tasks at once.
        && expected.iter().all(|e| actual.iter().any(|a| same(e, a)));

    let show = |tag: &str, fields: String| {
        if fields == "{}" {
            tag.to_owned()
        } else {
            format!("{tag} {fields}")
        }
    };

    let lines = diff(
        expected,
        &actual,
        same,
        |(tag, fields)| show(tag, Value::Object(fields.clone()).to_string()),
        |(tag, spec)| show(tag, spec.to_string()),
    );

    (!is_equal).then(|| block("tasks", &lines))
}

fn spec(spec: &TaskSpec) -> Value {
    let outcomes: Vec<_> = spec.outcomes.iter().map(AsRef::<str>::as_ref).collect();
    json!({
        "title": spec.title,
        "roles": spec.roles,
        "not_by": spec.not_by,
        "assignee": spec.assignee,
        "due": spec.due.map(|due| due.to_string()),
        "outcomes": outcomes,
        "data": spec.data,
    })
}

fn check_failure(
    expected: Option<&ExpectedFields>,
    entry: Option<&SimulatedInstance>,
) -> Option<String> {
    let failure = entry
        .and_then(SimulatedInstance::instance)
        .and_then(|instance| instance.last_error.as_ref());
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

fn check_history(expected: &[String], entry: Option<&SimulatedInstance>) -> Option<String> {
    let actual: Vec<_> = entry
        .map_or(&[][..], SimulatedInstance::history)
        .iter()
        .map(|record| record.note.clone())
        .collect();

    // Other entries may be in between: a test names those that matter.
    let mut rest = actual.iter();
    let is_equal = expected
        .iter()
        .all(|note| rest.any(|actual| actual == note));

    (!is_equal).then(|| {
        block(
            "history",
            &diff(expected, &actual, String::eq, Clone::clone, Clone::clone),
        )
    })
}

fn check_dead_letters(expected: &[String], entry: Option<&SimulatedInstance>) -> Option<String> {
    let dead_letters = entry.map_or(&[][..], SimulatedInstance::dead_letters);
    let actual: Vec<_> = dead_letters
        .iter()
        .map(|dead_letter| dead_letter.reason.as_str().to_owned())
        .collect();

    (*expected != actual).then(|| {
        block(
            "dead_letters",
            &diff(expected, &actual, String::eq, Clone::clone, Clone::clone),
        )
    })
}

fn block(name: &str, lines: &[String]) -> String {
    let lines = lines
        .iter()
        .map(|line| format!("\n    {line}"))
        .collect::<Vec<_>>()
        .concat();
    format!("{name}:{lines}")
}

/// Returns the history of an instance for users: one line per transition, with the time since the
/// start.
#[must_use]
pub fn format_history(entry: &SimulatedInstance, start_time: Timestamp) -> Vec<String> {
    let dead_letters = entry.dead_letters().iter().map(|dead_letter| {
        format!(
            "dead-lettered: {} | {}",
            dead_letter.reason.as_str(),
            dead_letter.message
        )
    });

    entry
        .history()
        .iter()
        .map(|record| history_line(record, start_time))
        .chain(dead_letters)
        .collect()
}

fn history_line(record: &orlog_model::HistoryEntry, start_time: Timestamp) -> String {
    let work: Vec<_> = record
        .work
        .iter()
        .map(|(label, _)| format!("\n            → {label}"))
        .collect();
    let work = work.concat();
    let since = format!("+{}", duration(record.at.duration_since(start_time)));
    format!(
        "{since:<10} {} | {} | {}{work}",
        record.input_label, record.note, record.status
    )
}
