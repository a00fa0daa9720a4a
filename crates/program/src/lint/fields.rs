//! Lint of fields that no sample of an event or of a result has.

use std::collections::BTreeMap;

use orlog_model::{EventType, Name, SagaName};
use serde_json::{Map, Value};

use crate::definition::{Definition, ResultMatcher, Step};
use crate::diagnostic::{RawDiagnostic, did_you_mean};
use crate::expression::{FieldTest, Root, untested_fields};
use crate::steps::Action;
use crate::steps::kind::Completion;

/// Samples of the data that sagas receive, for example from the tests of their definitions. Only
/// data with fields is a sample.
#[derive(Clone, Debug, Default)]
pub struct DataSamples {
    events: BTreeMap<EventType, Vec<Value>>,
    /// By saga, step and name of the result; without a name, the first success of the step.
    results: BTreeMap<(SagaName, Name, Option<EventType>), Vec<Value>>,
}

impl DataSamples {
    /// Adds the data of an event.
    pub fn add_event(&mut self, kind: &EventType, data: &Value) {
        if has_fields(data) {
            self.events
                .entry(kind.clone())
                .or_default()
                .push(data.clone());
        }
    }

    /// Adds the data of a result of a step.
    pub fn add_result(
        &mut self,
        saga: &SagaName,
        step: &Name,
        event: Option<&EventType>,
        data: &Value,
    ) {
        if has_fields(data) {
            let key = (saga.clone(), step.clone(), event.cloned());
            self.results.entry(key).or_default().push(data.clone());
        }
    }

    /// Returns OL17: reads of fields that no sample of their source has.
    pub(super) fn unknown_fields(&self, definition: &Definition) -> Vec<RawDiagnostic> {
        let mut findings = Vec::new();
        let mut check = |path: String, texts: Texts<'_>, sources: &[Source<'_>]| {
            let samples: Option<Vec<_>> = sources
                .iter()
                .map(|source| self.of(definition, source))
                .collect();
            // A field is unknown only if every source has samples: one without them could have the
            // field.
            let Some(samples) = samples.filter(|samples| !samples.is_empty()) else {
                return;
            };

            let samples: Vec<_> = samples.concat();
            let name = sources
                .iter()
                .map(Source::name)
                .collect::<Vec<_>>()
                .join(" or ");

            texts.each(&path, &mut |path, text| {
                let reads = untested_fields(text, None, Root::Event, FieldTest::Presence);
                findings.extend(
                    reads
                        .iter()
                        .filter_map(|fields| unknown(path, fields, &name, &samples)),
                );
            });
        };

        let event = |kind| Source {
            kind: Some(kind),
            step: None,
        };
        let starts: Vec<_> = definition.start.iter().map(event).collect();
        check(
            "vars".to_owned(),
            Texts::Templates(&definition.vars),
            &starts,
        );

        for (i, step) in definition
            .steps
            .iter()
            .enumerate()
            .filter(|(_, step)| step.foreach.is_none())
        {
            let path = format!("steps[{i}]");
            check(
                format!("{path}.save"),
                Texts::Templates(&step.save),
                &results(step),
            );

            for (field, matchers) in [("ok", &step.ok), ("fail", &step.fail)] {
                for (n, ResultMatcher { event, when }) in matchers.iter().enumerate() {
                    let source = Source {
                        kind: Some(event),
                        step: Some(step),
                    };
                    check(
                        format!("{path}.{field}[{n}].when"),
                        Texts::Condition(when.as_ref()),
                        &[source],
                    );
                }
            }

            if let Action::Event(awaited) = &step.action {
                let sources: Vec<_> = awaited.events.iter().map(event).collect();
                check(
                    format!("{path}.do.when"),
                    Texts::Condition(awaited.when.as_ref()),
                    &sources,
                );
            }
        }

        for (n, handler) in definition.on.iter().enumerate() {
            let sources: Vec<_> = handler.event.iter().map(event).collect();
            check(
                format!("on[{n}].when"),
                Texts::Condition(handler.when.as_ref()),
                &sources,
            );
            check(
                format!("on[{n}].save"),
                Texts::Templates(&handler.save),
                &sources,
            );
        }

