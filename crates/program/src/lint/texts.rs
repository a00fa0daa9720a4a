//! Lint of texts that name a variable but are no expression, because the `=` is missing.

use std::collections::BTreeSet;

use super::context::LintContext;
use crate::compile::expressions::LiteralText;
use crate::diagnostic::RawDiagnostic;
use crate::expression::{ENVELOPE_FIELDS, FAILURE_FIELDS, Root};

/// Fields of `key`.
const KEY_FIELDS: [&str; 3] = ["tenant", "saga", "correlation"];
/// Placeholders of other template languages.
const PLACEHOLDERS: [(&str, &str); 2] = [("${", "}"), ("{{", "}}")];

/// OL14: a text that equals or contains the name of a variable that its location can read.
pub(super) fn missing_equals(context: &LintContext<'_>) -> Vec<RawDiagnostic> {
    let variables = context.definition.variables();
    let literals = context.texts.literals.iter();
    literals
        .filter_map(|literal| finding(literal, &variables))
        .collect()
}

fn finding(literal: &LiteralText, variables: &BTreeSet<String>) -> Option<RawDiagnostic> {
    let names = Names { literal, variables };
    let text = literal.text.trim();

    // The whole text first: the suggestion is then a complete expression.
    if let Some(expression) = names.path(text).or_else(|| names.bare(text)) {
        let message = format!("{text:?} is a literal text, not the value of `{expression}`");
        let suggestion =
            format!("write `={expression}`, or suppress the warning if the text is intended");
        return Some(RawDiagnostic::new(&literal.path, message).with_suggestion(suggestion));
    }

    let part = names.placeholder(text).or_else(|| names.embedded(text))?;
    let message = format!("the text contains `{part}`, which is not replaced by a value");
    let suggestion =
        "write the whole text as an expression, for example `=\"Order \" + vars.orderId`";
    Some(RawDiagnostic::new(&literal.path, message).with_suggestion(suggestion))
}

/// Names that an expression in place of the text could read.
struct Names<'a> {
    literal: &'a LiteralText,
    variables: &'a BTreeSet<String>,
}

impl Names<'_> {
    fn reads(&self, root: Root) -> bool {
        self.literal.roots.contains(&root)
    }

    /// Returns the text if it is a path such as `vars.total` or `event.customer.email`.
    fn path(&self, text: &str) -> Option<String> {
        let (root, rest) = text.split_once('.')?;
        let mut fields = rest
            .split('.')
            .map(|field| field.strip_prefix('?').unwrap_or(field));
        let first = fields.next().filter(|field| is_name(field))?;

        let is_known = match Root::named(root) {
            Some(Root::Vars) => self.reads(Root::Vars) && self.variables.contains(first),
            Some(Root::Event) => self.reads(Root::Event),
            Some(Root::Envelope) => self.reads(Root::Envelope) && ENVELOPE_FIELDS.contains(&first),
            Some(Root::Key) => self.reads(Root::Key) && KEY_FIELDS.contains(&first),
            Some(Root::Failure) => self.reads(Root::Failure) && FAILURE_FIELDS.contains(&first),
            Some(
                Root::Results
                | Root::Element
                | Root::Index
                | Root::Round
                | Root::Events
                | Root::Reminder
                | Root::Body
                | Root::Headers,
            ) => false,
            None => self.is_element(root),
        };
        (is_known && fields.all(is_name)).then(|| text.to_owned())
    }

    /// Returns the expression for the name of a variable, of the element, or of a field of the
    /// event that has the name of its target.
    fn bare(&self, text: &str) -> Option<String> {
        if self.is_element(text) {
            return Some(text.to_owned());
        }

        // Any text could be a field of an event. Only one with the name of its target is reported.
        let target = self.literal.path.rsplit('.').next().unwrap_or_default();
        if self.reads(Root::Event) {
            return (is_name(text) && target == text).then(|| format!("event.{text}"));
        }
        (self.reads(Root::Vars) && self.variables.contains(text)).then(|| format!("vars.{text}"))
    }

    fn is_element(&self, name: &str) -> bool {
        self.literal.element.as_deref() == Some(name)
    }

    /// Returns the first `${…}` or `{{…}}` that contains a name.
    fn placeholder(&self, text: &str) -> Option<String> {
        PLACEHOLDERS.iter().find_map(|(open, close)| {
            text.match_indices(open).find_map(|(start, _)| {
                let inner = &text[start + open.len()..];
                let inner = &inner[..inner.find(close)?];
                let name = inner.trim().trim_start_matches('=').trim();
                let known = self.path(name).or_else(|| self.bare(name));
                let known = known.is_some() || self.variables.contains(name);
                known.then(|| format!("{open}{inner}{close}"))
            })
        })
    }

    /// Returns the first `vars.<variable>` within the text.
    fn embedded(&self, text: &str) -> Option<String> {
        let words = text
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '.')))
            // A sentence can end with the name.
            .map(|word| word.trim_end_matches('.'));
        words
            .filter(|word| word.starts_with("vars."))
            .find_map(|word| self.path(word))
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_alphanumeric() || c == '_')
}
