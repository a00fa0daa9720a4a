//! Lints of variables: unused, or saved concurrently.

use std::collections::BTreeSet;

use serde_json::Value;

use super::context::LintContext;
use crate::diagnostic::RawDiagnostic;

/// OL09: a name under `vars` that no expression reads.
pub(super) fn unused_variable(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let definition = context.definition;
    let mut used = UsedVariables::default();
    let form = serde_json::to_value(definition).expect("a definition is plain data with text keys");
    used.search(&form);

    // Queries read the indexed variables.
    used.names
        .extend(definition.index.iter().map(|name| name.as_str().to_owned()));

    // An expression that reads `vars` as a whole can read every variable.
    if used.all {
        return Vec::new();
    }

    let vars = definition
        .vars
        .keys()
        .map(|name| (name, format!("vars.{name}")));
    let steps = definition.steps.iter().enumerate();
    let saved = steps.flat_map(|(i, step)| {
        step.save
            .keys()
            .map(move |name| (name, format!("steps[{i}].save.{name}")))
    });
    let failing = definition.steps.iter().enumerate();
    let after_failures = failing.flat_map(|(i, step)| {
        step.failure_handlers().flat_map(move |(field, handler)| {
            let names = handler.save.keys();
            names.map(move |name| (name, format!("steps[{i}].{field}.save.{name}")))
        })
    });
    let handlers = definition.on.iter().enumerate();
    let handled = handlers.flat_map(|(n, on)| {
        on.save
            .keys()
            .map(move |name| (name, format!("on[{n}].save.{name}")))
    });

    let unused = vars
        .chain(saved)
        .chain(after_failures)
        .chain(handled)
        .filter(|(name, _)| !used.names.contains(*name));
    unused
        .map(|(name, path)| {
            let message = format!("`vars.{name}` is never read");
            RawDiagnostic::new(path, message)
                .at_key()
                .with_suggestion("remove it, or suppress the warning with a reason")
        })
        .collect()
}

/// Names that texts of a definition read from `vars`. All texts are searched, because conditions
/// have no `=`.
#[derive(Default)]
pub(super) struct UsedVariables {
    pub(super) names: BTreeSet<String>,
    /// An expression reads `vars` as a whole.
    pub(super) all: bool,
}

impl UsedVariables {
    fn search(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => self.search_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.search(item)),
            Value::Object(fields) => fields.values().for_each(|item| self.search(item)),
        }
    }

    pub(super) fn search_text(&mut self, text: &str) {
        for (at, _) in text.match_indices("vars") {
            let rest = &text[at + "vars".len()..];

            // `vars` can be a part of another name.
            if text[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '.'))
                || rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
            {
                continue;
            }

            match name_in(rest.trim_start()) {
                Some(name) => drop(self.names.insert(name.to_owned())),
                None => self.all = true,
            }
        }
    }
}

/// Returns the name in `.name`, `.?name`, `['name']`, `[?"name"]`.
fn name_in(rest: &str) -> Option<&str> {
    if let Some(rest) = rest.strip_prefix('.') {
        let rest = rest.trim_start().trim_start_matches('?').trim_start();
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
        let name = &rest[..end.unwrap_or(rest.len())];
        return (!name.is_empty()).then_some(name);
    }

    let rest = rest.strip_prefix('[')?.trim_start_matches('?').trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    rest[1..].split_once(quote).map(|(name, _)| name)
}

/// OL10: two concurrent steps that save the same name.
pub(super) fn concurrent_save(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let steps = &context.definition.steps;
    let mut findings = Vec::new();
    for (b, later) in steps.iter().enumerate() {
        for (a, earlier) in steps[..b]
            .iter()
            .enumerate()
            .filter(|(a, _)| context.order.overlap(*a, b))
        {
            let saved_before: BTreeSet<_> = earlier.saved_names().collect();
            let shared: BTreeSet<_> = later.saved_names().collect();
            for name in shared.intersection(&saved_before) {
                let message = format!(
                    "`{}` and `{}` run concurrently and both save `{name}`; the stored value \
                     depends on their order",
                    steps[a].id, later.id
                );
                let path = format!("steps[{b}].save.{name}");
                findings.push(
                    RawDiagnostic::new(path, message)
                        .at_key()
                        .with_suggestion("use different names"),
                );
            }
        }
    }
    findings
}
