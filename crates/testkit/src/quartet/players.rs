//! The other players: aggregates, Gateway and providers, as far as a definition says what they answer.

use std::collections::BTreeMap;

use orlog_model::{EventType, Verdict, WaitKind};
use orlog_program::{Action, Compiled, Definition, Step};
use serde_json::{Map, Value, json};

use super::{Life, succeeded};

/// Payloads for the start event and for answers.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    start: Value,
    by_name: BTreeMap<String, Value>,
    any: Value,
}

impl Samples {
    /// Payloads that hold every field the definition's expressions read from `event`. Each field is the number 7, which most
    /// conditions and payloads can live with; [`Samples::starting`] and [`Samples::answering`] set better ones.
    #[must_use]
    pub fn of(definition: &Definition) -> Self {
        let mut start = json!({});
        definition.vars.values().for_each(|template| read(template, &mut start));
        let mut any = json!({});
        definition
            .steps
            .iter()
            .flat_map(|step| step.save.values())
            .for_each(|template| read(template, &mut any));
        Self { start, by_name: BTreeMap::new(), any }
    }

    /// Begins instances with this payload.
    #[must_use]
    pub fn starting(mut self, data: Value) -> Self {
        self.start = data;
        self
    }

    /// Answers with this payload: by event type, or by step id for outcomes.
    #[must_use]
    pub fn answering(mut self, name: &str, data: Value) -> Self {
        self.by_name.insert(name.to_owned(), data);
        self
    }

    /// The payload of a start event.
    #[must_use]
    pub fn start(&self, _kind: &EventType) -> Value {
        self.start.clone()
    }

    /// The payload of an answer.
    #[must_use]
    pub fn answer(&self, name: &str) -> Value {
        self.by_name.get(name).unwrap_or(&self.any).clone()
    }
}

/// Makes every `event.a.b` that a template reads exist.
fn read(template: &Value, into: &mut Value) {
    match template {
        Value::String(text) if text.starts_with('=') => {
            for chain in text.split("event.").skip(1) {
                let end = chain
                    .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
                    .unwrap_or(chain.len());
                set(into, chain[..end].trim_end_matches('.'));
            }
        }
        Value::Array(items) => items.iter().for_each(|item| read(item, into)),
        Value::Object(fields) => fields.values().for_each(|item| read(item, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn set(into: &mut Value, path: &str) {
    let mut at = into;
    for field in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = at.as_object_mut().expect("it was made one").entry(field).or_insert(json!(7));
    }
}

pub(super) fn is_command(action: &Action) -> bool {
    matches!(action, Action::Command { .. })
}

fn find<'a>(definition: &'a Definition, tag: &str) -> Option<&'a Step> {
    let id = tag.strip_prefix("undo:").unwrap_or(tag);
    definition.steps.iter().find(|step| step.id.as_str() == id)
}

/// The event that answers the work of a tag; `None` where its outcome does.
fn answering_event<'a>(definition: &'a Definition, tag: &str) -> Option<&'a EventType> {
    let step = find(definition, tag)?;
    match step.undo.as_ref().filter(|_| tag.starts_with("undo:")) {
        Some(undo) => undo.ok.first().filter(|_| is_command(&undo.action)),
        None => step.ok.first().filter(|_| is_command(&step.action)),
    }
    .map(|answer| &answer.event)
}

/// Tags of work whose answer the instance waits for, oldest first. Where several steps wait for one type of event, the
/// one asked last is meant.
#[must_use]
pub fn open(life: &Life<'_>, definition: &Definition) -> Vec<String> {
    let waits = life.waits();
    let newest_for = |event: &EventType| {
        life.asked().iter().rev().find(|tag| answering_event(definition, tag) == Some(event))
    };
    let awaited = |tag: &&String| match answering_event(definition, tag) {
        Some(event) => {
            waits.contains(&(WaitKind::Event, event.to_string())) && newest_for(event) == Some(*tag)
        }
        None => waits.contains(&(WaitKind::Outcome, (*tag).clone())),
    };
    life.asked().iter().filter(awaited).cloned().collect()
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
    match (answering_event(definition, tag), find(definition, tag)) {
        (Some(event), _) => life.event(event.as_str(), samples.answer(event.as_str())),
        (None, Some(step)) if is_command(&step.action) => life.outcome(tag, &Verdict::Accepted),
        (None, _) => life.outcome(tag, &succeeded(samples.answer(tag))),
    }
}

/// Confirms an undo.
///
/// # Errors
/// Why nothing changed.
pub fn answer_undone(life: &mut Life<'_>, saga: &Compiled, tag: &str) -> Result<String, String> {
    match answering_event(saga.definition(), tag) {
        Some(event) => life.event(event.as_str(), Value::Null),
        None => life.outcome(tag, &succeeded(Value::Null)),
    }
}
