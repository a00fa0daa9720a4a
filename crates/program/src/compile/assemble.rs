//! Assembly of a compiled saga: compiled templates, ordered steps.

use super::correlate::{self, CorrelationRules};
use super::expressions::{DefinitionTexts, ExpressionCompiler, ExpressionScope, Site};
use super::order::{self, StepOrder};
use super::required_values::{RequiredValues, SavingSteps};
use super::{events, validate};
use crate::definition::{
    AfterFailure, CompensationSpec, Definition, FactSpec, FailureHandler, HandlerSpec, Join,
    MigrationSpec, ReminderSpec, ResultMatcher, Step,
};
use crate::diagnostic::{RawDiagnostic, RawDiagnostics};
use crate::expression::{Root, Scope};
use crate::invariant::{self, SagaInvariant};
use crate::limits::MAX_STEPS;
use crate::machine::{
    CompiledAction, CompiledAfterFailure, CompiledFact, CompiledFailureHandler, CompiledHandler,
    CompiledMigration, CompiledReminder, CompiledSaga, CompiledStep, compensation_tag, handler_tag,
    reminder_timer,
};
use crate::steps::kind::{ActionOptions, CompiledMatcher, Completion};
use crate::steps::{
    Action, CompiledActionKind, CompiledPriority, CompiledRetry, CompiledTimeLimit,
};
use crate::template::Template;

/// Parts of a compiled definition.
pub(super) struct Assembled {
    pub(super) saga: CompiledSaga,
    pub(super) correlation_rules: CorrelationRules,
    pub(super) invariants: Vec<SagaInvariant>,
}

/// Returns the compiled saga, or all diagnostics.
pub(super) fn assemble(definition: &Definition) -> Result<Assembled, RawDiagnostics> {
    let mut findings = Vec::new();
    // First, because the cost of the checks below is quadratic in the number of steps.
    if (definition.steps.is_empty() && !definition.keep_active)
        || definition.steps.len() > MAX_STEPS
    {
        let message = format!(
            "a saga must have 1 to {MAX_STEPS} steps; it has {}",
            definition.steps.len()
        );
        return Err(vec![RawDiagnostic::new("steps", message)]);
    }

    validate::check(definition, &mut findings);
    let order = order::of(definition, &mut findings);

    events::check(definition, order.as_ref(), &mut findings);
    if let Some(order) = &order {
        order::check_pivots(definition, order, &mut findings);
        order::check_restarts(definition, order, &mut findings);
    }

    let correlation_rules = correlate::compile(&definition.correlate, &mut findings);
    let invariants = invariant::compile_all(definition, &mut findings);

    // The templates of a definition without an order are compiled as well, so that all diagnostics
    // are returned at once.
    let mut compiler = compiler(definition, findings);
    let saga = saga(&mut compiler, definition, &order.unwrap_or_default());

    if compiler.findings.is_empty() {
        Ok(Assembled {
            saga,
            correlation_rules,
            invariants,
        })
    } else {
        Err(compiler.findings)
    }
}

fn compiler(definition: &Definition, findings: RawDiagnostics) -> ExpressionCompiler<'_> {
    ExpressionCompiler {
        saga: &definition.saga,
        steps: definition.steps.iter().map(|step| &step.id).collect(),
        vars: definition.variables().into_iter().collect(),
        has_jobs: definition
            .steps
            .iter()
            .any(|step| matches!(step.action, Action::Job(_))),
        findings,
        reads_envelope: false,
        texts: None,
    }
}

/// Returns the texts of all templates and conditions.
pub(super) fn texts(definition: &Definition) -> DefinitionTexts {
    let mut compiler = compiler(definition, Vec::new());
    compiler.texts = Some(DefinitionTexts::default());
    saga(&mut compiler, definition, &StepOrder::default());
    compiler.texts.unwrap_or_default()
}

