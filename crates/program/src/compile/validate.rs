//! Validation of steps: which fields each kind of action supports, and valid names, times and counts.

use std::time::Duration;

use orlog_model::{InDoubtPolicy, RetryPolicy};

use crate::definition::{Action, AfterHandler, CompensationSpec, Definition, Foreach, Step};
use crate::diagnostic::{RawDiagnostic, RawDiagnostics, did_you_mean};
use crate::expression::{INDEX, Root};
use crate::limits::MAX_ELEMENTS;
use crate::machine::SAGA_TIMER;

/// Maximum length of a step id. Reserves space for `escalate:compensate:` and an element number in a timer
/// name.
const MAX_ID_BYTES: usize = 128;
const MAX_DURATION: Duration = Duration::from_hours(24 * 36_525);

/// Checks each step by itself.
pub(super) fn check(definition: &Definition, findings: &mut RawDiagnostics) {
    check_duration("timeout", definition.timeout, findings);
    for (i, step) in definition.steps.iter().enumerate() {
        let path = format!("steps[{i}]");
        id(&path, step, findings);
        check_duration(&format!("{path}.timeout"), step.timeout, findings);
        fields(&path, step, findings);
        check_result_matchers(&path, step, findings);
        attempts(&format!("{path}.retry"), &step.action, step.retry, findings);
        check_in_doubt(&format!("{path}.in_doubt"), &step.action, step.in_doubt, findings);
        if let Some(foreach) = &step.foreach {
            elements(&path, step, foreach, findings);
        }
        if let Some(form) = &step.compensate {
            compensation(&path, form, findings);
        }
        dependencies(definition, i, step, findings);
    }
    handlers(definition, findings);
    migrations(definition, findings);
}

fn id(path: &str, step: &Step, findings: &mut RawDiagnostics) {
    let (path, id) = (format!("{path}.id"), step.id.as_str());
    if id == SAGA_TIMER {
        let message = format!("`{id}` is reserved for the timer of the whole saga");
        findings.push(RawDiagnostic::new(&path, message).with_suggestion("choose another id"));
    }
    if let Some(invalid) = id.chars().find(|c| matches!(c, ':' | '[' | ']') || c.is_whitespace()) {
        let finding = RawDiagnostic::new(&path, format!("a step id must not contain {invalid:?}"));
        findings.push(finding.with_suggestion("use letters, digits and `-`"));
    }
    if id.len() > MAX_ID_BYTES {
        let message = format!("the step id exceeds {MAX_ID_BYTES} bytes; it has {}", id.len());
        findings.push(RawDiagnostic::new(&path, message));
    }
}

pub(super) fn check_duration(path: &str, duration: Option<Duration>, findings: &mut RawDiagnostics) {
    match duration {
        Some(d) if d.is_zero() => {
            findings.push(RawDiagnostic::new(path, "a timeout must be longer than zero"));
        }
        Some(d) if d > MAX_DURATION => {
            findings.push(RawDiagnostic::new(path, "a timeout must not exceed 100 years"));
        }
        Some(_) | None => {}
    }
}

/// Returns the display name of a kind of action.
fn display_name(action: &Action) -> &'static str {
    match action {
        Action::Command { .. } => "a command",
        Action::Effect { .. } => "an effect",
        Action::Wait(_) => "a wait",
        Action::Event { .. } => "an awaited event",
        Action::Human(_) => "a human task",
        Action::Saga { .. } => "a saga",
        Action::Job(_) => "a job",
        Action::Switch(_) => "a switch",
    }
}

/// Reports fields that the kind of action does not support.
fn fields(path: &str, step: &Step, findings: &mut RawDiagnostics) {
    let wait = matches!(step.action, Action::Wait(_));
    let event = matches!(step.action, Action::Event { .. });
    let switch = matches!(step.action, Action::Switch(_));
    let present = [
        ("ok", wait || switch || event, !step.ok.is_empty()),
        ("fail", wait || switch, !step.fail.is_empty()),
        ("save", wait || switch, !step.save.is_empty()),
        ("timeout", wait || switch, step.timeout.is_some()),
        ("undo", switch, step.compensate.is_some()),
        ("foreach", switch, step.foreach.is_some()),
    ];
    for (field, meaningless, present) in present {
        if meaningless && present {
            let message = format!("{} has no `{field}`", display_name(&step.action));
            let finding = RawDiagnostic::new(format!("{path}.{field}"), message);
            findings.push(if event { finding.with_suggestion("name the events in `do`") } else { finding });
        }
    }
}

