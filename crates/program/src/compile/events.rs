//! Event bindings. If an event can have several meanings at one time, all but the last must have a
//! condition.

use std::collections::BTreeMap;

use orlog_model::EventType;

use super::order::StepOrder;
use crate::definition::{Definition, ResultMatcher, Step};
use crate::diagnostic::{RawDiagnostic, RawDiagnostics, did_you_mean};
use crate::machine::EventBinding;
use crate::steps::kind::Completion;
use crate::steps::{Action, Foreach};

/// Returns the event matchers of a step: those for success, then those for failure.
pub(super) fn event_matchers(step: &Step) -> (Vec<ResultMatcher>, &[ResultMatcher]) {
    let Action::Event(awaited) = &step.action else {
        return (step.ok.clone(), &step.fail);
    };

    let matchers = awaited.events.iter().map(|event| ResultMatcher {
        event: event.clone(),
        when: awaited.when.clone(),
    });
    (matchers.collect(), &step.fail)
}

/// An event binding, and whether it has a condition.
type ConditionalBinding = (EventBinding, bool);

/// Returns the possible bindings of each event type, in evaluation order.
fn meanings(definition: &Definition) -> BTreeMap<EventType, Vec<ConditionalBinding>> {
    let mut meanings: BTreeMap<EventType, Vec<ConditionalBinding>> = BTreeMap::new();
    for (step, form) in definition.steps.iter().enumerate() {
        let mut add = |list: &[ResultMatcher], compensation, success| {
            for (position, matcher) in list.iter().enumerate() {
                let entry = EventBinding {
                    step,
                    is_compensation: compensation,
                    is_success: success,
                    index: position,
                };
                meanings
                    .entry(matcher.event.clone())
                    .or_default()
                    .push((entry, matcher.when.is_some()));
            }
        };

        // Other actions complete by the result of their work. An event of that name could belong to
        // another attempt (ADR 0005).
        if matches!(
            form.action.traits().completion,
            Completion::Acceptance | Completion::Event
        ) {
            let (ok, fail) = event_matchers(form);
            add(&ok, false, true);
            add(fail, false, false);
        }

        if let Some(undo) = &form.compensate
            && undo.action.traits().completion == Completion::Acceptance
        {
            add(&undo.ok, true, true);
            add(&undo.fail, true, false);
        }
    }
    meanings
}

/// Returns the event bindings by event type.
pub(super) fn bindings_by_type(definition: &Definition) -> BTreeMap<EventType, Vec<EventBinding>> {
    let mut bindings = BTreeMap::new();
    for (kind, meanings) in meanings(definition) {
        let entries = meanings.into_iter().map(|(entry, _)| entry).collect();
        bindings.insert(kind, entries);
    }
    bindings
}

/// Checks for ambiguous events and for unused event versions.
pub(super) fn check(
    definition: &Definition,
    order: Option<&StepOrder>,
    findings: &mut RawDiagnostics,
) {
    if definition.start.is_empty() {
        findings.push(
            RawDiagnostic::new("start", "no event starts the saga")
                .with_suggestion("name the start event"),
        );
    }

    let all = meanings(definition);
    for (kind, meanings) in &all {
        elements(definition, kind, meanings, findings);
        ambiguous(definition, kind, meanings, order, findings);
    }

    versions(definition, &all, findings);
}

