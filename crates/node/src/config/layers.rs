//! Layers above the defaults, and their merge.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::diagnostics::{ConfigDiagnostic, KeyError, leaves, read};
use super::{Config, Error, defaults};

const PREFIX: &str = "ORLOG_";
/// Environment variables that the command line reads itself.
const CLIENT_VARIABLES: [&str; 12] = [
    "ORLOG_CA_FILE",
    "ORLOG_CLIENT_CERTIFICATE",
    "ORLOG_CONFIG",
    "ORLOG_EXPORT_TO",
    "ORLOG_KEY_FILE",
    "ORLOG_LOG",
    "ORLOG_NODE",
    "ORLOG_OUTPUT",
    "ORLOG_TENANT",
    "ORLOG_TOKEN",
    "ORLOG_TOKEN_FILE",
    "ORLOG_URL",
];

/// One key set by a variable or a flag.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Origin: `--listen`, `ORLOG_LISTEN`.
    pub origin: String,
    /// Path of the key.
    pub path: Vec<String>,
    /// Value of the key.
    pub value: Value,
}

impl Setting {
    /// Creates a setting from a flag; `key` is its path with dots.
    pub fn flag(flag: &str, key: &str, value: impl Into<Value>) -> Self {
        let path = key.split('.').map(str::to_owned).collect();
        Self {
            origin: flag.to_owned(),
            path,
            value: value.into(),
        }
    }

    /// Creates a setting from an environment variable. Returns `None` if the variable is not part
    /// of the configuration: it belongs to another program, to the command line, or to a Kubernetes
    /// service named `orlog`.
    fn variable(name: &str, text: &str) -> Option<Self> {
        let key = configured_key(name)?;
        let path: Vec<String> = key.split("__").map(str::to_ascii_lowercase).collect();
        let value = typed(default_of(&path), text);

        Some(Self {
            origin: format!("environment variable {name}"),
            path,
            value,
        })
    }

    /// Returns a table with only this key.
    fn as_table(&self) -> Table {
        let (last, parents) = self.path.split_last().expect("a key has at least one part");
        let innermost = Table::from_iter([(last.clone(), self.value.clone())]);
        parents.iter().rev().fold(innermost, |inner, key| {
            Table::from_iter([(key.clone(), Value::Table(inner))])
        })
    }

    /// Returns the error of this key; `None` if only other keys are missing.
    fn key_error(&self) -> Option<KeyError> {
        // The other keys have their defaults, so that an error concerns this key.
        let mut table = defaults::TABLE.clone();
        merge(&mut table, self.as_table());
        read(table).err().filter(|error| !error.is_missing)
    }

    fn error(&self) -> Option<Error> {
        let KeyError { message, .. } = self.key_error()?;
        Some(Error::Invalid {
            location: self.origin.clone(),
            message,
        })
    }
}

/// Returns the part of the name of a variable that names a key; `None` if the variable is not part
/// of the configuration.
fn configured_key(name: &str) -> Option<&str> {
    let key = name.strip_prefix(PREFIX)?;
    // Kubernetes sets such variables for a service named `orlog`.
    let is_service = key == "PORT"
        || ["PORT_", "SERVICE_"]
            .iter()
            .any(|start| key.starts_with(start));
    let is_other = CLIENT_VARIABLES.contains(&name) || is_service;
    (!is_other).then_some(key)
}

/// Layers above the defaults.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    file: Option<(PathBuf, String)>,
    settings: Vec<Setting>,
    /// Names of the environment variables that are not UTF-8.
    unreadable_variables: Vec<String>,
}

