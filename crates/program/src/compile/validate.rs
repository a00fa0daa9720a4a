//! What fits together: which fields mean something for which kind of action, and names, times and counts that can be.

use std::time::Duration;

use orlog_model::{InDoubt, Retry};

use crate::definition::{Action, Definition, Foreach, Step, Then, Undo};
use crate::diagnostic::{Finding, Findings, did_you_mean};
use crate::expression::{INDEX, Root};
use crate::limits::MAX_ELEMENTS;
use crate::machine::SAGA_TIMER;

/// Leaves room for `escalate:undo:` and the number of an element in a name.
const MAX_ID_BYTES: usize = 128;
const MAX_DURATION: Duration = Duration::from_hours(24 * 36_525);

/// Everything that can be said of each step by itself.
pub(super) fn check(definition: &Definition, findings: &mut Findings) {
    duration("timeout", definition.timeout, findings);
    for (i, step) in definition.steps.iter().enumerate() {
        let path = format!("steps[{i}]");
        id(&path, step, findings);
        duration(&format!("{path}.timeout"), step.timeout, findings);
        fields(&path, step, findings);
        answers(&path, step, findings);
        attempts(&format!("{path}.retry"), &step.action, step.retry, findings);
        doubt(&format!("{path}.in_doubt"), &step.action, step.in_doubt, findings);
        if let Some(foreach) = &step.foreach {
            elements(&path, step, foreach, findings);
        }
        if let Some(form) = &step.undo {
            undo(&path, form, findings);
        }
        dependencies(definition, i, step, findings);
    }
    handlers(definition, findings);
    migrations(definition, findings);
}

fn id(path: &str, step: &Step, findings: &mut Findings) {
    let (path, id) = (format!("{path}.id"), step.id.as_str());
    if id == SAGA_TIMER {
        let message = format!("`{id}` is taken: the timer of the whole saga goes by that name");
        findings.push(Finding::new(&path, message).suggest("choose another id"));
    }
    if let Some(bad) = id.chars().find(|c| matches!(c, ':' | '[' | ']') || c.is_whitespace()) {
        let finding = Finding::new(&path, format!("a step id holds no {bad:?}"));
        findings.push(finding.suggest("use letters, digits and `-`"));
    }
    if id.len() > MAX_ID_BYTES {
        let message = format!("a step id has at most {MAX_ID_BYTES} bytes, this has {}", id.len());
        findings.push(Finding::new(&path, message));
    }
}

pub(super) fn duration(path: &str, duration: Option<Duration>, findings: &mut Findings) {
    match duration {
        Some(d) if d.is_zero() => findings.push(Finding::new(path, "a timeout must be longer than nothing")),
        Some(d) if d > MAX_DURATION => findings.push(Finding::new(path, "a timeout is at most 100 years")),
        Some(_) | None => {}
    }
}

/// What a kind of action is called.
fn called(action: &Action) -> &'static str {
    match action {
        Action::Command { .. } => "a command",
        Action::Effect { .. } => "an effect",
        Action::Wait(_) => "a wait",
        Action::Event { .. } => "an event that is waited for",
        Action::Human(_) => "a person's task",
        Action::Saga { .. } => "a saga",
        Action::Job(_) => "a job",
        Action::Switch(_) => "a switch",
    }
}

/// Fields that mean nothing for the kind of action.
fn fields(path: &str, step: &Step, findings: &mut Findings) {
    let wait = matches!(step.action, Action::Wait(_));
    let event = matches!(step.action, Action::Event { .. });
    let switch = matches!(step.action, Action::Switch(_));
    let present = [
        ("ok", wait || switch || event, !step.ok.is_empty()),
        ("fail", wait || switch, !step.fail.is_empty()),
        ("save", wait || switch, !step.save.is_empty()),
        ("timeout", wait || switch, step.timeout.is_some()),
        ("undo", switch, step.undo.is_some()),
        ("foreach", switch, step.foreach.is_some()),
    ];
    for (field, meaningless, present) in present {
        if meaningless && present {
            let message = format!("{} has no `{field}`", called(&step.action));
            let finding = Finding::new(format!("{path}.{field}"), message);
            findings.push(if event { finding.suggest("name the events in `do`") } else { finding });
        }
    }
}

/// Answers that nothing awaits or delivers.
fn answers(path: &str, step: &Step, findings: &mut Findings) {
    if !matches!(step.action, Action::Command { .. }) || !step.ok.is_empty() {
        return;
    }
    let accepted = format!("step `{}` is done when its command is accepted", step.id);
    let suggestion = "name the event of success with `ok`";
    if let Some(fail) = step.fail.first() {
        let message = format!("{accepted}, so nothing waits for {}", fail.event);
        findings.push(Finding::new(format!("{path}.fail"), message).suggest(suggestion));
    }
    if !step.save.is_empty() {
        let message = format!("{accepted}, so there is no event to save from");
        findings.push(Finding::new(format!("{path}.save"), message).suggest(suggestion));
    }
}

fn attempts(path: &str, action: &Action, retry: Option<Retry>, findings: &mut Findings) {
    let Some(retry) = retry else { return };
    if retry.attempts == Some(0) {
        findings.push(Finding::new(path, "at least one attempt is made").suggest("1 or more"));
    }
    if !matches!(action, Action::Command { .. } | Action::Effect { .. } | Action::Job(_)) {
        let message = format!("{} is not asked for again, so it has no `retry`", called(action));
        findings.push(Finding::new(path, message));
    }
}