        findings
    }

    /// Returns the samples of a source; `None` if there are none, or if the definition converts the
    /// data.
    fn of(&self, definition: &Definition, source: &Source<'_>) -> Option<Vec<&Value>> {
        let Source { kind, step } = source;

        // An upcast template reads the data before the expressions do.
        if kind.is_some_and(|kind| definition.events.contains_key(kind)) {
            return None;
        }

        let is_event =
            step.is_none_or(|step| step.action.traits().completion == Completion::Acceptance);
        let events = kind
            .filter(|_| is_event)
            .and_then(|kind| self.events.get(kind));
        let of_step = step.map_or_else(Vec::new, |step| self.of_step(definition, step, *kind));

        let samples: Vec<_> = events.into_iter().flatten().chain(of_step).collect();
        (!samples.is_empty()).then_some(samples)
    }

    /// Returns the samples of a result of a step. A result without a name is the first success.
    fn of_step(
        &self,
        definition: &Definition,
        step: &Step,
        kind: Option<&EventType>,
    ) -> Vec<&Value> {
        let key =
            |kind: Option<&EventType>| (definition.saga.clone(), step.id.clone(), kind.cloned());
        // Results of effects can lack a name; they then count as the first success.
        let is_first = step.ok.first().map(|first| &first.event) == kind;
        let unnamed = is_first.then(|| self.results.get(&key(None))).flatten();
        let named = kind.and_then(|kind| self.results.get(&key(Some(kind))));
        unnamed.into_iter().chain(named).flatten().collect()
    }
}

/// Source of the data of `event`: an event, a named result of a step, or its only result.
struct Source<'d> {
    kind: Option<&'d EventType>,
    step: Option<&'d Step>,
}

impl Source<'_> {
    fn name(&self) -> String {
        match (self.kind, self.step) {
            (Some(kind), _) => kind.to_string(),
            (None, Some(step)) => format!("the result of step `{}`", step.id),
            (None, None) => String::new(),
        }
    }
}

/// Returns the results that a `save` reads.
fn results(step: &Step) -> Vec<Source<'_>> {
    if let Action::Event(awaited) = &step.action {
        return awaited
            .events
            .iter()
            .map(|kind| Source {
                kind: Some(kind),
                step: None,
            })
            .collect();
    }

    if step.ok.is_empty() {
        return vec![Source {
            kind: None,
            step: Some(step),
        }];
    }

    step.ok
        .iter()
        .map(|matcher| Source {
            kind: Some(&matcher.event),
            step: Some(step),
        })
        .collect()
}

/// Texts of a field that may read an event.
enum Texts<'d> {
    Condition(Option<&'d String>),
    Templates(&'d Map<String, Value>),
}

impl Texts<'_> {
    /// Passes each expression with its path.
    fn each(&self, path: &str, visit: &mut impl FnMut(&str, &str)) {
        match self {
            Texts::Condition(Some(text)) => visit(path, text.strip_prefix('=').unwrap_or(text)),
            Texts::Condition(None) => {}
            Texts::Templates(fields) => fields.iter().for_each(|(name, template)| {
                each_expression(&format!("{path}.{name}"), template, visit);
            }),
        }
    }
}

fn each_expression(path: &str, template: &Value, visit: &mut impl FnMut(&str, &str)) {
    match template {
        Value::String(text) => {
            if let Some(expression) = text.strip_prefix('=').filter(|rest| !rest.starts_with('=')) {
                visit(path, expression);
            }
        }
        Value::Array(items) => items
            .iter()
            .enumerate()
            .for_each(|(n, item)| each_expression(&format!("{path}[{n}]"), item, visit)),
        Value::Object(fields) => {
            fields
                .iter()
                .for_each(|(name, item)| each_expression(&format!("{path}.{name}"), item, visit));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn has_fields(data: &Value) -> bool {
    data.as_object().is_some_and(|fields| !fields.is_empty())
}

/// Reports the first field of an access that all samples lack.
fn unknown(
    path: &str,
    fields: &[String],
    source: &str,
    samples: &[&Value],
) -> Option<RawDiagnostic> {
    // The first missing field of the chain is reported, because the later ones follow from it.
    let count = (1..=fields.len()).find(|count| {
        samples
            .iter()
            .all(|sample| lacks(sample, &fields[..*count]))
    })?;
    let parent = &fields[..count - 1];
    let field = &fields[count - 1];

    let read = format!("event.{}", fields[..count].join("."));
    let message = format!("`{read}` is never set: no sample of {source} has the field `{field}`");

    let siblings = samples.iter().filter_map(|sample| {
        parent
            .iter()
            .try_fold(*sample, |at, field| at.get(field))?
            .as_object()
    });
    let siblings = siblings.flat_map(Map::keys).map(String::as_str);

    let suggestion = did_you_mean(field, siblings)
        .unwrap_or_else(|| "correct the field, or add it to the data of a test".to_owned());
    Some(RawDiagnostic::new(path, message).with_suggestion(suggestion))
}

/// Returns whether a sample certainly lacks the field at a path: all fields before it are maps.
fn lacks(sample: &Value, fields: &[String]) -> bool {
    let mut at = sample;
    for field in fields {
        match at.as_object().map(|map| map.get(field)) {
            Some(Some(value)) => at = value,
            Some(None) => return true,
            // A value that is no map does not tell which fields exist.
            None => return false,
        }
    }
    false
}
