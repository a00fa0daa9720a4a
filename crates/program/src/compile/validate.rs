//! Validation of steps: which fields each kind of action supports, and valid names, times and
//! counts.

use std::collections::BTreeSet;

use orlog_model::InDoubtPolicy;
use serde_json::Value;

use crate::definition::{AfterHandler, CompensationSpec, Definition, Step};
use crate::diagnostic::{RawDiagnostic, RawDiagnostics, did_you_mean};
use crate::limits::{MAX_INDEXES, MAX_REFERENCE_PARTS, MAX_REMINDERS, duration_problem};
use crate::machine::SAGA_TIMER;
use crate::steps::kind::Completion;
use crate::steps::{Action, RetrySpec};

/// Maximum length of a step id. Reserves space for `escalate:compensate:` and an element number in
/// a timer name.
const MAX_ID_BYTES: usize = 128;

/// Checks each step by itself.
pub(super) fn check(definition: &Definition, findings: &mut RawDiagnostics) {
    let saved = definition.saved_by_steps();
    for (i, step) in definition.steps.iter().enumerate() {
        let path = format!("steps[{i}]");
        id(&path, step, findings);
        fields(&path, step, findings);
        check_result_matchers(&path, step, findings);

        attempts(
            &format!("{path}.retry"),
            &step.action,
            step.retry.as_ref(),
            findings,
        );
        check_in_doubt(
            &format!("{path}.in_doubt"),
            &step.action,
            step.in_doubt,
            findings,
        );
        check_priority(
            &format!("{path}.priority"),
            &step.action,
            step.priority.is_some(),
            findings,
        );

        reminders(&path, step, findings);

        if let Some(foreach) = &step.foreach {
            foreach.check(&path, step.pivot, step.action.traits(), findings);
        }
        if let Some(form) = &step.compensate {
            compensation(&path, form, findings);
            allowed_nulls(&saved, &path, form, findings);
        }

        dependencies(definition, i, step, findings);
    }

    handlers(definition, findings);
    keep_active(definition, findings);
    migrations(definition, findings);
    indexes(definition, findings);
    reference(definition, findings);
}

/// Checks the parts of the business reference: they are indexed by their names.
fn reference(definition: &Definition, findings: &mut RawDiagnostics) {
    let Some(Value::Object(parts)) = &definition.reference else {
        return;
    };
    if parts.len() > MAX_REFERENCE_PARTS {
        let message = format!(
            "a reference has at most {MAX_REFERENCE_PARTS} parts; it has {}",
            parts.len()
        );
        findings.push(RawDiagnostic::new("reference", message));
    }

    for (name, value) in parts {
        let path = format!("reference.{name}");
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || name.len() > MAX_ID_BYTES {
            let finding =
                RawDiagnostic::new(&path, format!("`{name}` is not a name of a reference part"));
            findings.push(finding.with_suggestion("use letters, digits and `_`"));
        }

        // The machine would leave such a part out of the reference without a message.
        if value.is_object() || value.is_array() || value.is_boolean() {
            let finding = RawDiagnostic::new(
                &path,
                format!("the reference part `{name}` is neither text nor a number"),
            );
            findings.push(finding.with_suggestion("use an expression such as `=vars.orderId`"));
        }
    }
}

fn indexes(definition: &Definition, findings: &mut RawDiagnostics) {
    if definition.index.len() > MAX_INDEXES {
        let message = format!(
            "a saga has at most {MAX_INDEXES} indexes; it has {}",
            definition.index.len()
        );
        findings.push(RawDiagnostic::new("index", message));
    }

    let variables = definition.variables();
    for (n, name) in definition.index.iter().enumerate() {
        if !variables.contains(name.as_str()) {
            let finding = RawDiagnostic::new(
                format!("index[{n}]"),
                format!("no variable is named `{name}`"),
            );
            let similar = did_you_mean(name.as_str(), variables.iter().map(String::as_str));
            let suggestion =
                similar.unwrap_or_else(|| "set it in `vars` or in a `save`".to_owned());
            findings.push(finding.with_suggestion(suggestion));
        }
    }
}

