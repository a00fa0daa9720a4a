//! What reading a test file needs everywhere: fields, texts and names, and the mistakes that are found on the way.

use orlog_model::{IdError, Timestamp};
use orlog_program::Problem;
use orlog_program::document::{Entry, Item};

/// Collects mistakes.
pub(super) struct Reading {
    pub(super) problems: Vec<Problem>,
}

impl Reading {
    pub(super) fn wrong<T>(&mut self, problem: Problem) -> Option<T> {
        self.problems.push(problem);
        None
    }

    /// A map's fields; those that are not known are mistakes.
    pub(super) fn fields<'d>(&mut self, item: &Item<'d>, valid: &[&str]) -> Option<Vec<Entry<'d>>> {
        let Some(entries) = item.map() else {
            return self.wrong(item.must_be(&format!("a map with {}", valid.join(", "))));
        };
        let unknown = entries.iter().filter(|entry| !valid.contains(&entry.name));
        self.problems.extend(unknown.map(|entry| entry.unknown(valid)));
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
            self.problems.push(item.problem(format!("`{name}` is missing")));
        }
        found
    }

    pub(super) fn text(&mut self, item: &Item<'_>) -> Option<String> {
        match item.text() {
            Some(text) => Some(text.to_owned()),
            None => self.wrong(item.must_be("a text")),
        }
    }

    pub(super) fn time(&mut self, item: &Item<'_>) -> Option<Timestamp> {
        let text = self.text(item)?;
        match Timestamp::parse(&text) {
            Ok(time) => Some(time),
            Err(error) => self.wrong(item.problem(error.to_string())),
        }
    }

    /// A text that is a name of that kind.
    pub(super) fn name<T>(
        &mut self,
        item: &Item<'_>,
        new: impl Fn(String) -> Result<T, IdError>,
    ) -> Option<T> {
        let text = self.text(item)?;
        match new(text) {
            Ok(name) => Some(name),
            Err(error) => self.wrong(item.problem(error.to_string())),
        }
    }
}

/// The field of that name.
pub(super) fn find<'e, 'd>(fields: &'e [Entry<'d>], name: &str) -> Option<&'e Item<'d>> {
    fields.iter().find(|entry| entry.name == name).map(|entry| &entry.item)
}
