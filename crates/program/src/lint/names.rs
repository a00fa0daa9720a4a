//! Lints of names that need escapes, and of ambiguous events.

use std::collections::{BTreeMap, BTreeSet};

use super::context::LintContext;
use crate::definition::{Definition, ResultMatcher, Step};
use crate::diagnostic::RawDiagnostic;
use crate::steps::Action;
use crate::steps::kind::Completion;

/// OL04: a name that needs escapes in a subject.
pub(super) fn not_routable(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let mut names = BTreeMap::new();
    collect(context.definition, &mut names);
    let invalid = names.into_iter().filter_map(|((kind, name), path)| {
        let dots = !matches!(kind, "saga" | "aggregate");
        let invalid = name
            .chars()
            .find(|c| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || (dots && *c == '.')));
        invalid.map(|invalid| (kind, name, path, invalid))
    });
    invalid
        .map(|(kind, name, path, invalid)| {
            let message =
                format!("the {kind} `{name}` contains {invalid:?}, which must be escaped in subjects");
            let allowed =
                if matches!(kind, "saga" | "aggregate") { "`-` and `_`" } else { "`-`, `_` and `.`" };
            RawDiagnostic::new(path, message).with_suggestion(format!("use letters, digits, {allowed}"))
        })
        .collect()
}

/// Collects every name with the first location that contains it.
fn collect<'d>(definition: &'d Definition, names: &mut BTreeMap<(&'static str, &'d str), String>) {
    let mut add = |kind, name: &'d str, path: String| {
        names.entry((kind, name)).or_insert(path);
    };
    add("saga", definition.saga.as_str(), "saga".to_owned());
    for (n, event) in definition.start.iter().enumerate() {
        add("event", event.as_str(), format!("start[{n}]"));
    }
    for (i, step) in definition.steps.iter().enumerate() {
        add("step", step.id.as_str(), format!("steps[{i}].id"));
        for (path, action) in actions(i, step) {
            for used in action.kind().names() {
                add(used.kind, used.name, format!("{path}.{}", used.field));
            }
        }
        for (path, matchers) in matchers(i, step) {
            let matchers = matchers.iter().enumerate();
            matchers.for_each(|(n, matcher)| add("event", matcher.event.as_str(), format!("{path}[{n}]")));
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

/// Returns the action of a step and its compensation, with their paths.
pub(super) fn actions(i: usize, step: &Step) -> impl Iterator<Item = (String, &Action)> {
    let compensation =
        step.compensate.iter().map(move |compensation| (format!("steps[{i}].undo"), &compensation.action));
    std::iter::once((format!("steps[{i}].do"), &step.action)).chain(compensation)
}

fn matchers(i: usize, step: &Step) -> Vec<(String, &[ResultMatcher])> {
    let mut matchers: Vec<(String, &[ResultMatcher])> =
        vec![(format!("steps[{i}].ok"), &step.ok), (format!("steps[{i}].fail"), &step.fail)];
    if let Some(compensation) = &step.compensate {
        matchers.push((format!("steps[{i}].undo.ok"), &compensation.ok));
        matchers.push((format!("steps[{i}].undo.fail"), &compensation.fail));
    }
    matchers
}

/// OL07: an event that a step awaits and an `on` handler also consumes.
pub(super) fn awaited_and_handled(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let mut awaited = BTreeSet::new();
    for (i, step) in context.definition.steps.iter().enumerate() {
        for (_, action) in actions(i, step) {
            if let Action::Event(event) = action {
                awaited.extend(&event.events);
            }
        }
        if step.action.traits().completion == Completion::Acceptance {
            awaited.extend(step.ok.iter().chain(&step.fail).map(|matcher| &matcher.event));
        }
    }
    let handlers = context.definition.on.iter().enumerate();
    let both = handlers.flat_map(|(n, handler)| handler.event.iter().map(move |event| (n, event)));
    both.filter(|(_, event)| awaited.contains(event))
        .map(|(n, event)| {
            let message = format!("a step also awaits {event}; the handler consumes it first");
            RawDiagnostic::new(format!("on[{n}]"), message)
                .with_suggestion("use separate events, or add a `when` to each")
        })
        .collect()
}
