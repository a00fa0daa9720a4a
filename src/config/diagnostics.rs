//! Who is to blame for a configuration that cannot be used, in which line, and what was probably meant.

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

use super::{Config, Error, defaults};

/// How alike two names must be for one to be taken for a slip of the other.
const LIKENESS: f64 = 0.8;
const MISSING: &str = "missing field";

/// A mistake in a TOML text: where it stands, what is wrong, and what was probably meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// What is wrong.
    pub what: String,
}

impl Mistake {
    /// The mistake behind an error in this text.
    #[must_use]
    pub fn of(text: &str, error: &toml::de::Error) -> Self {
        let offset = error.span().map_or(0, |span| span.start);
        let before = &text[..offset.min(text.len())];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        Self { line, column, what: explain(error.message()) }
    }
}

/// An error in the text of the file itself.
pub(super) fn file(path: &Path, text: &str, error: &toml::de::Error) -> Error {
    let Mistake { line, column, what } = Mistake::of(text, error);
    Error::Wrong { place: format!("{}:{line}:{column}", path.display()), what }
}

/// The layer that makes the whole unusable: the first that is wrong on its own, else nobody in particular. A layer may
/// lack what another one gives, unless nobody does.
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
    let wrong = settings.find_map(|(place, table)| {
        let error = Config::deserialize(Value::Table(table)).err().filter(counts)?;
        Some(Error::Wrong { place: place.to_owned(), what: explain(error.message()) })
    });
    wrong.unwrap_or_else(|| Error::Wrong {
        place: "the configuration".to_owned(),
        what: whole.to_string().trim_end().replace('\n', " "),
    })
}

/// What is wrong about a key on its own; nothing where it only lacks others.
pub(super) fn alone(place: &str, table: Table) -> Option<Error> {
    let error = Config::deserialize(Value::Table(table)).err()?;
    let counts = !error.message().starts_with(MISSING);
    counts.then(|| Error::Wrong { place: place.to_owned(), what: explain(error.message()) })
}

/// Serde's message, with the nearest known name in place of a list of all.
fn explain(message: &str) -> String {
    let Some(rest) = message.strip_prefix("unknown field ") else { return message.trim_end().to_owned() };
    let mut names = rest.split('`').skip(1).step_by(2);
    let found = names.next().unwrap_or_default();
    let known: Vec<&str> = names.collect();
    let ends_so = |name: &str| name.rsplit('_').next() == Some(found);
    let likeness = |name: &str| if ends_so(name) { 1.0 } else { strsim::jaro_winkler(found, name) };
    let nearest = known.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let elsewhere =
        || paths(&defaults::table()).into_iter().find(|path| path.rsplit('.').next() == Some(found));
    match nearest.filter(|name| likeness(name) > LIKENESS) {
        Some(name) => format!("unknown key `{found}`; did you mean `{name}`?"),
        None => match elsewhere() {
            Some(path) => format!("unknown key `{found}`; did you mean `{path}`?"),
            None => format!("unknown key `{found}`; here can stand: {}", known.join(", ")),
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
