//! One transition in the making: the state, and what must happen because of it.

use orlog_model::{Failure, Name, TimerChange, Transition, Work};
use serde_json::Value;

use super::answer::{self, Reading};
use super::saga::{SAGA_TIMER, Saga, Step};
use super::state::{Mark, Phase, State};
use super::table::{self, Move};
use crate::cause::Cause;
use crate::expression::{Bindings, EvalError};
use crate::program::{Context, Fault, Reaction, Stimulus};
use crate::template::Template;

/// A transition in the making.
pub(super) struct Run<'a> {
    pub(super) saga: &'a Saga,
    pub(super) context: &'a Context<'a>,
    pub(super) state: State,
    pub(super) work: Vec<Work>,
    pub(super) timers: Vec<TimerChange>,
    pub(super) failure: Option<Failure>,
    pub(super) note: String,
    /// The timer that led here, which needs no cancelling.
    fired: Option<String>,
}

impl<'a> Run<'a> {
    pub(super) fn new(saga: &'a Saga, context: &'a Context<'a>, state: State) -> Self {
        Self {
            saga,
            context,
            state,
            work: Vec::new(),
            timers: Vec::new(),
            failure: None,
            note: String::new(),
            fired: None,
        }
    }

    /// The first transition; `vars` are set.
    pub(super) fn begin(mut self) -> Result<Reaction, Fault> {
        self.say("begun");
        if let Some(timeout) = self.saga.timeout {
            let due = self.context.now.after(timeout);
            self.timers.push(TimerChange::Arm { name: saga_timer(), due });
        }
        self.advance()?;
        self.finish()
    }

    /// Any later one.
    pub(super) fn take(mut self, stimulus: &Stimulus<'_>) -> Result<Reaction, Fault> {
        if let Stimulus::Timer { name } = stimulus {
            self.fired = Some((*name).to_owned());
        }
        let reading = match stimulus {
            Stimulus::Event(event) => answer::of_event(self.saga, &self.state, event),
            Stimulus::Outcome { tag, verdict } => answer::of_outcome(self.saga, tag, verdict),
            Stimulus::Timer { name } if *name == SAGA_TIMER => return self.out_of_time(),
            Stimulus::Timer { name } => answer::of_timer(self.saga, &self.state, name),
            Stimulus::Cancel { reason } => return self.cancel(reason),
            Stimulus::Retry => return self.retry(),
            Stimulus::Skip | Stimulus::ForceComplete => {
                return Ok(Reaction::Refused("only a stuck instance can be skipped or ended by force"));
            }
        };
        match reading {
            Ok(reading) => self.answered(reading),
            Err(why) => Ok(Reaction::Ignored(why)),
        }
    }

    fn answered(mut self, reading: Reading<'_>) -> Result<Reaction, Fault> {
        let Reading { step, answer, data, failure } = reading;
        let cause = |run: &Self| {
            let Failure { code, message } = failure.unwrap_or_else(|| answer::timed_out("step", None));
            Cause { code, message, step: run.step(step).id.to_string() }
        };
        match table::step(self.state.steps[step].mark, answer) {
            Move::Complete => self.complete(step, data)?,
            Move::Fail(mark) => {
                let cause = cause(&self);
                self.fail(step, mark, cause)?;
            }
            Move::CompleteLate => self.complete_late(step, data)?,
            Move::Confirm => self.confirm(step)?,
            Move::Stick => {
                let cause = cause(&self);
                self.stick(step, cause);
            }
            Move::Ignore(why) => return Ok(Reaction::Ignored(why)),
        }
        self.finish()
    }

    fn complete(&mut self, step: usize, data: &Value) -> Result<(), Fault> {
        self.remember(&self.saga.steps[step].save, data)?;
        self.close(step, Mark::Done);
        self.push_done(step);
        self.note_step(step, "ok");
        self.advance()
    }

    fn fail(&mut self, step: usize, mark: Mark, cause: Cause) -> Result<(), Fault> {
        self.close(step, mark);
        self.note_step(step, &cause.code);
        self.turn_back(cause)
    }

