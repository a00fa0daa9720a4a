//! Responses to the work of a tag, as the definition specifies: an event, an acceptance, an outcome
//! or a user.

use orlog_model::{EventType, InDoubtPolicy};
use orlog_program::{Action, AnswerForm as ResultMatcher, Definition, Step, TimeLimit};

/// Parsed tag: `compensate:reserve[3]` is the compensation of the fourth element of `reserve`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkTag<'t> {
    /// Whether this is the tag of a compensation.
    pub is_compensation: bool,
    /// Id of the step.
    pub step: &'t str,
    /// Index of the element in a step with `foreach`, or the round in a loop.
    pub index: Option<usize>,
}

impl<'t> WorkTag<'t> {
    /// Parses a tag.
    #[must_use]
    pub fn parse(text: &'t str) -> Self {
        let (compensation, rest) = match text.strip_prefix("compensate:") {
            Some(rest) => (true, rest),
            None => (false, text),
        };

        // An element of a list or a round of a loop has its number in brackets: `pay[2]`.
        let element = rest.strip_suffix(']').and_then(|rest| rest.split_once('['));
        let element = element.and_then(|(step, index)| Some((step, index.parse().ok()?)));

        match element {
            Some((step, index)) => Self {
                is_compensation: compensation,
                step,
                index: Some(index),
            },
            None => Self {
                is_compensation: compensation,
                step: rest,
                index: None,
            },
        }
    }
}

/// Source of the response to the work of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseSource {
    /// An event.
    Event,
    /// The acceptance of the command.
    Acceptance,
    /// The outcome of an effect, a job or a child saga.
    Outcome,
    /// The decision of a user.
    User,
    /// A timer.
    Timer,
    /// No response: the step is decided immediately.
    None,
}

/// Responses that the work of a tag can receive.
#[derive(Clone, Debug)]
pub struct ResponseSpec<'d> {
    /// Source of the response.
    pub source: ResponseSource,
    /// Success names, each with the condition that it must meet.
    pub ok: Vec<(&'d EventType, Option<&'d str>)>,
    /// Failure names, each with its condition.
    pub fail: Vec<(&'d EventType, Option<&'d str>)>,
    /// Time limit.
    pub timeout: Option<&'d TimeLimit>,
}

/// Returns the response specification of a tag; `None` if the definition has no such step, or the
/// step has no compensation.
#[must_use]
pub fn response_spec<'d>(definition: &'d Definition, tag: &str) -> Option<ResponseSpec<'d>> {
    let tag = WorkTag::parse(tag);
    let step = step_of(definition, tag.step)?;
    if tag.is_compensation {
        let compensation = step.compensate.as_ref()?;
        return Some(of(
            &compensation.action,
            &compensation.ok,
            &compensation.fail,
            compensation.timeout.as_ref(),
        ));
    }

    Some(of(
        &step.action,
        &step.ok,
        &step.fail,
        step.timeout.as_ref(),
    ))
}

/// Returns whether this is the tag or the timer of a reminder.
pub(crate) fn is_reminder(tag: &str) -> bool {
    tag.starts_with("remind:")
}

/// Returns whether an operator decides if the outcome of the work of that tag is unknown.
pub(crate) fn opens_in_doubt_task(definition: &Definition, tag: &str) -> bool {
    let tag = WorkTag::parse(tag);
    step_of(definition, tag.step)
        .is_some_and(|step| !tag.is_compensation && step.in_doubt == Some(InDoubtPolicy::Ask))
}

/// Returns the step with that id.
pub(crate) fn step_of<'d>(definition: &'d Definition, id: &str) -> Option<&'d Step> {
    definition.steps.iter().find(|step| step.id.as_str() == id)
}

fn of<'d>(
    action: &'d Action,
    ok: &'d [ResultMatcher],
    fail: &'d [ResultMatcher],
    timeout: Option<&'d TimeLimit>,
) -> ResponseSpec<'d> {
    let choices = |responses: &'d [ResultMatcher]| -> Vec<_> {
        responses
            .iter()
            .map(|response| (&response.event, response.when.as_deref()))
            .collect()
    };

    let (by, ok) = match action {
        // Without `ok`, the acceptance completes the step before any event could.
        Action::Command(_) if ok.is_empty() => (ResponseSource::Acceptance, Vec::new()),
        Action::Command(_) => (ResponseSource::Event, choices(ok)),
        Action::Event(awaited) => {
            let events = awaited.events.iter();
            (
                ResponseSource::Event,
                events
                    .map(|event| (event, awaited.when.as_deref()))
                    .collect(),
            )
        }
        Action::Human(_) => (ResponseSource::User, choices(ok)),
        Action::Effect(_) | Action::Saga(_) | Action::Job(_) => {
            (ResponseSource::Outcome, choices(ok))
        }
        Action::Wait(_) => (ResponseSource::Timer, Vec::new()),
        Action::Switch(_) | Action::Repeat(_) | Action::Restart(_) => {
            (ResponseSource::None, Vec::new())
        }
    };

    ResponseSpec {
        source: by,
        ok,
        fail: choices(fail),
        timeout,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_is_parsed() {
        let tag = WorkTag {
            is_compensation: false,
            step: "ship",
            index: None,
        };
        assert_eq!(WorkTag::parse("ship"), tag);
        assert_eq!(
            WorkTag::parse("compensate:ship"),
            WorkTag {
                is_compensation: true,
                ..tag
            }
        );
        assert_eq!(
            WorkTag::parse("compensate:ship[12]"),
            WorkTag {
                is_compensation: true,
                index: Some(12),
                ..tag
            }
        );
        assert_eq!(WorkTag::parse("ship[x]").index, None);
    }
}