fn id(path: &str, step: &Step, findings: &mut RawDiagnostics) {
    let path = format!("{path}.id");
    let id = step.id.as_str();

    if id == SAGA_TIMER {
        let message = format!("`{id}` is reserved for the timer of the whole saga");
        findings.push(RawDiagnostic::new(&path, message).with_suggestion("choose another id"));
    }

    // These characters separate the id from other parts of tags and timer names.
    if let Some(invalid) = id
        .chars()
        .find(|c| matches!(c, ':' | '[' | ']') || c.is_whitespace())
    {
        let finding = RawDiagnostic::new(&path, format!("a step id must not contain {invalid:?}"));
        findings.push(finding.with_suggestion("use letters, digits and `-`"));
    }

    if id.len() > MAX_ID_BYTES {
        let message = format!(
            "the step id exceeds {MAX_ID_BYTES} bytes; it has {}",
            id.len()
        );
        findings.push(RawDiagnostic::new(&path, message));
    }
}

/// Reports fields that the kind of action does not support.
fn fields(path: &str, step: &Step, findings: &mut RawDiagnostics) {
    let traits = step.action.traits();
    if step.publish.is_some() && !traits.reports_named_result() {
        let message = format!("{} has no `publish`", traits.label);
        let suggestion = "only effects, jobs and human tasks publish their results";
        findings.push(
            RawDiagnostic::new(format!("{path}.publish"), message).with_suggestion(suggestion),
        );
    }

    let is_loop = matches!(step.action, Action::Repeat(_));
    let present = [
        ("ok", !step.ok.is_empty()),
        ("fail", !step.fail.is_empty()),
        ("save", !step.save.is_empty()),
        ("timeout", step.timeout.is_some()),
        ("undo", step.compensate.is_some()),
        ("foreach", step.foreach.is_some()),
        ("on_timeout", step.on_timeout.is_some()),
        // Too many rounds make the step that ends a loop fail.
        ("on_failure", step.on_failure.is_some() && !is_loop),
    ];

    for (field, present) in present {
        if traits.lacks(field) && present {
            let message = format!("{} has no `{field}`", traits.label);
            let finding = RawDiagnostic::new(format!("{path}.{field}"), message);
            let event = traits.completion == Completion::Event;
            findings.push(if event {
                finding.with_suggestion("name the events in `do`")
            } else {
                finding
            });
        }
    }

    if step.on_timeout.is_some() && step.timeout.is_none() && !traits.lacks("on_timeout") {
        let message = "the step has no `timeout`, so `on_timeout` never applies";
        let finding = RawDiagnostic::new(format!("{path}.on_timeout"), message);
        findings.push(finding.with_suggestion("set a `timeout`, or write `on_failure`"));
    }
}

/// Reports results that are never awaited or delivered.
fn check_result_matchers(path: &str, step: &Step, findings: &mut RawDiagnostics) {
    if step.action.traits().completion != Completion::Acceptance || !step.ok.is_empty() {
        return;
    }

    let accepted = format!("step `{}` completes when its command is accepted", step.id);
    let suggestion = "name the success event with `ok`";

    if let Some(fail) = step.fail.first() {
        let message = format!("{accepted}, so {} is never awaited", fail.event);
        findings
            .push(RawDiagnostic::new(format!("{path}.fail"), message).with_suggestion(suggestion));
    }

    if !step.save.is_empty() {
        let message = format!("{accepted}, so no event is available for `save`");
        findings
            .push(RawDiagnostic::new(format!("{path}.save"), message).with_suggestion(suggestion));
    }
}

fn attempts(path: &str, action: &Action, retry: Option<&RetrySpec>, findings: &mut RawDiagnostics) {
    let Some(retry) = retry else { return };
    if retry.max_attempts == Some(0) {
        findings.push(
            RawDiagnostic::new(path, "at least one attempt is required")
                .with_suggestion("set 1 or more"),
        );
    }

    if !action.traits().is_retried() {
        let message = format!(
            "{} is never retried, so it has no `retry`",
            action.traits().label
        );
        findings.push(RawDiagnostic::new(path, message));
    }
}

