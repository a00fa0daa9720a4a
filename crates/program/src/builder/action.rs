//! What a step or its undo asks for.

use std::time::Duration;

use orlog_model::{EffectName, EventType, InDoubt, Name, Retry, SagaName};
use serde_json::{Map, Value};

use super::names::{answer, events, keep, split_command, steps};
use crate::definition::{Action, Answer, Case, Escalation, Human, Job, Moment};
use crate::diagnostic::Finding;

/// What a step or its undo asks for, and how it is answered.
#[derive(Clone, Debug)]
pub struct Do {
    /// `None` when its name cannot be read.
    pub(super) action: Option<Action>,
    pub(super) ok: Vec<Answer>,
    pub(super) fail: Vec<Answer>,
    pub(super) timeout: Option<Duration>,
    pub(super) retry: Option<Retry>,
    pub(super) in_doubt: Option<InDoubt>,
    /// What is wrong, by the place within the action.
    pub(super) findings: Vec<Finding>,
}

impl Do {
    /// A command, as `aggregate.Command`.
    #[must_use]
    pub fn command(name: &str) -> Self {
        let command = split_command(name);
        let command = command.map(|(aggregate_type, name)| Action::Command {
            aggregate_type,
            name,
            id: None,
            data: Value::Null,
        });
        Self::new(command.map_err(|finding| vec![finding]))
    }

    /// An effect.
    #[must_use]
    pub fn effect(name: &str) -> Self {
        Self::named(EffectName::new(name), |name| Action::Effect { name, data: Value::Null })
    }

    /// A pause of so long.
    #[must_use]
    pub fn wait(time: Duration) -> Self {
        Self::new(Ok(Action::Wait(Moment::For(Value::from(written(time))))))
    }

    /// A pause as long as a template says, a text such as `30m`.
    #[must_use]
    pub fn wait_for(template: Value) -> Self {
        Self::new(Ok(Action::Wait(Moment::For(template))))
    }

    /// A pause until a time: a template for RFC 3339 text or whole milliseconds since 1970.
    #[must_use]
    pub fn wait_until(template: Value) -> Self {
        Self::new(Ok(Action::Wait(Moment::Until(template))))
    }

    /// An event that comes by itself, or a signal.
    #[must_use]
    pub fn event(event: &str) -> Self {
        Self::any_event(&[event])
    }

    /// Any of these events.
    #[must_use]
    pub fn any_event(names: &[&str]) -> Self {
        let mut findings = Vec::new();
        let events = events(names, "event", &mut findings);
        Self { findings, ..Self::new(Ok(Action::Event { events, when: None })) }
    }

    /// A task for a person; the title is a template.
    #[must_use]
    pub fn human(title: &str) -> Self {
        Self::new(Ok(Action::Human(Human {
            title: Value::from(title),
            roles: Vec::new(),
            assignee: None,
            due: None,
            data: Value::Null,
            escalate: None,
        })))
    }

    /// Another saga, which runs to its end.
    #[must_use]
    pub fn saga(name: &str) -> Self {
        Self::named(SagaName::new(name), |saga| Action::Saga {
            saga,
            correlation: None,
            event: None,
            data: Value::Null,
        })
    }

    /// A script of this type, which a worker runs.
    #[must_use]
    pub fn job(kind: &str, script: &str) -> Self {
        Self::named(Name::new(kind), |kind| {
            Action::Job(Job {
                kind,
                script: script.to_owned(),
                env: Map::new(),
                args: Value::Null,
                prerequisites: Vec::new(),
                dependencies: Vec::new(),
            })
        })
    }

    /// A decision; its ways are given with [`Do::case`] and [`Do::otherwise`].
    #[must_use]
    pub fn switch() -> Self {
        Self::new(Ok(Action::Switch(Vec::new())))
    }

    fn named<T>(name: Result<T, orlog_model::IdError>, action: impl FnOnce(T) -> Action) -> Self {
        Self::new(name.map(action).map_err(|error| vec![Finding::new("", error.to_string())]))
    }

    fn new(action: Result<Action, Vec<Finding>>) -> Self {
        let (action, findings) = match action {
            Ok(action) => (Some(action), Vec::new()),
            Err(findings) => (None, findings),
        };
        Self {
            action,
            ok: Vec::new(),
            fail: Vec::new(),
            timeout: None,
            retry: None,
            in_doubt: None,
            findings,
        }
    }

    /// The template of the payload: of a command, an effect, a saga's first event, or what a person sees.
    #[must_use]
    pub fn data(self, template: Value) -> Self {
        self.set("data", |action, _| match action {
            Action::Command { data, .. } | Action::Effect { data, .. } | Action::Saga { data, .. } => {
                *data = template;
                true
            }
            Action::Human(human) => {
                human.data = template;
                true
            }
            Action::Wait(_) | Action::Event { .. } | Action::Job(_) | Action::Switch(_) => false,
        })
    }

    /// The template of the aggregate's id; without it the correlation id.
    #[must_use]
    pub fn id(self, template: Value) -> Self {
        self.set("id", |action, _| {
            let Action::Command { id, .. } = action else { return false };
            *id = Some(template);
            true
        })
    }

    /// The awaited event counts only if this holds.
    #[must_use]
    pub fn when(self, condition: &str) -> Self {
        self.set("when", |action, _| {
            let Action::Event { when, .. } = action else { return false };
            *when = Some(condition.to_owned());
            true
        })
    }

