//! Names that travel badly, and events that mean two things.

use std::collections::{BTreeMap, BTreeSet};

use super::context::Sight;
use crate::definition::{Action, Answer, Definition, Step};
use crate::diagnostic::Finding;

/// OL04: a name that needs escapes in a subject.
pub(super) fn not_routable(sight: &Sight<'_>) -> Vec<Finding> {
    let mut names = BTreeMap::new();
    collect(sight.definition, &mut names);
    let bad = names.into_iter().filter_map(|((what, name), path)| {
        let dots = !matches!(what, "saga" | "aggregate");
        let bad = name
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || (dots && *c == '.')));
        bad.map(|bad| (what, name, path, bad))
    });
    bad.map(|(what, name, path, bad)| {
        let message = format!(
            "the {what} `{name}` holds {bad:?}, which is escaped wherever the name is part of a subject"
        );
        let allowed = if matches!(what, "saga" | "aggregate") { "`-` and `_`" } else { "`-`, `_` and `.`" };
        Finding::new(path, message).suggest(format!("use letters, digits, {allowed}"))
    })
    .collect()
}

/// Every name with the first place that holds it.
fn collect<'d>(definition: &'d Definition, names: &mut BTreeMap<(&'static str, &'d str), String>) {
    let mut add = |what, name: &'d str, path: String| {
        names.entry((what, name)).or_insert(path);
    };
    add("saga", definition.saga.as_str(), "saga".to_owned());
    for (n, event) in definition.start.iter().enumerate() {
        add("event", event.as_str(), format!("start[{n}]"));
    }
    for (i, step) in definition.steps.iter().enumerate() {
        add("step", step.id.as_str(), format!("steps[{i}].id"));
        for (path, action) in actions(i, step) {
            match action {
                Action::Command { aggregate_type, name, .. } => {
                    add("aggregate", aggregate_type.as_str(), format!("{path}.command"));
                    add("command", name.as_str(), format!("{path}.command"));
                }
                Action::Effect { name, .. } => add("effect", name.as_str(), format!("{path}.effect")),
                Action::Saga { saga, .. } => add("saga", saga.as_str(), format!("{path}.saga")),
                Action::Job(job) => add("script type", job.kind.as_str(), format!("{path}.job.type")),
                Action::Event { events, .. } => {
                    let events = events.iter().enumerate();
                    events.for_each(|(n, event)| add("event", event.as_str(), format!("{path}.event[{n}]")));
                }
                Action::Wait(_) | Action::Human(_) | Action::Switch(_) => {}
            }
        }
        for (path, answers) in answers(i, step) {
            let answers = answers.iter().enumerate();
            answers.for_each(|(n, answer)| add("event", answer.event.as_str(), format!("{path}[{n}]")));
        }
    }
    for (n, handler) in definition.on.iter().enumerate() {
        handler.event.iter().for_each(|event| add("event", event.as_str(), format!("on[{n}].event")));
    }
    for (field, fact) in [("completed", &definition.completed), ("failed", &definition.failed)] {
        if let Some(fact) = fact {
            add("event", fact.fact.as_str(), format!("{field}.fact"));
        }
    }
}

fn actions(i: usize, step: &Step) -> impl Iterator<Item = (String, &Action)> {
    let undo = step.undo.iter().map(move |undo| (format!("steps[{i}].undo"), &undo.action));
    std::iter::once((format!("steps[{i}].do"), &step.action)).chain(undo)
}

fn answers(i: usize, step: &Step) -> Vec<(String, &[Answer])> {
    let mut answers: Vec<(String, &[Answer])> =
        vec![(format!("steps[{i}].ok"), &step.ok), (format!("steps[{i}].fail"), &step.fail)];
    if let Some(undo) = &step.undo {
        answers.push((format!("steps[{i}].undo.ok"), &undo.ok));
        answers.push((format!("steps[{i}].undo.fail"), &undo.fail));
    }
    answers
}

/// OL07: an event that a step awaits and an `on` handler takes as well.
pub(super) fn awaited_and_handled(sight: &Sight<'_>) -> Vec<Finding> {
    let mut awaited = BTreeSet::new();
    for (i, step) in sight.definition.steps.iter().enumerate() {
        for (_, action) in actions(i, step) {
            if let Action::Event { events, .. } = action {
                awaited.extend(events);
            }
        }
        if matches!(step.action, Action::Command { .. }) {
            awaited.extend(step.ok.iter().chain(&step.fail).map(|answer| &answer.event));
        }
    }
    let handlers = sight.definition.on.iter().enumerate();
    let both = handlers.flat_map(|(n, handler)| handler.event.iter().map(move |event| (n, event)));
    both.filter(|(_, event)| awaited.contains(event))
        .map(|(n, event)| {
            let message = format!("{event} is awaited by a step too; the handler takes it first");
            Finding::new(format!("on[{n}]"), message)
                .suggest("give them events of their own, or a `when` each")
        })
        .collect()
}