    fn complete_late(&mut self, step: usize, data: &Value) -> Result<(), Fault> {
        self.remember(&self.saga.steps[step].save, data)?;
        self.state.steps[step].mark = Mark::Done;
        self.push_done(step);
        self.note_step(step, "ok, too late");
        match self.state.phase {
            Phase::Failed | Phase::Cancelled => self.undo_next(),
            Phase::Running | Phase::Compensating | Phase::Stuck | Phase::Completed => Ok(()),
        }
    }

    fn confirm(&mut self, step: usize) -> Result<(), Fault> {
        self.close(step, Mark::Undone);
        self.note_step(step, "undone");
        self.undo_next()
    }

    fn stick(&mut self, step: usize, cause: Cause) {
        self.close(step, Mark::UndoFailed);
        self.state.phase = Phase::Stuck;
        self.note_step(step, "undo failed");
        self.failure = Some(Failure { code: cause.code, message: cause.message });
    }

    /// Begins every step whose predecessors are over; ends the saga when all are.
    fn advance(&mut self) -> Result<(), Fault> {
        let saga = self.saga;
        for index in saga.sorted.iter().copied() {
            let ready = saga.steps[index].before.iter().all(|b| self.is_over(*b));
            if !ready || self.state.steps[index].mark != Mark::Waiting {
                continue;
            }
            if let Err(error) = self.begin_step(index, &saga.steps[index]) {
                let cause = expression_failure(&error, &saga.steps[index]);
                return self.fail(index, Mark::Failed, cause);
            }
        }
        if (0..saga.steps.len()).all(|index| self.is_over(index)) { self.complete_saga() } else { Ok(()) }
    }

    fn is_over(&self, step: usize) -> bool {
        matches!(self.state.steps[step].mark, Mark::Done | Mark::Skipped)
    }

    fn begin_step(&mut self, index: usize, step: &Step) -> Result<(), EvalError> {
        let bindings = Bindings::new(self.context.key).vars(&self.state.vars);
        let wanted = step.when.as_ref().map_or(Ok(true), |when| when.holds(&bindings))?;
        if !wanted {
            self.state.steps[index].mark = Mark::Skipped;
            self.note_step(index, "skipped");
            return Ok(());
        }
        self.ask(index, &step.task, Mark::Open)
    }

    fn complete_saga(&mut self) -> Result<(), Fault> {
        self.state.phase = Phase::Completed;
        self.cancel_saga_timer();
        self.say("completed");
        self.tell(self.saga.completed.as_ref())
    }

    /// No new steps, no timers; what is under way is given up, what is done gets undone.
    fn turn_back(&mut self, cause: Cause) -> Result<(), Fault> {
        for index in 0..self.state.steps.len() {
            if self.state.steps[index].mark == Mark::Open {
                self.close(index, Mark::GivenUp);
            }
        }
        self.cancel_saga_timer();
        if !self.state.cancelled {
            self.failure = Some(Failure { code: cause.code.clone(), message: cause.message.clone() });
        }
        self.state.cause = Some(cause);
        self.undo_next()
    }

    /// Asks for the next undo, newest completion first; ends the saga when nothing is left.
    fn undo_next(&mut self) -> Result<(), Fault> {
        self.state.phase = Phase::Compensating;
        while let Some(step) = self.state.done.pop() {
            let index = usize::from(step);
            let Some(undo) = &self.saga.steps[index].undo else {
                self.state.steps[index].mark = Mark::Undone;
                continue;
            };
            if let Err(error) = self.ask(index, undo, Mark::Undoing) {
                let cause = expression_failure(&error, &self.saga.steps[index]);
                self.stick(index, cause);
            }
            return Ok(());
        }
        self.end_compensated()
    }

    fn end_compensated(&mut self) -> Result<(), Fault> {
        self.state.phase = if self.state.cancelled { Phase::Cancelled } else { Phase::Failed };
        self.say(self.state.phase.status().as_str());
        if self.state.cancelled || self.state.told {
            return Ok(());
        }
        self.tell(self.saga.failed.as_ref())
    }