fn ambiguous(
    definition: &Definition,
    kind: &EventType,
    meanings: &[ConditionalBinding],
    order: Option<&StepOrder>,
    findings: &mut RawDiagnostics,
) {
    for (n, (later, _)) in meanings.iter().enumerate() {
        let earlier = meanings[..n]
            .iter()
            .find(|(e, conditional)| !conditional && confusable(*e, *later, order));
        let Some((earlier, _)) = earlier.copied() else {
            continue;
        };

        let same = earlier.step == later.step && earlier.is_compensation == later.is_compensation;
        let finding = if same && earlier.is_success != later.is_success {
            let path = position(definition, *later);
            let path = path.trim_end_matches(|c: char| c.is_ascii_digit() || c == '[' || c == ']');
            RawDiagnostic::new(path, format!("{kind} means both success and failure"))
        } else if same {
            RawDiagnostic::new(
                position(definition, *later),
                format!("{kind} is listed twice"),
            )
        } else {
            let message = format!(
                "{kind} is ambiguous: {} and {}",
                describe_binding(definition, earlier),
                describe_binding(definition, *later)
            );
            let suggestion = "use separate events, or order the steps with `after`";
            RawDiagnostic::new(position(definition, *later), message).with_suggestion(suggestion)
        };

        // One finding for each event type, because the others mostly follow from it.
        return findings.push(finding);
    }
}

/// Checks that an event of a `foreach` step identifies its element.
fn elements(
    definition: &Definition,
    kind: &EventType,
    meanings: &[ConditionalBinding],
    findings: &mut RawDiagnostics,
) {
    // Compensations of elements run one after another, so their events need no condition.
    for (entry, conditional) in meanings.iter().filter(|(entry, _)| !entry.is_compensation) {
        let foreach = definition.steps[entry.step]
            .foreach
            .as_ref()
            .filter(|_| !conditional);
        if let Some(suggestion) = foreach.and_then(Foreach::unidentified) {
            let message = format!("{kind} does not identify the element of the list");
            let finding = RawDiagnostic::new(position(definition, *entry), message);
            findings.push(finding.with_suggestion(suggestion));
        }
    }
}

fn versions(
    definition: &Definition,
    known: &BTreeMap<EventType, Vec<ConditionalBinding>>,
    findings: &mut RawDiagnostics,
) {
    let handled = definition.on.iter().flat_map(|handler| &handler.event);
    let consumed: Vec<_> = definition
        .start
        .iter()
        .chain(known.keys())
        .chain(handled)
        .collect();

    for (kind, form) in &definition.events {
        let path = format!("events.{kind}");
        if !consumed.contains(&kind) {
            let near = did_you_mean(kind.as_str(), consumed.iter().map(|kind| kind.as_str()));
            let message = format!("the saga does not consume the event {kind}");
            findings.push(RawDiagnostic::new(&path, message).with_optional_suggestion(near));
        }

        findings.extend(form.check(&path));
    }
}

/// Returns true if two bindings can be ambiguous. Steps that cannot overlap may share an event.
fn confusable(a: EventBinding, b: EventBinding, order: Option<&StepOrder>) -> bool {
    match (a.is_compensation, b.is_compensation) {
        (false, false) => {
            a.step == b.step || order.is_some_and(|order| order.overlap(a.step, b.step))
        }
        // Only one compensation is in progress at a time.
        (true, true) => a.step == b.step,
        // A discarded branch is compensated while the other steps continue.
        (false, true) | (true, false) => true,
    }
}

fn name(definition: &Definition, entry: EventBinding) -> &str {
    definition.steps[entry.step].id.as_str()
}

fn describe_binding(definition: &Definition, entry: EventBinding) -> String {
    let step = name(definition, entry);
    match (entry.is_compensation, entry.is_success) {
        (false, true) => format!("success of `{step}`"),
        (false, false) => format!("failure of `{step}`"),
        (true, true) => format!("compensation of `{step}`"),
        (true, false) => format!("failure of the compensation of `{step}`"),
    }
}

fn position(definition: &Definition, entry: EventBinding) -> String {
    let i = entry.step;
    let event = matches!(definition.steps[i].action, Action::Event(_));
    match (entry.is_compensation, entry.is_success) {
        (false, true) if event => format!("steps[{i}].do.event"),
        (false, true) => format!("steps[{i}].ok"),
        (false, false) => format!("steps[{i}].fail[{}]", entry.index),
        (true, true) => format!("steps[{i}].undo.ok"),
        (true, false) => format!("steps[{i}].undo.fail[{}]", entry.index),
    }
}
