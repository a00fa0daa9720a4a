//! The parts of a saga as the machine wants them: names checked, templates compiled, steps in order.

use std::time::Duration;

use orlog_model::{EventType, Name, Retry};
use serde_json::{Map, Value};

use super::{events, order};
use crate::expression::{Expression, Root, Scope};
use crate::form::{Action, Answer, Correlate, Definition, FactForm, Step};
use crate::limits::MAX_STEPS;
use crate::machine::{self, Fact, Saga, Task};
use crate::problem::Finding;
use crate::template::{Template, compile_expression};

/// Every part of the saga, or everything that is wrong.
pub(super) fn assemble(definition: &Definition) -> Result<Saga, Vec<Finding>> {
    let mut findings = Vec::new();
    if definition.steps.is_empty() || definition.steps.len() > MAX_STEPS {
        let message = format!("a saga has 1 to {MAX_STEPS} steps, this has {}", definition.steps.len());
        return Err(vec![Finding::new("steps", message)]);
    }
    names(definition, &mut findings);
    durations(definition, &mut findings);
    let order = order::of(definition, &mut findings);
    events::check(definition, order.as_ref(), &mut findings);
    let mut parts = Parts { vars: known_vars(definition), findings };
    let steps: Vec<_> = definition.steps.iter().enumerate().map(|(i, step)| parts.step(i, step)).collect();
    let vars = parts.fields("vars", &definition.vars, &[Root::Event, Root::Key]);
    let reference = definition.reference.as_ref().map(|r| parts.template("reference", r, &FORWARD));
    let completed = parts.fact("completed", definition.completed.as_ref(), &FORWARD);
    let failed = parts.fact("failed", definition.failed.as_ref(), &BACKWARD);
    match order {
        Some(order) if parts.findings.is_empty() => Ok(Saga {
            start: definition.start.clone(),
            roles: events::roles(definition),
            vars,
            reference,
            timeout: definition.timeout,
            steps: steps
                .into_iter()
                .zip(order.before)
                .map(|(step, before)| machine::Step { before, ..step })
                .collect(),
            sorted: order.sorted,
            completed,
            failed,
        }),
        Some(_) | None => Err(parts.findings),
    }
}

fn first(answers: &[Answer]) -> Option<EventType> {
    answers.first().map(|answer| answer.event.clone())
}

fn kinds(answers: &[Answer]) -> Vec<EventType> {
    answers.iter().map(|answer| answer.event.clone()).collect()
}

const FORWARD: [Root; 2] = [Root::Vars, Root::Key];
const ANSWER: [Root; 3] = [Root::Vars, Root::Event, Root::Key];
const BACKWARD: [Root; 3] = [Root::Vars, Root::Failure, Root::Key];

/// Every name that something sets under `vars`.
fn known_vars(definition: &Definition) -> Vec<String> {
    let saved = definition.steps.iter().flat_map(|step| step.save.keys());
    definition.vars.keys().chain(saved).cloned().collect()
}

fn names(definition: &Definition, findings: &mut Vec<Finding>) {
    for (i, step) in definition.steps.iter().enumerate() {
        let path = format!("steps[{i}].id");
        let id = step.id.as_str();
        if id == machine::SAGA_TIMER {
            let message = format!("`{id}` is taken: the timer of the whole saga goes by that name");
            findings.push(Finding::new(&path, message).suggest("choose another id"));
        }
        if let Some(bad) = id.chars().find(|c| *c == ':' || c.is_whitespace()) {
            findings.push(
                Finding::new(&path, format!("a step id holds no {bad:?}"))
                    .suggest("use letters, digits and `-`"),
            );
        }
        if id.len() > MAX_ID_BYTES {
            findings.push(Finding::new(
                &path,
                format!("a step id has at most {MAX_ID_BYTES} bytes, this has {}", id.len()),
            ));
        }
    }
    let empty = |path: &str| path.is_empty() || path.split('.').any(str::is_empty);
    match &definition.correlate {
        Correlate::Field(path) if empty(path) => findings.push(bad_path("correlate", path)),
        Correlate::ByType(paths) => {
            let bad = paths.iter().filter(|(_, path)| empty(path));
            findings.extend(bad.map(|(kind, path)| bad_path(&format!("correlate.{kind}"), path)));
        }
        Correlate::Field(_) | Correlate::Envelope => {}
    }
}

/// Leaves room for `undo:` in a [`Name`].
const MAX_ID_BYTES: usize = 128;

fn bad_path(at: &str, path: &str) -> Finding {
    Finding::new(at, format!("`{path}` is no path of fields"))
        .suggest("write field names with dots between, as in order.id")
}

