//! What the instance remembers: for nothing, or twice at once.

use std::collections::BTreeSet;

use serde_json::Value;

use super::context::Sight;
use crate::diagnostic::Finding;

/// OL09: a name under `vars` that no expression reads.
pub(super) fn unused(sight: &Sight<'_>) -> Vec<Finding> {
    let definition = sight.definition;
    let mut used = Used { names: BTreeSet::new(), all: false };
    let form = serde_json::to_value(definition).expect("a definition is plain data with text keys");
    used.search(&form);
    if used.all {
        return Vec::new();
    }
    let vars = definition.vars.keys().map(|name| (name, format!("vars.{name}")));
    let steps = definition.steps.iter().enumerate();
    let saved = steps
        .flat_map(|(i, step)| step.save.keys().map(move |name| (name, format!("steps[{i}].save.{name}"))));
    let handlers = definition.on.iter().enumerate();
    let handled =
        handlers.flat_map(|(n, on)| on.save.keys().map(move |name| (name, format!("on[{n}].save.{name}"))));
    let unused = vars.chain(saved).chain(handled).filter(|(name, _)| !used.names.contains(*name));
    unused
        .map(|(name, path)| {
            let message = format!("nothing reads `vars.{name}`");
            Finding::new(path, message).at_key().suggest("remove it, or say why it is kept")
        })
        .collect()
}

/// The names that texts of a definition take from `vars`. Every text is searched, conditions have no `=`.
struct Used {
    names: BTreeSet<String>,
    /// `vars` as a whole is read somewhere.
    all: bool,
}

impl Used {
    fn search(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(text) => self.search_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.search(item)),
            Value::Object(fields) => fields.values().for_each(|item| self.search(item)),
        }
    }

    fn search_text(&mut self, text: &str) {
        for (at, _) in text.match_indices("vars") {
            let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.');
            let rest = &text[at + "vars".len()..];
            if text[..at].ends_with(is_part) || rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                continue;
            }
            match name_in(rest.trim_start()) {
                Some(name) => drop(self.names.insert(name.to_owned())),
                None => self.all = true,
            }
        }
    }
}

/// The name in `.name`, `.?name`, `['name']`, `[?"name"]`.
fn name_in(rest: &str) -> Option<&str> {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    if let Some(rest) = rest.strip_prefix('.') {
        let rest = rest.trim_start().trim_start_matches('?').trim_start();
        let name = &rest[..rest.find(|c| !is_part(c)).unwrap_or(rest.len())];
        return (!name.is_empty()).then_some(name);
    }
    let rest = rest.strip_prefix('[')?.trim_start_matches('?').trim_start();
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    rest[1..].split_once(quote).map(|(name, _)| name)
}

/// OL10: two steps that may be under way together save under one name.
pub(super) fn saved_side_by_side(sight: &Sight<'_>) -> Vec<Finding> {
    let steps = &sight.definition.steps;
    let mut findings = Vec::new();
    for (b, later) in steps.iter().enumerate() {
        for (a, earlier) in steps[..b].iter().enumerate().filter(|(a, _)| sight.graph.overlap(*a, b)) {
            for name in later.save.keys().filter(|name| earlier.save.contains_key(*name)) {
                let message = format!(
                    "`{}` and `{}` run side by side and both save `{name}`; which one stays depends on who is first",
                    steps[a].id, later.id
                );
                let path = format!("steps[{b}].save.{name}");
                findings.push(Finding::new(path, message).at_key().suggest("use two names"));
            }
        }
    }
    findings
}
