//! Checks of definitions that are deployed together: child sagas, events with similar names, and
//! fields that no sample has.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use orlog_model::{EventType, SagaName};
use serde_json::Value;

use super::conditions::{FactTemplates, untested_event_fields};
use super::context::LintWarning;
use super::fields::DataSamples;
use super::names::{actions, handler_actions};
use super::rules::{SIMILAR_EVENT, UNKNOWN_CHILD, UNKNOWN_FIELD, UNTESTED_FIELD, warnings};
use super::similar::{is_misspelling, similarity_keys};
use crate::compile::CompiledDefinition;
use crate::definition::{CorrelationSpec, Definition, ResultMatcher, Step};
use crate::diagnostic::{Diagnostic, RawDiagnostic, did_you_mean};
use crate::program::Program;
use crate::steps::kind::Completion;
use crate::steps::{Action, ChildSagaAction};
use crate::yaml::locate_diagnostics;

/// Definition of a group, with the name of its file for diagnostics.
#[derive(Clone, Copy)]
pub struct GroupMember<'d> {
    /// The program.
    pub program: &'d dyn Program,
    /// Name of its file.
    pub file: &'d str,
}

/// Definitions that are deployed together.
pub struct DefinitionGroup<'d> {
    members: Vec<GroupMember<'d>>,
    /// Members by saga, as indices.
    by_saga: BTreeMap<&'d SagaName, usize>,
    /// Facts that the group publishes, with the templates of their data.
    facts: FactTemplates<'d>,
    events: BTreeMap<&'d EventType, EventUse<'d>>,
    /// Event types by the keys of their names: similar ones share a key.
    by_similarity: HashMap<String, Vec<&'d EventType>>,
    samples: DataSamples,
}

/// Use of an event type in a group.
#[derive(Default)]
struct EventUse<'d> {
    /// A saga of the group publishes the event.
    is_published: bool,
    /// Number of places that consume the event.
    consumers: usize,
    /// File of the first place.
    file: &'d str,
}

impl<'d> DefinitionGroup<'d> {
    /// Combines definitions; each saga has one member.
    #[must_use]
    pub fn new(members: Vec<GroupMember<'d>>) -> Self {
        let mut events: BTreeMap<&'d EventType, EventUse<'d>> = BTreeMap::new();
        let mut add = |kind: &'d EventType, file: &'d str, is_published: bool| {
            let entry = events.entry(kind).or_insert_with(|| EventUse {
                file,
                ..EventUse::default()
            });
            entry.is_published |= is_published;
            entry.consumers += usize::from(!is_published);
        };

        for GroupMember { program, file } in &members {
            if let Some(definition) = program.as_compiled().map(CompiledDefinition::definition) {
                published(definition).for_each(|kind| add(kind, file, true));
                for (_, kind) in consumed(definition) {
                    add(kind, file, false);
                }
            } else {
                for subscription in &program.manifest().subscriptions {
                    add(&subscription.kind, file, false);
                }
            }
        }

        let mut by_similarity: HashMap<_, Vec<_>> = HashMap::new();
        for kind in events.keys().copied() {
            for key in similarity_keys(kind.as_str()) {
                by_similarity.entry(key).or_default().push(kind);
            }
        }

        let mut by_saga = BTreeMap::new();
        for (index, member) in members.iter().enumerate() {
            by_saga
                .entry(&member.program.definition_ref().saga)
                .or_insert(index);
        }
        Self {
            by_saga,
            facts: facts_of(&members),
            members,
            events,
            by_similarity,
            samples: DataSamples::default(),
        }
    }

    /// Also compares the fields that expressions read with these samples, and with the facts of the
    /// group.
    #[must_use]
    pub fn with_samples(mut self, mut samples: DataSamples) -> Self {
        // The data of a published result is not in the definition.
        let definitions = self.definitions();
        let results = definitions.clone().flat_map(published_results);
        let results: BTreeSet<_> = results.collect();
        for fact in definitions.flat_map(|form| form.completed.iter().chain(&form.failed)) {
            if !results.contains(&fact.fact) {
                samples.add_event(&fact.fact, &fact.data);
            }
        }

        self.samples = samples;
        self
    }