/// Only what a provider does can be in doubt.
fn doubt(path: &str, action: &Action, in_doubt: Option<InDoubt>, findings: &mut Findings) {
    if in_doubt.is_some() && !matches!(action, Action::Effect { .. } | Action::Job(_)) {
        let message = format!("{} is never in doubt, so it has no `in_doubt`", called(action));
        findings.push(Finding::new(path, message).suggest("only effects and jobs have it"));
    }
}

fn elements(path: &str, step: &Step, foreach: &Foreach, findings: &mut Findings) {
    let limit = foreach.limit.map(usize::try_from);
    if !matches!(limit, None | Some(Ok(1..=MAX_ELEMENTS))) {
        let message = format!("so many at once: 1 to {MAX_ELEMENTS}");
        findings.push(Finding::new(format!("{path}.foreach.limit"), message));
    }
    let name = foreach.name.as_str();
    let word = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let taken = Root::named(name).is_some() || name == INDEX;
    if !word || taken {
        let why = if taken { "is taken" } else { "is no name for an element" };
        let finding = Finding::new(format!("{path}.foreach.as"), format!("`{name}` {why}"));
        findings.push(finding.suggest("use a word such as `item`"));
    }
    if step.pivot && matches!(step.action, Action::Wait(_)) {
        findings.push(Finding::new(format!("{path}.pivot"), "a wait is no point of no return"));
    }
}

fn undo(path: &str, undo: &Undo, findings: &mut Findings) {
    let path = format!("{path}.undo");
    duration(&format!("{path}.timeout"), undo.timeout, findings);
    attempts(&format!("{path}.retry"), &undo.action, undo.retry, findings);
    doubt(&format!("{path}.in_doubt"), &undo.action, undo.in_doubt, findings);
    let answered = !undo.ok.is_empty() || !undo.fail.is_empty();
    match &undo.action {
        Action::Wait(_) | Action::Event { .. } | Action::Switch(_) => {
            let message = format!("{} undoes nothing", called(&undo.action));
            findings.push(
                Finding::new(path, message).suggest("use a command, an effect, a job, a task or a saga"),
            );
        }
        Action::Effect { .. } | Action::Job(_) | Action::Saga { .. } if answered => {
            let message = format!(
                "{} is answered by its outcome, so nothing could deliver an event for this undo",
                called(&undo.action)
            );
            findings.push(Finding::new(path, message).suggest("remove `ok` and `fail`"));
        }
        Action::Command { .. } if undo.ok.is_empty() && answered => {
            let message = "this undo is done when its command is accepted, so nothing waits for its failure";
            let finding = Finding::new(format!("{path}.fail"), message);
            findings.push(finding.suggest("name the event of success with `ok`"));
        }
        Action::Command { .. }
        | Action::Human(_)
        | Action::Effect { .. }
        | Action::Job(_)
        | Action::Saga { .. } => {}
    }
}

/// Only jobs give results.
fn dependencies(definition: &Definition, i: usize, step: &Step, findings: &mut Findings) {
    let Action::Job(job) = &step.action else { return };
    for id in &job.dependencies {
        let other = definition.steps.iter().find(|other| other.id == *id);
        if other.is_some_and(|other| !matches!(other.action, Action::Job(_))) {
            let message = format!("`{id}` is no job and gives no results");
            let finding = Finding::new(format!("steps[{i}].do.job.dependencies"), message);
            findings.push(finding.suggest("name it under `prerequisites`"));
        }
    }
}

fn handlers(definition: &Definition, findings: &mut Findings) {
    for (n, handler) in definition.on.iter().enumerate() {
        let path = format!("on[{n}]");
        if handler.event.is_empty() {
            findings.push(Finding::new(format!("{path}.event"), "it takes no event"));
        }
        for kind in handler.event.iter().filter(|kind| definition.start.contains(kind)) {
            let message = format!("{kind} starts the saga, so nothing more can happen on it");
            findings.push(Finding::new(format!("{path}.event"), message));
        }
        for action in &handler.actions {
            if !matches!(action, Action::Command { .. } | Action::Effect { .. }) {
                let message = format!("{} is waited for, and nothing waits here", called(action));
                findings
                    .push(Finding::new(format!("{path}.do"), message).suggest("use a command or an effect"));
            }
        }
        let idle = handler.actions.is_empty() && handler.save.is_empty() && handler.then == Then::Continue;
        if idle {
            let finding = Finding::new(path, "nothing happens on this event");
            findings.push(finding.suggest("say what with `save`, `do` or `then`"));
        }
    }
}

fn migrations(definition: &Definition, findings: &mut Findings) {
    for (n, form) in definition.migrates.iter().enumerate() {
        let path = format!("migrates[{n}]");
        if form.from.is_empty() {
            findings.push(Finding::new(format!("{path}.from"), "it is for no version"));
        }
        for version in form.from.iter().filter(|version| **version >= definition.version) {
            let message = format!("version {version} is not older than this one, {}", definition.version);
            findings.push(Finding::new(format!("{path}.from"), message));
        }
        let mut taken: Vec<&orlog_model::Name> = Vec::new();
        for (old, new) in form.steps.iter().filter_map(|(old, new)| Some((old, new.as_ref()?))) {
            let at = format!("{path}.steps.{old}");
            if !definition.steps.iter().any(|step| step.id == *new) {
                let known = definition.steps.iter().map(|step| step.id.as_str());
                let near = did_you_mean(new.as_str(), known);
                findings.push(Finding::new(&at, format!("there is no step `{new}`")).maybe_suggest(near));
            }
            if taken.contains(&new) {
                findings.push(Finding::new(&at, format!("two steps would become `{new}`")));
            }
            taken.push(new);
        }
    }
}
