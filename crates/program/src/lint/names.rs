//! Lints of names that need escapes, and of ambiguous events.

use std::collections::{BTreeMap, BTreeSet};

use super::context::LintContext;
use crate::definition::{Definition, HandlerSpec, ResultMatcher, Step};
use crate::diagnostic::RawDiagnostic;
use crate::steps::Action;
use crate::steps::kind::Completion;

/// OL04: a name that needs escapes in a subject.
pub(super) fn not_routable(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let mut names = BTreeMap::new();
    collect(context.definition, &mut names);
    let invalid = names.into_iter().filter_map(|((kind, name), path)| {
        let dots = !matches!(kind, "saga" | "aggregate");
        let invalid = name.chars().find(|c| {
            !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_') || (dots && *c == '.'))
        });
        invalid.map(|invalid| (kind, name, path, invalid))
    });

    invalid
        .map(|(kind, name, path, invalid)| {
            let message = format!(
                "the {kind} `{name}` contains {invalid:?}, which must be escaped in subjects"
            );
            let allowed = if matches!(kind, "saga" | "aggregate") {
                "`-` and `_`"
            } else {
                "`-`, `_` and `.`"
            };
            RawDiagnostic::new(path, message)
                .with_suggestion(format!("use letters, digits, {allowed}"))
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
            matchers.for_each(|(n, matcher)| {
                add("event", matcher.event.as_str(), format!("{path}[{n}]"));
            });
        }
    }

    for (n, handler) in definition.on.iter().enumerate() {
        handler
            .event
            .iter()
            .for_each(|event| add("event", event.as_str(), format!("on[{n}].event")));
    }

    for (field, fact) in [
        ("completed", &definition.completed),
        ("failed", &definition.failed),
    ] {
        if let Some(fact) = fact {
            add("event", fact.fact.as_str(), format!("{field}.fact"));
        }
    }
}

/// Returns the action of a step, its compensation and its reminder, with their paths.
pub(super) fn actions(i: usize, step: &Step) -> impl Iterator<Item = (String, &Action)> {
    let compensation = step
        .compensate
        .iter()
        .map(move |compensation| (format!("steps[{i}].undo"), &compensation.action));
    let reminder = step
        .remind
        .iter()
        .map(move |remind| (format!("steps[{i}].remind.do"), &remind.action));
    std::iter::once((format!("steps[{i}].do"), &step.action))
        .chain(compensation)
        .chain(reminder)
}

/// Returns the actions of an event handler, with their paths.
pub(super) fn handler_actions(
    n: usize,
    handler: &HandlerSpec,
) -> impl Iterator<Item = (String, &Action)> {
    let actions = handler.actions.iter().enumerate();
    actions.map(move |(i, action)| (format!("on[{n}].do[{i}]"), action))
}

fn matchers(i: usize, step: &Step) -> Vec<(String, &[ResultMatcher])> {
    let mut matchers: Vec<(String, &[ResultMatcher])> = vec![
        (format!("steps[{i}].ok"), &step.ok),
        (format!("steps[{i}].fail"), &step.fail),
    ];
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
        // The results of other actions do not arrive as events, so no handler consumes them first.
        if step.action.traits().completion == Completion::Acceptance {
            awaited.extend(
                step.ok
                    .iter()
                    .chain(&step.fail)
                    .map(|matcher| &matcher.event),
            );
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

/// OL19: an event handler that starts child sagas with an id that does not depend on the event:
/// only the first starts.
pub(super) fn same_child_for_each_event(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let handlers = context.definition.on.iter().enumerate();
    let children = handlers
        .flat_map(|(n, handler)| handler_actions(n, handler))
        .filter_map(|(path, action)| {
            let Action::Saga(child) = action else {
                return None;
            };
            Some((path, child.correlation.as_ref()?))
        });

    let constant = children.filter(|(_, id)| {
        !id.as_str()
            .is_some_and(|id| id.starts_with('=') && id.contains("event"))
    });
    constant
        .map(|(path, _)| {
            let message =
                "`correlation` does not read the event, so only the first event starts a child \
                 saga";
            RawDiagnostic::new(format!("{path}.correlation"), message)
                .with_suggestion("use a field of the event, or omit `correlation`")
        })
        .collect()
}
