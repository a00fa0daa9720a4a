//! Reads outcomes of work: which step they are about, what they say, and what they carry.

use orlog_model::{EventType, Failure, IN_DOUBT, Verdict};
use serde_json::Value;

use super::compiled::{self, Call, Task};
use super::execution::{Run, Unchanged};
use super::in_doubt::{DONE, NOT_DONE};
use super::outcome_table::Answer;
use super::state::At;
use super::step_input::{NOTHING, Reading, expression_error, told};
use crate::expression::EvalError;

/// What an outcome comes to: good or bad, and its name.
enum Read {
    Good(Option<EventType>),
    Bad(Option<EventType>, Failure),
    TimedOut(Failure),
    InDoubt(Failure),
}

impl Run<'_> {
    /// What became of work.
    pub(super) fn outcome<'v>(&self, tag: &str, verdict: &'v Verdict) -> Result<Reading<'v>, Unchanged> {
        if tag.starts_with(compiled::ON) {
            return Err(Unchanged::Ignored("nobody waits for what a handler asked for"));
        }
        let (at, undo) = self.place(tag).ok_or(Unchanged::Ignored("no step asked for this"))?;
        let task = self.task(at, undo);
        if let Verdict::Succeeded { event: Some(word), payload } = verdict
            && !undo
            && self.is_word_of_a_person(at, task, word)
        {
            return self.word_of_a_person(at, word, payload);
        }
        let read = match (&task.call, verdict) {
            (Call::Wait(_) | Call::Event | Call::Switch(_), _) => {
                return Err(Unchanged::Ignored("no step asked for this"));
            }
            (Call::Command { .. }, Verdict::Accepted | Verdict::Succeeded { .. }) if task.awaits_event() => {
                return Err(Unchanged::Ignored("the command was accepted; its answer is an event"));
            }
            (Call::Command { .. }, Verdict::Accepted | Verdict::Succeeded { .. })
            | (_, Verdict::Accepted) => Read::Good(None),
            (_, Verdict::Succeeded { event, payload }) => self.success(at, task, event.as_ref(), payload),
            (_, Verdict::Failed { event, failure, payload }) => {
                self.refusal(at, task, event.as_ref(), failure, payload)
            }
            (_, Verdict::TimedOut { failure }) if failure.code == IN_DOUBT && task.asks_in_doubt() => {
                Read::InDoubt(failure.clone())
            }
            (_, Verdict::TimedOut { failure }) => Read::TimedOut(failure.clone()),
        };
        let data = match verdict {
            Verdict::Succeeded { payload, .. } | Verdict::Failed { payload, .. } => payload,
            Verdict::Accepted | Verdict::TimedOut { .. } => &NOTHING,
        };
        let (answer, named, failure) = match (undo, read) {
            (false, Read::Good(named)) => (Answer::Ok, named, None),
            (true, Read::Good(named)) => (Answer::Undone, named, None),
            (false, Read::Bad(named, failure)) => (Answer::Failed, named, Some(failure)),
            (false, Read::TimedOut(failure)) => (Answer::TimedOut, None, Some(failure)),
            (false, Read::InDoubt(failure)) => (Answer::InDoubt, None, Some(failure)),
            (true, Read::Bad(_, failure) | Read::TimedOut(failure) | Read::InDoubt(failure)) => {
                (Answer::NotUndone, None, Some(failure))
            }
        };
        Ok(Reading { at, answer, data, named, failure })
    }

    /// A person is asked, or was asked: a provider does not succeed by not having done it.
    fn is_word_of_a_person(&self, at: At, task: &Task, word: &EventType) -> bool {
        let own = || task.ok.iter().chain(&task.fail).any(|answer| answer.event == *word);
        let asking = self.state.slot(at).mark.is_asking();
        asking || (task.asks_in_doubt() && word.as_str() == NOT_DONE && !own())
    }

    /// What a person says about something in doubt. That it was done is a success of the effect itself, whose data must be
    /// what the step takes: a slip of the pen must not fail a step that was done.
    fn word_of_a_person<'v>(
        &self,
        at: At,
        word: &EventType,
        data: &'v Value,
    ) -> Result<Reading<'v>, Unchanged> {
        let reading = |answer, named, failure| Reading { at, answer, data, named, failure };
        match word.as_str() {
            NOT_DONE => Ok(reading(Answer::NotDone, None, None)),
            DONE => match self.success(at, self.task(at, false), None, data) {
                Read::Good(named) => Ok(reading(Answer::Ok, named, None)),
                Read::Bad(Some(named), failure) => Ok(reading(Answer::Failed, Some(named), Some(failure))),
                Read::Bad(None, _) | Read::TimedOut(_) | Read::InDoubt(_) => {
                    Err(Unchanged::Refused("the data is not what the step takes as its answer"))
                }
            },
            _ => Err(Unchanged::Ignored("a person is asked whether it was done")),
        }
    }

    /// A success, by its name or else by what it says.
    fn success(&self, at: At, task: &Task, name: Option<&EventType>, data: &Value) -> Read {
        let anything = task.ok.is_empty() && task.fail.is_empty();
        match self.named_success(at, task, name, data) {
            Ok(Some(read)) => read,
            Ok(None) if anything || (name.is_none() && task.ok.is_empty()) => Read::Good(name.cloned()),
            Ok(None) => Read::Bad(None, contract_violation(task, name)),
            Err(error) => Read::Bad(None, expression_error(&error)),
        }
    }

    fn named_success(
        &self,
        at: At,
        task: &Task,
        name: Option<&EventType>,
        data: &Value,
    ) -> Result<Option<Read>, EvalError> {
        for ok in &task.ok {
            if name.is_none_or(|name| *name == ok.event) && self.holds(at, ok.when.as_ref(), data)? {
                return Ok(Some(Read::Good(Some(ok.event.clone()))));
            }
        }
        for fail in &task.fail {
            // A success without a name is none of the failures that need no condition, unless it might have been an `ok`.
            let possible = fail.when.is_some() || !task.ok.is_empty();
            if name.map_or(possible, |name| *name == fail.event)
                && self.holds(at, fail.when.as_ref(), data)?
            {
                let failure = Failure { code: fail.event.to_string(), message: told(&fail.event, data) };
                return Ok(Some(Read::Bad(Some(fail.event.clone()), failure)));
            }
        }
        Ok(None)
    }

    /// A failure, by its name; without one it goes by the first name of failure that fits.
    fn refusal(
        &self,
        at: At,
        task: &Task,
        name: Option<&EventType>,
        failure: &Failure,
        data: &Value,
    ) -> Read {
        let Some(name) = name else {
            let fits = |fail: &&compiled::Answer| self.holds(at, fail.when.as_ref(), data).unwrap_or(false);
            return Read::Bad(task.fail.iter().find(fits).map(|fail| fail.event.clone()), failure.clone());
        };
        let known = task.fail.iter().any(|fail| fail.event == *name);
        let free = task.fail.is_empty() && !task.ok.iter().any(|ok| ok.event == *name);
        if known || free {
            return Read::Bad(Some(name.clone()), failure.clone());
        }
        Read::Bad(None, contract_violation(task, Some(name)))
    }

    /// The step or element that a tag names, and whether its undo is meant.
    pub(super) fn place(&self, tag: &str) -> Option<(At, bool)> {
        let (undo, rest) = tag.strip_prefix(compiled::UNDO).map_or((false, tag), |rest| (true, rest));
        let (id, element) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((id, number)) => (id, Some(number.parse::<usize>().ok()?)),
            None => (rest, None),
        };
        let at = At { step: self.saga.find(id)?, element };
        let there = self.units(at.step).any(|unit| unit == at);
        (there && (!undo || self.step(at).undo.is_some())).then_some((at, undo))
    }
}

fn contract_violation(task: &Task, event: Option<&EventType>) -> Failure {
    let expected: Vec<_> = task.ok.iter().chain(&task.fail).map(|answer| answer.event.as_str()).collect();
    let expected = expected.join(", ");
    let message = match event {
        Some(event) => format!("{} answered {event}, which is none of {expected}", task.tag),
        None => format!("{} answered what is none of {expected}", task.tag),
    };
    Failure { code: "contract_violation".to_owned(), message }
}
