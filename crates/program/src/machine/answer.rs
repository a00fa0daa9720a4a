//! Reads a stimulus: which step it is about, what it says, and what it carries.

use std::time::Duration;

use orlog_model::{Event, EventType, Failure, Verdict};
use serde_json::Value;

use super::saga::{Call, Role, Saga, Step, Task, UNDO};
use super::state::{Mark, State};
use super::table::{self, Answer, Move};
use crate::program::Stimulus;

/// What a stimulus says about one step.
#[derive(Debug)]
pub(super) struct Reading<'a> {
    pub(super) step: usize,
    pub(super) answer: Answer,
    /// `event` in the step's `save`.
    pub(super) data: &'a Value,
    /// Why, where it is bad news.
    pub(super) failure: Option<Failure>,
}

static NOTHING: Value = Value::Null;

/// The payload a stimulus carries, to be checked before anything else.
pub(super) fn payload<'a>(stimulus: &Stimulus<'a>) -> Option<&'a Value> {
    match stimulus {
        Stimulus::Event(event) => Some(&event.data),
        Stimulus::Outcome {
            verdict: Verdict::Succeeded { payload, .. } | Verdict::Failed { payload, .. },
            ..
        } => Some(payload),
        Stimulus::Outcome { verdict: Verdict::Accepted | Verdict::TimedOut { .. }, .. }
        | Stimulus::Timer { .. }
        | Stimulus::Cancel { .. }
        | Stimulus::Retry
        | Stimulus::Skip
        | Stimulus::ForceComplete => None,
    }
}

/// An event. Of the steps it could be about, that one counts for which it changes something.
pub(super) fn of_event<'a>(
    saga: &Saga,
    state: &State,
    event: &'a Event,
) -> Result<Reading<'a>, &'static str> {
    let roles = saga.roles.get(&event.kind).map_or(&[][..], Vec::as_slice);
    let mut why = "the saga does not take this event";
    for role in roles {
        let (step, answer) = match *role {
            Role::Ok(step) => (step, Answer::Ok),
            Role::Fail(step) => (step, Answer::Failed),
            Role::Undone(step) => (step, Answer::Undone),
            Role::NotUndone(step) => (step, Answer::NotUndone),
        };
        match table::step(state.steps[step].mark, answer) {
            Move::Ignore(reason) => why = reason,
            Move::Complete | Move::Fail(_) | Move::CompleteLate | Move::Confirm | Move::Stick => {
                let bad = matches!(answer, Answer::Failed | Answer::NotUndone);
                let failure = bad.then(|| event_failure(event));
                return Ok(Reading { step, answer, data: &event.data, failure });
            }
        }
    }
    Err(why)
}

/// An event of failure: its type is the code, and its data may say why.
fn event_failure(event: &Event) -> Failure {
    let told = ["message", "reason"].iter().find_map(|field| event.data.get(field)?.as_str());
    let message = told.map_or_else(|| event.kind.to_string(), |text| text.chars().take(500).collect());
    Failure { code: event.kind.to_string(), message }
}

/// What became of work.
pub(super) fn of_outcome<'a>(
    saga: &Saga,
    tag: &str,
    verdict: &'a Verdict,
) -> Result<Reading<'a>, &'static str> {
    let unknown = "no step asked for this";
    if let Some(id) = tag.strip_prefix(UNDO) {
        let step = find(saga, id).ok_or(unknown)?;
        let task = saga.steps[step].undo.as_ref().ok_or(unknown)?;
        return undo_outcome(step, task, verdict);
    }
    let step = find(saga, tag).ok_or(unknown)?;
    do_outcome(step, &saga.steps[step], verdict)
}

fn find(saga: &Saga, id: &str) -> Option<usize> {
    saga.steps.iter().position(|step| step.id.as_str() == id)
}

const BY_EVENT: &str = "the command was accepted; its answer is an event";

