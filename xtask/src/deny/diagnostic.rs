//! Diagnostic of a dependency, with its severity.

use super::config::Level;

/// Diagnostic of a dependency.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Diagnostic {
    pub(super) level: Level,
    pub(super) text: String,
}