fn saga(
    compiler: &mut ExpressionCompiler<'_>,
    definition: &Definition,
    order: &StepOrder,
) -> CompiledSaga {
    let forward = |path| Site::new(path, ExpressionScope::Forward);
    let saving = saving_steps(definition);
    let mut steps = Vec::with_capacity(definition.steps.len());
    for (i, form) in definition.steps.iter().enumerate() {
        let join = form.after.as_ref().map_or(Join::All, |after| after.join);
        let in_loop = order.loops.get(i).copied().flatten();
        let undo = form.compensate.as_ref();
        let earlier = undo.map_or_else(Vec::new, |_| order.up_to(i));
        let required = RequiredValues {
            saving: &saving,
            earlier: &earlier,
            allowed: undo.map_or(&[], |undo| undo.allow_null.as_slice()),
        };
        let mut step = step(compiler, &format!("steps[{i}]"), form, in_loop, required);
        let publishes_result = form.publish.or(definition.publish).unwrap_or(true);

        for handler in step.on_timeout.iter_mut().chain(&mut step.on_failure) {
            handler.reached = order.reached_from(handler.selected());
        }

        // Without an order, diagnostics exist, and the compiled saga is dropped.
        steps.push(CompiledStep {
            before: order.before.get(i).cloned().unwrap_or_default(),
            join,
            selected_by: order.selected_by.get(i).cloned().unwrap_or_default(),
            region: order.regions.get(i).cloned().unwrap_or_default(),
            joins: order.joins.get(i).cloned().unwrap_or_default(),
            publishes_result,
            ..step
        });
    }

    let handlers = definition.on.iter().enumerate();
    let migrations = definition.migrations.iter().enumerate();
    CompiledSaga {
        start: definition.start.clone(),
        entries: events::bindings_by_type(definition),
        versions: definition
            .events
            .iter()
            .map(|(kind, form)| {
                (
                    kind.clone(),
                    form.compile(compiler, &format!("events.{kind}")),
                )
            })
            .collect(),
        steps,
        sorted: order.sorted.clone(),
        handlers: handlers
            .map(|(n, form)| handler(compiler, n, form))
            .collect(),
        vars: start_vars(compiler, definition),
        env: compiler.map(forward("env"), &definition.env),
        reference: definition
            .reference
            .as_ref()
            .map(|reference| compiler.template(forward("reference"), reference)),
        timeout: CompiledTimeLimit::compile(
            compiler,
            forward(""),
            "timeout",
            definition.timeout.as_ref(),
        ),
        early_event_ttl: definition.early_event_ttl(),
        keep_active: definition.keep_active,
        isolates_failures: false,
        completed: fact(
            compiler,
            forward("completed"),
            definition.completed.as_ref(),
        ),
        failed: fact(
            compiler,
            Site::new("failed", ExpressionScope::Compensation),
            definition.failed.as_ref(),
        ),
        migrations: migrations
            .map(|(n, form)| migration(compiler, n, form))
            .collect(),
        // The last field: all templates above must be compiled before it is read.
        reads_envelope: compiler.reads_envelope,
    }
}

/// Compiles the variables of the start event.
fn start_vars(
    compiler: &mut ExpressionCompiler<'_>,
    definition: &Definition,
) -> Vec<(String, Template)> {
    let vars = compiler.map(Site::new("vars", ExpressionScope::Start), &definition.vars);

    // A restart has no event, only data.
    let restart = definition
        .steps
        .iter()
        .find(|step| matches!(step.action, Action::Restart(_)));

    for (name, _) in vars
        .iter()
        .filter(|(_, template)| restart.is_some() && template.reads_envelope())
    {
        let step = restart.map_or("", |step| step.id.as_str());
        let message = format!(
            "`envelope` is not available: the step `{step}` restarts the saga without an event"
        );
        let suggestion = "read the value from `event`, and send it in the data of the start event \
                          and of the restart";

        compiler.report(
            RawDiagnostic::new(format!("vars.{name}"), message).with_suggestion(suggestion),
        );
    }

    vars
}

fn handler(compiler: &mut ExpressionCompiler<'_>, n: usize, form: &HandlerSpec) -> CompiledHandler {
    let path = format!("on[{n}]");
    let site = Site::new(&path, ExpressionScope::Result);
    let when = compiler.condition(site.at(&format!("{path}.when")), form.when.as_ref());
    let save = compiler.map(site.at(&format!("{path}.save")), &form.save);

    let actions = form.actions.iter().enumerate();
    let tasks = actions.map(|(i, action)| CompiledAction {
        tag: handler_tag(n),
        kind: action.compile(compiler, site.at(&format!("{path}.do[{i}]"))),
        options: ActionOptions::default(),
    });

    CompiledHandler {
        event: form.event.clone(),
        when,
        save,
        tasks: tasks.collect(),
        then: form.then,
    }
}

