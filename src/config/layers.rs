//! The layers above the defaults, and how they are laid over one another.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::{Config, Error, defaults, diagnostics};

const PREFIX: &str = "ORLOG_";
/// Variables that the command line reads itself.
const CLIENT: [&str; 8] = [
    "ORLOG_CONFIG",
    "ORLOG_EXPORT_TO",
    "ORLOG_LOG",
    "ORLOG_OUTPUT",
    "ORLOG_TENANT",
    "ORLOG_TOKEN",
    "ORLOG_TOKEN_FILE",
    "ORLOG_URL",
];

/// One key set by a variable or a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Who set it: `--listen`, `ORLOG_LISTEN`.
    pub place: String,
    /// The key's path.
    pub path: Vec<String>,
    /// What it was set to.
    pub value: Value,
}

impl Setting {
    /// A key set by a flag; `key` is its path with dots.
    pub fn flag(flag: &str, key: &str, value: impl Into<Value>) -> Self {
        let path = key.split('.').map(str::to_owned).collect();
        Self { place: flag.to_owned(), path, value: value.into() }
    }

    /// The setting that an environment variable makes; `None` when it is none of the configuration's: another program's,
    /// one that the command line reads, or one that Kubernetes makes for a service named `orlog`.
    fn variable(name: &str, text: &str) -> Option<Self> {
        let key = name.strip_prefix(PREFIX)?;
        let is_service = key == "PORT" || ["PORT_", "SERVICE_"].iter().any(|start| key.starts_with(start));
        if CLIENT.contains(&name) || is_service {
            return None;
        }
        let path: Vec<String> = key.split("__").map(str::to_ascii_lowercase).collect();
        let value = typed(default_of(&path).as_ref(), text);
        Some(Self { place: format!("environment variable {name}"), path, value })
    }

    /// A table that holds nothing but this key.
    fn alone(&self) -> Table {
        let (last, parents) = self.path.split_last().expect("a key has at least one part");
        let innermost = Table::from_iter([(last.clone(), self.value.clone())]);
        parents
            .iter()
            .rev()
            .fold(innermost, |inner, key| Table::from_iter([(key.clone(), Value::Table(inner))]))
    }
}

/// What lies above the defaults.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    file: Option<(PathBuf, String)>,
    settings: Vec<Setting>,
}

impl Layers {
    /// Nothing above the defaults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn file(mut self, path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| Error::Read { path: path.to_owned(), source })?;
        self.file = Some((path.to_owned(), text));
        Ok(self)
    }

    /// Adds the variables among these that begin with `ORLOG_`.
    #[must_use]
    pub fn environment(mut self, variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let text =
            |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
        let variables = variables.into_iter().filter_map(text);
        self.settings.extend(variables.filter_map(|(name, value)| Setting::variable(&name, &value)));
        self.settings.sort_by(|a, b| a.place.cmp(&b.place));
        self
    }

    /// Adds flags, which win over everything before them.
    #[must_use]
    pub fn flags(mut self, flags: impl IntoIterator<Item = Setting>) -> Self {
        self.settings.extend(flags);
        self
    }

    /// Lays the layers over the defaults.
    ///
    /// # Errors
    /// When a layer holds an unknown key or a value that cannot be; the text names the place.
    pub fn load(&self) -> Result<Config, Error> {
        let config = self.merged()?;
        config.check()?;
        Ok(config)
    }

    fn merged(&self) -> Result<Config, Error> {
        let mut merged = defaults::table();
        if let Some((path, text)) = &self.file {
            let file = text.parse::<Table>().map_err(|error| diagnostics::file(path, text, &error))?;
            merge(&mut merged, file);
        }
        for setting in &self.settings {
            merge(&mut merged, setting.alone());
        }
        Value::Table(merged).try_into().map_err(|error| self.blame(&error))
    }

    /// Everything that is wrong, layer by layer and key by key; what no single key shows comes once the keys are right.
    #[must_use]
    pub fn mistakes(&self) -> Vec<Error> {
        let mut found = Vec::new();
        if let Some((path, text)) = &self.file {
            match text.parse::<Table>() {
                Ok(table) => {
                    let place = |key: &str| format!("{}: {key}", path.display());
                    found.extend(
                        leaves(&table).into_iter().filter_map(|leaf| {
                            diagnostics::alone(&place(&leaf.path.join(".")), leaf.alone())
                        }),
                    );
                }
                Err(error) => found.push(diagnostics::file(path, text, &error)),
            }
        }
        found.extend(
            self.settings.iter().filter_map(|setting| diagnostics::alone(&setting.place, setting.alone())),
        );
        if found.is_empty()
            && let Ok(config) = self.merged()
        {
            return config.mistakes();
        }
        if found.is_empty() {
            found.extend(self.load().err());
        }
        found
    }

    fn blame(&self, error: &toml::de::Error) -> Error {
        let file = self.file.as_ref().map(|(path, text)| (path.as_path(), text.as_str()));
        let settings = self.settings.iter().map(|setting| (setting.place.as_str(), setting.alone()));
        diagnostics::layer(file, settings, error)
    }
}

/// The keys of a table that hold no table, each with its path.
fn leaves(table: &Table) -> Vec<Setting> {
    let mut found = Vec::new();
    for (key, value) in table {
        match value {
            Value::Table(inner) if !inner.is_empty() => {
                found.extend(leaves(inner).into_iter().map(|mut leaf| {
                    leaf.path.insert(0, key.clone());
                    leaf
                }));
            }
            _ => found.push(Setting { place: String::new(), path: vec![key.clone()], value: value.clone() }),
        }
    }
    found
}

fn default_of(path: &[String]) -> Option<Value> {
    let (first, rest) = path.split_first()?;
    let mut defaults = defaults::table();
    let value = defaults.remove(first)?;
    rest.iter().try_fold(value, |value, key| value.get(key).cloned())
}

/// The text of a variable as a value of the type that the key has; where it cannot be that, or the key has no default, as
/// TOML; else as text.
fn typed(default: Option<&Value>, text: &str) -> Value {
    let list = || text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(Value::from).collect();
    match default {
        Some(Value::String(_)) => Value::from(text),
        Some(Value::Array(_)) if !text.trim_start().starts_with('[') => Value::Array(list()),
        _ => {
            let document = format!("value = {text}").parse::<Table>().ok();
            let value = document.and_then(|mut document| document.remove("value"));
            value.unwrap_or_else(|| Value::from(text))
        }
    }
}

fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_take_the_type_of_their_key() {
        let value = |name: &str, text: &str| Setting::variable(name, text).unwrap().value;
        assert_eq!(value("ORLOG_NODE", "7"), Value::from("7"));
        assert_eq!(value("ORLOG_SHARDS", "7"), Value::from(7));
        assert_eq!(value("ORLOG_TENANTS__LIST", "a, b"), Value::from(vec!["a", "b"]));
        assert_eq!(value("ORLOG_UPSTREAMS__PAY__CONCURRENCY", "8"), Value::from(8));
        assert_eq!(value("ORLOG_UPSTREAMS__PAY__BASE_URL", "http://h"), Value::from("http://h"));
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        for name in ["PATH", "ORLOG_URL", "ORLOG_PORT", "ORLOG_PORT_7070_TCP_ADDR", "ORLOG_SERVICE_HOST"] {
            assert_eq!(Setting::variable(name, "x"), None, "{name}");
        }
    }
}
