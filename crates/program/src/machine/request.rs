//! Requests the action of a step or of its compensation: work, a human task, a child saga, or a wait.

use orlog_model::{
    Command, Confirmation, CorrelationId, Effect, Name, StartChild, TaskChange, TimerChange, Timestamp, Work,
};
use serde_json::{Map, Value, json};

use super::compensate::RACE_LOST;
use super::compiled::{CompiledAction, CompiledActionKind, CompiledJob, ESCALATE};
use super::human_task::OpenedTask;
use super::state::{StepEntry, StepIndex};
use super::step_state::StepState;
use super::timers::prefixed_name;
use super::transition::Execution;
use super::values::{checked, eval_error, identifier, payload};
use crate::expression::{Bindings, EvalError};
use crate::template::Template;

/// Result of an action request.
enum ActionRequest {
    Work(Box<Work>),
    Task(Box<OpenedTask>),
    Until(Timestamp),
    Nothing,
}

impl Execution<'_> {
    /// Requests the action of a step or of its compensation; arms the timer if there is a limit.
    pub(super) fn request_action(&mut self, at: StepIndex, is_compensation: bool) -> Result<(), EvalError> {
        let action = self.action_of(at, is_compensation);
        let tag = self.tag_of(at, is_compensation);
        let request = self.request(at, is_compensation, action, &tag)?;
        let mut until = action.timeout.map(|timeout| self.context.now.saturating_add(timeout));
        match request {
            ActionRequest::Work(work) => {
                if let Work::StartChild(start) = &*work {
                    let child = (tag.clone(), start.correlation.clone());
                    self.state.extra_mut().children.push(child);
                }
                self.work.push(*work);
            }
            ActionRequest::Task(opened) => {
                if let Some(due) = opened.escalates {
                    self.state.extra_mut().escalations.push((tag.clone(), due));
                    self.timers.push(TimerChange::Arm { name: prefixed_name(ESCALATE, &tag), due });
                }
                self.tasks.push(TaskChange::Open(opened.spec));
            }
            ActionRequest::Until(due) => until = Some(due),
            ActionRequest::Nothing => {}
        }
        self.timers.extend(until.map(|due| TimerChange::Arm { name: tag, due }));
        let entry = self.state.entry_mut(at);
        let step_state = if is_compensation { StepState::Compensating } else { StepState::Running };
        *entry = StepEntry { state: step_state, deadline: until, retries: entry.retries };
        Ok(())
    }

    fn request(
        &self,
        at: StepIndex,
        is_compensation: bool,
        action: &CompiledAction,
        tag: &Name,
    ) -> Result<ActionRequest, EvalError> {
        let mut bindings = self.bindings(at);
        if is_compensation && self.state.cause.is_none() {
            bindings = bindings.cause(Some(&RACE_LOST));
        }
        Ok(match &action.kind {
            CompiledActionKind::Command { .. }
            | CompiledActionKind::Effect { .. }
            | CompiledActionKind::Job(_) => {
                let id = &self.step(at).id;
                ActionRequest::Work(Box::new(self.work_of(
                    id,
                    action,
                    (tag.clone(), self.state.round(tag)),
                    &bindings,
                )?))
            }
            CompiledActionKind::Wait(time) => ActionRequest::Until(time.due(self.context.now, &bindings)?),
            CompiledActionKind::Human(human) => {
                ActionRequest::Task(Box::new(self.open_task(human, action, tag, &bindings)?))
            }
            CompiledActionKind::Saga { saga, correlation, event, data } => {
                ActionRequest::Work(Box::new(Work::StartChild(StartChild {
                    tag: tag.clone(),
                    round: self.state.round(tag),
                    saga: saga.clone(),
                    correlation: self.child(at, correlation.as_ref(), tag, &bindings)?,
                    event: event.clone(),
                    data: payload(data, tag, &bindings)?,
                })))
            }
            CompiledActionKind::Event | CompiledActionKind::Switch(_) => ActionRequest::Nothing,
        })
    }

    /// Creates the work of a command, an effect or a job.
    pub(super) fn work_of(
        &self,
        step: &Name,
        action: &CompiledAction,
        (tag, round): (Name, u64),
        bindings: &Bindings<'_>,
    ) -> Result<Work, EvalError> {
        Ok(match &action.kind {
            CompiledActionKind::Command { aggregate_type, name, id, data } => Work::Command(Command {
                aggregate_type: aggregate_type.clone(),
                aggregate_id: self.aggregate_id(id.as_ref(), bindings)?,
                name: name.clone(),
                payload: payload(data, &tag, bindings)?,
                confirmation: confirmation(action),
                timeout: action.timeout,
                tag,
                round,
            }),
            CompiledActionKind::Job(job) => Work::Effect(Effect {
                name: job.effect.clone(),
                payload: self.job(step, job, &tag, bindings)?,
                timeout: action.timeout,
                retry: action.retry,
                in_doubt: action.in_doubt,
                tag,
                round,
            }),
            CompiledActionKind::Effect { name, data } => Work::Effect(Effect {
                name: name.clone(),
                payload: payload(data, &tag, bindings)?,
                timeout: action.timeout,
                retry: action.retry,
                in_doubt: action.in_doubt,
                tag,
                round,
            }),
            CompiledActionKind::Wait(_)
            | CompiledActionKind::Event
            | CompiledActionKind::Human(_)
            | CompiledActionKind::Saga { .. }
            | CompiledActionKind::Switch(_) => {
                unreachable!("only commands, effects and jobs are work of this kind")
            }
        })
    }

    fn aggregate_id(&self, id: Option<&Template>, bindings: &Bindings<'_>) -> Result<String, EvalError> {
        let Some(id) = id else { return Ok(self.context.key.correlation.to_string()) };
        identifier("an aggregate id", &id.evaluate(bindings)?)
    }

    /// Creates a child saga. Its correlation id is that of the definition, or that of this instance and the
    /// tag. A child that is restarted after an operator decision requires another id.
    fn child(
        &self,
        at: StepIndex,
        template: Option<&Template>,
        tag: &Name,
        bindings: &Bindings<'_>,
    ) -> Result<CorrelationId, EvalError> {
        let parent = &self.context.key.correlation;
        let id = match (template, self.state.entry(at).retries) {
            (Some(template), _) => {
                CorrelationId::for_path(identifier("a correlation id", &template.evaluate(bindings)?)?)
            }
            // The parent may have an id that only stored instances have.
            (None, 0) => CorrelationId::new(format!("{parent}:{tag}")),
            (None, retries) => CorrelationId::new(format!("{parent}:{tag}:{}", retries.saturating_add(1))),
        };
        id.map_err(|error| eval_error("correlation", error.to_string()))
    }

    /// Creates the payload of a job: the merged environments of the saga and the job, and the results of
    /// its dependencies.
    fn job(
        &self,
        step: &Name,
        job: &CompiledJob,
        tag: &Name,
        bindings: &Bindings<'_>,
    ) -> Result<Value, EvalError> {
        let mut env = Map::new();
        for (name, template) in self.saga.env.iter().chain(&job.env) {
            env.insert(name.clone(), template.evaluate(bindings)?);
        }
        let result_of =
            |id: &Name| self.state.results().and_then(|results| results.get(id.as_str())).cloned();
        let results: Map<_, _> = job
            .dependencies
            .iter()
            .map(|id| (id.to_string(), result_of(id).unwrap_or(Value::Null)))
            .collect();
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

fn confirmation(action: &CompiledAction) -> Confirmation {
    if action.awaits_event() { Confirmation::RejectionOnly } else { Confirmation::Acceptance }
}