    /// Returns the warnings of one member, by all rules, in the order of its text.
    #[must_use]
    pub fn warnings(&self, saga: &SagaName) -> Vec<LintWarning> {
        let Some((member, compiled)) = self
            .member(saga)
            .and_then(|m| Some((m, m.program.as_compiled()?)))
        else {
            return Vec::new();
        };

        let definition = compiled.definition();
        let mut found = Vec::new();
        for (path, child) in children(definition) {
            found.extend(
                self.unknown_child(&path, child)
                    .map(|finding| (UNKNOWN_CHILD, finding)),
            );
        }

        let events = consumed(definition).into_iter();
        found.extend(
            events.filter_map(|(path, kind)| Some((SIMILAR_EVENT, self.similar(path, kind)?))),
        );

        let unknown = self.samples.unknown_fields(definition).into_iter();
        found.extend(unknown.map(|finding| (UNKNOWN_FIELD, finding)));

        let untested = untested_event_fields(definition, &self.facts).into_iter();
        found.extend(untested.map(|finding| (UNTESTED_FIELD, finding)));

        warnings(definition, compiled.source(), member.file, found)
    }

    /// Returns what contradicts the definitions of child sagas in one member: start events that do
    /// not exist, and addresses under which a child would not receive its events.
    #[must_use]
    pub fn contradictions(&self, saga: &SagaName) -> Vec<Diagnostic> {
        let Some((member, compiled)) = self
            .member(saga)
            .and_then(|m| Some((m, m.program.as_compiled()?)))
        else {
            return Vec::new();
        };

        let findings = children(compiled.definition())
            .into_iter()
            .filter_map(|(path, child)| {
                let program = self.member(&child.saga)?.program;
                wrong_start_event(&path, child, program)
                    .or_else(|| wrong_address(&path, child, program))
            });
        locate_diagnostics(findings.collect(), compiled.source(), member.file)
    }

    fn definitions(&self) -> impl Iterator<Item = &'d Definition> + Clone {
        let compiled = self.members.iter().filter_map(|m| m.program.as_compiled());
        compiled.map(CompiledDefinition::definition)
    }

    fn member(&self, saga: &SagaName) -> Option<&GroupMember<'d>> {
        self.by_saga.get(saga).map(|index| &self.members[*index])
    }

    fn unknown_child(&self, path: &str, child: &ChildSagaAction) -> Option<RawDiagnostic> {
        if self.member(&child.saga).is_some() {
            return None;
        }

        // The definition can be deployed later, so this is a warning (ADR 0060).
        let message = format!("no definition of the saga `{}` is present", child.saga);
        let names = self
            .members
            .iter()
            .map(|member| member.program.definition_ref().saga.as_str());
        let suggestion = did_you_mean(child.saga.as_str(), names)
            .unwrap_or_else(|| "add its definition to the directory".to_owned());
        Some(RawDiagnostic::new(format!("{path}.saga"), message).with_suggestion(suggestion))
    }

    /// OL16: an event with one consumer that differs from another event by a misspelling.
    fn similar(&self, path: String, kind: &EventType) -> Option<RawDiagnostic> {
        // An event that a saga publishes, or that several places consume, is hardly misspelled.
        let own = self
            .events
            .get(kind)
            .filter(|own| !own.is_published && own.consumers == 1)?;

        // Of two events with one consumer each, the later one is reported.
        let keys = similarity_keys(kind.as_str()).into_iter();
        let candidates: BTreeSet<_> = keys
            .filter_map(|key| self.by_similarity.get(&key))
            .flatten()
            .copied()
            .collect();
        let (other, usage) = candidates
            .into_iter()
            .filter(|other| is_misspelling(kind.as_str(), other.as_str()))
            .filter_map(|other| Some((other, self.events.get(other)?)))
            .find(|(other, usage)| usage.is_published || usage.consumers > 1 || *other < kind)?;

        let place = if usage.file == own.file {
            String::new()
        } else {
            format!(" of {}", usage.file)
        };
        let message =
            format!("{kind} resembles the event {other}{place}, and nothing else uses it");
        Some(RawDiagnostic::new(path, message).with_suggestion(format!("did you mean `{other}`?")))
    }
}

