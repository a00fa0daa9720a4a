//! What a doctor finds: what was looked at, how bad it is, and what to do.

use serde::{Deserialize, Serialize};

/// How bad something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Ok,
    /// It works, and may not for long.
    Warn,
    /// It does not work.
    Bad,
}

impl Level {
    /// The word in tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Warn => "warn",
            Level::Bad => "bad",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What was looked at.
    pub check: String,
    /// How bad it is.
    pub level: Level,
    /// What was found.
    pub found: String,
    /// What to do; nothing where nothing need be done.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub remedy: String,
}

impl Finding {
    /// Nothing to complain of.
    pub fn ok(check: &str, found: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Level::Ok, found: found.into(), remedy: String::new() }
    }

    /// Something to see to.
    pub fn warn(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Level::Warn, found: found.into(), remedy: remedy.into() }
    }

    /// Something that is broken.
    pub fn bad(check: &str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Level::Bad, found: found.into(), remedy: remedy.into() }
    }
}