fn do_outcome<'a>(index: usize, step: &Step, verdict: &'a Verdict) -> Result<Reading<'a>, &'static str> {
    let task = &step.task;
    let answered = |answer, data, failure| Ok(Reading { step: index, answer, data, failure });
    match (verdict, &task.call) {
        (Verdict::Accepted | Verdict::Succeeded { .. }, Call::Command { .. }) if task.awaits_event() => {
            Err(BY_EVENT)
        }
        (Verdict::Accepted, Call::Command { .. } | Call::Effect { .. }) => {
            answered(Answer::Ok, &NOTHING, None)
        }
        (Verdict::Succeeded { payload, .. }, Call::Command { .. }) => answered(Answer::Ok, payload, None),
        (Verdict::Succeeded { event, payload }, Call::Effect { .. }) => {
            match named_success(task, event.as_ref()) {
                None => answered(Answer::Ok, payload, None),
                Some(failure) => answered(Answer::Failed, payload, Some(failure)),
            }
        }
        (Verdict::Failed { event, failure, payload }, Call::Command { .. } | Call::Effect { .. }) => {
            let failure = broken_failure(task, event.as_ref()).unwrap_or_else(|| failure.clone());
            answered(Answer::Failed, payload, Some(failure))
        }
        (Verdict::TimedOut { failure }, Call::Command { .. } | Call::Effect { .. }) => {
            answered(Answer::TimedOut, &NOTHING, Some(failure.clone()))
        }
    }
}

/// A handler that succeeded may name its event: the step's `ok`, or one of its failures, or else it breaks the contract.
fn named_success(task: &Task, event: Option<&EventType>) -> Option<Failure> {
    let event = event?;
    match &task.ok {
        _ if task.fail.contains(event) => {
            Some(Failure { code: event.to_string(), message: event.to_string() })
        }
        Some(ok) if ok == event => None,
        None if task.fail.is_empty() => None,
        Some(_) | None => Some(contract_violation(task, event)),
    }
}

/// A handler that failed may name its event too; it must not be one of success, nor one the step does not know.
fn broken_failure(task: &Task, event: Option<&EventType>) -> Option<Failure> {
    let event = event?;
    let known = task.fail.contains(event) || (task.fail.is_empty() && task.ok.as_ref() != Some(event));
    (!known).then(|| contract_violation(task, event))
}

fn contract_violation(task: &Task, event: &EventType) -> Failure {
    let expected: Vec<_> = task.ok.iter().chain(&task.fail).map(EventType::as_str).collect();
    let message = format!("{} answered {event}, which is none of {}", task.tag, expected.join(", "));
    Failure { code: "contract_violation".to_owned(), message }
}

fn undo_outcome<'a>(step: usize, task: &Task, verdict: &'a Verdict) -> Result<Reading<'a>, &'static str> {
    let (answer, data, failure) = match verdict {
        Verdict::Accepted | Verdict::Succeeded { .. } if task.awaits_event() => return Err(BY_EVENT),
        Verdict::Accepted => (Answer::Undone, &NOTHING, None),
        Verdict::Succeeded { payload, .. } => (Answer::Undone, payload, None),
        Verdict::Failed { failure, payload, .. } => (Answer::NotUndone, payload, Some(failure.clone())),
        Verdict::TimedOut { failure } => (Answer::NotUndone, &NOTHING, Some(failure.clone())),
    };
    Ok(Reading { step, answer, data, failure })
}

/// A timer of a step or of its undo.
pub(super) fn of_timer(saga: &Saga, state: &State, name: &str) -> Result<Reading<'static>, &'static str> {
    let (id, answer, awaited) = match name.strip_prefix(UNDO) {
        Some(id) => (id, Answer::NotUndone, Mark::Undoing),
        None => (name, Answer::TimedOut, Mark::Open),
    };
    let step = find(saga, id).ok_or("no step has this timer")?;
    if state.steps[step].mark != awaited {
        return Err("the timer is stale");
    }
    let timeout = match answer {
        Answer::NotUndone => saga.steps[step].undo.as_ref().and_then(|undo| undo.timeout),
        Answer::Ok | Answer::Failed | Answer::TimedOut | Answer::Undone => saga.steps[step].task.timeout,
    };
    let failure = Some(timed_out(name, timeout));
    Ok(Reading { step, answer, data: &NOTHING, failure })
}

/// The failure of something whose time ran out.
pub(super) fn timed_out(what: &str, timeout: Option<Duration>) -> Failure {
    let within = timeout.map(|t| format!(" within {t:?}")).unwrap_or_default();
    Failure { code: "timeout".to_owned(), message: format!("{what}: no answer{within}") }
}
