//! What a step asks for, with its templates compiled and its constants checked.

use orlog_model::{EffectName, EventType, Name, SagaName};
use serde_json::Value;

use super::assemble::{Parts, Speaks, job_effect};
use crate::definition::{Action, Case, Escalation, Human, Job, Moment};
use crate::diagnostic::Finding;
use crate::machine::{self, Call, Task, point};
use crate::template::Template;
use crate::yaml::duration;

/// Where a task stands and what its expressions speak of.
#[derive(Clone, Copy)]
struct Place<'p> {
    path: &'p str,
    speaks: Speaks,
    element: Option<&'p str>,
}

impl Parts<'_> {
    /// Without its answers and limits, which are the step's.
    pub(super) fn task(
        &mut self,
        path: &str,
        action: &Action,
        tag: Name,
        speaks: Speaks,
        element: Option<&str>,
    ) -> Task {
        let call = self.call(Place { path, speaks, element }, action);
        Task { tag, call, timeout: None, ok: Vec::new(), fail: Vec::new(), retry: None, in_doubt: None }
    }

    fn call(&mut self, at: Place<'_>, action: &Action) -> Call {
        match action {
            Action::Command { aggregate_type, name, id, data } => Call::Command {
                aggregate_type: aggregate_type.clone(),
                name: name.clone(),
                id: id.as_ref().map(|id| self.part(at, "id", id)),
                data: self.part(at, "data", data),
            },
            Action::Effect { name, data } => {
                Call::Effect { name: name.clone(), data: self.part(at, "data", data) }
            }
            Action::Wait(moment) => Call::Wait(self.moment(at, "wait", moment)),
            Action::Event { events, .. } => {
                if events.is_empty() {
                    self.findings.push(Finding::new(format!("{}.event", at.path), "it waits for no event"));
                }
                Call::Event
            }
            Action::Human(human) => Call::Human(Box::new(self.human(at, human))),
            Action::Saga { saga, correlation, event, data } => {
                self.child(at, saga, correlation.as_ref(), event.as_ref(), data)
            }
            Action::Job(job) => Call::Job(Box::new(self.job(at, job))),
            Action::Switch(cases) => Call::Switch(self.switch(at, cases)),
        }
    }

    fn part(&mut self, at: Place<'_>, field: &str, template: &Value) -> Template {
        self.template(&format!("{}.{field}", at.path), template, at.speaks, at.element)
    }

    fn child(
        &mut self,
        at: Place<'_>,
        saga: &SagaName,
        correlation: Option<&Value>,
        event: Option<&EventType>,
        data: &Value,
    ) -> Call {
        if *saga == self.definition.saga && correlation.is_none() {
            let message = format!("the saga {saga} begins itself");
            let finding = Finding::new(format!("{}.saga", at.path), message);
            self.findings
                .push(finding.suggest("end it somewhere with `when`, and say how with `correlation`"));
        }
        Call::Saga {
            saga: saga.clone(),
            correlation: correlation.map(|template| self.part(at, "correlation", template)),
            event: event.cloned(),
            data: self.part(at, "data", data),
        }
    }

    fn moment(&mut self, at: Place<'_>, field: &str, moment: &Moment) -> machine::Moment {
        let path = format!("{}.{field}", at.path);
        let (template, until) = match moment {
            Moment::For(template) => (template, false),
            Moment::Until(template) => (template, true),
        };
        let compiled = self.template(&path, template, at.speaks, at.element);
        let Template::Literal(value) = compiled else {
            return if until { machine::Moment::Until(compiled) } else { machine::Moment::For(compiled) };
        };
        let read = if until {
            point(&value).map(machine::Moment::At)
        } else {
            let text = value.as_str().ok_or_else(|| "a duration is a text such as 30m".to_owned());
            text.and_then(duration::parse).map(machine::Moment::After)
        };
        read.unwrap_or_else(|message| {
            self.findings.push(Finding::new(path, message));
            machine::Moment::For(Template::Literal(value))
        })
    }

    fn human(&mut self, at: Place<'_>, human: &Human) -> machine::Human {
        let path = format!("{}.human", at.path);
        let at = Place { path: &path, ..at };
        if let Some(escalation) = &human.escalate {
            super::validate::duration(
                &format!("{path}.escalate.after"),
                escalation.after,
                &mut self.findings,
            );
            if escalation.after.is_none() && human.due.is_none() {
                let message = "nothing says when the task goes to others";
                let finding = Finding::new(format!("{path}.escalate"), message);
                self.findings.push(finding.suggest("say `after`, or when the task is `due`"));
            }
        }
        machine::Human {
            title: self.part(at, "title", &human.title),
            roles: self.list(at, "roles", &human.roles),
            assignee: human.assignee.as_ref().map(|template| self.part(at, "assignee", template)),
            due: human.due.as_ref().map(|due| self.moment(at, "due", due)),
            data: self.part(at, "data", &human.data),
            escalate: human.escalate.as_ref().map(|form| self.escalation(at, form)),
        }
    }

    fn escalation(&mut self, at: Place<'_>, form: &Escalation) -> machine::Escalation {
        machine::Escalation {
            after: form.after,
            roles: self.list(at, "escalate.roles", &form.roles),
            assignee: form.assignee.as_ref().map(|template| self.part(at, "escalate.assignee", template)),
        }
    }

    fn list(&mut self, at: Place<'_>, field: &str, templates: &[Value]) -> Vec<Template> {
        let templates = templates.iter().enumerate();
        templates.map(|(n, template)| self.part(at, &format!("{field}[{n}]"), template)).collect()
    }

    fn job(&mut self, at: Place<'_>, job: &Job) -> machine::Job {
        let path = format!("{}.job", at.path);
        let effect = EffectName::new(job_effect(&job.kind)).unwrap_or_else(|error| {
            self.findings.push(Finding::new(format!("{path}.type"), error.to_string()));
            EffectName::new("job").expect("a short word")
        });
        machine::Job {
            effect,
            kind: job.kind.clone(),
            script: job.script.clone(),
            env: self.fields(&format!("{path}.env"), &job.env, at.speaks, at.element),
            args: self.template(&format!("{path}.args"), &job.args, at.speaks, at.element),
            dependencies: job.dependencies.clone(),
        }
    }

    fn switch(&mut self, at: Place<'_>, cases: &[Case]) -> Vec<machine::Case> {
        let path = format!("{}.switch", at.path);
        if cases.is_empty() {
            self.findings.push(Finding::new(&path, "a switch needs at least one way"));
        }
        let steps = &self.definition.steps;
        let mut compiled = Vec::with_capacity(cases.len());
        for (n, case) in cases.iter().enumerate() {
            if case.when.is_none() && n + 1 < cases.len() {
                let message = "a way without `when` is taken always, so nothing after it ever is";
                self.findings.push(Finding::new(format!("{path}[{n}]"), message).suggest("put it last"));
            }
            let when = case.when.as_ref();
            let when =
                when.and_then(|w| self.condition(&format!("{path}[{n}].when"), w, at.speaks, at.element));
            let then = case.then.iter().filter_map(|id| steps.iter().position(|step| step.id == *id));
            compiled.push(machine::Case { when, then: then.collect() });
        }
        compiled
    }
}
