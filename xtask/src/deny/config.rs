//! Supported part of `deny.toml`; names and meanings are those of cargo-deny.

use serde::Deserialize;

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Level {
    Allow,
    Warn,
    #[default]
    Deny,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    pub(super) graph: GraphConfig,
    pub(super) licenses: Licenses,
    pub(super) bans: Bans,
    pub(super) sources: Sources,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct GraphConfig {
    #[serde(default)]
    pub(super) targets: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Licenses {
    pub(super) allow: Vec<String>,
    #[serde(default)]
    pub(super) exceptions: Vec<Exception>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Exception {
    #[serde(rename = "crate")]
    pub(super) package: Spec,
    pub(super) allow: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Bans {
    #[serde(default)]
    pub(super) multiple_versions: Level,
    #[serde(default)]
    pub(super) wildcards: Level,
    #[serde(default)]
    pub(super) allow_wildcard_paths: bool,
    #[serde(default)]
    pub(super) deny: Vec<Ban>,
    #[serde(default)]
    pub(super) skip: Vec<Ban>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Ban {
    #[serde(rename = "crate")]
    pub(super) package: Spec,
    #[serde(default)]
    pub(super) reason: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) struct Sources {
    #[serde(default)]
    pub(super) unknown_registry: Level,
    #[serde(default)]
    pub(super) unknown_git: Level,
    #[serde(default)]
    pub(super) allow_registry: Vec<String>,
    #[serde(default)]
    pub(super) allow_git: Vec<String>,
}

/// `name` or `name@version`; the version may be a prefix that ends before a dot.
#[derive(Debug, Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Spec(String);

impl Spec {
    /// Returns whether a package matches the specification.
    pub(super) fn matches(&self, name: &str, version: &str) -> bool {
        match self.0.split_once('@') {
            None => self.0 == name,
            Some((expected, start)) => {
                let rest = version.strip_prefix(start);
                expected == name && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            }
        }
    }
}

#[cfg(test)]
impl From<&str> for Spec {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::Spec;

    #[test]
    fn a_spec_names_all_versions_or_some() {
        assert!(Spec::from("syn").matches("syn", "2.0.1"));
        assert!(Spec::from("syn@2").matches("syn", "2.0.1"));
        assert!(Spec::from("syn@2.0.1").matches("syn", "2.0.1"));
        assert!(!Spec::from("syn@2").matches("syn", "20.0.1"));
        assert!(!Spec::from("syn@2").matches("quote", "2.0.1"));
    }
}