/// Returns the steps that save each variable and each job result.
fn saving_steps(definition: &Definition) -> SavingSteps {
    let mut saving = SavingSteps::default();
    for (i, step) in definition.steps.iter().enumerate() {
        for name in step.save.keys() {
            saving.add(format!("{}.{name}", Root::Vars.name()), i);
        }
        if matches!(step.action, Action::Job(_)) {
            saving.add(format!("{}.{}", Root::Results.name(), step.id), i);
        }
    }
    saving
}

/// Compiles a step without its order.
fn step(
    compiler: &mut ExpressionCompiler<'_>,
    path: &str,
    form: &Step,
    in_loop: Option<usize>,
    required: RequiredValues<'_>,
) -> CompiledStep {
    let site = Site {
        in_loop: in_loop.is_some(),
        ..Site::new(path, ExpressionScope::Forward)
    };

    let when = compiler.condition(site.at(&format!("{path}.when")), form.when.as_ref());
    let foreach = form
        .foreach
        .as_ref()
        .and_then(|foreach| foreach.compile(compiler, site));

    // The condition and the list are evaluated once, before there is an element.
    let site = Site {
        element: form.foreach.as_ref().map(|foreach| foreach.name.as_str()),
        ..site
    };

    let mut kind = form
        .action
        .compile(compiler, site.at(&format!("{path}.do")));
    if let CompiledActionKind::Event(event) = &mut kind {
        event.keep_data_for(&form.save);
    }

    let result = Site {
        scope: result_scope(&kind),
        ..site
    };

    // Only `save` reads all collected events; `until` has a site of its own.
    let saved = Site {
        collects: kind.collection().is_some(),
        ..result
    };

    let (ok, fail) = events::event_matchers(form);
    let options = ActionOptions {
        timeout: CompiledTimeLimit::compile(compiler, site, "timeout", form.timeout.as_ref()),
        ok: matchers(compiler, result, "ok", &ok),
        fail: matchers(compiler, result, "fail", fail),
        retry: CompiledRetry::compile(compiler, site, form.retry.as_ref()),
        in_doubt: form.in_doubt,
        priority: CompiledPriority::compile(compiler, site, form.priority.as_ref()),
    };

    CompiledStep {
        id: form.id.clone(),
        before: Vec::new(),
        join: Join::All,
        selected_by: Vec::new(),
        region: Vec::new(),
        joins: Vec::new(),
        in_loop,
        when,
        foreach,
        action: CompiledAction {
            tag: form.id.clone(),
            kind,
            options,
        },
        on_timeout: failure_handler(compiler, site, "on_timeout", form.on_timeout.as_ref()),
        on_failure: failure_handler(compiler, site, "on_failure", form.on_failure.as_ref()),
        save: compiler.map(saved.at(&format!("{path}.save")), &form.save),
        remind: form
            .remind
            .as_ref()
            .map(|remind| Box::new(reminder(compiler, site, form, remind))),
        compensation: form.compensate.as_ref().map(|compensation| {
            let site = Site {
                required: Some(required),
                ..site
            };
            compile_compensation(compiler, site, form, compensation)
        }),
        pivot: form.pivot,
        publishes_result: form.publish.unwrap_or(true),
    }
}

/// Returns the scope of the results of an action: only events have an envelope.
fn result_scope(kind: &CompiledActionKind) -> ExpressionScope {
    match kind.traits().completion {
        Completion::Acceptance | Completion::Event => ExpressionScope::Result,
        Completion::Outcome | Completion::User | Completion::Timer | Completion::None => {
            ExpressionScope::Response
        }
    }
}