/// Reports reminders of a step that does not wait, and reminders that the saga would have to await.
fn reminders(path: &str, step: &Step, findings: &mut RawDiagnostics) {
    let Some(remind) = &step.remind else { return };
    let path = format!("{path}.remind");

    let traits = step.action.traits();
    let waits = match traits.completion {
        Completion::Event | Completion::User => true,
        Completion::Acceptance => !step.ok.is_empty(),
        Completion::Outcome | Completion::Timer | Completion::None => false,
    };
    if !waits && traits.completion == Completion::Acceptance {
        let message = format!(
            "step `{}` completes when its command is accepted, so it sends no reminder",
            step.id
        );
        let finding = RawDiagnostic::new(&path, message);
        findings.push(finding.with_suggestion("name the success event with `ok`"));
    } else if !waits {
        let message = format!(
            "{} does not wait for an event or a user, so it has no `remind`",
            traits.label
        );
        let finding = RawDiagnostic::new(&path, message);
        findings.push(
            finding.with_suggestion("only events, commands with `ok` and human tasks support it"),
        );
    }

    if duration_problem(remind.every).is_some() {
        findings.push(RawDiagnostic::new(
            format!("{path}.every"),
            "the interval must be longer than zero and at most 100 years",
        ));
    }
    if !(1..=MAX_REMINDERS).contains(&remind.max) {
        let message = format!("the number of reminders must be 1 to {MAX_REMINDERS}");
        findings.push(RawDiagnostic::new(format!("{path}.max"), message));
    }
    if !matches!(remind.action, Action::Command(_) | Action::Effect(_)) {
        let message = format!("a reminder cannot await {}", remind.action.traits().label);
        let finding = RawDiagnostic::new(format!("{path}.do"), message);
        findings.push(finding.with_suggestion("use a command or an effect"));
    }
}

/// Reports in-doubt policies of actions without a provider.
fn check_in_doubt(
    path: &str,
    action: &Action,
    in_doubt: Option<InDoubtPolicy>,
    findings: &mut RawDiagnostics,
) {
    if in_doubt.is_some() && !action.traits().is_effect {
        let message = format!(
            "{} is never in doubt, so it has no `in_doubt`",
            action.traits().label
        );
        findings.push(
            RawDiagnostic::new(path, message).with_suggestion("only effects and jobs support it"),
        );
    }
}

/// Reports a priority of an action that no upstream and no gateway executes.
fn check_priority(path: &str, action: &Action, has_priority: bool, findings: &mut RawDiagnostics) {
    if has_priority && !action.traits().is_retried() {
        let label = action.traits().label;
        let message = format!("{label} does not wait for an upstream, so it has no `priority`");
        let suggestion = "only commands, effects and jobs support it";
        findings.push(RawDiagnostic::new(path, message).with_suggestion(suggestion));
    }
}

/// Reports names in `allow_null` that are no variables of steps, and thus never required.
fn allowed_nulls(
    saved: &BTreeSet<&str>,
    path: &str,
    compensation: &CompensationSpec,
    findings: &mut RawDiagnostics,
) {
    for (n, name) in compensation.allow_null.iter().enumerate() {
        if saved.contains(name.as_str()) {
            continue;
        }
        let message = format!("no step saves `{name}`, so its value is not required");
        let suggestion = did_you_mean(name, saved.iter().copied())
            .unwrap_or_else(|| "name variables of `save` of a step".to_owned());
        findings.push(
            RawDiagnostic::new(format!("{path}.undo.allow_null[{n}]"), message)
                .with_suggestion(suggestion),
        );
    }
}