/// Reports results that are never awaited or delivered.
fn check_result_matchers(path: &str, step: &Step, findings: &mut RawDiagnostics) {
    if !matches!(step.action, Action::Command { .. }) || !step.ok.is_empty() {
        return;
    }
    let accepted = format!("step `{}` completes when its command is accepted", step.id);
    let suggestion = "name the success event with `ok`";
    if let Some(fail) = step.fail.first() {
        let message = format!("{accepted}, so {} is never awaited", fail.event);
        findings.push(RawDiagnostic::new(format!("{path}.fail"), message).with_suggestion(suggestion));
    }
    if !step.save.is_empty() {
        let message = format!("{accepted}, so no event is available for `save`");
        findings.push(RawDiagnostic::new(format!("{path}.save"), message).with_suggestion(suggestion));
    }
}

fn attempts(path: &str, action: &Action, retry: Option<RetryPolicy>, findings: &mut RawDiagnostics) {
    let Some(retry) = retry else { return };
    if retry.max_attempts == Some(0) {
        findings.push(
            RawDiagnostic::new(path, "at least one attempt is required").with_suggestion("set 1 or more"),
        );
    }
    if !matches!(action, Action::Command { .. } | Action::Effect { .. } | Action::Job(_)) {
        let message = format!("{} is never retried, so it has no `retry`", display_name(action));
        findings.push(RawDiagnostic::new(path, message));
    }
}

/// Reports in-doubt policies of actions without a provider.
fn check_in_doubt(
    path: &str,
    action: &Action,
    in_doubt: Option<InDoubtPolicy>,
    findings: &mut RawDiagnostics,
) {
    if in_doubt.is_some() && !matches!(action, Action::Effect { .. } | Action::Job(_)) {
        let message = format!("{} is never in doubt, so it has no `in_doubt`", display_name(action));
        findings.push(RawDiagnostic::new(path, message).with_suggestion("only effects and jobs support it"));
    }
}

fn elements(path: &str, step: &Step, foreach: &Foreach, findings: &mut RawDiagnostics) {
    let limit = foreach.max_concurrency.map(usize::try_from);
    if !matches!(limit, None | Some(Ok(1..=MAX_ELEMENTS))) {
        let message = format!("the concurrency must be 1 to {MAX_ELEMENTS}");
        findings.push(RawDiagnostic::new(format!("{path}.foreach.max_concurrency"), message));
    }
    let name = foreach.name.as_str();
    let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let used = Root::named(name).is_some() || name == INDEX;
    if !is_identifier || used {
        let reason = if used { "is taken" } else { "is not a valid element name" };
        let finding = RawDiagnostic::new(format!("{path}.foreach.as"), format!("`{name}` {reason}"));
        findings.push(finding.with_suggestion("use a name such as `item`"));
    }
    if step.pivot && matches!(step.action, Action::Wait(_)) {
        findings.push(RawDiagnostic::new(format!("{path}.pivot"), "a wait cannot be a pivot"));
    }
}