impl Layers {
    /// Returns an empty set of layers.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Adds a file.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn file(mut self, path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|source| Error::Read {
            path: path.to_owned(),
            source,
        })?;
        self.file = Some((path.to_owned(), text));
        Ok(self)
    }

    /// Adds the environment variables with the prefix `ORLOG_`.
    #[must_use]
    pub fn environment(
        mut self,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Self {
        for (name, value) in variables {
            if let (Some(name), Some(value)) = (name.to_str(), value.to_str()) {
                self.settings.extend(Setting::variable(name, value));
                continue;
            }

            // A node must not start with a default instead of the value that was meant.
            let name = name.to_string_lossy();
            if configured_key(&name).is_some() {
                self.unreadable_variables.push(name.into_owned());
            }
        }

        // The environment has no order; the first error must not depend on it.
        self.settings.sort_by(|a, b| a.origin.cmp(&b.origin));
        self.unreadable_variables.sort();

        self
    }

    /// Adds flags, which override all earlier layers.
    #[must_use]
    pub fn flags(mut self, flags: impl IntoIterator<Item = Setting>) -> Self {
        self.settings.extend(flags);
        self
    }

    /// Merges the layers with the defaults.
    ///
    /// # Errors
    /// If a layer contains an unknown key or an invalid value; the text names the location.
    pub fn load(&self) -> Result<Config, Error> {
        let config = self.merged()?;
        let mut errors = self.variable_errors().chain(config.validate());
        errors.next().map_or(Ok(config), Err)
    }

    /// Returns an error for each environment variable that is not UTF-8.
    fn variable_errors(&self) -> impl Iterator<Item = Error> {
        self.unreadable_variables.iter().map(|name| Error::Invalid {
            location: format!("environment variable {name}"),
            message: "the variable is not UTF-8; set it to a UTF-8 text, or remove it".to_owned(),
        })
    }

    fn merged(&self) -> Result<Config, Error> {
        let mut merged = defaults::TABLE.clone();
        if let Some((path, text)) = &self.file {
            merge(&mut merged, parse(path, text)?);
        }

        for setting in &self.settings {
            merge(&mut merged, setting.as_table());
        }

        read(merged).map_err(|error| Error::Invalid {
            location: self.location_of(&error),
            message: error.message,
        })
    }

    /// Returns all errors, by layer and key. Rules that involve several keys are validated only if
    /// each key is valid.
    #[must_use]
    pub fn errors(&self) -> Vec<Error> {
        let mut found = Vec::new();
        if let Some((file, text)) = &self.file {
            match parse(file, text) {
                Ok(table) => {
                    found.extend(leaves(&table).into_iter().filter_map(|(path, value)| {
                        let key = path.join(".");
                        let origin = file.display();
                        let error = Setting {
                            origin: String::new(),
                            path,
                            value,
                        }
                        .key_error()?;

                        let position = error
                            .find_in(text)
                            .map(|(line, column)| format!("{line}:{column}: "));
                        let location = format!(
                            "{origin}:{}{key}",
                            position.unwrap_or_else(|| " ".to_owned())
                        );

                        Some(Error::Invalid {
                            location,
                            message: error.message,
                        })
                    }));
                }
                Err(error) => found.push(error),
            }
        }

        // Each layer is read alone: a later layer would otherwise hide an invalid value of an
        // earlier one.
        found.extend(self.settings.iter().filter_map(Setting::error));
        found.extend(self.variable_errors());
        if found.is_empty() {
            return self
                .merged()
                .map_or_else(|error| vec![error], |config| config.validate());
        }

        found
    }

    /// Returns the layer that sets a key: a flag or variable, or the place in the file.
    fn location_of(&self, error: &KeyError) -> String {
        if let Some(setting) = self
            .settings
            .iter()
            // The last setting of a key applies.
            .rfind(|setting: &&Setting| error.path.starts_with(&setting.path))
        {
            return setting.origin.clone();
        }

        if let Some((path, text)) = &self.file
            && let Some((line, column)) = error.find_in(text)
        {
            return format!("{}:{line}:{column}", path.display());
        }

        // A table is set by several settings; the first one leads to it.
        let below = self
            .settings
            .iter()
            .find(|setting| setting.path.starts_with(&error.path));
        below.map_or_else(
            || "the configuration".to_owned(),
            |setting| setting.origin.clone(),
        )
    }
}

fn parse(path: &Path, text: &str) -> Result<Table, Error> {
    text.parse().map_err(|error| {
        let ConfigDiagnostic {
            line,
            column,
            message,
        } = ConfigDiagnostic::of(text, &error);
        Error::Invalid {
            location: format!("{}:{line}:{column}", path.display()),
            message,
        }
    })
}

fn default_of(path: &[String]) -> Option<&'static Value> {
    let (first, rest) = path.split_first()?;
    rest.iter()
        .try_fold(defaults::TABLE.get(first)?, |value, key| value.get(key))
}

/// Converts the text of a variable to the type of the key. If that fails, or the key has no
/// default, parses it as TOML, else keeps it as text.
fn typed(default: Option<&Value>, text: &str) -> Value {
    let list = || {
        text.split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
            .map(Value::from)
            .collect()
    };
    match default {
        Some(Value::String(_)) => Value::from(text),
        // A list of a variable needs no TOML syntax.
        Some(Value::Array(_)) if !text.trim_start().starts_with('[') => Value::Array(list()),
        _ => {
            let document = format!("value = {text}").parse::<Table>().ok();
            let value = document.and_then(|mut document| document.remove("value"));
            value.unwrap_or_else(|| Value::from(text))
        }
    }
}

/// Sets the keys of the table above in the table below.
pub(super) fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            // Tables are merged key by key; a list replaces the list below it.
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt as _;

    use super::*;

    #[test]
    fn environment_values_use_the_key_type() {
        let value = |name: &str, text: &str| Setting::variable(name, text).unwrap().value;
        assert_eq!(value("ORLOG_NODE_NAME", "7"), Value::from("7"));
        assert_eq!(value("ORLOG_SHARDS", "7"), Value::from(7));
        assert_eq!(
            value("ORLOG_TENANTS__ALLOWED", "a, b"),
            Value::from(vec!["a", "b"])
        );
        assert_eq!(
            value("ORLOG_UPSTREAMS__PAY__MAX_CONCURRENCY", "8"),
            Value::from(8)
        );
        assert_eq!(
            value("ORLOG_UPSTREAMS__PAY__BASE_URL", "http://h"),
            Value::from("http://h")
        );
    }

    #[test]
    fn variable_that_is_not_utf8_is_rejected_with_its_name() {
        let invalid = || OsString::from_vec(vec![b'a', 0xff]);
        let load = |name: &str| {
            let layers = Layers::none().environment([(name.into(), invalid())]);
            let errors: Vec<String> = layers.errors().iter().map(ToString::to_string).collect();
            (
                layers.load().map(drop).map_err(|error| error.to_string()),
                errors,
            )
        };

        let (loaded, errors) = load("ORLOG_NODE_NAME");
        let error = loaded.unwrap_err();
        assert!(
            error.contains("environment variable ORLOG_NODE_NAME"),
            "{error}"
        );
        assert!(error.contains("not UTF-8"), "{error}");
        assert_eq!(errors, [error]);
        for other in ["PATH", "ORLOG_URL", "ORLOG_SERVICE_HOST"] {
            assert_eq!(load(other), (Ok(()), Vec::new()), "{other}");
        }
    }

    #[test]
    fn unrelated_environment_variables_are_ignored() {
        for name in [
            "PATH",
            "ORLOG_URL",
            "ORLOG_PORT",
            "ORLOG_PORT_7070_TCP_ADDR",
            "ORLOG_SERVICE_HOST",
        ] {
            assert_eq!(Setting::variable(name, "x"), None, "{name}");
        }
    }
}
