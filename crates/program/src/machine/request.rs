//! Asks for the action of a step, or for its undo: work, a task, a child, or only a time to wait for.

use orlog_model::{
    Command, Confirmation, CorrelationId, Effect, Name, Start, TaskChange, TimerChange, Timestamp, Work,
};
use serde_json::{Map, Value, json};

use super::compensate::LOST;
use super::compiled::{Call, ESCALATE, Job, Task};
use super::execution::Run;
use super::human_task::Opened;
use super::state::{At, Slot};
use super::step_state::Mark;
use super::timers::prefixed;
use super::values::{checked, identifier, payload, wrong};
use crate::expression::{Bindings, EvalError};
use crate::template::Template;

/// What asking comes to.
enum Asked {
    Work(Box<Work>),
    Task(Box<Opened>),
    Until(Timestamp),
    Nothing,
}

impl Run<'_> {
    /// Asks for the action there or for its undo; arms the timer where there is a limit.
    pub(super) fn ask(&mut self, at: At, undo: bool) -> Result<(), EvalError> {
        let task = self.task(at, undo);
        let tag = self.tag(at, undo);
        let asked = self.request(at, undo, task, &tag)?;
        let mut until = task.timeout.map(|timeout| self.context.now.after(timeout));
        match asked {
            Asked::Work(work) => {
                if let Work::Start(start) = &*work {
                    let child = (tag.clone(), start.correlation.clone());
                    self.state.extra_mut().children.push(child);
                }
                self.work.push(*work);
            }
            Asked::Task(opened) => {
                if let Some(due) = opened.escalates {
                    self.state.extra_mut().escalations.push((tag.clone(), due));
                    self.timers.push(TimerChange::Arm { name: prefixed(ESCALATE, &tag), due });
                }
                self.tasks.push(TaskChange::Open(opened.form));
            }
            Asked::Until(due) => until = Some(due),
            Asked::Nothing => {}
        }
        self.timers.extend(until.map(|due| TimerChange::Arm { name: tag, due }));
        let slot = self.state.slot_mut(at);
        let mark = if undo { Mark::Undoing } else { Mark::Open };
        *slot = Slot { mark, until, again: slot.again };
        Ok(())
    }

    fn request(&self, at: At, undo: bool, task: &Task, tag: &Name) -> Result<Asked, EvalError> {
        let mut bindings = self.bindings(at);
        if undo && self.state.cause.is_none() {
            bindings = bindings.cause(Some(&LOST));
        }
        Ok(match &task.call {
            Call::Command { .. } | Call::Effect { .. } | Call::Job(_) => {
                let id = &self.step(at).id;
                Asked::Work(Box::new(self.work_of(id, task, tag.clone(), &bindings)?))
            }
            Call::Wait(moment) => Asked::Until(moment.due(self.context.now, &bindings)?),
            Call::Human(human) => Asked::Task(Box::new(self.open(human, task, tag, &bindings)?)),
            Call::Saga { saga, correlation, event, data } => Asked::Work(Box::new(Work::Start(Start {
                tag: tag.clone(),
                saga: saga.clone(),
                correlation: self.child(at, correlation.as_ref(), tag, &bindings)?,
                event: event.clone(),
                data: payload(data, tag, &bindings)?,
            }))),
            Call::Event | Call::Switch(_) => Asked::Nothing,
        })
    }

    /// A command, an effect or a job.
    pub(super) fn work_of(
        &self,
        step: &Name,
        task: &Task,
        tag: Name,
        bindings: &Bindings<'_>,
    ) -> Result<Work, EvalError> {
        Ok(match &task.call {
            Call::Command { aggregate_type, name, id, data } => Work::Command(Command {
                aggregate_type: aggregate_type.clone(),
                aggregate_id: self.aggregate_id(id.as_ref(), bindings)?,
                name: name.clone(),
                payload: payload(data, &tag, bindings)?,
                confirmation: confirmation(task),
                timeout: task.timeout,
                tag,
            }),
            Call::Job(job) => Work::Effect(Effect {
                name: job.effect.clone(),
                payload: self.job(step, job, &tag, bindings)?,
                timeout: task.timeout,
                retry: task.retry,
                in_doubt: task.in_doubt,
                tag,
            }),
            Call::Effect { name, data } => Work::Effect(Effect {
                name: name.clone(),
                payload: payload(data, &tag, bindings)?,
                timeout: task.timeout,
                retry: task.retry,
                in_doubt: task.in_doubt,
                tag,
            }),
            Call::Wait(_) | Call::Event | Call::Human(_) | Call::Saga { .. } | Call::Switch(_) => {
                unreachable!("only commands, effects and jobs are work of this kind")
            }
        })
    }

    fn aggregate_id(&self, id: Option<&Template>, bindings: &Bindings<'_>) -> Result<String, EvalError> {
        let Some(id) = id else { return Ok(self.context.key.correlation.to_string()) };
        identifier("an aggregate's id", &id.evaluate(bindings)?)
    }

    /// The correlation id of a child: what the definition says, or this instance's and the tag. A child that is begun again
    /// after a person's decision needs another one.
    fn child(
        &self,
        at: At,
        template: Option<&Template>,
        tag: &Name,
        bindings: &Bindings<'_>,
    ) -> Result<CorrelationId, EvalError> {
        let text = match (template, self.state.slot(at).again) {
            (Some(template), _) => identifier("a correlation id", &template.evaluate(bindings)?)?,
            (None, 0) => format!("{}:{tag}", self.context.key.correlation),
            (None, again) => format!("{}:{tag}:{}", self.context.key.correlation, again.saturating_add(1)),
        };
        CorrelationId::new(text).map_err(|error| wrong("correlation", error.to_string()))
    }

    /// What a worker needs to run a script: the saga's environment under its own, and what the jobs it depends on gave.
    fn job(&self, step: &Name, job: &Job, tag: &Name, bindings: &Bindings<'_>) -> Result<Value, EvalError> {
        let mut env = Map::new();
        for (name, template) in self.saga.env.iter().chain(&job.env) {
            env.insert(name.clone(), template.evaluate(bindings)?);
        }
        let given = |id: &Name| self.state.results().and_then(|results| results.get(id.as_str())).cloned();
        let results: Map<_, _> =
            job.dependencies.iter().map(|id| (id.to_string(), given(id).unwrap_or(Value::Null))).collect();
        let payload = json!({
            "job": step.as_str(),
            "type": job.kind.as_str(),
            "script": job.script,
            "env": env,
            "args": job.args.evaluate(bindings)?,
            "results": results,
        });
        checked(payload, tag)
    }
}

fn confirmation(task: &Task) -> Confirmation {
    if task.awaits_event() { Confirmation::RefusalOnly } else { Confirmation::Acceptance }
}
