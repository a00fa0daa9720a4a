//! Assembly of a compiled saga: compiled templates, ordered steps.

use std::time::Duration;

use orlog_model::{InDoubtPolicy, Name, RetryPolicy};
use serde_json::{Map, Value};

use super::correlate::{self, CorrelationRules};
use super::order::StepOrder;
use super::{events, order, validate};
use crate::definition::{
    Action, Definition, EventVersionSpec, FactSpec, HandlerSpec, Join, MigrationSpec, Step,
};
use crate::diagnostic::{RawDiagnostic, RawDiagnostics};
use crate::expression::{Expression, Root, Scope};
use crate::limits::{DEFAULT_FOREACH_CONCURRENCY, MAX_STEPS};
use crate::machine::{
    self, CompiledAction, CompiledFact, CompiledForeach, CompiledMigration, CompiledSaga, EventVersions,
};
use crate::template::{Template, compile_expression};

/// Returns the compiled saga, or all diagnostics.
pub(super) fn assemble(definition: &Definition) -> Result<(CompiledSaga, CorrelationRules), RawDiagnostics> {
    let mut findings = Vec::new();
    if definition.steps.is_empty() || definition.steps.len() > MAX_STEPS {
        let message = format!("a saga must have 1 to {MAX_STEPS} steps; it has {}", definition.steps.len());
        return Err(vec![RawDiagnostic::new("steps", message)]);
    }
    validate::check(definition, &mut findings);
    let order = order::of(definition, &mut findings);
    events::check(definition, order.as_ref(), &mut findings);
    if let Some(order) = &order {
        order::check_pivots(definition, order, &mut findings);
    }
    let places = correlate::compile(&definition.correlate, &mut findings);
    let mut parts = Assembler::new(definition, findings);
    let saga = parts.saga(definition);
    match order {
        Some(order) if parts.findings.is_empty() => Ok((
            CompiledSaga {
                sorted: order.sorted.clone(),
                steps: ordered(saga.steps, definition, order),
                ..saga
            },
            places,
        )),
        Some(_) | None => Err(parts.findings),
    }
}

/// Adds the order to the steps.
fn ordered(
    steps: Vec<machine::CompiledStep>,
    definition: &Definition,
    order: StepOrder,
) -> Vec<machine::CompiledStep> {
    let StepOrder { before, selected_by, regions, joins, .. } = order;
    let places = before.into_iter().zip(selected_by).zip(regions.into_iter().zip(joins));
    let forms = definition.steps.iter();
    steps
        .into_iter()
        .zip(forms)
        .zip(places)
        .map(|((step, form), ((before, selected_by), (region, joins)))| machine::CompiledStep {
            join: form.after.as_ref().map_or(Join::All, |after| after.join),
            before,
            selected_by,
            region,
            joins,
            ..step
        })
        .collect()
}

/// Variables that are available to the expressions at a location.
#[derive(Clone, Copy, Debug)]
pub(super) enum ExpressionScope {
    /// Stored variables.
    Forward,
    /// Also a result or an event.
    Result,
    /// Also the failure.
    Compensation,
    /// Only an event.
    Event,
    /// Only the start event.
    Start,
}

pub(super) struct Assembler<'a> {
    pub(super) definition: &'a Definition,
    /// All names under `vars` that the definition sets.
    vars: Vec<String>,
    /// The definition has jobs, so `results` exists.
    jobs: bool,
    pub(super) findings: RawDiagnostics,
}

impl<'a> Assembler<'a> {
    fn new(definition: &'a Definition, findings: RawDiagnostics) -> Self {
        let saved = definition.steps.iter().flat_map(|step| step.save.keys());
        let handled = definition.on.iter().flat_map(|handler| handler.save.keys());
        let migrated = definition.migrations.iter().flat_map(|form| form.vars.keys());
        let vars = definition.vars.keys().chain(saved).chain(handled).chain(migrated).cloned().collect();
        let jobs = definition.steps.iter().any(|step| matches!(step.action, Action::Job(_)));
        Self { definition, vars, jobs, findings }
    }

