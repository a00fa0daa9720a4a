//! Reads events: which step, undo or element wants one, and what it means there.

use orlog_model::{Event, Failure};
use serde_json::Value;

use super::compiled::Entry;
use super::execution::Run;
use super::outcome_table::{self, Answer, Move};
use super::state::At;
use super::step_input::{Reading, expression_error, told};
use super::step_state::Mark;
use crate::expression::{EvalError, Expression};

impl Run<'_> {
    /// The first, in the order of the definition, that waits for this event and whose condition holds; where nothing waits
    /// for it, the first that has been given up and would have been done by it.
    pub(super) fn wanted<'e>(&self, event: &'e Event) -> Result<Reading<'e>, &'static str> {
        let entries = self.saga.entries.get(&event.kind).ok_or("the saga does not take this event")?;
        let mut why = "no condition of what waits for this event holds";
        for late in [false, true] {
            for entry in entries {
                for at in self.units(entry.step) {
                    match outcome_table::step(self.state.slot(at).mark, answer(*entry)) {
                        Move::Ignore(reason) => why = reason,
                        meant if late != (meant == Move::CompleteLate) => {}
                        Move::Complete
                        | Move::Fail(_)
                        | Move::CompleteLate
                        | Move::Confirm
                        | Move::Stick
                        | Move::AskPerson(_)
                        | Move::AskAnew
                        | Move::LetGo => {
                            if let Some(reading) = self.read(at, *entry, event, late) {
                                return Ok(reading);
                            }
                        }
                    }
                }
            }
        }
        Err(why)
    }

    /// What the event means there, if its condition holds. A condition without a value fails what waits for it.
    fn read<'e>(&self, at: At, entry: Entry, event: &'e Event, late: bool) -> Option<Reading<'e>> {
        let task = self.task(at, entry.undo);
        let answers = if entry.good { &task.ok } else { &task.fail };
        let reading = |answer, failure| Reading { at, answer, data: &event.data, named: None, failure };
        match self.holds(at, answers[entry.place].when.as_ref(), &event.data) {
            Ok(false) => None,
            Ok(true) if entry.good => Some(reading(answer(entry), None)),
            Ok(true) => {
                let message = told(&event.kind, &event.data);
                Some(reading(answer(entry), Some(Failure { code: event.kind.to_string(), message })))
            }
            // A late answer, a second one, or one in a pause must not fail anything.
            Err(_) if late || !matches!(self.state.slot(at).mark, Mark::Open | Mark::Undoing) => None,
            Err(error) => {
                let bad = if entry.undo { Answer::NotUndone } else { Answer::Failed };
                Some(reading(bad, Some(expression_error(&error))))
            }
        }
    }

    /// Whether a condition over an answer holds there; none always does.
    pub(super) fn holds(&self, at: At, when: Option<&Expression>, data: &Value) -> Result<bool, EvalError> {
        when.map_or(Ok(true), |when| when.holds(&self.bindings(at).event(data)))
    }
}

fn answer(entry: Entry) -> Answer {
    match (entry.undo, entry.good) {
        (false, true) => Answer::Ok,
        (false, false) => Answer::Failed,
        (true, true) => Answer::Undone,
        (true, false) => Answer::NotUndone,
    }
}