fn compensation(path: &str, compensation: &CompensationSpec, findings: &mut RawDiagnostics) {
    let path = format!("{path}.undo");
    attempts(
        &format!("{path}.retry"),
        &compensation.action,
        compensation.retry.as_ref(),
        findings,
    );
    check_in_doubt(
        &format!("{path}.in_doubt"),
        &compensation.action,
        compensation.in_doubt,
        findings,
    );
    if let Action::Saga(child) = &compensation.action
        && child.on_parent_end.is_some()
    {
        let finding = RawDiagnostic::new(
            format!("{path}.on_parent_end"),
            "a compensation is never abandoned, so it has no `on_parent_end`",
        );
        findings.push(finding.with_suggestion("remove it"));
    }
    check_priority(
        &format!("{path}.priority"),
        &compensation.action,
        compensation.priority.is_some(),
        findings,
    );

    let has_matchers = !compensation.ok.is_empty() || !compensation.fail.is_empty();
    let traits = compensation.action.traits();
    let label = traits.label;
    let finding = match traits.completion {
        Completion::Timer | Completion::Event | Completion::None => {
            RawDiagnostic::new(path, format!("{label} cannot be a compensation"))
                .with_suggestion("use a command, an effect, a job, a human task or a saga")
        }
        Completion::Outcome if has_matchers => {
            let message = format!(
                "{label} completes with its outcome, so no event can complete this compensation"
            );
            RawDiagnostic::new(path, message).with_suggestion("remove `ok` and `fail`")
        }
        Completion::Acceptance if compensation.ok.is_empty() && has_matchers => {
            let message = "this compensation completes when its command is accepted, so its \
                           failure event is never awaited";
            RawDiagnostic::new(format!("{path}.fail"), message)
                .with_suggestion("name the success event with `ok`")
        }
        Completion::Acceptance | Completion::Outcome | Completion::User => return,
    };

    findings.push(finding);
}

/// Checks that dependencies are jobs.
fn dependencies(definition: &Definition, i: usize, step: &Step, findings: &mut RawDiagnostics) {
    let Action::Job(job) = &step.action else {
        return;
    };

    // Only jobs have results.
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
            findings.push(RawDiagnostic::new(
                format!("{path}.event"),
                "no event is consumed",
            ));
        }

        for action in &handler.actions {
            if !action.traits().in_handlers {
                let message = format!("a handler cannot await {}", action.traits().label);
                findings.push(
                    RawDiagnostic::new(format!("{path}.do"), message)
                        .with_suggestion("use a command, an effect or a child saga"),
                );
            }
        }

        let idle = handler.actions.is_empty()
            && handler.save.is_empty()
            && handler.then == AfterHandler::Continue;
        if idle {
            let finding = RawDiagnostic::new(path, "this event has no handling");
            findings.push(finding.with_suggestion("set `save`, `do` or `then`"));
        }
    }
}

/// Reports a saga that stays active and that nothing ends.
fn keep_active(definition: &Definition, findings: &mut RawDiagnostics) {
    // Past a pivot, neither the saga timeout nor a compensation ends the instance.
    let has_pivot = definition.steps.iter().any(|step| step.pivot);
    let restarts = definition
        .steps
        .iter()
        .any(|step| matches!(step.action, Action::Restart(_)));

    // Past a pivot, only a handler that completes the saga ends it.
    let is_ended_by_handler = definition.on.iter().any(|handler| match handler.then {
        AfterHandler::Continue => false,
        AfterHandler::Complete => true,
        AfterHandler::Cancel | AfterHandler::Fail => !has_pivot,
    });
    let times_out = definition.timeout.is_some() && !has_pivot;

    if definition.keep_active && !restarts && !times_out && !is_ended_by_handler {
        let finding = RawDiagnostic::new("keep_active", "nothing ends an instance of this saga");
        findings.push(finding.with_suggestion("add an event handler with `then: complete`"));
    }
}

fn migrations(definition: &Definition, findings: &mut RawDiagnostics) {
    for (n, form) in definition.migrations.iter().enumerate() {
        let path = format!("migrations[{n}]");
        if form.from.is_empty() {
            findings.push(RawDiagnostic::new(
                format!("{path}.from"),
                "no version is listed",
            ));
        }

        for version in form
            .from
            .iter()
            .filter(|version| **version >= definition.version)
        {
            let message = format!(
                "version {version} is not older than this one, {}",
                definition.version
            );
            findings.push(RawDiagnostic::new(format!("{path}.from"), message));
        }

        let mut used: Vec<&orlog_model::Name> = Vec::new();
        for (old, new) in form
            .steps
            .iter()
            .filter_map(|(old, new)| Some((old, new.as_ref()?)))
        {
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
