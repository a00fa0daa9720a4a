//! Records what an answer means for its step: done, failed, to be asked for again, undone.

use orlog_model::{Fact, Failure, Work};
use serde_json::Value;

use super::compiled::Call;
use super::execution::{Run, Unchanged};
use super::join;
use super::outcome_table::{self, Answer, Move};
use super::state::{At, Flags, Slot};
use super::step_input::{EXPRESSION_ERROR, Reading};
use super::step_state::Mark;
use crate::contract::Cause;
use crate::contract::Fault;

impl Run<'_> {
    pub(super) fn settle(&mut self, reading: &Reading<'_>) -> Result<(), Unchanged> {
        let at = reading.at;
        let meant = outcome_table::step(self.state.slot(at).mark, reading.answer);
        if let Move::Ignore(why) = meant {
            return Err(Unchanged::Ignored(why));
        }
        self.tell_answer(reading);
        self.close_question(at);
        match meant {
            Move::Complete => self.complete(at, reading.data)?,
            Move::Fail(mark) => self.failed(at, mark, reading.cause(self.step(at))),
            Move::CompleteLate => self.complete_late(at, reading.data)?,
            Move::Confirm => {
                self.close(at, Mark::Undone);
                self.state.undo = None;
                self.note(at, "undone");
            }
            Move::Stick => self.not_undone(at, reading.cause(self.step(at))),
            Move::AskPerson(mark) => self.ask_person(at, mark, reading.failure.as_ref()),
            Move::AskAnew => self.ask_anew(at),
            Move::LetGo => {
                self.close(at, Mark::GivenUp);
                self.note(at, "not done");
            }
            Move::Ignore(_) => {}
        }
        Ok(())
    }

    /// A named answer that nobody else tells is a fact.
    fn tell_answer(&mut self, reading: &Reading<'_>) {
        let own = matches!(reading.answer, Answer::Ok | Answer::Failed);
        if let Some(kind) = reading.named.clone().filter(|_| own && self.task(reading.at, false).tells()) {
            self.work.push(Work::Fact(Fact { kind, data: reading.data.clone() }));
        }
    }

    fn complete(&mut self, at: At, data: &Value) -> Result<(), Fault> {
        self.keep(at, data)?;
        self.close(at, Mark::Done);
        self.state.done.push(at);
        self.note(at, "ok");
        if at.element.is_none() {
            self.step_done(at.step);
        }
        Ok(())
    }

    fn complete_late(&mut self, at: At, data: &Value) -> Result<(), Fault> {
        self.keep(at, data)?;
        *self.state.slot_mut(at) = Slot::of(Mark::Doomed);
        self.state.done.push(at);
        self.note(at, "ok, too late");
        Ok(())
    }

    /// Remembers what the step wants to keep of its answer.
    fn keep(&mut self, at: At, data: &Value) -> Result<(), Fault> {
        let step = self.step(at);
        for (name, template) in &step.save {
            let value = template.evaluate(&self.bindings(at).event(data));
            let value = value.map_err(|error| Fault::Schema(format!("cannot set vars.{name}: {error}")))?;
            let kept = self.state.vars.entry(name.as_str()).or_insert(Value::Null);
            put(kept, at.element, value);
        }
        if matches!(step.task.call, Call::Job(_)) {
            let results = &mut self.state.extra_mut().results;
            put(results.entry(step.id.as_str()).or_insert(Value::Null), at.element, data.clone());
        }
        Ok(())
    }

    /// Every part of the step is done.
    pub(super) fn step_done(&mut self, step: usize) {
        if !self.saga.steps[step].pivot {
            return;
        }
        self.state.flags.set(Flags::PIVOTED);
        let done = std::mem::take(&mut self.state.done);
        self.state.done = done.into_iter().filter(|at| self.state.slot(*at).mark == Mark::Doomed).collect();
        self.cancel_saga_timer();
        self.say("past the point of no return");
    }

    /// It failed: it is asked for again while attempts are left, otherwise it has failed for good.
    fn failed(&mut self, at: At, mark: Mark, cause: Cause) {
        let task = self.task(at, false);
        let attempts = self.state.slot(at).again.saturating_add(1);
        if attempts < task.attempts() && cause.code != EXPRESSION_ERROR {
            return self.pause(at, &cause.code, Mark::Pausing);
        }
        self.note(at, &cause.code);
        self.fail(at, mark, cause);
    }

    /// It failed for good. A join that can do without it goes on; past the pivot a person must decide; else it turns back.
    pub(super) fn fail(&mut self, at: At, mark: Mark, cause: Cause) {
        let lost = join::tolerated(self.saga, &self.state, at.step);
        let blocked = lost.is_none() && self.state.flags.has(Flags::PIVOTED);
        if mark == Mark::GivenUp {
            self.release(at);
        }
        self.close(at, if blocked { Mark::Blocked } else { mark });
        if !blocked && at.element.is_some() {
            self.give_up_rest(at.step, mark);
        }
        match lost {
            Some(lost) => self.lose(&lost),
            None if blocked => self.failure = Some(Failure { code: cause.code, message: cause.message }),
            None => self.turn_back(cause),
        }
    }

    /// Its undo failed: it is asked for again while attempts are left, otherwise a person must decide.
    pub(super) fn not_undone(&mut self, at: At, cause: Cause) {
        let task = self.task(at, true);
        let attempts = self.state.slot(at).again.saturating_add(1);
        if attempts < task.attempts() && cause.code != EXPRESSION_ERROR {
            return self.pause(at, &cause.code, Mark::UndoPausing);
        }
        self.close(at, Mark::UndoFailed);
        self.note(at, "undo failed");
        self.failure = Some(Failure { code: cause.code, message: cause.message });
    }
}

/// Sets a value, or the place of an element in a list of them.
fn put(kept: &mut Value, element: Option<usize>, value: Value) {
    let Some(element) = element else {
        *kept = value;
        return;
    };
    if !kept.is_array() {
        *kept = Value::Array(Vec::new());
    }
    if let Value::Array(values) = kept {
        if values.len() <= element {
            values.resize(element + 1, Value::Null);
        }
        values[element] = value;
    }
}
