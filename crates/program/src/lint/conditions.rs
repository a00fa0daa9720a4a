//! Lint of conditions that read a field of an event that may be absent.

use std::collections::BTreeMap;

use orlog_model::EventType;
use serde_json::Value;

use crate::definition::{Definition, HandlerSpec, ResultMatcher, Step};
use crate::diagnostic::RawDiagnostic;
use crate::expression::{FieldTest, Root, untested_fields};
use crate::steps::Action;
use crate::steps::kind::Completion;

/// Data of the facts that the sagas of a group publish, by type. `None`: a saga publishes the type
/// with unknown data.
#[derive(Default)]
pub(super) struct FactTemplates<'d> {
    by_type: BTreeMap<&'d EventType, Vec<Option<&'d Value>>>,
}

impl<'d> FactTemplates<'d> {
    /// Adds a fact.
    pub(super) fn add(&mut self, kind: &'d EventType, data: Option<&'d Value>) {
        self.by_type.entry(kind).or_default().push(data);
    }

    /// Returns whether every fact of these types has a field, so that the event has it.
    fn require(&self, kinds: &[&EventType], fields: &[String]) -> bool {
        let mut facts: Vec<Option<&Value>> = Vec::new();
        for kind in kinds {
            let Some(of_kind) = self.by_type.get(*kind) else {
                return false;
            };
            facts.extend(of_kind);
        }
        facts
            .iter()
            .all(|data| data.is_some_and(|data| has_field(data, fields)))
    }
}

fn has_field(data: &Value, fields: &[String]) -> bool {
    let found = fields
        .iter()
        .try_fold(data, |at, field| at.as_object()?.get(field));
    found.is_some()
}

/// Condition that decides whether an event, or a result, has a meaning.
struct MatchCondition<'d> {
    path: String,
    text: &'d str,
    kinds: Vec<&'d EventType>,
    element: Option<&'d str>,
    /// Consequence of an absent field.
    consequence: String,
}

/// OL21: a condition that reads a field that an event need not have, without a test.
pub(super) fn untested_event_fields(
    definition: &Definition,
    facts: &FactTemplates<'_>,
) -> Vec<RawDiagnostic> {
    let mut conditions = Vec::new();
    for (i, step) in definition.steps.iter().enumerate() {
        of_step(i, step, &mut conditions);
    }
    for (n, handler) in definition.on.iter().enumerate() {
        conditions.extend(of_handler(n, handler));
    }

    let mut findings = Vec::new();
    for condition in conditions {
        let source = condition.text.strip_prefix('=').unwrap_or(condition.text);
        let read = untested_fields(source, condition.element, Root::Event, FieldTest::Presence);
        for fields in read {
            if facts.require(&condition.kinds, &fields) {
                continue;
            }

            let field = fields.join(".");
            let message = format!("without `event.{field}`, {}", condition.consequence);
            let suggestion = format!(
                "write `has(event.{field}) && …`, or suppress the warning if the field is always \
                 present"
            );
            findings.push(RawDiagnostic::new(&condition.path, message).with_suggestion(suggestion));
        }
    }
    findings
}

fn of_step<'d>(i: usize, step: &'d Step, conditions: &mut Vec<MatchCondition<'d>>) {
    let id = &step.id;
    let path = format!("steps[{i}]");
    let element = step.foreach.as_ref().map(|foreach| foreach.name.as_str());
    let waits_on = |event: &str| format!("{event} does not match, and step `{id}` waits on");
    let fails = || format!("step `{id}` fails with `expression_error`");

    if let Action::Event(awaited) = &step.action {
        let kinds: Vec<_> = awaited.events.iter().collect();
        let names: Vec<_> = kinds.iter().map(|kind| kind.as_str()).collect();
        let mut add = |field: &str, text: Option<&'d String>, consequence| {
            conditions.extend(text.map(|text| MatchCondition {
                path: format!("{path}.do.{field}"),
                text,
                kinds: kinds.clone(),
                element,
                consequence,
            }));
        };
        add("when", awaited.when.as_ref(), waits_on(&names.join(" or ")));
        add("until", awaited.until.as_ref(), fails());
    }

    // An event that is awaited answers no request, so a malformed one has no effect.
    let is_wait = step.action.traits().completion == Completion::Event;
    for (field, matchers) in [("ok", &step.ok), ("fail", &step.fail)] {
        for (n, matcher) in matchers.iter().enumerate() {
            let consequence = if is_wait {
                waits_on(matcher.event.as_str())
            } else {
                fails()
            };
            let path = format!("{path}.{field}[{n}].when");
            conditions.extend(of_matcher(path, matcher, element, consequence));
        }
    }

    let undo = step.compensate.iter();
    for (field, matchers) in undo.flat_map(|undo| [("ok", &undo.ok), ("fail", &undo.fail)]) {
        for (n, matcher) in matchers.iter().enumerate() {
            let consequence = format!("the compensation of step `{id}` fails");
            let path = format!("{path}.undo.{field}[{n}].when");
            conditions.extend(of_matcher(path, matcher, element, consequence));
        }
    }
}

fn of_matcher<'d>(
    path: String,
    matcher: &'d ResultMatcher,
    element: Option<&'d str>,
    consequence: String,
) -> Option<MatchCondition<'d>> {
    Some(MatchCondition {
        path,
        text: matcher.when.as_ref()?,
        kinds: vec![&matcher.event],
        element,
        consequence,
    })
}

fn of_handler(n: usize, handler: &HandlerSpec) -> Option<MatchCondition<'_>> {
    let names: Vec<_> = handler.event.iter().map(EventType::as_str).collect();
    Some(MatchCondition {
        path: format!("on[{n}].when"),
        text: handler.when.as_ref()?,
        kinds: handler.event.iter().collect(),
        element: None,
        consequence: format!("{} becomes a dead letter", names.join(" or ")),
    })
}
