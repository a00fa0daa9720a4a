//! The parts of a saga as the machine wants them: templates compiled, steps in order.

use std::time::Duration;

use orlog_model::{InDoubt, Name, Retry};
use serde_json::{Map, Value};

use super::correlate::{self, Places};
use super::order::Order;
use super::{events, order, validate};
use crate::definition::{Action, Definition, EventForm, FactForm, Handler, Join, MigrationForm, Step};
use crate::diagnostic::{Finding, Findings};
use crate::expression::{Expression, Root, Scope};
use crate::limits::{DEFAULT_CONCURRENT, MAX_STEPS};
use crate::machine::{self, Fact, Foreach, Migrates, Saga, Task, Versions};
use crate::template::{Template, compile_expression};

/// Every part of the saga, or everything that is wrong.
pub(super) fn assemble(definition: &Definition) -> Result<(Saga, Places), Findings> {
    let mut findings = Vec::new();
    if definition.steps.is_empty() || definition.steps.len() > MAX_STEPS {
        let message = format!("a saga has 1 to {MAX_STEPS} steps, this has {}", definition.steps.len());
        return Err(vec![Finding::new("steps", message)]);
    }
    validate::check(definition, &mut findings);
    let order = order::of(definition, &mut findings);
    events::check(definition, order.as_ref(), &mut findings);
    if let Some(order) = &order {
        order::check_pivots(definition, order, &mut findings);
    }
    let places = correlate::compile(&definition.correlate, &mut findings);
    let mut parts = Parts::new(definition, findings);
    let saga = parts.saga(definition);
    match order {
        Some(order) if parts.findings.is_empty() => Ok((
            Saga { sorted: order.sorted.clone(), steps: ordered(saga.steps, definition, order), ..saga },
            places,
        )),
        Some(_) | None => Err(parts.findings),
    }
}

/// The steps, each with its place in the order.
fn ordered(steps: Vec<machine::Step>, definition: &Definition, order: Order) -> Vec<machine::Step> {
    let Order { before, named_by, regions, joins, .. } = order;
    let places = before.into_iter().zip(named_by).zip(regions.into_iter().zip(joins));
    let forms = definition.steps.iter();
    steps
        .into_iter()
        .zip(forms)
        .zip(places)
        .map(|((step, form), ((before, named_by), (region, joins)))| machine::Step {
            join: form.after.as_ref().map_or(Join::All, |after| after.join),
            before,
            named_by,
            region,
            joins,
            ..step
        })
        .collect()
}

/// What expressions at a place can speak of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Speaks {
    /// Of what is remembered.
    Forward,
    /// Of an answer or an event too.
    Answer,
    /// Of the failure too.
    Backward,
    /// Of an event alone.
    Event,
    /// Of the start event.
    Start,
}

pub(super) struct Parts<'a> {
    pub(super) definition: &'a Definition,
    /// Every name that something sets under `vars`.
    vars: Vec<String>,
    /// There are jobs, so there are results.
    jobs: bool,
    pub(super) findings: Findings,
}

impl<'a> Parts<'a> {
    fn new(definition: &'a Definition, findings: Findings) -> Self {
        let saved = definition.steps.iter().flat_map(|step| step.save.keys());
        let handled = definition.on.iter().flat_map(|handler| handler.save.keys());
        let migrated = definition.migrates.iter().flat_map(|form| form.vars.keys());
        let vars = definition.vars.keys().chain(saved).chain(handled).chain(migrated).cloned().collect();
        let jobs = definition.steps.iter().any(|step| matches!(step.action, Action::Job(_)));
        Self { definition, vars, jobs, findings }
    }

