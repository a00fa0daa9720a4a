//! Which event means what: at any time, all but the last thing it can mean must have a condition.

use std::collections::BTreeMap;

use orlog_model::EventType;

use super::order::Order;
use crate::definition::{Action, Answer, Definition, Step};
use crate::diagnostic::{Finding, Findings, did_you_mean};
use crate::machine::Entry;

/// The answers that events give to a step: what is done by events of a type, then what fails by them.
pub(super) fn answers(step: &Step) -> (Vec<Answer>, &[Answer]) {
    match &step.action {
        Action::Event { events, when } => {
            let ok = events.iter().map(|event| Answer { event: event.clone(), when: when.clone() });
            (ok.collect(), &step.fail)
        }
        Action::Command { .. }
        | Action::Effect { .. }
        | Action::Wait(_)
        | Action::Human(_)
        | Action::Saga { .. }
        | Action::Job(_)
        | Action::Switch(_) => (step.ok.clone(), &step.fail),
    }
}

/// An entry, and whether it has a condition.
type Meaning = (Entry, bool);

/// What the events of each type can mean, in the order in which it is tried.
fn meanings(definition: &Definition) -> BTreeMap<EventType, Vec<Meaning>> {
    let mut meanings: BTreeMap<EventType, Vec<Meaning>> = BTreeMap::new();
    for (step, form) in definition.steps.iter().enumerate() {
        let mut add = |list: &[Answer], undo, good| {
            for (place, answer) in list.iter().enumerate() {
                let entry = Entry { step, undo, good, place };
                meanings.entry(answer.event.clone()).or_default().push((entry, answer.when.is_some()));
            }
        };
        if matches!(form.action, Action::Command { .. } | Action::Event { .. }) {
            let (ok, fail) = answers(form);
            add(&ok, false, true);
            add(fail, false, false);
        }
        if let Some(undo) = form.undo.as_ref().filter(|undo| matches!(undo.action, Action::Command { .. })) {
            add(&undo.ok, true, true);
            add(&undo.fail, true, false);
        }
    }
    meanings
}

/// Who may want the events of a type.
pub(super) fn entries(definition: &Definition) -> BTreeMap<EventType, Vec<Entry>> {
    let plain = |meanings: Vec<Meaning>| meanings.into_iter().map(|(entry, _)| entry).collect();
    meanings(definition).into_iter().map(|(kind, meanings)| (kind, plain(meanings))).collect()
}

/// Events that could be taken for two things, and versions of events that nobody takes.
pub(super) fn check(definition: &Definition, order: Option<&Order>, findings: &mut Findings) {
    if definition.start.is_empty() {
        findings
            .push(Finding::new("start", "nothing starts the saga").suggest("name the event that begins it"));
    }
    let all = meanings(definition);
    for (kind, meanings) in &all {
        if definition.start.contains(kind) {
            let (first, _) = meanings[0];
            let message =
                format!("{kind} starts the saga, so it cannot answer step `{}` too", name(definition, first));
            findings.push(Finding::new(place(definition, first), message));
        }
        elements(definition, kind, meanings, findings);
        ambiguous(definition, kind, meanings, order, findings);
    }
    versions(definition, &all, findings);
}

fn ambiguous(
    definition: &Definition,
    kind: &EventType,
    meanings: &[Meaning],
    order: Option<&Order>,
    findings: &mut Findings,
) {
    for (n, (later, _)) in meanings.iter().enumerate() {
        let earlier =
            meanings[..n].iter().find(|(e, conditional)| !conditional && confusable(*e, *later, order));
        let Some((earlier, _)) = earlier.copied() else { continue };
        let same = earlier.step == later.step && earlier.undo == later.undo;
        let finding = if same && earlier.good != later.good {
            let path = place(definition, *later);
            let path = path.trim_end_matches(|c: char| c.is_ascii_digit() || c == '[' || c == ']');
            Finding::new(path, format!("{kind} means both success and failure"))
        } else if same {
            Finding::new(place(definition, *later), format!("{kind} stands here twice"))
        } else {
            let message = format!(
                "{kind} could mean two things: {} and {}",
                meaning(definition, earlier),
                meaning(definition, *later)
            );
            let suggestion = "give them events of their own, or put one step after the other";
            Finding::new(place(definition, *later), message).suggest(suggestion)
        };
        return findings.push(finding);
    }
}

/// An event must say which of several elements it answers.
fn elements(definition: &Definition, kind: &EventType, meanings: &[Meaning], findings: &mut Findings) {
    for (entry, conditional) in meanings.iter().filter(|(entry, _)| !entry.undo) {
        let Some(foreach) = &definition.steps[entry.step].foreach else { continue };
        if !conditional && foreach.limit != Some(1) {
            let message = format!("nothing says which element {kind} answers");
            let suggestion = format!("give it a condition such as event.id == {}.id", foreach.name);
            findings.push(Finding::new(place(definition, *entry), message).suggest(suggestion));
        }
    }
}

fn versions(definition: &Definition, known: &BTreeMap<EventType, Vec<Meaning>>, findings: &mut Findings) {
    let handled = definition.on.iter().flat_map(|handler| &handler.event);
    let taken: Vec<_> = definition.start.iter().chain(known.keys()).chain(handled).collect();
    for (kind, form) in &definition.events {
        let path = format!("events.{kind}");
        if !taken.contains(&kind) {
            let near = did_you_mean(kind.as_str(), taken.iter().map(|kind| kind.as_str()));
            let message = format!("the saga takes no event {kind}");
            findings.push(Finding::new(&path, message).maybe_suggest(near));
        }
        if form.accepts.is_empty() {
            let finding = Finding::new(format!("{path}.accepts"), "no version is accepted");
            findings.push(finding.suggest("name the versions, as in [1, 2]"));
        }
        for version in form.upcast.keys().filter(|version| !form.accepts.contains(version)) {
            let message = format!("version {version} is not accepted, so nothing makes a newer one of it");
            let finding = Finding::new(format!("{path}.upcast.{version}"), message);
            findings.push(finding.suggest(format!("add {version} to `accepts`")));
        }
    }
}

/// Steps that cannot overlap may share an event, and so may undos, of which one at a time is under way.
fn confusable(a: Entry, b: Entry, order: Option<&Order>) -> bool {
    match (a.undo, b.undo) {
        (false, false) => a.step == b.step || order.is_some_and(|order| order.overlap(a.step, b.step)),
        (true, true) => a.step == b.step,
        (false, true) | (true, false) => true,
    }
}

fn name(definition: &Definition, entry: Entry) -> &str {
    definition.steps[entry.step].id.as_str()
}

fn meaning(definition: &Definition, entry: Entry) -> String {
    let step = name(definition, entry);
    match (entry.undo, entry.good) {
        (false, true) => format!("success of `{step}`"),
        (false, false) => format!("failure of `{step}`"),
        (true, true) => format!("`{step}` undone"),
        (true, false) => format!("`{step}` not undone"),
    }
}

fn place(definition: &Definition, entry: Entry) -> String {
    let i = entry.step;
    let event = matches!(definition.steps[i].action, Action::Event { .. });
    match (entry.undo, entry.good) {
        (false, true) if event => format!("steps[{i}].do.event"),
        (false, true) => format!("steps[{i}].ok"),
        (false, false) => format!("steps[{i}].fail[{}]", entry.place),
        (true, true) => format!("steps[{i}].undo.ok"),
        (true, false) => format!("steps[{i}].undo.fail[{}]", entry.place),
    }
}
