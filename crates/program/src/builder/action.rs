//! Builder of the action of a step or of its compensation.

use std::time::Duration;

use orlog_model::{
    EffectName, EventType, ExcludedUser, InDoubtPolicy, Name, ParentEndPolicy, SagaName,
};
use serde_json::Value;

use super::names::{matcher, parse_name, steps};
use crate::definition::ResultMatcher;
use crate::diagnostic::RawDiagnostic;
use crate::steps::{
    Action, ChildSagaAction, CommandAction, EffectAction, Escalation, HumanTask, JobAction,
    OnMaxRounds, RepeatAction, RestartAction, RetrySpec, SwitchCase, TimeLimit, TimeSpec,
};

/// Action of a step or of its compensation, with its result options.
#[derive(Clone, Debug)]
pub struct StepAction {
    /// The action; `None` if its name is invalid.
    pub(super) action: Option<Action>,
    pub(super) ok: Vec<ResultMatcher>,
    pub(super) fail: Vec<ResultMatcher>,
    pub(super) timeout: Option<TimeLimit>,
    pub(super) retry: Option<RetrySpec>,
    pub(super) in_doubt: Option<InDoubtPolicy>,
    pub(super) priority: Option<String>,
    /// Diagnostics, located by the path within the action.
    pub(super) findings: Vec<RawDiagnostic>,
}

impl StepAction {
    /// Creates a command, written as `aggregate.Command`.
    #[must_use]
    pub fn command(name: &str) -> Self {
        Self::new(
            CommandAction::new(name)
                .map(Action::Command)
                .map_err(|finding| vec![finding]),
        )
    }

    /// Creates an effect.
    #[must_use]
    pub fn effect(name: &str) -> Self {
        Self::named(EffectName::new(name), |name| {
            Action::Effect(EffectAction::new(name))
        })
    }

    /// Creates a wait of this duration.
    #[must_use]
    pub fn wait(time: Duration) -> Self {
        Self::new(Ok(Action::Wait(TimeSpec::after(time))))
    }

    /// Creates a wait whose duration is a template for a text such as `30m`.
    #[must_use]
    pub fn wait_for(template: Value) -> Self {
        Self::new(Ok(Action::Wait(TimeSpec::For(template))))
    }

    /// Creates a wait until a time: a template for RFC 3339 text or whole milliseconds since 1970.
    #[must_use]
    pub fn wait_until(template: Value) -> Self {
        Self::new(Ok(Action::Wait(TimeSpec::Until(template))))
    }

    /// Creates a human task; the title is a template.
    #[must_use]
    pub fn human_task(title: &str) -> Self {
        Self::new(Ok(Action::Human(HumanTask::new(title))))
    }

    /// Creates a child saga, which runs to its end.
    #[must_use]
    pub fn child_saga(name: &str) -> Self {
        Self::named(SagaName::new(name), |saga| {
            Action::Saga(ChildSagaAction {
                saga,
                correlation: None,
                event: None,
                data: Value::Null,
                on_parent_end: None,
            })
        })
    }

    /// Creates a job: a script of this type, which a worker runs.
    #[must_use]
    pub fn job(kind: &str, script: &str) -> Self {
        Self::named(Name::new(kind), |kind| {
            Action::Job(JobAction::new(kind, script))
        })
    }

    /// Creates a switch; add its cases with [`StepAction::case`] and [`StepAction::otherwise`].
    #[must_use]
    pub fn switch() -> Self {
        Self::new(Ok(Action::Switch(Vec::new())))
    }

    /// Creates the end of a loop: repeats the steps from `first` up to this step while the
    /// condition holds, in at most `max` rounds.
    #[must_use]
    pub fn repeat_while(first: &[&str], condition: &str, max: u32) -> Self {
        Self::repeat(first, max, |repeat| {
            repeat.while_holds = Some(condition.to_owned());
        })
    }

    /// Creates the end of a loop: repeats the steps from `first` up to this step until the
    /// condition holds, in at most `max` rounds.
    #[must_use]
    pub fn repeat_until(first: &[&str], condition: &str, max: u32) -> Self {
        Self::repeat(first, max, |repeat| {
            repeat.until_holds = Some(condition.to_owned());
        })
    }

    fn repeat(first: &[&str], max: u32, set: impl FnOnce(&mut RepeatAction)) -> Self {
        let mut findings = Vec::new();
        let from = steps(first, "repeat", &mut findings);
        let on_max = OnMaxRounds::default();
        let mut repeat = RepeatAction {
            from,
            while_holds: None,
            until_holds: None,
            max,
            on_max,
        };

        set(&mut repeat);
        Self {
            findings,
            ..Self::new(Ok(Action::Repeat(repeat)))
        }
    }