/// Compiles `on_timeout` or `on_failure`. Its variables are those of the whole step: the failure of
/// an element is that of its step.
fn failure_handler(
    compiler: &mut ExpressionCompiler<'_>,
    step: Site<'_>,
    field: &str,
    form: Option<&FailureHandler>,
) -> Option<CompiledFailureHandler> {
    let form = form?;
    let path = format!("{}.{field}.save", step.path);
    let site = Site {
        path: &path,
        scope: ExpressionScope::Compensation,
        element: None,
        ..step
    };

    let then = match &form.then {
        AfterFailure::Fail => CompiledAfterFailure::Fail,
        AfterFailure::Continue => CompiledAfterFailure::Continue,
        // Unknown steps are reported with the order of the steps.
        AfterFailure::Steps(ids) => CompiledAfterFailure::Steps(
            ids.iter()
                .filter_map(|id| compiler.steps.iter().position(|step| *step == id))
                .collect(),
        ),
    };

    Some(CompiledFailureHandler {
        save: compiler.map(site, &form.save),
        then,
        // The order of the steps determines it.
        reached: Vec::new(),
    })
}

/// Compiles the reminders of a step. They read what its action reads, and their number.
fn reminder(
    compiler: &mut ExpressionCompiler<'_>,
    step: Site<'_>,
    form: &Step,
    remind: &ReminderSpec,
) -> CompiledReminder {
    let path = format!("{}.remind.do", step.path);
    let site = Site {
        path: &path,
        reminds: true,
        ..step
    };

    CompiledReminder {
        every: remind.every,
        max: remind.max,
        action: CompiledAction {
            tag: reminder_timer(&form.id),
            kind: remind.action.compile(compiler, site),
            options: ActionOptions::default(),
        },
    }
}

fn compile_compensation(
    compiler: &mut ExpressionCompiler<'_>,
    step: Site<'_>,
    form: &Step,
    compensation: &CompensationSpec,
) -> CompiledAction {
    let path = format!("{}.undo", step.path);
    let site = Site {
        path: &path,
        scope: ExpressionScope::Compensation,
        ..step
    };

    let kind = compensation.action.compile(compiler, site);
    let result = Site {
        scope: result_scope(&kind),
        ..site
    };

    CompiledAction {
        tag: compensation_tag(&form.id),
        kind,
        options: ActionOptions {
            timeout: CompiledTimeLimit::compile(
                compiler,
                site,
                "timeout",
                compensation.timeout.as_ref(),
            ),
            ok: matchers(compiler, result, "ok", &compensation.ok),
            fail: matchers(compiler, result, "fail", &compensation.fail),
            retry: CompiledRetry::compile(compiler, site, compensation.retry.as_ref()),
            in_doubt: compensation.in_doubt,
            priority: CompiledPriority::compile(compiler, site, compensation.priority.as_ref()),
        },
    }
}

fn matchers(
    compiler: &mut ExpressionCompiler<'_>,
    site: Site<'_>,
    field: &str,
    matchers: &[ResultMatcher],
) -> Vec<CompiledMatcher> {
    let matchers = matchers.iter().enumerate();
    matchers
        .map(|(n, matcher)| {
            let path = format!("{}.{field}[{n}].when", site.path);
            let when = compiler.condition(site.at(&path), matcher.when.as_ref());
            CompiledMatcher {
                event: matcher.event.clone(),
                when,
            }
        })
        .collect()
}

fn fact(
    compiler: &mut ExpressionCompiler<'_>,
    site: Site<'_>,
    fact: Option<&FactSpec>,
) -> Option<CompiledFact> {
    fact.map(|fact| CompiledFact {
        kind: fact.fact.clone(),
        data: compiler.field(site, "data", &fact.data),
    })
}

/// Compiles a migration.
fn migration(
    compiler: &mut ExpressionCompiler<'_>,
    n: usize,
    form: &MigrationSpec,
) -> CompiledMigration {
    // The templates use the variables of an older version, which are unknown here.
    let scope = Scope {
        roots: &[Root::Vars, Root::Key, Root::Results],
        vars: None,
        element: None,
    };
    let vars = form.vars.iter().map(|(name, template)| {
        let path = format!("migrations[{n}].vars.{name}");
        (
            name.clone(),
            Template::compile(template, &path, &scope, &mut compiler.findings),
        )
    });

    CompiledMigration {
        from: form.from.clone(),
        vars: vars.collect(),
        steps: form.steps.clone(),
    }
}