    fn saga(&mut self, definition: &Definition) -> Saga {
        let steps: Vec<_> = definition.steps.iter().enumerate().map(|(i, step)| self.step(i, step)).collect();
        let versions = definition.events.iter();
        Saga {
            start: definition.start.clone(),
            entries: events::entries(definition),
            versions: versions
                .map(|(kind, form)| (kind.clone(), self.versions(kind.as_str(), form)))
                .collect(),
            handlers: definition.on.iter().enumerate().map(|(n, form)| self.handler(n, form)).collect(),
            vars: self.fields("vars", &definition.vars, Speaks::Start, None),
            env: self.fields("env", &definition.env, Speaks::Forward, None),
            reference: definition
                .reference
                .as_ref()
                .map(|reference| self.template("reference", reference, Speaks::Forward, None)),
            timeout: definition.timeout,
            steps,
            sorted: Vec::new(),
            completed: self.fact("completed", definition.completed.as_ref(), Speaks::Forward),
            failed: self.fact("failed", definition.failed.as_ref(), Speaks::Backward),
            migrates: definition
                .migrates
                .iter()
                .enumerate()
                .map(|(n, form)| self.migrates(n, form))
                .collect(),
        }
    }

    fn versions(&mut self, kind: &str, form: &EventForm) -> Versions {
        let upcast = form.upcast.iter().map(|(version, template)| {
            let path = format!("events.{kind}.upcast.{version}");
            (*version, self.template(&path, template, Speaks::Event, None))
        });
        let upcast = upcast.collect();
        let mut accepts = form.accepts.clone();
        accepts.sort_unstable();
        Versions { accepts, upcast, otherwise: form.otherwise }
    }

    fn handler(&mut self, n: usize, form: &Handler) -> machine::Handler {
        let path = format!("on[{n}]");
        let when = form.when.as_ref();
        let actions = form.actions.iter();
        machine::Handler {
            event: form.event.clone(),
            when: when.and_then(|when| self.condition(&format!("{path}.when"), when, Speaks::Answer, None)),
            save: self.fields(&format!("{path}.save"), &form.save, Speaks::Answer, None),
            tasks: actions
                .enumerate()
                .map(|(i, action)| {
                    let at = format!("{path}.do[{i}]");
                    self.task(&at, action, machine::handler_tag(n), Speaks::Answer, None)
                })
                .collect(),
            then: form.then,
        }
    }

    fn step(&mut self, i: usize, step: &Step) -> machine::Step {
        let path = format!("steps[{i}]");
        let element = step.foreach.as_ref().map(|foreach| foreach.name.as_str());
        let when = step.when.as_ref();
        let when = when.and_then(|when| self.condition(&format!("{path}.when"), when, Speaks::Forward, None));
        let foreach = step.foreach.as_ref().and_then(|form| {
            let list = self.condition(&format!("{path}.foreach.in"), &form.list, Speaks::Forward, None)?;
            let limit = form.limit.unwrap_or(DEFAULT_CONCURRENT);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            Some(Foreach { list, name: form.name.clone(), limit })
        });
        let task = self.task(&format!("{path}.do"), &step.action, step.id.clone(), Speaks::Forward, element);
        let (ok, fail) = events::answers(step);
        let task = Task {
            ok: self.answers(&format!("{path}.ok"), &ok, element),
            fail: self.answers(&format!("{path}.fail"), fail, element),
            ..limited(task, step.timeout, step.retry, step.in_doubt)
        };
        machine::Step {
            id: step.id.clone(),
            before: Vec::new(),
            join: Join::All,
            named_by: Vec::new(),
            region: Vec::new(),
            joins: Vec::new(),
            when,
            foreach,
            task,
            save: self.fields(&format!("{path}.save"), &step.save, Speaks::Answer, element),
            undo: self.undo(&path, step, element),
            pivot: step.pivot,
        }
    }

