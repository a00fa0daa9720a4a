//! Shared functions of the test file parser: fields, texts, names, diagnostics.

use orlog_model::{IdError, Timestamp};
use orlog_program::Diagnostic;
use orlog_program::document::{Entry, Item};

/// Collects diagnostics.
pub(super) struct Parser {
    pub(super) problems: Vec<Diagnostic>,
}

impl Parser {
    pub(super) fn error<T>(&mut self, problem: Diagnostic) -> Option<T> {
        self.problems.push(problem);
        None
    }

    /// Returns the fields of a map; reports unknown fields.
    pub(super) fn fields<'d>(&mut self, item: &Item<'d>, valid: &[&str]) -> Option<Vec<Entry<'d>>> {
        let Some(entries) = item.map() else {
            return self.error(item.type_error(&format!("a map with {}", valid.join(", "))));
        };

        let unknown = entries.iter().filter(|entry| !valid.contains(&entry.name));
        self.problems
            .extend(unknown.map(|entry| entry.unknown_field(valid)));
        Some(entries)
    }

    pub(super) fn required<'e, 'd>(
        &mut self,
        item: &Item<'d>,
        fields: &'e [Entry<'d>],
        name: &str,
    ) -> Option<&'e Item<'d>> {
        let found = find(fields, name);
        if found.is_none() {
            self.problems
                .push(item.diagnostic(format!("`{name}` is missing")));
        }
        found
    }

    pub(super) fn text(&mut self, item: &Item<'_>) -> Option<String> {
        match item.text() {
            Some(text) => Some(text.to_owned()),
            None => self.error(item.type_error("a text")),
        }
    }

    pub(super) fn time(&mut self, item: &Item<'_>) -> Option<Timestamp> {
        let text = self.text(item)?;
        match Timestamp::parse(&text) {
            Ok(time) => Some(time),
            Err(error) => self.error(item.diagnostic(error.to_string())),
        }
    }

    /// Parses a text as a name of that kind.
    pub(super) fn name<T>(
        &mut self,
        item: &Item<'_>,
        new: impl Fn(String) -> Result<T, IdError>,
    ) -> Option<T> {
        let text = self.text(item)?;
        match new(text) {
            Ok(name) => Some(name),
            Err(error) => self.error(item.diagnostic(error.to_string())),
        }
    }
}

/// Returns the field with that name.
pub(super) fn find<'e, 'd>(fields: &'e [Entry<'d>], name: &str) -> Option<&'e Item<'d>> {
    fields
        .iter()
        .find(|entry| entry.name == name)
        .map(|entry| &entry.item)
}
