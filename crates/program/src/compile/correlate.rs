//! Correlation of events to instances: by a path, by an expression, or by the envelope.

use std::collections::BTreeMap;

use orlog_model::{CorrelationId, Event, EventType};
use serde_json::Value;

use crate::contract::ProgramError;
use crate::correlation;
use crate::definition::CorrelationSpec;
use crate::diagnostic::{RawDiagnostic, RawDiagnostics};
use crate::expression::{Bindings, EventData, Expression, Root, Scope};
use crate::machine::CompiledSaga;
use crate::template::compile_expression;

/// Rules that return the correlation id of events.
#[derive(Debug)]
pub(super) enum CorrelationRules {
    Envelope,
    Single(CorrelationRule),
    ByType(BTreeMap<EventType, CorrelationRule>),
}

/// Location of the correlation id in an event's data.
#[derive(Debug)]
pub(super) enum CorrelationRule {
    Path(String),
    Computed(String, Expression),
}

/// Compiles the rules and adds diagnostics to `findings`.
pub(super) fn compile(form: &CorrelationSpec, findings: &mut RawDiagnostics) -> CorrelationRules {
    match form {
        CorrelationSpec::Envelope => CorrelationRules::Envelope,
        // An invalid rule has a diagnostic, so the placeholder is never used.
        CorrelationSpec::Field(text) => rule("correlate", text, findings)
            .map_or(CorrelationRules::Envelope, CorrelationRules::Single),
        CorrelationSpec::ByType(texts) => {
            let mut rules = BTreeMap::new();
            for (kind, text) in texts {
                if let Some(rule) = rule(&format!("correlate.{kind}"), text, findings) {
                    rules.insert(kind.clone(), rule);
                }
            }
            CorrelationRules::ByType(rules)
        }
    }
}

fn rule(path: &str, text: &str, findings: &mut RawDiagnostics) -> Option<CorrelationRule> {
    if let Some(source) = text.strip_prefix('=') {
        // Before correlation there is no instance, so only the event can be read.
        let scope = Scope {
            roots: &[Root::Event, Root::Envelope],
            vars: None,
            element: None,
        };
        let expression = compile_expression(source, path, &scope, findings)?;
        return Some(CorrelationRule::Computed(text.to_owned(), expression));
    }

    if text.is_empty() || text.split('.').any(str::is_empty) {
        let finding = RawDiagnostic::new(path, format!("`{text}` is not a field path"));
        findings
            .push(finding.with_suggestion("write field names separated by dots, as in order.id"));
        return None;
    }
    Some(CorrelationRule::Path(text.to_owned()))
}

/// Returns the correlation id of an event, which is upcast to the newest version first.
pub(super) fn correlate(
    saga: &CompiledSaga,
    rules: &CorrelationRules,
    event: &Event,
) -> Result<CorrelationId, ProgramError> {
    let newest = match saga.versions.get(&event.kind) {
        Some(versions) => {
            versions.upcast(event.kind.as_str(), event.schema_version, &event.data)?
        }
        None => None,
    };

    // The rule is written for the newest version, like every expression.
    let data = newest.as_ref().unwrap_or(&event.data);
    let rule = rules.of(&event.kind);
    let value = rule.and_then(|rule| {
        rule.value(EventData {
            data,
            ..EventData::from(event)
        })
    });

    correlation::of(event, rule.map(CorrelationRule::text), value.as_ref())
}

impl CorrelationRules {
    /// Returns the rule of an event type; `None`: the envelope.
    pub(super) fn of(&self, kind: &EventType) -> Option<&CorrelationRule> {
        match self {
            CorrelationRules::Envelope => None,
            CorrelationRules::Single(rule) => Some(rule),
            CorrelationRules::ByType(rules) => rules.get(kind),
        }
    }
}

impl CorrelationRule {
    fn text(&self) -> &str {
        match self {
            CorrelationRule::Path(text) | CorrelationRule::Computed(text, _) => text,
        }
    }

    fn value(&self, event: EventData<'_>) -> Option<Value> {
        let value = match self {
            CorrelationRule::Path(path) => correlation::field(event.data, path)?.clone(),
            // An event without a value is reported as one without a correlation id.
            CorrelationRule::Computed(_, expression) => expression
                .evaluate(&Bindings::before_any_instance().event(event))
                .ok()?,
        };
        // A field with null is the same as a missing one.
        (!value.is_null()).then_some(value)
    }
}