    /// Creates a restart: ends the run and begins a new one with this start event; add its data
    /// with [`StepAction::data`].
    #[must_use]
    pub fn restart_as_new(start_event: &str) -> Self {
        Self::named(EventType::new(start_event), |event| {
            Action::Restart(RestartAction {
                event,
                data: Value::Null,
            })
        })
    }

    fn named<T>(name: Result<T, orlog_model::IdError>, action: impl FnOnce(T) -> Action) -> Self {
        Self::new(
            name.map(action)
                .map_err(|error| vec![RawDiagnostic::new("", error.to_string())]),
        )
    }

    pub(super) fn new(action: Result<Action, Vec<RawDiagnostic>>) -> Self {
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
            priority: None,
            findings,
        }
    }

    /// Sets the payload template: of a command, an effect, the start event of a child saga, or the
    /// displayed data of a human task.
    #[must_use]
    pub fn data(self, template: Value) -> Self {
        self.set("data", |action, _| {
            let Some(data) = action.kind_mut().data_mut() else {
                return false;
            };
            *data = template;
            true
        })
    }

    /// Sets the template of the aggregate id. Default: the correlation id.
    #[must_use]
    pub fn id(self, template: Value) -> Self {
        self.set("id", |action, _| {
            let Action::Command(command) = action else {
                return false;
            };
            command.id = Some(template);
            true
        })
    }

    /// Sets the condition that the awaited event must meet.
    #[must_use]
    pub fn when(self, condition: &str) -> Self {
        self.set("when", |action, _| {
            let Action::Event(event) = action else {
                return false;
            };
            event.when = Some(condition.to_owned());
            true
        })
    }

    /// Sets the template of the correlation id of the child saga.
    #[must_use]
    pub fn correlation(self, template: Value) -> Self {
        self.set("correlation", |action, _| {
            let Action::Saga(child) = action else {
                return false;
            };
            child.correlation = Some(template);
            true
        })
    }

    /// Sets the start event of the child saga. Default: its first start event.
    #[must_use]
    pub fn start_event(self, name: &str) -> Self {
        self.set("event", |action, findings| {
            let Action::Saga(child) = action else {
                return false;
            };
            child.event = parse_name(EventType::new(name), "event", findings);
            true
        })
    }

    /// Sets the policy for the child saga if this saga no longer awaits it. Default: it is
    /// cancelled.
    #[must_use]
    pub fn on_parent_end(self, policy: ParentEndPolicy) -> Self {
        self.set("on_parent_end", |action, _| {
            let Action::Saga(child) = action else {
                return false;
            };
            child.on_parent_end = Some(policy);
            true
        })
    }

    /// Adds a case to the switch: selected if the condition holds and no earlier case matched.
    #[must_use]
    pub fn case(self, condition: &str, then: &[&str]) -> Self {
        self.add_case(Some(condition.to_owned()), then)
    }

    /// Sets the default case of the switch, selected if no condition holds.
    #[must_use]
    pub fn otherwise(self, then: &[&str]) -> Self {
        self.add_case(None, then)
    }

    fn add_case(self, when: Option<String>, then: &[&str]) -> Self {
        self.set("switch", |action, findings| {
            let Action::Switch(cases) = action else {
                return false;
            };
            cases.push(SwitchCase {
                when,
                then: steps(then, "switch", findings),
            });
            true
        })
    }

    /// Sets what follows if another round of the loop is due after the maximum number of rounds.
    #[must_use]
    pub fn on_max(self, on_max: OnMaxRounds) -> Self {
        self.set("on_max", |action, _| {
            let Action::Repeat(repeat) = action else {
                return false;
            };
            repeat.on_max = on_max;
            true
        })
    }

    /// Adds a role template; users with the role may claim the task.
    #[must_use]
    pub fn role(self, template: &str) -> Self {
        self.set_human("roles", |human| human.roles.push(Value::from(template)))
    }

    /// Excludes a user, who can neither claim, be assigned, nor complete the task.
    #[must_use]
    pub fn not_by(self, user: ExcludedUser) -> Self {
        self.set_human("not_by", |human| human.not_by.push(user))
    }

    /// Sets the template of the assignee.
    #[must_use]
    pub fn assignee(self, template: &str) -> Self {
        self.set_human("assignee", |human| {
            human.assignee = Some(Value::from(template));
        })
    }

    /// Sets the due time of the task, relative to its opening.
    #[must_use]
    pub fn due(self, time: Duration) -> Self {
        self.set_human("due", |human| human.due = Some(TimeSpec::after(time)))
    }

    /// Sets the template of the due time of the task.
    #[must_use]
    pub fn due_at(self, template: Value) -> Self {
        self.set_human("due", |human| human.due = Some(TimeSpec::Until(template)))
    }

    /// Sets the escalation of the task.
    #[must_use]
    pub fn escalate(self, escalation: Escalation) -> Self {
        self.set_human("escalate", |human| human.escalate = Some(escalation))
    }

    /// Adds a template to the environment of the job.
    #[must_use]
    pub fn env(self, name: &str, template: Value) -> Self {
        self.set_job("env", |job, _| {
            drop(job.env.insert(name.to_owned(), template));
        })
    }

    /// Sets the template of the arguments of the job.
    #[must_use]
    pub fn args(self, template: Value) -> Self {
        self.set_job("args", |job, _| job.args = template)
    }

    /// Sets the steps that must be finished before the job.
    #[must_use]
    pub fn prerequisites(self, ids: &[&str]) -> Self {
        self.set_job("prerequisites", |job, findings| {
            job.prerequisites = steps(ids, "job.prerequisites", findings);
        })
    }

    /// Sets the jobs that must be finished before the job and whose results it receives.
    #[must_use]
    pub fn dependencies(self, ids: &[&str]) -> Self {
        self.set_job("dependencies", |job, findings| {
            job.dependencies = steps(ids, "job.dependencies", findings);
        })
    }

    /// Adds an event that means success.
    #[must_use]
    pub fn ok(mut self, event: &str) -> Self {
        self.ok
            .extend(matcher(event, None, "ok", &mut self.findings));
        self
    }

    /// Adds an event that means failure.
    #[must_use]
    pub fn fail(mut self, event: &str) -> Self {
        self.fail
            .extend(matcher(event, None, "fail", &mut self.findings));
        self
    }

    /// Sets the timeout for the result: a duration, or an expression such as `"=vars.limit"`.
    #[must_use]
    pub fn timeout(mut self, timeout: impl Into<TimeLimit>) -> Self {
        self.timeout = Some(timeout.into());
        self
    }

    /// Sets the retry policy.
    #[must_use]
    pub fn retry(mut self, retry: impl Into<RetrySpec>) -> Self {
        self.retry = Some(retry.into());
        self
    }

    /// Sets the policy for an unknown outcome.
    #[must_use]
    pub fn in_doubt(mut self, in_doubt: InDoubtPolicy) -> Self {
        self.in_doubt = Some(in_doubt);
        self
    }

    /// Sets the priority: `high`, `normal`, `low`, or an expression that starts with `=`.
    #[must_use]
    pub fn priority(mut self, priority: &str) -> Self {
        self.priority = Some(priority.to_owned());
        self
    }

    /// Returns the action and reports its diagnostics under this path.
    pub(super) fn placed(
        mut self,
        path: &str,
        findings: &mut Vec<RawDiagnostic>,
    ) -> (Option<Action>, Self) {
        findings.extend(
            std::mem::take(&mut self.findings)
                .into_iter()
                .map(|finding| {
                    let path = if finding.path.is_empty() {
                        path.to_owned()
                    } else {
                        format!("{path}.{}", finding.path)
                    };
                    RawDiagnostic { path, ..finding }
                }),
        );
        (self.action.take(), self)
    }

    fn set_human(self, field: &str, set: impl FnOnce(&mut HumanTask)) -> Self {
        self.set(field, |action, _| {
            let Action::Human(human) = action else {
                return false;
            };
            set(human);
            true
        })
    }

    fn set_job(
        self,
        field: &str,
        set: impl FnOnce(&mut JobAction, &mut Vec<RawDiagnostic>),
    ) -> Self {
        self.set(field, |action, findings| {
            let Action::Job(job) = action else {
                return false;
            };
            set(job, findings);
            true
        })
    }

    /// Changes the action, or reports that its kind has no such field.
    pub(super) fn set(
        mut self,
        field: &str,
        set: impl FnOnce(&mut Action, &mut Vec<RawDiagnostic>) -> bool,
    ) -> Self {
        let Some(action) = &mut self.action else {
            return self;
        };
        if !set(action, &mut self.findings) {
            let message = format!("this kind of action has no `{field}`");
            self.findings.push(RawDiagnostic::new(field, message));
        }
        self
    }
}
