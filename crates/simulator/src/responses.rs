//! How the work of a tag is answered, as the definition says: by an event, by acceptance, by an outcome, by a person.

use std::time::Duration;

use orlog_model::{EventType, InDoubt};
use orlog_program::{Action, AnswerForm, Definition, Step};

/// A tag taken apart: `undo:reserve[3]` is the undo of the fourth element of `reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag<'t> {
    /// It is the undo's.
    pub undo: bool,
    /// The step's id.
    pub step: &'t str,
    /// Which element of a step for each element.
    pub index: Option<usize>,
}

impl<'t> Tag<'t> {
    /// Takes a tag apart.
    #[must_use]
    pub fn parse(text: &'t str) -> Self {
        let (undo, rest) = match text.strip_prefix("undo:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let element = rest.strip_suffix(']').and_then(|rest| rest.split_once('['));
        let element = element.and_then(|(step, index)| Some((step, index.parse().ok()?)));
        match element {
            Some((step, index)) => Self { undo, step, index: Some(index) },
            None => Self { undo, step: rest, index: None },
        }
    }
}

/// What answers the work of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// An event.
    Event,
    /// The acceptance of the command.
    Acceptance,
    /// The outcome of an effect, a job or a saga.
    Outcome,
    /// The choice of a person.
    Person,
    /// Time alone.
    Timer,
    /// Nothing: it is decided at once.
    Nobody,
}

/// How the work of a tag is answered.
#[derive(Clone, Debug)]
pub struct Answering<'d> {
    /// By what.
    pub by: By,
    /// What success is called, with the condition that it must meet.
    pub ok: Vec<(&'d EventType, Option<&'d str>)>,
    /// What failure is called.
    pub fail: Vec<(&'d EventType, Option<&'d str>)>,
    /// The time allowed.
    pub timeout: Option<Duration>,
}

/// How the work of a tag is answered; `None` where the definition has no such step, or it has no undo.
#[must_use]
pub fn answering<'d>(definition: &'d Definition, tag: &str) -> Option<Answering<'d>> {
    let tag = Tag::parse(tag);
    let step = step_of(definition, tag.step)?;
    if tag.undo {
        let undo = step.undo.as_ref()?;
        return Some(of(&undo.action, &undo.ok, &undo.fail, undo.timeout));
    }
    Some(of(&step.action, &step.ok, &step.fail, step.timeout))
}

/// Whether a person is asked when nobody knows if the work of that tag was done.
pub(crate) fn asks_in_doubt(definition: &Definition, tag: &str) -> bool {
    let tag = Tag::parse(tag);
    step_of(definition, tag.step).is_some_and(|step| !tag.undo && step.in_doubt == Some(InDoubt::Ask))
}

/// The step of that id.
pub(crate) fn step_of<'d>(definition: &'d Definition, id: &str) -> Option<&'d Step> {
    definition.steps.iter().find(|step| step.id.as_str() == id)
}

fn of<'d>(
    action: &'d Action,
    ok: &'d [AnswerForm],
    fail: &'d [AnswerForm],
    timeout: Option<Duration>,
) -> Answering<'d> {
    let choices = |answers: &'d [AnswerForm]| -> Vec<_> {
        answers.iter().map(|answer| (&answer.event, answer.when.as_deref())).collect()
    };
    let (by, ok) = match action {
        Action::Command { .. } if ok.is_empty() => (By::Acceptance, Vec::new()),
        Action::Command { .. } => (By::Event, choices(ok)),
        Action::Event { events, when } => {
            (By::Event, events.iter().map(|event| (event, when.as_deref())).collect())
        }
        Action::Human(_) => (By::Person, choices(ok)),
        Action::Effect { .. } | Action::Saga { .. } | Action::Job(_) => (By::Outcome, choices(ok)),
        Action::Wait(_) => (By::Timer, Vec::new()),
        Action::Switch(_) => (By::Nobody, Vec::new()),
    };
    Answering { by, ok, fail: choices(fail), timeout }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_taken_apart() {
        let plain = Tag { undo: false, step: "ship", index: None };
        assert_eq!(Tag::parse("ship"), plain);
        assert_eq!(Tag::parse("undo:ship"), Tag { undo: true, ..plain });
        assert_eq!(Tag::parse("undo:ship[12]"), Tag { undo: true, index: Some(12), ..plain });
        assert_eq!(Tag::parse("ship[x]").index, None);
    }
}
