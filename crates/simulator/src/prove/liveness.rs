//! Live variables of a definition: those that a later decision reads. The others only multiply the
//! states.
//!
//! A variable is not read by a payload that contains it unchanged: the value decides nothing, and
//! its evaluation cannot fail. When the saga no longer runs forward, only results, compensations
//! and handlers read variables.

use std::collections::BTreeSet;

use orlog_program::{Action, Definition, Step};
use serde_json::Value;

use crate::explore::texts::texts;

/// Live variables; `None`: all.
pub(super) struct LiveVariables {
    forward: Option<BTreeSet<String>>,
    backward: Option<BTreeSet<String>>,
}

impl LiveVariables {
    /// Collects the variables that the expressions of a definition read.
    pub(super) fn of(definition: &Definition) -> Self {
        let mut definition = definition.clone();

        // The reference is for users: no decision reads it.
        definition.reference = None;
        for fact in definition
            .completed
            .iter_mut()
            .chain(&mut definition.failed)
        {
            remove_copies(&mut fact.data);
        }

        // Copying a variable into a payload decides nothing, and cannot fail.
        for step in &mut definition.steps {
            remove_copies_of_action(&mut step.action);
            if let Some(compensation) = &mut step.compensate {
                remove_copies_of_action(&mut compensation.action);
            }
            // A reminder decides nothing, also if it cannot be evaluated.
            step.remind = None;
        }

        let backward = |step: &Step| {
            // Of the actions, only the condition of an awaited event is read later: a late event
            // can satisfy it.
            let awaited = Some(&step.action).filter(|action| matches!(action, Action::Event(_)));
            texts(&(
                awaited,
                &step.ok,
                &step.fail,
                &step.save,
                &step.compensate,
                &step.priority,
            ))
        };

        // These are evaluated in each phase, or at the end of the saga.
        let shared = texts(&(
            &definition.env,
            &definition.on,
            &definition.completed,
            &definition.failed,
            // Invariants read them after each transition.
            &definition.invariants,
        ));
        let after_failure = definition.steps.iter().flat_map(backward).chain(shared);

        Self {
            forward: variables(texts(&definition)),
            backward: variables(after_failure),
        }
    }

    /// Returns whether a later decision may read the variable.
    pub(super) fn contains(&self, name: &str, forward: bool) -> bool {
        let live = if forward {
            &self.forward
        } else {
            &self.backward
        };
        live.as_ref().is_none_or(|live| live.contains(name))
    }
}

/// Removes the copies of variables from the payload of an effect or a command.
fn remove_copies_of_action(action: &mut Action) {
    match action {
        Action::Effect(effect) => remove_copies(&mut effect.data),
        Action::Command(command) => remove_copies(&mut command.data),
        // Other actions require values of certain types.
        _ => {}
    }
}

fn remove_copies(payload: &mut Value) {
    match payload {
        Value::String(text) if is_copy(text) => *payload = Value::Null,
        Value::Array(items) => items.iter_mut().for_each(remove_copies),
        Value::Object(fields) => fields.values_mut().for_each(remove_copies),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Returns whether an expression is only a variable.
fn is_copy(text: &str) -> bool {
    let name = text.strip_prefix("=vars.").map(str::trim_end);
    name.is_some_and(|name| !name.is_empty() && name.chars().all(is_name))
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the variables that occur in expressions; `None` if one reads `vars` as a whole.
fn variables(texts: impl IntoIterator<Item = String>) -> Option<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for text in texts {
        for (start, found) in text.match_indices("vars") {
            let rest = &text[start + found.len()..];
            if text[..start].ends_with(is_name) || rest.starts_with(is_name) {
                continue;
            }

            let name: String = rest
                // Any other access, such as `vars['a']`, can read every variable.
                .strip_prefix('.')?
                .chars()
                .take_while(|c| is_name(*c))
                .collect();

            if name.is_empty() {
                return None;
            }
            names.insert(name);
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use orlog_program::compile_yaml;

    use super::*;

    fn live(text: &str) -> [Vec<bool>; 2] {
        let compiled =
            compile_yaml(text, "live.saga.yaml").unwrap_or_else(|problems| panic!("{problems:?}"));
        let live = LiveVariables::of(compiled.definition());
        [true, false].map(|forward| {
            ["a", "b", "c"]
                .map(|name| live.contains(name, forward))
                .to_vec()
        })
    }

    #[test]
    fn variables_that_no_later_decision_reads_are_not_live() {
        let saga = "
saga: live
version: 1
start: Begun
vars: { a: =event.a, b: =event.b, c: =event.c }
steps:
  - { id: first, when: =vars.a != null, do: { effect: e.first, data: { a: =vars.a, c: =vars.c } }, undo: { effect: u.first, data: { text: '=vars.b + \"x\"' } } }
  - { id: second, do: { effect: e.second } }
";
        assert_eq!(
            live(saga),
            [vec![true, true, false], vec![false, true, false]]
        );
        let typed = saga.replace(
            "id: second, do: { effect: e.second }",
            "id: second, do: { wait: { until: =vars.c } }",
        );
        assert_eq!(
            live(&typed),
            [vec![true, true, true], vec![false, true, false]]
        );
        assert_eq!(variables(["=size(vars)".to_owned()]), None);
        assert_eq!(variables(["=vars['a']".to_owned()]), None);
    }
}