fn durations(definition: &Definition, findings: &mut Vec<Finding>) {
    let mut check = |path: String, duration: Option<Duration>| match duration {
        Some(d) if d.is_zero() => findings.push(Finding::new(path, "a timeout must be longer than nothing")),
        Some(d) if d > MAX_DURATION => findings.push(Finding::new(path, "a timeout is at most 100 years")),
        Some(_) | None => {}
    };
    check("timeout".to_owned(), definition.timeout);
    for (i, step) in definition.steps.iter().enumerate() {
        check(format!("steps[{i}].timeout"), step.timeout);
        check(format!("steps[{i}].undo.timeout"), step.undo.as_ref().and_then(|undo| undo.timeout));
    }
}

const MAX_DURATION: Duration = Duration::from_hours(24 * 36_525);

struct Parts {
    vars: Vec<String>,
    findings: Vec<Finding>,
}

impl Parts {
    fn step(&mut self, i: usize, step: &Step) -> machine::Step {
        let path = format!("steps[{i}]");
        let when = step.when.as_ref().and_then(|when| self.condition(&format!("{path}.when"), when));
        let action = format!("{path}.do");
        let do_tag = step.id.clone();
        let task = self.task(&action, &step.action, do_tag, step.timeout, step.retry, &FORWARD);
        let undo = step.undo.as_ref().map(|undo| {
            let tag = machine::undo_tag(&step.id);
            let undo_path = format!("{path}.undo");
            let task = self.task(&undo_path, &undo.action, tag, undo.timeout, undo.retry, &BACKWARD);
            Task { ok: first(&undo.ok), fail: kinds(&undo.fail), ..task }
        });
        machine::Step {
            id: step.id.clone(),
            before: Vec::new(),
            when,
            task: Task { ok: first(&step.ok), fail: kinds(&step.fail), ..task },
            save: self.fields(&format!("{path}.save"), &step.save, &ANSWER),
            undo,
        }
    }

    fn task(
        &mut self,
        path: &str,
        action: &Action,
        tag: Name,
        timeout: Option<Duration>,
        retry: Option<Retry>,
        roots: &[Root],
    ) -> Task {
        if retry.is_some_and(|retry| retry.attempts == Some(0)) {
            self.findings.push(
                Finding::new(format!("{path}.retry"), "at least one attempt is made").suggest("1 or more"),
            );
        }
        let data = match action {
            Action::Command { data, .. } | Action::Effect { data, .. } | Action::Saga { data, .. } => data,
            Action::Wait(_)
            | Action::Event { .. }
            | Action::Human(_)
            | Action::Job(_)
            | Action::Switch(_) => &Value::Null,
        };
        let data = self.template(&format!("{path}.data"), data, roots);
        let call = match action {
            Action::Command { aggregate_type, name, id, .. } => machine::Call::Command {
                aggregate_type: aggregate_type.clone(),
                name: name.clone(),
                id: id.as_ref().map(|id| self.template(&format!("{path}.id"), id, roots)),
            },
            Action::Effect { name, .. } => machine::Call::Effect { name: name.clone(), retry },
            Action::Wait(_)
            | Action::Event { .. }
            | Action::Human(_)
            | Action::Saga { .. }
            | Action::Job(_)
            | Action::Switch(_) => {
                self.findings.push(Finding::new(path, "the machine knows commands and effects"));
                return Task {
                    tag: tag.clone(),
                    call: machine::Call::Command { aggregate_type: tag.clone(), name: tag, id: None },
                    data,
                    timeout,
                    ok: None,
                    fail: Vec::new(),
                };
            }
        };
        Task { tag, call, data, timeout, ok: None, fail: Vec::new() }
    }

    fn fact(&mut self, path: &str, fact: Option<&FactForm>, roots: &[Root]) -> Option<Fact> {
        let fact = fact?;
        Some(Fact {
            kind: fact.fact.clone(),
            data: self.template(&format!("{path}.data"), &fact.data, roots),
        })
    }

    fn fields(&mut self, path: &str, fields: &Map<String, Value>, roots: &[Root]) -> Vec<(String, Template)> {
        fields
            .iter()
            .map(|(key, value)| (key.clone(), self.template(&format!("{path}.{key}"), value, roots)))
            .collect()
    }

    fn template(&mut self, path: &str, value: &Value, roots: &[Root]) -> Template {
        let scope = Scope { roots, vars: Some(&self.vars) };
        Template::compile(value, path, &scope, &mut self.findings)
    }

    /// With or without the `=` of a template.
    fn condition(&mut self, path: &str, source: &str) -> Option<Expression> {
        let scope = Scope { roots: &FORWARD, vars: Some(&self.vars) };
        compile_expression(source.strip_prefix('=').unwrap_or(source), path, &scope, &mut self.findings)
    }
}
