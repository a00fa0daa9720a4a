//! A verdict says what is wrong with a dependency and how much that matters.

use super::config::Level;

/// One thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) level: Level,
    pub(super) text: String,
}