/// Returns the facts that members publish, with the templates of their data.
fn facts_of<'d>(members: &[GroupMember<'d>]) -> FactTemplates<'d> {
    let mut facts = FactTemplates::default();
    let compiled = members.iter().filter_map(|m| m.program.as_compiled());
    for definition in compiled.map(CompiledDefinition::definition) {
        for fact in definition.completed.iter().chain(&definition.failed) {
            facts.add(&fact.fact, Some(&fact.data));
        }
        // The data of a published result is not in the definition.
        for kind in published_results(definition) {
            facts.add(kind, None);
        }
    }
    facts
}

/// Returns the child sagas of a definition with the paths of their actions.
fn children(definition: &Definition) -> Vec<(String, &ChildSagaAction)> {
    let steps = definition.steps.iter().enumerate();
    let handlers = definition.on.iter().enumerate();
    let handled = handlers.flat_map(|(n, handler)| handler_actions(n, handler));
    let all = steps.flat_map(|(i, step)| actions(i, step)).chain(handled);
    all.filter_map(|(path, action)| match action {
        Action::Saga(child) => Some((path, child)),
        _ => None,
    })
    .collect()
}

/// Returns the first start event of a child saga, or the one that its parent names.
fn start_event<'e>(child: &'e ChildSagaAction, program: &'e dyn Program) -> Option<&'e EventType> {
    let mut starts = program
        .manifest()
        .subscriptions
        .iter()
        .filter(|subscription| subscription.starts);
    child
        .event
        .as_ref()
        .or_else(|| starts.next().map(|subscription| &subscription.kind))
}

fn wrong_start_event(
    path: &str,
    child: &ChildSagaAction,
    program: &dyn Program,
) -> Option<RawDiagnostic> {
    let event = child.event.as_ref()?;
    let starts = program
        .manifest()
        .subscriptions
        .iter()
        .filter(|subscription| subscription.starts);
    let starts: Vec<_> = starts
        .map(|subscription| subscription.kind.as_str())
        .collect();
    if starts.contains(&event.as_str()) {
        return None;
    }

    let message = format!("{event} is not a start event of the saga `{}`", child.saga);
    let suggestion = did_you_mean(event.as_str(), starts.iter().copied())
        .unwrap_or_else(|| format!("its start events: {}", starts.join(", ")));
    Some(RawDiagnostic::new(format!("{path}.event"), message).with_suggestion(suggestion))
}

/// Reports a child saga whose `correlate` gives another id than its parent.
fn wrong_address(
    path: &str,
    child: &ChildSagaAction,
    program: &dyn Program,
) -> Option<RawDiagnostic> {
    let definition = program.as_compiled()?.definition();
    let event = start_event(child, program)?;

    // An upcast can change the field, so the ids cannot be compared.
    if definition
        .events
        .get(event)
        .is_some_and(|versions| !versions.upcast.is_empty())
    {
        return None;
    }

    // Without a plain field and its template, a contradiction cannot be proved (ADR 0060).
    let field = correlation_field(&definition.correlate, event)?;
    let own = template_at(&child.data, field)?;

    let message = match &child.correlation {
        // Ids are compared as templates. Different expressions can have equal values.
        Some(given) if can_be_equal(given, own) => return None,
        Some(given) => format!("the id of the child is `{}`", text_of(given)),
        None => "without `correlation`, the id of the child is that of this instance and the step"
            .to_owned(),
    };

    let message = format!(
        "{message}, but the saga `{}` finds its events by `{field}`, which is `{}`",
        child.saga,
        text_of(own)
    );
    let suggestion = format!("set `correlation: {}`", text_of(own));
    Some(RawDiagnostic::new(path, message).with_suggestion(suggestion))
}