    fn saga(&mut self, definition: &Definition) -> CompiledSaga {
        let steps: Vec<_> = definition.steps.iter().enumerate().map(|(i, step)| self.step(i, step)).collect();
        let versions = definition.events.iter();
        CompiledSaga {
            start: definition.start.clone(),
            entries: events::bindings_by_type(definition),
            versions: versions
                .map(|(kind, form)| (kind.clone(), self.versions(kind.as_str(), form)))
                .collect(),
            handlers: definition.on.iter().enumerate().map(|(n, form)| self.handler(n, form)).collect(),
            vars: self.fields("vars", &definition.vars, ExpressionScope::Start, None),
            env: self.fields("env", &definition.env, ExpressionScope::Forward, None),
            reference: definition
                .reference
                .as_ref()
                .map(|reference| self.template("reference", reference, ExpressionScope::Forward, None)),
            timeout: definition.timeout,
            early_event_ttl: definition.early_event_ttl(),
            steps,
            sorted: Vec::new(),
            completed: self.fact("completed", definition.completed.as_ref(), ExpressionScope::Forward),
            failed: self.fact("failed", definition.failed.as_ref(), ExpressionScope::Compensation),
            migrations: definition
                .migrations
                .iter()
                .enumerate()
                .map(|(n, form)| self.migration(n, form))
                .collect(),
        }
    }

    fn versions(&mut self, kind: &str, form: &EventVersionSpec) -> EventVersions {
        let upcast = form.upcast.iter().map(|(version, template)| {
            let path = format!("events.{kind}.upcast.{version}");
            (*version, self.template(&path, template, ExpressionScope::Event, None))
        });
        let upcast = upcast.collect();
        let mut accepts = form.accepts.clone();
        accepts.sort_unstable();
        EventVersions { accepts, upcast, on_unsupported: form.on_unsupported }
    }

    fn handler(&mut self, n: usize, form: &HandlerSpec) -> machine::CompiledHandler {
        let path = format!("on[{n}]");
        let when = form.when.as_ref();
        let actions = form.actions.iter();
        machine::CompiledHandler {
            event: form.event.clone(),
            when: when.and_then(|when| {
                self.condition(&format!("{path}.when"), when, ExpressionScope::Result, None)
            }),
            save: self.fields(&format!("{path}.save"), &form.save, ExpressionScope::Result, None),
            tasks: actions
                .enumerate()
                .map(|(i, action)| {
                    let at = format!("{path}.do[{i}]");
                    self.compile_action(&at, action, machine::handler_tag(n), ExpressionScope::Result, None)
                })
                .collect(),
            then: form.then,
        }
    }

    fn step(&mut self, i: usize, step: &Step) -> machine::CompiledStep {
        let path = format!("steps[{i}]");
        let element = step.foreach.as_ref().map(|foreach| foreach.name.as_str());
        let when = step.when.as_ref();
        let when = when
            .and_then(|when| self.condition(&format!("{path}.when"), when, ExpressionScope::Forward, None));
        let foreach = step.foreach.as_ref().and_then(|form| {
            let list =
                self.condition(&format!("{path}.foreach.in"), &form.list, ExpressionScope::Forward, None)?;
            let limit = form.max_concurrency.unwrap_or(DEFAULT_FOREACH_CONCURRENCY);
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            Some(CompiledForeach { list, name: form.name.clone(), max_concurrency: limit })
        });
        let action = self.compile_action(
            &format!("{path}.do"),
            &step.action,
            step.id.clone(),
            ExpressionScope::Forward,
            element,
        );
        let (ok, fail) = events::event_matchers(step);
        let action = CompiledAction {
            ok: self.result_matchers(&format!("{path}.ok"), &ok, element),
            fail: self.result_matchers(&format!("{path}.fail"), fail, element),
            ..limited(action, step.timeout, step.retry, step.in_doubt)
        };
        machine::CompiledStep {
            id: step.id.clone(),
            before: Vec::new(),
            join: Join::All,
            selected_by: Vec::new(),
            region: Vec::new(),
            joins: Vec::new(),
            when,
            foreach,
            action,
            save: self.fields(&format!("{path}.save"), &step.save, ExpressionScope::Result, element),
            compensation: self.compensation(&path, step, element),
            pivot: step.pivot,
        }
    }

