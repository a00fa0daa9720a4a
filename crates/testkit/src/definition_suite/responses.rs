//! The other players: aggregates, Gateway, providers, people, children, clocks, as far as a definition says what they answer.

use orlog_model::{EventType, IdError, Verdict};
use orlog_program::doubt::DONE;
use orlog_program::{Action, AnswerForm, Compiled, Definition, Step};
use serde_json::Value;

use super::Life;
use super::driver::{failed, succeeded};
use super::samples::{Known, Samples};

/// What stands open under a tag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open<'a> {
    pub(super) step: &'a Step,
    pub(super) undo: bool,
    pub(super) element: Option<usize>,
}

impl<'a> Open<'a> {
    pub(super) fn of(definition: &'a Definition, tag: &str) -> Option<Self> {
        let (undo, rest) = tag.strip_prefix("undo:").map_or((false, tag), |rest| (true, rest));
        let (id, element) = match rest.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
            Some((id, number)) => (id, number.parse().ok()),
            None => (rest, None),
        };
        let step = definition.steps.iter().find(|step| step.id.as_str() == id)?;
        Some(Self { step, undo, element })
    }

    pub(super) fn action(&self) -> &'a Action {
        match (self.undo, &self.step.undo) {
            (true, Some(undo)) => &undo.action,
            (true, None) | (false, _) => &self.step.action,
        }
    }

    /// What means success.
    fn ok(&self) -> Vec<AnswerForm> {
        match (self.undo, &self.step.undo, &self.step.action) {
            (true, Some(undo), _) => undo.ok.clone(),
            (_, _, Action::Event { events, when }) => {
                let answer = |event: &EventType| AnswerForm { event: event.clone(), when: when.clone() };
                events.iter().map(answer).collect()
            }
            (_, _, _) => self.step.ok.clone(),
        }
    }

    /// The event of success.
    pub(super) fn event(&self) -> Option<EventType> {
        self.ok().into_iter().next().map(|answer| answer.event)
    }

    pub(super) fn fail(&self) -> &'a [AnswerForm] {
        match (self.undo, &self.step.undo) {
            (true, Some(undo)) => &undo.fail,
            (true, None) | (false, _) => &self.step.fail,
        }
    }

    /// An event answers it, not an outcome.
    pub(super) fn by_event(&self) -> bool {
        match self.action() {
            Action::Command { .. } => !self.ok().is_empty(),
            Action::Event { .. } => true,
            Action::Effect { .. }
            | Action::Wait(_)
            | Action::Human(_)
            | Action::Saga { .. }
            | Action::Job(_)
            | Action::Switch(_) => false,
        }
    }
}

/// Tags of what the instance waits for: steps and elements under way, then the undo, in the order of the definition.
#[must_use]
pub fn open(life: &Life<'_>, definition: &Definition) -> Vec<String> {
    let shown = life.shown();
    let mut tags = Vec::new();
    for (form, step) in definition.steps.iter().zip(shown["steps"].as_array().into_iter().flatten()) {
        let id = form.id.as_str();
        match (&form.foreach, step["elements"].as_array()) {
            (None, _) => tags.extend(tag(id, &step["state"])),
            (Some(_), elements) => {
                let each = elements.into_iter().flatten().enumerate();
                tags.extend(each.filter_map(|(n, element)| tag(&format!("{id}[{n}]"), &element["state"])));
            }
        }
    }
    tags
}

fn tag(id: &str, state: &Value) -> Option<String> {
    match state.as_str() {
        Some("running" | "pausing" | "asking" | "asking_late") => Some(id.to_owned()),
        Some("undoing" | "undo_pausing") => Some(format!("undo:{id}")),
        Some(_) | None => None,
    }
}