/// Returns the field of an event that contains the correlation id; `None` for the envelope and for
/// computed ids.
fn correlation_field<'s>(spec: &'s CorrelationSpec, event: &EventType) -> Option<&'s str> {
    let text = match spec {
        CorrelationSpec::Envelope => return None,
        CorrelationSpec::Field(text) => text,
        CorrelationSpec::ByType(texts) => texts.get(event)?,
    };
    let Some(expression) = text.strip_prefix('=') else {
        return Some(text);
    };
    let path = expression.trim().strip_prefix("event.")?;
    let is_path = path
        .chars()
        .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '-'));
    is_path.then_some(path)
}

/// Returns the template of a field; `None` if the data has no such field, or an expression computes
/// it.
fn template_at<'v>(data: &'v Value, path: &str) -> Option<&'v Value> {
    let found = path
        .split('.')
        .try_fold(data, |value, field| value.as_object()?.get(field))?;
    (found.is_string() || found.is_number()).then_some(found)
}

fn can_be_equal(given: &Value, own: &Value) -> bool {
    let given = text_of(given);
    let own = text_of(own);
    let is_computed = |text: &str| text.starts_with('=') && !text.starts_with("==");
    given == own || is_computed(&given) || is_computed(&own)
}

fn text_of(template: &Value) -> String {
    match template.as_str() {
        Some(text) => text.split_whitespace().collect::<Vec<_>>().join(" "),
        None => template.to_string(),
    }
}

/// Returns the events that a definition publishes: its facts, and the named results of steps.
fn published(definition: &Definition) -> impl Iterator<Item = &EventType> {
    let facts = definition
        .completed
        .iter()
        .chain(&definition.failed)
        .map(|fact| &fact.fact);
    facts.chain(published_results(definition))
}

/// Returns the named results of steps that a definition publishes as events.
fn published_results(definition: &Definition) -> impl Iterator<Item = &EventType> {
    let reporting = definition.steps.iter().filter(|step| {
        let is_published = step.publish.or(definition.publish).unwrap_or(true);
        is_published && step.action.traits().reports_named_result()
    });
    reporting
        .flat_map(|step| step.ok.iter().chain(&step.fail))
        .map(|matcher| &matcher.event)
}

/// Returns the events that a definition consumes, with their paths.
fn consumed(definition: &Definition) -> Vec<(String, &EventType)> {
    let mut found = Vec::new();
    for (n, event) in definition.start.iter().enumerate() {
        found.push((format!("start[{n}]"), event));
    }
    for (i, step) in definition.steps.iter().enumerate() {
        consumed_by_step(i, step, &mut found);
    }
    for (n, handler) in definition.on.iter().enumerate() {
        let events = handler.event.iter().enumerate();
        found.extend(events.map(|(k, event)| (format!("on[{n}].event[{k}]"), event)));
    }
    found
}

fn consumed_by_step<'d>(i: usize, step: &'d Step, found: &mut Vec<(String, &'d EventType)>) {
    let path = format!("steps[{i}]");
    let mut add = |field: &str, matchers: &'d [ResultMatcher]| {
        let matchers = matchers.iter().enumerate();
        found.extend(matchers.map(|(n, matcher)| (format!("{path}.{field}[{n}]"), &matcher.event)));
    };

    match step.action.traits().completion {
        Completion::Acceptance => {
            add("ok", &step.ok);
            add("fail", &step.fail);
        }
        Completion::Event => add("fail", &step.fail),
        Completion::Outcome | Completion::User | Completion::Timer | Completion::None => {}
    }

    if let Some(undo) = step.compensate.as_ref()
        && undo.action.traits().completion == Completion::Acceptance
    {
        add("undo.ok", &undo.ok);
        add("undo.fail", &undo.fail);
    }

    if let Action::Event(awaited) = &step.action {
        let events = awaited.events.iter().enumerate();
        found.extend(events.map(|(n, event)| (format!("{path}.do.event[{n}]"), event)));
    }
}
