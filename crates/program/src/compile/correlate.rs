//! To which instance an event belongs: by a path, by an expression, or by its envelope.

use std::collections::BTreeMap;

use orlog_model::{CorrelationId, Event, EventType};
use serde_json::Value;

use crate::contract::Fault;
use crate::correlation;
use crate::definition::Correlate;
use crate::diagnostic::{Finding, Findings};
use crate::expression::{Bindings, Expression, Root, Scope};
use crate::machine::{Saga, upcast};
use crate::template::compile_expression;

/// Where events say to which instance they belong.
#[derive(Debug)]
pub(super) enum Places {
    Envelope,
    One(Place),
    ByType(BTreeMap<EventType, Place>),
}

/// A place in an event's data.
#[derive(Debug)]
pub(super) enum Place {
    Path(String),
    Computed(String, Expression),
}

/// Compiles the places; what is wrong goes to `findings`.
pub(super) fn compile(form: &Correlate, findings: &mut Findings) -> Places {
    match form {
        Correlate::Envelope => Places::Envelope,
        Correlate::Field(text) => place("correlate", text, findings).map_or(Places::Envelope, Places::One),
        Correlate::ByType(texts) => Places::ByType(
            texts
                .iter()
                .filter_map(|(kind, text)| {
                    Some((kind.clone(), place(&format!("correlate.{kind}"), text, findings)?))
                })
                .collect(),
        ),
    }
}

fn place(path: &str, text: &str, findings: &mut Findings) -> Option<Place> {
    if let Some(source) = text.strip_prefix('=') {
        let scope = Scope { roots: &[Root::Event], vars: None, element: None };
        let expression = compile_expression(source, path, &scope, findings)?;
        return Some(Place::Computed(text.to_owned(), expression));
    }
    if text.is_empty() || text.split('.').any(str::is_empty) {
        let finding = Finding::new(path, format!("`{text}` is no path of fields"));
        findings.push(finding.suggest("write field names with dots between, as in order.id"));
        return None;
    }
    Some(Place::Path(text.to_owned()))
}

/// The correlation id of an event, read as one of the newest version.
pub(super) fn correlate(saga: &Saga, places: &Places, event: &Event) -> Result<CorrelationId, Fault> {
    let newest = match saga.versions.get(&event.kind) {
        Some(versions) => upcast(versions, event)?,
        None => None,
    };
    let data = newest.as_ref().unwrap_or(&event.data);
    let place = match places {
        Places::Envelope => None,
        Places::One(place) => Some(place),
        Places::ByType(places) => places.get(&event.kind),
    };
    let value = place.and_then(|place| place.value(data));
    correlation::of(event, place.map(Place::text), value.as_ref())
}

impl Place {
    fn text(&self) -> &str {
        match self {
            Place::Path(text) | Place::Computed(text, _) => text,
        }
    }

    fn value(&self, data: &Value) -> Option<Value> {
        let value = match self {
            Place::Path(path) => correlation::field(data, path)?.clone(),
            Place::Computed(_, expression) => {
                expression.evaluate(&Bindings::before_any_instance().event(data)).ok()?
            }
        };
        (!value.is_null()).then_some(value)
    }
}
