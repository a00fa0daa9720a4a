//! Diagnostics of an invalid configuration: the layer, the line, and a suggestion.

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

use super::{Config, Error, defaults};

/// Minimum similarity of two names for a suggestion, from 0 to 1.
const LIKENESS: f64 = 0.8;
const MISSING: &str = "missing field";

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
        let offset = error.span().map_or(0, |span| span.start);
        let before = &text[..offset.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { line, column, message: explain(error.message()) }
    }
}

/// Creates an error in the text of the configuration file.
pub(super) fn file(path: &Path, text: &str, error: &toml::de::Error) -> Error {
    let ConfigDiagnostic { line, column, message: what } = ConfigDiagnostic::of(text, error);
    Error::Invalid { location: format!("{}:{line}:{column}", path.display()), message: what }
}

/// Returns the layer that causes the error: the first layer that is invalid on its own, else no layer.
/// A key that a layer lacks is not an error if another layer has it.
pub(super) fn layer<'a>(
    from_file: Option<(&Path, &str)>,
    mut settings: impl Iterator<Item = (&'a str, Table)>,
    whole: &toml::de::Error,
) -> Error {
    let counts = |error: &toml::de::Error| {
        !error.message().starts_with(MISSING) || whole.message().starts_with(MISSING)
    };
    if let Some((path, text)) = from_file
        && let Some(error) = toml::from_str::<Config>(text).err().filter(counts)
    {
        return file(path, text, &error);
    }
    let invalid = settings.find_map(|(location, table)| {
        let error = Config::deserialize(Value::Table(table)).err().filter(counts)?;
        Some(Error::Invalid { location: location.to_owned(), message: explain(error.message()) })
    });
    invalid.unwrap_or_else(|| Error::Invalid {
        location: "the configuration".to_owned(),
        message: whole.to_string().trim_end().replace('\n', " "),
    })
}

/// Returns the error of a single key; `None` if only other keys are missing.
pub(super) fn diagnose_key(location: &str, table: Table) -> Option<Error> {
    let error = Config::deserialize(Value::Table(table)).err()?;
    let counts = !error.message().starts_with(MISSING);
    counts.then(|| Error::Invalid { location: location.to_owned(), message: explain(error.message()) })
}

/// Shortens the message of serde: suggests the most similar name in place of the list of all names.
fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field ") else { return message.trim_end().to_owned() };
    let mut names = rest.split('`').skip(1).step_by(2);
    let found = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();
    let has_suffix = |name: &str| name.rsplit('_').next() == Some(found);
    let likeness = |name: &str| if has_suffix(name) { 1.0 } else { strsim::jaro_winkler(found, name) };
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let elsewhere =
        || paths(&defaults::table()).into_iter().find(|path| path.rsplit('.').next() == Some(found));
    match nearest.filter(|name| likeness(name) > LIKENESS) {
        Some(name) => format!("unknown key `{found}`; did you mean `{name}`?"),
        None => match elsewhere() {
            Some(path) => format!("unknown key `{found}`; did you mean `{path}`?"),
            None => format!("unknown key `{found}`; known keys: {}", known.join(", ")),
        },
    }
}

fn paths(table: &Table) -> Vec<String> {
    let nested = table.iter().flat_map(|(key, value)| match value {
        Value::Table(inner) => paths(inner).into_iter().map(|path| format!("{key}.{path}")).collect(),
        _ => vec![key.clone()],
    });
    nested.collect()
}
