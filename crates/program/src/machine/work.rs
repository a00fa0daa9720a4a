//! What a transition asks of the world, and what the instance then waits for.

use orlog_model::{Command, Confirmation, Effect, Name, TimerChange, Timestamp, Wait, WaitKind, Work};
use serde_json::Value;

use super::run::Run;
use super::saga::{Call, Fact, Task};
use super::state::{Mark, Phase, Slot};
use crate::expression::{Bindings, EvalError};
use crate::limits::check_payload;
use crate::program::Fault;
use crate::template::Template;

impl Run<'_> {
    /// Asks for the action of a step or for its undo; arms the timer where there is a limit.
    pub(super) fn ask(&mut self, index: usize, task: &Task, mark: Mark) -> Result<(), EvalError> {
        let work = self.work_of(task)?;
        let until = task.timeout.map(|timeout| self.context.now.after(timeout));
        self.work.push(work);
        self.timers.extend(until.map(|due| TimerChange::Arm { name: task.tag.clone(), due }));
        self.state.steps[index] = Slot { mark, until };
        Ok(())
    }

    /// The wait for a step or for its undo is over, with that mark.
    pub(super) fn close(&mut self, index: usize, mark: Mark) {
        let step = &self.saga.steps[index];
        let slot = &mut self.state.steps[index];
        let undoing = matches!(slot.mark, Mark::Undoing | Mark::UndoFailed);
        let armed = slot.until.take().is_some();
        slot.mark = mark;
        let task = if undoing { step.undo.as_ref() } else { Some(&step.task) };
        if let Some(task) = task.filter(|_| armed) {
            self.disarm(task.tag.clone());
        }
    }

    fn work_of(&self, task: &Task) -> Result<Work, EvalError> {
        let bindings =
            Bindings::new(self.context.key).vars(&self.state.vars).cause(self.state.cause.as_ref());
        let payload = task.data.evaluate(&bindings)?;
        if let Err(large) = check_payload(&payload) {
            return Err(EvalError {
                expression: task.tag.to_string(),
                reason: format!("its payload: {large}"),
            });
        }
        Ok(match &task.call {
            Call::Command { aggregate_type, name, id } => Work::Command(Command {
                tag: task.tag.clone(),
                aggregate_type: aggregate_type.clone(),
                aggregate_id: self.aggregate_id(id.as_ref(), &bindings)?,
                name: name.clone(),
                payload,
                confirmation: confirmation(task),
                timeout: task.timeout,
            }),
            Call::Effect { name, retry } => Work::Effect(Effect {
                tag: task.tag.clone(),
                name: name.clone(),
                payload,
                timeout: task.timeout,
                retry: *retry,
            }),
        })
    }

    fn aggregate_id(&self, id: Option<&Template>, bindings: &Bindings<'_>) -> Result<String, EvalError> {
        let Some(id) = id else { return Ok(self.context.key.correlation.to_string()) };
        match id.evaluate(bindings)? {
            Value::String(text) if !text.is_empty() => Ok(text),
            Value::Number(number) => Ok(number.to_string()),
            other => {
                let reason = format!(
                    "an aggregate's id is a text or a number, this is {}",
                    crate::expression::kind_of(&other)
                );
                Err(EvalError { expression: "id".to_owned(), reason })
            }
        }
    }

    /// Emits a fact about the whole saga.
    pub(super) fn tell(&mut self, fact: Option<&Fact>) -> Result<(), Fault> {
        self.state.told = true;
        let Some(fact) = fact else { return Ok(()) };
        let bindings =
            Bindings::new(self.context.key).vars(&self.state.vars).cause(self.state.cause.as_ref());
        let wrong = |why: String| Fault::Program(format!("the fact {}: {why}", fact.kind));
        let data = fact.data.evaluate(&bindings).map_err(|error| wrong(error.to_string()))?;
        check_payload(&data).map_err(|large| wrong(large.to_string()))?;
        self.work.push(Work::Fact(orlog_model::Fact { kind: fact.kind.clone(), data }));
        Ok(())
    }

    /// What the business calls the instance; nothing while the expression has no value.
    pub(super) fn reference(&self) -> Option<String> {
        let bindings = Bindings::new(self.context.key).vars(&self.state.vars);
        match self.saga.reference.as_ref()?.evaluate(&bindings).ok()? {
            Value::String(text) => Some(text),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// What must happen before it goes on, in the order of the definition.
    pub(super) fn waits(&self) -> Vec<Wait> {
        let mut waits = Vec::new();
        for (slot, step) in self.state.steps.iter().zip(&self.saga.steps) {
            match (slot.mark, &step.undo) {
                (Mark::Open, _) => wait_for(&step.task, slot.until, &mut waits),
                (Mark::Undoing, Some(undo)) => wait_for(undo, slot.until, &mut waits),
                (Mark::UndoFailed, Some(undo)) if self.state.phase == Phase::Stuck => {
                    waits.push(wait(WaitKind::Operator, &undo.tag, None));
                }
                (
                    Mark::Waiting
                    | Mark::Skipped
                    | Mark::Done
                    | Mark::Failed
                    | Mark::GivenUp
                    | Mark::Undoing
                    | Mark::UndoFailed
                    | Mark::Undone,
                    _,
                ) => {}
            }
        }
        waits
    }
}

fn confirmation(task: &Task) -> Confirmation {
    if task.awaits_event() { Confirmation::RefusalOnly } else { Confirmation::Acceptance }
}

fn wait_for(task: &Task, until: Option<Timestamp>, waits: &mut Vec<Wait>) {
    if !task.awaits_event() {
        return waits.push(wait(WaitKind::Outcome, &task.tag, until));
    }
    for kind in task.ok.iter().chain(&task.fail) {
        let name = Name::new(kind.as_str()).expect("an event type is shorter than a name may be");
        waits.push(wait(WaitKind::Event, &name, until));
    }
}

fn wait(kind: WaitKind, name: &Name, until: Option<Timestamp>) -> Wait {
    Wait { kind, name: name.clone(), until }
}