fn compensation(path: &str, compensation: &CompensationSpec, findings: &mut RawDiagnostics) {
    let path = format!("{path}.undo");
    check_duration(&format!("{path}.timeout"), compensation.timeout, findings);
    attempts(&format!("{path}.retry"), &compensation.action, compensation.retry, findings);
    check_in_doubt(&format!("{path}.in_doubt"), &compensation.action, compensation.in_doubt, findings);
    let has_matchers = !compensation.ok.is_empty() || !compensation.fail.is_empty();
    match &compensation.action {
        Action::Wait(_) | Action::Event { .. } | Action::Switch(_) => {
            let message = format!("{} cannot be a compensation", display_name(&compensation.action));
            findings.push(
                RawDiagnostic::new(path, message)
                    .with_suggestion("use a command, an effect, a job, a human task or a saga"),
            );
        }
        Action::Effect { .. } | Action::Job(_) | Action::Saga { .. } if has_matchers => {
            let message = format!(
                "{} completes with its outcome, so no event can complete this compensation",
                display_name(&compensation.action)
            );
            findings.push(RawDiagnostic::new(path, message).with_suggestion("remove `ok` and `fail`"));
        }
        Action::Command { .. } if compensation.ok.is_empty() && has_matchers => {
            let message = "this compensation completes when its command is accepted, so its failure event is never awaited";
            let finding = RawDiagnostic::new(format!("{path}.fail"), message);
            findings.push(finding.with_suggestion("name the success event with `ok`"));
        }
        Action::Command { .. }
        | Action::Human(_)
        | Action::Effect { .. }
        | Action::Job(_)
        | Action::Saga { .. } => {}
    }
}

/// Checks that dependencies are jobs, because only jobs have results.
fn dependencies(definition: &Definition, i: usize, step: &Step, findings: &mut RawDiagnostics) {
    let Action::Job(job) = &step.action else { return };
    for id in &job.dependencies {
        let other = definition.steps.iter().find(|other| other.id == *id);
        if other.is_some_and(|other| !matches!(other.action, Action::Job(_))) {
            let message = format!("`{id}` is not a job and has no results");
            let finding = RawDiagnostic::new(format!("steps[{i}].do.job.dependencies"), message);
            findings.push(finding.with_suggestion("list it under `prerequisites`"));
        }
    }
}

fn handlers(definition: &Definition, findings: &mut RawDiagnostics) {
    for (n, handler) in definition.on.iter().enumerate() {
        let path = format!("on[{n}]");
        if handler.event.is_empty() {
            findings.push(RawDiagnostic::new(format!("{path}.event"), "no event is consumed"));
        }
        for kind in handler.event.iter().filter(|kind| definition.start.contains(kind)) {
            let message = format!("{kind} starts the saga, so it cannot have a handler");
            findings.push(RawDiagnostic::new(format!("{path}.event"), message));
        }
        for action in &handler.actions {
            if !matches!(action, Action::Command { .. } | Action::Effect { .. }) {
                let message = format!("a handler cannot await {}", display_name(action));
                findings.push(
                    RawDiagnostic::new(format!("{path}.do"), message)
                        .with_suggestion("use a command or an effect"),
                );
            }
        }
        let idle =
            handler.actions.is_empty() && handler.save.is_empty() && handler.then == AfterHandler::Continue;
        if idle {
            let finding = RawDiagnostic::new(path, "this event has no handling");
            findings.push(finding.with_suggestion("set `save`, `do` or `then`"));
        }
    }
}

fn migrations(definition: &Definition, findings: &mut RawDiagnostics) {
    for (n, form) in definition.migrations.iter().enumerate() {
        let path = format!("migrations[{n}]");
        if form.from.is_empty() {
            findings.push(RawDiagnostic::new(format!("{path}.from"), "no version is listed"));
        }
        for version in form.from.iter().filter(|version| **version >= definition.version) {
            let message = format!("version {version} is not older than this one, {}", definition.version);
            findings.push(RawDiagnostic::new(format!("{path}.from"), message));
        }
        let mut used: Vec<&orlog_model::Name> = Vec::new();
        for (old, new) in form.steps.iter().filter_map(|(old, new)| Some((old, new.as_ref()?))) {
            let at = format!("{path}.steps.{old}");
            if !definition.steps.iter().any(|step| step.id == *new) {
                let known = definition.steps.iter().map(|step| step.id.as_str());
                let near = did_you_mean(new.as_str(), known);
                findings.push(
                    RawDiagnostic::new(&at, format!("there is no step `{new}`"))
                        .with_optional_suggestion(near),
                );
            }
            if used.contains(&new) {
                findings.push(RawDiagnostic::new(&at, format!("two steps map to `{new}`")));
            }
            used.push(new);
        }
    }
}
