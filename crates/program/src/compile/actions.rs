//! Compiler of step actions: compiles their templates and checks their constants.

use orlog_model::{EffectName, EventType, Name, SagaName};
use serde_json::Value;

use super::assemble::{Assembler, ExpressionScope, job_effect};
use crate::definition::{Action, Escalation, HumanTask, JobAction, SwitchCase, TimeSpec};
use crate::diagnostic::RawDiagnostic;
use crate::machine::{self, CompiledAction, CompiledActionKind, parse_time};
use crate::template::Template;
use crate::yaml::duration;

/// Location of an action, and the variables of its expressions.
#[derive(Clone, Copy)]
struct ActionSite<'p> {
    path: &'p str,
    expression_scope: ExpressionScope,
    element: Option<&'p str>,
}

impl Assembler<'_> {
    /// Compiles an action without its results and limits, which belong to the step.
    pub(super) fn compile_action(
        &mut self,
        path: &str,
        action: &Action,
        tag: Name,
        expression_scope: ExpressionScope,
        element: Option<&str>,
    ) -> CompiledAction {
        let call = self.call(ActionSite { path, expression_scope, element }, action);
        CompiledAction {
            tag,
            kind: call,
            timeout: None,
            ok: Vec::new(),
            fail: Vec::new(),
            retry: None,
            in_doubt: None,
        }
    }

    fn call(&mut self, at: ActionSite<'_>, action: &Action) -> CompiledActionKind {
        match action {
            Action::Command { aggregate_type, name, id, data } => CompiledActionKind::Command {
                aggregate_type: aggregate_type.clone(),
                name: name.clone(),
                id: id.as_ref().map(|id| self.field_template(at, "id", id)),
                data: self.field_template(at, "data", data),
            },
            Action::Effect { name, data } => {
                CompiledActionKind::Effect { name: name.clone(), data: self.field_template(at, "data", data) }
            }
            Action::Wait(time) => CompiledActionKind::Wait(self.time(at, "wait", time)),
            Action::Event { events, .. } => {
                if events.is_empty() {
                    self.findings
                        .push(RawDiagnostic::new(format!("{}.event", at.path), "no event is awaited"));
                }
                CompiledActionKind::Event
            }
            Action::Human(human) => CompiledActionKind::Human(Box::new(self.human(at, human))),
            Action::Saga { saga, correlation, event, data } => {
                self.child(at, saga, correlation.as_ref(), event.as_ref(), data)
            }
            Action::Job(job) => CompiledActionKind::Job(Box::new(self.job(at, job))),
            Action::Switch(cases) => CompiledActionKind::Switch(self.switch(at, cases)),
        }
    }

    fn field_template(&mut self, at: ActionSite<'_>, field: &str, template: &Value) -> Template {
        self.template(&format!("{}.{field}", at.path), template, at.expression_scope, at.element)
    }

    fn child(
        &mut self,
        at: ActionSite<'_>,
        saga: &SagaName,
        correlation: Option<&Value>,
        event: Option<&EventType>,
        data: &Value,
    ) -> CompiledActionKind {
        if *saga == self.definition.saga && correlation.is_none() {
            let message = format!("the saga {saga} starts itself");
            let finding = RawDiagnostic::new(format!("{}.saga", at.path), message);
            self.findings
                .push(finding.with_suggestion("limit the recursion with `when`, and set `correlation`"));
        }
        CompiledActionKind::Saga {
            saga: saga.clone(),
            correlation: correlation.map(|template| self.field_template(at, "correlation", template)),
            event: event.cloned(),
            data: self.field_template(at, "data", data),
        }
    }

    fn time(&mut self, at: ActionSite<'_>, field: &str, time: &TimeSpec) -> machine::CompiledTime {
        let path = format!("{}.{field}", at.path);
        let (template, until) = match time {
            TimeSpec::For(template) => (template, false),
            TimeSpec::Until(template) => (template, true),
        };
        let compiled = self.template(&path, template, at.expression_scope, at.element);
        let Template::Literal(value) = compiled else {
            return if until {
                machine::CompiledTime::Until(compiled)
            } else {
                machine::CompiledTime::For(compiled)
            };
        };
        let read = if until {
            parse_time(&value).map(machine::CompiledTime::At)
        } else {
            let text = value.as_str().ok_or_else(|| "a duration must be a text such as 30m".to_owned());
            text.and_then(duration::parse).map(machine::CompiledTime::After)
        };
        read.unwrap_or_else(|message| {
            self.findings.push(RawDiagnostic::new(path, message));
            machine::CompiledTime::For(Template::Literal(value))
        })
    }

    fn human(&mut self, at: ActionSite<'_>, human: &HumanTask) -> machine::CompiledHumanTask {
        let path = format!("{}.human", at.path);
        let at = ActionSite { path: &path, ..at };
        if let Some(escalation) = &human.escalate {
            super::validate::check_duration(
                &format!("{path}.escalate.after"),
                escalation.after,
                &mut self.findings,
            );
            if escalation.after.is_none() && human.due.is_none() {
                let message = "the escalation has no time";
                let finding = RawDiagnostic::new(format!("{path}.escalate"), message);
                self.findings.push(finding.with_suggestion("set `after`, or `due` of the task"));
            }
        }
        machine::CompiledHumanTask {
            title: self.field_template(at, "title", &human.title),
            roles: self.list(at, "roles", &human.roles),
            not_by: human.not_by.clone(),
            assignee: human.assignee.as_ref().map(|template| self.field_template(at, "assignee", template)),
            due: human.due.as_ref().map(|due| self.time(at, "due", due)),
            data: self.field_template(at, "data", &human.data),
            escalate: human.escalate.as_ref().map(|form| self.escalation(at, form)),
        }
    }

    fn escalation(&mut self, at: ActionSite<'_>, form: &Escalation) -> machine::CompiledEscalation {
        machine::CompiledEscalation {
            after: form.after,
            roles: self.list(at, "escalate.roles", &form.roles),
            assignee: form
                .assignee
                .as_ref()
                .map(|template| self.field_template(at, "escalate.assignee", template)),
        }
    }

    fn list(&mut self, at: ActionSite<'_>, field: &str, templates: &[Value]) -> Vec<Template> {
        let templates = templates.iter().enumerate();
        templates.map(|(n, template)| self.field_template(at, &format!("{field}[{n}]"), template)).collect()
    }

    fn job(&mut self, at: ActionSite<'_>, job: &JobAction) -> machine::CompiledJob {
        let path = format!("{}.job", at.path);
        let effect = EffectName::new(job_effect(&job.kind)).unwrap_or_else(|error| {
            self.findings.push(RawDiagnostic::new(format!("{path}.type"), error.to_string()));
            EffectName::new("job").expect("the constant is a valid effect name")
        });
        machine::CompiledJob {
            effect,
            kind: job.kind.clone(),
            script: job.script.clone(),
            env: self.fields(&format!("{path}.env"), &job.env, at.expression_scope, at.element),
            args: self.template(&format!("{path}.args"), &job.args, at.expression_scope, at.element),
            dependencies: job.dependencies.clone(),
        }
    }

    fn switch(&mut self, at: ActionSite<'_>, cases: &[SwitchCase]) -> Vec<machine::CompiledCase> {
        let path = format!("{}.switch", at.path);
        if cases.is_empty() {
            self.findings.push(RawDiagnostic::new(&path, "a switch requires at least one case"));
        }
        let steps = &self.definition.steps;
        let mut compiled = Vec::with_capacity(cases.len());
        for (n, case) in cases.iter().enumerate() {
            if case.when.is_none() && n + 1 < cases.len() {
                let message = "a case without `when` always matches, so later cases are unreachable";
                self.findings.push(
                    RawDiagnostic::new(format!("{path}[{n}]"), message)
                        .with_suggestion("make it the last case"),
                );
            }
            let when = case.when.as_ref();
            let when = when.and_then(|w| {
                self.condition(&format!("{path}[{n}].when"), w, at.expression_scope, at.element)
            });
            let then = case.then.iter().filter_map(|id| steps.iter().position(|step| step.id == *id));
            compiled.push(machine::CompiledCase { when, then: then.collect() });
        }
        compiled
    }
}