    fn undo(&mut self, path: &str, step: &Step, element: Option<&str>) -> Option<Task> {
        let undo = step.undo.as_ref()?;
        let path = format!("{path}.undo");
        let tag = machine::undo_tag(&step.id);
        let task = self.task(&path, &undo.action, tag, Speaks::Backward, element);
        Some(Task {
            ok: self.answers(&format!("{path}.ok"), &undo.ok, element),
            fail: self.answers(&format!("{path}.fail"), &undo.fail, element),
            ..limited(task, undo.timeout, undo.retry, undo.in_doubt)
        })
    }

    fn answers(
        &mut self,
        path: &str,
        answers: &[crate::definition::Answer],
        element: Option<&str>,
    ) -> Vec<machine::Answer> {
        let answers = answers.iter().enumerate();
        answers
            .map(|(n, answer)| {
                let at = format!("{path}[{n}].when");
                let when = answer.when.as_ref();
                machine::Answer {
                    event: answer.event.clone(),
                    when: when.and_then(|when| self.condition(&at, when, Speaks::Answer, element)),
                }
            })
            .collect()
    }

    fn fact(&mut self, path: &str, fact: Option<&FactForm>, speaks: Speaks) -> Option<Fact> {
        let fact = fact?;
        let data = self.template(&format!("{path}.data"), &fact.data, speaks, None);
        Some(Fact { kind: fact.fact.clone(), data })
    }

    /// Its templates speak of the variables of an older version, which are not known here.
    fn migrates(&mut self, n: usize, form: &MigrationForm) -> Migrates {
        let scope = Scope { roots: &[Root::Vars, Root::Key, Root::Results], vars: None, element: None };
        let vars = form.vars.iter().map(|(name, template)| {
            let path = format!("migrates[{n}].vars.{name}");
            (name.clone(), Template::compile(template, &path, &scope, &mut self.findings))
        });
        Migrates { from: form.from.clone(), vars: vars.collect(), steps: form.steps.clone() }
    }

    pub(super) fn fields(
        &mut self,
        path: &str,
        fields: &Map<String, Value>,
        speaks: Speaks,
        element: Option<&str>,
    ) -> Vec<(String, Template)> {
        let fields = fields.iter();
        fields
            .map(|(key, value)| {
                (key.clone(), self.template(&format!("{path}.{key}"), value, speaks, element))
            })
            .collect()
    }

    pub(super) fn template(
        &mut self,
        path: &str,
        value: &Value,
        speaks: Speaks,
        element: Option<&str>,
    ) -> Template {
        let roots = self.roots(speaks);
        let scope = Scope { roots: &roots, vars: Some(&self.vars), element };
        Template::compile(value, path, &scope, &mut self.findings)
    }

    /// With or without the `=` of a template.
    pub(super) fn condition(
        &mut self,
        path: &str,
        source: &str,
        speaks: Speaks,
        element: Option<&str>,
    ) -> Option<Expression> {
        let roots = self.roots(speaks);
        let scope = Scope { roots: &roots, vars: Some(&self.vars), element };
        compile_expression(source.strip_prefix('=').unwrap_or(source), path, &scope, &mut self.findings)
    }

    fn roots(&self, speaks: Speaks) -> Vec<Root> {
        let mut roots = match speaks {
            Speaks::Forward => vec![Root::Vars, Root::Key],
            Speaks::Answer => vec![Root::Vars, Root::Event, Root::Key],
            Speaks::Backward => vec![Root::Vars, Root::Failure, Root::Key],
            Speaks::Event => vec![Root::Event],
            Speaks::Start => vec![Root::Event, Root::Key],
        };
        let knows_results = matches!(speaks, Speaks::Forward | Speaks::Answer | Speaks::Backward);
        roots.extend((self.jobs && knows_results).then_some(Root::Results));
        roots
    }
}

fn limited(task: Task, timeout: Option<Duration>, retry: Option<Retry>, in_doubt: Option<InDoubt>) -> Task {
    Task { timeout, retry, in_doubt, ..task }
}

/// What a job's effect is called.
pub(super) fn job_effect(kind: &Name) -> String {
    format!("job.{kind}")
}
