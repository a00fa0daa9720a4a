//! Diagnostics of an invalid configuration: the key, its place in a text, and a suggestion.

use serde_path_to_error::Segment;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use super::{Config, defaults};

/// Minimum similarity of two names for a suggestion, from 0 to 1.
const LIKENESS: f64 = 0.8;

/// Diagnostic in a TOML text: location, reason and suggestion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigDiagnostic {
    /// Line number, from 1.
    pub line: usize,
    /// Column number in characters, from 1.
    pub column: usize,
    /// Reason.
    pub message: String,
}

impl ConfigDiagnostic {
    /// Converts a TOML error in this text to a diagnostic.
    #[must_use]
    pub fn of(text: &str, error: &toml::de::Error) -> Self {
        let (line, column) = line_and_column(text, error.span().map_or(0, |span| span.start));
        Self {
            line,
            column,
            message: explain(error.message()),
        }
    }
}

/// Returns line and column of a byte offset, both from 1.
fn line_and_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text[..offset.min(text.len())];
    let line = before.matches('\n').count() + 1;

    (
        line,
        before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1,
    )
}

/// Key that is unknown, missing or has an invalid value.
pub(super) struct KeyError {
    /// Path of the key; of the table if a key is missing.
    pub(super) path: Vec<String>,
    pub(super) message: String,
    is_unknown: bool,
    /// Whether a required key is missing.
    pub(super) is_missing: bool,
}

impl KeyError {
    /// Returns line and column of the key in a TOML text; `None` if the text does not contain it.
    pub(super) fn find_in(&self, text: &str) -> Option<(usize, usize)> {
        let document = DeTable::parse(text).ok()?;
        let mut table = Some(document.get_ref());
        let mut place = None;
        for (depth, name) in self.path.iter().enumerate() {
            let found = table.and_then(|table| table.iter().find(|(key, _)| key.get_ref() == name));
            // The text lacks the rest of the path, so the last table that it has is the place.
            let Some((key, value)) = found else { break };
            // An unknown key is marked itself, any other error at its value.
            let is_key = self.is_unknown && depth + 1 == self.path.len();
            place = Some(if is_key {
                key.span().start
            } else {
                value.span().start
            });

            table = match value.get_ref() {
                DeValue::Table(inner) => Some(inner),
                _ => None,
            };
        }

        place.map(|offset| line_and_column(text, offset))
    }
}

/// Reads a table with every key.
pub(super) fn read(table: Table) -> Result<Config, KeyError> {
    serde_path_to_error::deserialize(Value::Table(table)).map_err(|error| {
        let message = error.inner().message();
        KeyError {
            path: error
                .path()
                .iter()
                .filter_map(|segment| match segment {
                    Segment::Map { key } => Some(key.clone()),
                    Segment::Seq { .. } | Segment::Enum { .. } | Segment::Unknown => None,
                })
                .collect(),
            message: explain(message),
            is_unknown: message.starts_with("unknown field"),
            is_missing: message.starts_with("missing field"),
        }
    })
}

/// Returns the most similar known name, if one is similar.
pub fn similar_name<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &&str| strsim::jaro_winkler(name, known);
    let similar = known.into_iter().filter(|known| likeness(known) > LIKENESS);
    similar.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

/// Shortens the message of serde: suggests the most similar name in place of the list of all names.
fn explain(message: &str) -> String {
    if message.contains("invalid socket address syntax") {
        return "this is no socket address; set an IP address and a port, for example 127.0.0.1:7070"
            .to_owned();
    }

    let Some(rest) = message.strip_prefix("unknown field ") else {
        return message.trim_end().to_owned();
    };

    // The message has all names in backticks, the unknown one first.
    let mut names = rest.split('`').skip(1).step_by(2);
    let found = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();

    if defaults::TABLE
        .get(found)
        .is_some_and(|value| !value.is_table())
    {
        return format!(
            "unknown key `{found}` in this table; it belongs to no table: move it before the first \
             [table]"
        );
    }

    let has_suffix = |name: &str| name.rsplit('_').next() == Some(found);
    let likeness = |name: &str| {
        if has_suffix(name) {
            1.0
        } else {
            strsim::jaro_winkler(found, name)
        }
    };

    // A suffix counts as equal: `size` stands for `max_size`.
    let nearest = known
        .iter()
        .max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest
        .filter(|name| likeness(name) > LIKENESS)
        .map(|name| (*name).to_owned());
    let elsewhere = || {
        leaves(&defaults::TABLE)
            .into_iter()
            .find(|(path, _)| path.last().is_some_and(|key| key == found))
    };

    match nearest.or_else(|| Some(elsewhere()?.0.join("."))) {
        Some(name) => format!("unknown key `{found}`; did you mean `{name}`?"),
        None => format!("unknown key `{found}`; known keys: {}", known.join(", ")),
    }
}

/// Returns the keys of a table that are no tables themselves, each with its path and value.
pub(super) fn leaves(table: &Table) -> Vec<(Vec<String>, Value)> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) if !inner.is_empty() => {
                let below = leaves(inner).into_iter();
                found
                    .extend(below.map(|(path, value)| ([vec![key.clone()], path].concat(), value)));
            }
            _ => found.push((vec![key.clone()], value.clone())),
        }
    }

    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn key_below_a_table_header_belongs_before_it() {
        let text = "[store]\ndurability = \"group\"\ndefinitions_dir = \"sagas\"\n";
        let error = read(text.parse().unwrap()).err().unwrap();
        assert_eq!(error.find_in(text), Some((3, 1)));
        assert!(
            error.message.ends_with("move it before the first [table]"),
            "{}",
            error.message
        );
    }
}