    fn out_of_time(mut self) -> Result<Reaction, Fault> {
        if self.state.phase != Phase::Running {
            return Ok(Reaction::Ignored("the saga no longer goes forward"));
        }
        let Failure { message, .. } = answer::timed_out(SAGA_TIMER, self.saga.timeout);
        self.say("saga timeout");
        self.turn_back(Cause { code: "saga_timeout".to_owned(), message, step: String::new() })?;
        self.finish()
    }

    fn cancel(mut self, reason: &str) -> Result<Reaction, Fault> {
        match self.state.phase {
            Phase::Running => {}
            Phase::Compensating => return Ok(Reaction::Refused("it is being compensated already")),
            Phase::Completed | Phase::Failed | Phase::Cancelled => {
                return Ok(Reaction::Refused("it has ended"));
            }
            Phase::Stuck => return Ok(Reaction::Refused("it is stuck; retry the undo that failed")),
        }
        self.state.cancelled = true;
        self.say("cancelled by request");
        let cause = Cause { code: "cancelled".to_owned(), message: reason.to_owned(), step: String::new() };
        self.turn_back(cause)?;
        self.finish()
    }

    fn retry(mut self) -> Result<Reaction, Fault> {
        let failed = self.state.steps.iter().position(|slot| slot.mark == Mark::UndoFailed);
        let (Phase::Stuck, Some(index)) = (self.state.phase, failed) else {
            return Ok(Reaction::Refused("only a stuck instance can be retried"));
        };
        self.state.phase = Phase::Compensating;
        if let Some(undo) = &self.saga.steps[index].undo
            && let Err(error) = self.ask(index, undo, Mark::Undoing)
        {
            let cause = expression_failure(&error, &self.saga.steps[index]);
            self.stick(index, cause);
        }
        self.finish()
    }

    /// Sets variables from templates over an input.
    pub(super) fn remember(&mut self, templates: &[(String, Template)], data: &Value) -> Result<(), Fault> {
        for (name, template) in templates {
            let bindings = Bindings::new(self.context.key).vars(&self.state.vars).event(data);
            let value = template.evaluate(&bindings);
            let value = value.map_err(|error| Fault::Schema(format!("cannot set vars.{name}: {error}")))?;
            self.state.vars.insert(name.clone(), value);
        }
        Ok(())
    }

    fn step(&self, index: usize) -> &'a Step {
        &self.saga.steps[index]
    }

    fn push_done(&mut self, step: usize) {
        self.state.done.push(u16::try_from(step).expect("a saga has at most 1000 steps"));
    }

    fn note_step(&mut self, step: usize, what: &str) {
        let id = self.step(step).id.as_str();
        self.say(&[id, ": ", what].concat());
    }

    fn say(&mut self, what: &str) {
        if !self.note.is_empty() {
            self.note.push_str(", ");
        }
        self.note.push_str(what);
    }

    fn cancel_saga_timer(&mut self) {
        if self.saga.timeout.is_some() {
            self.disarm(saga_timer());
        }
    }

    pub(super) fn disarm(&mut self, name: Name) {
        if self.fired.as_deref() != Some(name.as_str()) {
            self.timers.push(TimerChange::Cancel { name });
        }
    }

    fn finish(self) -> Result<Reaction, Fault> {
        let waits = self.waits();
        Ok(Reaction::Applied(Box::new(Transition {
            state: self.state.encode()?,
            status: self.state.phase.status(),
            waits,
            reference: self.reference(),
            work: self.work,
            timers: self.timers,
            tasks: Vec::new(),
            failure: self.failure,
            note: self.note,
        })))
    }
}

fn saga_timer() -> Name {
    Name::new(SAGA_TIMER).expect("a short word is a name")
}

fn expression_failure(error: &EvalError, step: &Step) -> Cause {
    Cause { code: "expression_error".to_owned(), message: error.to_string(), step: step.id.to_string() }
}