/// Answers the action of a step with success.
///
/// # Errors
/// Why nothing changed.
pub fn answer_ok(
    life: &mut Life<'_>,
    saga: &Compiled,
    tag: &str,
    samples: &Samples,
) -> Result<String, String> {
    let definition = saga.definition();
    let Some(open) = Open::of(definition, tag) else { return Err(format!("nobody knows {tag}")) };
    let ok = open.ok();
    let answer = ok.first();
    let asked = is_asked(life, tag);
    let name = answer.map_or_else(|| tag.to_owned(), |answer| answer.event.to_string());
    let payload = payload(life, &open, answer, &name, samples);
    match (open.action(), answer) {
        (_, Some(answer)) if open.by_event() => life.event(answer.event.as_str(), payload),
        (Action::Command { .. }, _) => life.outcome(tag, &Verdict::Accepted),
        (_, _) if asked => answer_doubt(life, tag, DONE, payload),
        (Action::Wait(_), _) => life.fire(tag, std::time::Duration::ZERO),
        (Action::Human(_), answer) => {
            let event = answer.map(|answer| answer.event.clone());
            life.outcome(tag, &Verdict::Succeeded { event, payload })
        }
        (_, _) => life.outcome(tag, &succeeded(payload)),
    }
}

/// Whether a person is asked if what stands under a tag was done.
#[must_use]
pub fn is_asked(life: &Life<'_>, tag: &str) -> bool {
    let (id, element) = match tag.strip_suffix(']').and_then(|rest| rest.split_once('[')) {
        Some((id, number)) => (id, number.parse::<usize>().ok()),
        None => (tag, None),
    };
    let shown = life.shown();
    let steps = shown["steps"].as_array().cloned().unwrap_or_default();
    let step = steps.iter().find(|step| step["id"] == id);
    let state = step.map(|step| element.map_or(&step["state"], |n| &step["elements"][n]["state"]));
    matches!(state.and_then(Value::as_str), Some("asking" | "asking_late"))
}

/// A person says whether what stands under a tag was done.
///
/// # Errors
/// Why nothing changed.
pub fn answer_doubt(life: &mut Life<'_>, tag: &str, word: &str, payload: Value) -> Result<String, String> {
    let event = word.parse().map_err(|error: IdError| error.to_string())?;
    life.outcome(tag, &Verdict::Succeeded { event: Some(event), payload })
}

/// Answers the action of a step, or its undo, with an event or a named outcome of failure.
///
/// # Errors
/// Why nothing changed.
pub fn answer_fail(
    life: &mut Life<'_>,
    saga: &Compiled,
    tag: &str,
    event: &EventType,
    samples: &Samples,
) -> Result<String, String> {
    let Some(open) = Open::of(saga.definition(), tag) else { return Err(format!("nobody knows {tag}")) };
    let answer = open.fail().iter().find(|answer| answer.event == *event);
    let payload = payload(life, &open, answer, event.as_str(), samples);
    if open.by_event() {
        return life.event(event.as_str(), payload);
    }
    match open.action() {
        Action::Human(_) => life.outcome(tag, &Verdict::Succeeded { event: Some(event.clone()), payload }),
        Action::Command { .. }
        | Action::Effect { .. }
        | Action::Wait(_)
        | Action::Event { .. }
        | Action::Saga { .. }
        | Action::Job(_)
        | Action::Switch(_) => life.outcome(tag, &failed("refused")),
    }
}

/// Confirms an undo.
///
/// # Errors
/// Why nothing changed.
pub fn answer_undone(life: &mut Life<'_>, saga: &Compiled, tag: &str) -> Result<String, String> {
    answer_ok(life, saga, tag, &Samples::of(saga.definition()))
}

/// A payload that says what the answer's condition wants to hear, as far as that can be read from it.
fn payload(
    life: &Life<'_>,
    open: &Open<'_>,
    answer: Option<&AnswerForm>,
    name: &str,
    samples: &Samples,
) -> Value {
    let mut payload = samples.answer(name);
    if let Some(when) = answer.and_then(|answer| answer.when.as_deref()) {
        let vars = life.shown()["vars"].clone();
        let list = open.step.foreach.as_ref().map(|foreach| (foreach, elements(&foreach.list, &vars)));
        let element = list.as_ref().zip(open.element).map(|((foreach, list), index)| {
            (foreach.name.as_str(), list.get(index).cloned().unwrap_or_default(), index)
        });
        Known { vars: &vars, element: element.as_ref().map(|(name, value, index)| (*name, value, *index)) }
            .satisfy(when, &mut payload);
    }
    payload
}

/// The list of a `foreach` that is a plain path under `vars`.
fn elements(list: &str, vars: &Value) -> Vec<Value> {
    let path = list.trim_start_matches('=').trim();
    let value =
        path.strip_prefix("vars.").map(|path| path.split('.').fold(vars, |value, field| &value[field]));
    value.and_then(Value::as_array).cloned().unwrap_or_default()
}