    fn compensation(&mut self, path: &str, step: &Step, element: Option<&str>) -> Option<CompiledAction> {
        let compensation = step.compensate.as_ref()?;
        let path = format!("{path}.undo");
        let tag = machine::compensation_tag(&step.id);
        let action =
            self.compile_action(&path, &compensation.action, tag, ExpressionScope::Compensation, element);
        Some(CompiledAction {
            ok: self.result_matchers(&format!("{path}.ok"), &compensation.ok, element),
            fail: self.result_matchers(&format!("{path}.fail"), &compensation.fail, element),
            ..limited(action, compensation.timeout, compensation.retry, compensation.in_doubt)
        })
    }

    fn result_matchers(
        &mut self,
        path: &str,
        result_matchers: &[crate::definition::ResultMatcher],
        element: Option<&str>,
    ) -> Vec<machine::CompiledMatcher> {
        let result_matchers = result_matchers.iter().enumerate();
        result_matchers
            .map(|(n, matcher)| {
                let at = format!("{path}[{n}].when");
                let when = matcher.when.as_ref();
                machine::CompiledMatcher {
                    event: matcher.event.clone(),
                    when: when.and_then(|when| self.condition(&at, when, ExpressionScope::Result, element)),
                }
            })
            .collect()
    }

    fn fact(
        &mut self,
        path: &str,
        fact: Option<&FactSpec>,
        expression_scope: ExpressionScope,
    ) -> Option<CompiledFact> {
        let fact = fact?;
        let data = self.template(&format!("{path}.data"), &fact.data, expression_scope, None);
        Some(CompiledFact { kind: fact.fact.clone(), data })
    }

    /// Compiles a migration. Its templates use the variables of an older version, which are unknown here.
    fn migration(&mut self, n: usize, form: &MigrationSpec) -> CompiledMigration {
        let scope = Scope { roots: &[Root::Vars, Root::Key, Root::Results], vars: None, element: None };
        let vars = form.vars.iter().map(|(name, template)| {
            let path = format!("migrations[{n}].vars.{name}");
            (name.clone(), Template::compile(template, &path, &scope, &mut self.findings))
        });
        CompiledMigration { from: form.from.clone(), vars: vars.collect(), steps: form.steps.clone() }
    }

    pub(super) fn fields(
        &mut self,
        path: &str,
        fields: &Map<String, Value>,
        expression_scope: ExpressionScope,
        element: Option<&str>,
    ) -> Vec<(String, Template)> {
        let fields = fields.iter();
        fields
            .map(|(key, value)| {
                (key.clone(), self.template(&format!("{path}.{key}"), value, expression_scope, element))
            })
            .collect()
    }

    pub(super) fn template(
        &mut self,
        path: &str,
        value: &Value,
        expression_scope: ExpressionScope,
        element: Option<&str>,
    ) -> Template {
        let roots = self.roots(expression_scope);
        let scope = Scope { roots: &roots, vars: Some(&self.vars), element };
        Template::compile(value, path, &scope, &mut self.findings)
    }

    /// Compiles a condition, with or without the `=` of a template.
    pub(super) fn condition(
        &mut self,
        path: &str,
        source: &str,
        expression_scope: ExpressionScope,
        element: Option<&str>,
    ) -> Option<Expression> {
        let roots = self.roots(expression_scope);
        let scope = Scope { roots: &roots, vars: Some(&self.vars), element };
        compile_expression(source.strip_prefix('=').unwrap_or(source), path, &scope, &mut self.findings)
    }

    fn roots(&self, expression_scope: ExpressionScope) -> Vec<Root> {
        let mut roots = match expression_scope {
            ExpressionScope::Forward => vec![Root::Vars, Root::Key],
            ExpressionScope::Result => vec![Root::Vars, Root::Event, Root::Key],
            ExpressionScope::Compensation => vec![Root::Vars, Root::Failure, Root::Key],
            ExpressionScope::Event => vec![Root::Event],
            ExpressionScope::Start => vec![Root::Event, Root::Key],
        };
        let knows_results = matches!(
            expression_scope,
            ExpressionScope::Forward | ExpressionScope::Result | ExpressionScope::Compensation
        );
        roots.extend((self.jobs && knows_results).then_some(Root::Results));
        roots
    }
}

fn limited(
    action: CompiledAction,
    timeout: Option<Duration>,
    retry: Option<RetryPolicy>,
    in_doubt: Option<InDoubtPolicy>,
) -> CompiledAction {
    CompiledAction { timeout, retry, in_doubt, ..action }
}

/// Returns the effect name of a job.
pub(super) fn job_effect(kind: &Name) -> String {
    format!("job.{kind}")
}
