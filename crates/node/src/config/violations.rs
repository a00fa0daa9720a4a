//! Violations of rules of the configuration that involve several keys or a range of values.

use std::fmt::Display;

/// Keys that violate a rule, each with the reason.
#[derive(Debug, Default)]
pub(super) struct Violations(Vec<(String, String)>);

impl Violations {
    /// Reports a key with the reason.
    pub(super) fn report(&mut self, key: impl Display, message: impl Display) {
        self.0.push((key.to_string(), message.to_string()));
    }

    /// Reports a key with the reason unless it is valid.
    pub(super) fn require(&mut self, is_valid: bool, key: impl Display, message: impl Display) {
        if !is_valid {
            self.report(key, message);
        }
    }

    /// Returns the keys with their reasons, in the order of the rules.
    pub(super) fn into_inner(self) -> Vec<(String, String)> {
        self.0
    }

    /// Returns the keys that a validation reports, for tests.
    #[cfg(test)]
    pub(super) fn keys(validate: impl FnOnce(&mut Self)) -> Vec<String> {
        let mut found = Self::default();
        validate(&mut found);
        found.0.into_iter().map(|(key, _)| key).collect()
    }
}