    /// The template of the other saga's correlation id.
    #[must_use]
    pub fn correlation(self, template: Value) -> Self {
        self.set("correlation", |action, _| {
            let Action::Saga { correlation, .. } = action else { return false };
            *correlation = Some(template);
            true
        })
    }

    /// The event that begins the other saga; its first start event without this.
    #[must_use]
    pub fn begun_by(self, name: &str) -> Self {
        self.set("event", |action, findings| {
            let Action::Saga { event, .. } = action else { return false };
            *event = keep(EventType::new(name), "event", findings);
            true
        })
    }

    /// A way of the switch: taken if the condition holds and none before did.
    #[must_use]
    pub fn case(self, condition: &str, then: &[&str]) -> Self {
        self.way(Some(condition.to_owned()), then)
    }

    /// The way of the switch when no condition holds.
    #[must_use]
    pub fn otherwise(self, then: &[&str]) -> Self {
        self.way(None, then)
    }

    fn way(self, when: Option<String>, then: &[&str]) -> Self {
        self.set("switch", |action, findings| {
            let Action::Switch(cases) = action else { return false };
            cases.push(Case { when, then: steps(then, "switch", findings) });
            true
        })
    }

    /// A role, a template, whose holders may take the task.
    #[must_use]
    pub fn role(self, template: &str) -> Self {
        self.set_human("roles", |human| human.roles.push(Value::from(template)))
    }

    /// The template of who is to do the task.
    #[must_use]
    pub fn assignee(self, template: &str) -> Self {
        self.set_human("assignee", |human| human.assignee = Some(Value::from(template)))
    }

    /// When the task should be done, from its opening.
    #[must_use]
    pub fn due(self, time: Duration) -> Self {
        self.set_human("due", |human| human.due = Some(Moment::For(Value::from(written(time)))))
    }

    /// The template of the time at which the task should be done.
    #[must_use]
    pub fn due_at(self, template: Value) -> Self {
        self.set_human("due", |human| human.due = Some(Moment::Until(template)))
    }

    /// To whom the task goes when nobody has done it.
    #[must_use]
    pub fn escalate(self, escalation: Escalation) -> Self {
        self.set_human("escalate", |human| human.escalate = Some(escalation))
    }

    /// A template of the job's environment.
    #[must_use]
    pub fn env(self, name: &str, template: Value) -> Self {
        self.set_job("env", |job, _| drop(job.env.insert(name.to_owned(), template)))
    }

    /// The template of the job's arguments.
    #[must_use]
    pub fn args(self, template: Value) -> Self {
        self.set_job("args", |job, _| job.args = template)
    }

    /// Steps that must be over before the job.
    #[must_use]
    pub fn prerequisites(self, ids: &[&str]) -> Self {
        self.set_job("prerequisites", |job, findings| {
            job.prerequisites = steps(ids, "job.prerequisites", findings);
        })
    }

    /// Jobs that must be over before the job, and whose results it is given.
    #[must_use]
    pub fn dependencies(self, ids: &[&str]) -> Self {
        self.set_job("dependencies", |job, findings| {
            job.dependencies = steps(ids, "job.dependencies", findings);
        })
    }

    /// The event that means success.
    #[must_use]
    pub fn confirmed_by(mut self, event: &str) -> Self {
        self.ok.extend(answer(event, None, "ok", &mut self.findings));
        self
    }

    /// An event that means failure.
    #[must_use]
    pub fn refused_by(mut self, event: &str) -> Self {
        self.fail.extend(answer(event, None, "fail", &mut self.findings));
        self
    }

    /// The time allowed for the answer.
    #[must_use]
    pub fn within(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// How often it is asked for.
    #[must_use]
    pub fn retry(mut self, retry: Retry) -> Self {
        self.retry = Some(retry);
        self
    }

    /// What happens when nobody knows whether it was done.
    #[must_use]
    pub fn in_doubt(mut self, in_doubt: InDoubt) -> Self {
        self.in_doubt = Some(in_doubt);
        self
    }

    /// The action at its place: its own mistakes are reported there.
    pub(super) fn placed(mut self, path: &str, findings: &mut Vec<Finding>) -> (Option<Action>, Self) {
        findings.extend(std::mem::take(&mut self.findings).into_iter().map(|finding| {
            let path =
                if finding.path.is_empty() { path.to_owned() } else { format!("{path}.{}", finding.path) };
            Finding { path, ..finding }
        }));
        (self.action.take(), self)
    }

    fn set_human(self, field: &str, set: impl FnOnce(&mut Human)) -> Self {
        self.set(field, |action, _| {
            let Action::Human(human) = action else { return false };
            set(human);
            true
        })
    }

    fn set_job(self, field: &str, set: impl FnOnce(&mut Job, &mut Vec<Finding>)) -> Self {
        self.set(field, |action, findings| {
            let Action::Job(job) = action else { return false };
            set(job, findings);
            true
        })
    }

    /// Changes the action, or reports that its kind has no such field.
    fn set(mut self, field: &str, set: impl FnOnce(&mut Action, &mut Vec<Finding>) -> bool) -> Self {
        let Some(action) = &mut self.action else { return self };
        if !set(action, &mut self.findings) {
            let message = format!("this kind of action has no `{field}`");
            self.findings.push(Finding::new(field, message));
        }
        self
    }
}

/// A duration as the language writes it.
fn written(time: Duration) -> String {
    format!("{}ms", time.as_millis())
}
