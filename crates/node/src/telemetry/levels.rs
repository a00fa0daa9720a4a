//! Log filter, changeable at run time: permanently or for a limited duration.

use std::sync::OnceLock;
use std::time::Duration;

use orlog_model::{Clock, Timestamp};
use orlog_program::did_you_mean;
use parking_lot::Mutex;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::reload::Handle;
use tracing_subscriber::{EnvFilter, Registry};

use crate::clock::SystemClock;

/// Directive before each filter, which can override it: ractor enters a span of level INFO at each
/// poll of an actor.
const QUIET: &str = "ractor=warn";
const LEVEL_NAMES: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

/// Log filter of the process; it is installed once.
static LEVELS: OnceLock<LogLevels> = OnceLock::new();

/// Changeable log filter of the process.
pub struct LogLevels {
    handle: Handle<EnvFilter, Registry>,
    configured: String,
    now: Mutex<CurrentFilter>,
}

struct CurrentFilter {
    filter: String,
    until: Option<Timestamp>,
    /// Number of the last change; the expiry of an earlier change does not revert a later one.
    change: u64,
}

/// Current log filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFilter {
    /// Active filter.
    pub filter: String,
    /// Configured filter.
    pub configured: String,
    /// Time at which the configured filter is restored; `None`: never automatically.
    pub until: Option<Timestamp>,
}

/// Returns the log filter of this process; `None` if another logger is installed.
#[must_use]
pub fn levels() -> Option<&'static LogLevels> {
    LEVELS.get()
}

/// Parses a filter.
///
/// # Errors
/// Fails if the filter is invalid; the text contains an example.
pub(super) fn parse(text: &str) -> Result<EnvFilter, String> {
    let example = "such as \"info\" or \"info,orlog_actors=debug\"";
    if text.trim().is_empty() {
        return Err(format!("an empty filter logs nothing; use one {example}"));
    }
    if let Some(word) = unknown_level(text) {
        let advice = did_you_mean(word, LEVEL_NAMES)
            .map(|advice| format!("; {advice}"))
            .unwrap_or_default();
        return Err(format!(
            "{word:?} is not a log level{advice}; levels: {}; for a module, add its level: \
             {word}=debug",
            LEVEL_NAMES.join(", ")
        ));
    }

    EnvFilter::try_new(format!("{QUIET},{text}"))
        .map_err(|error| format!("{text:?} is not a filter {example}: {error}"))
}

/// Returns the first directive that is a word, but not a level: `EnvFilter` reads it as the only
/// module that logs. A filter with spans is not checked.
fn unknown_level(text: &str) -> Option<&str> {
    let mut words = text
        .split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty() && !part.contains('='));
    words.find(|word| !text.contains('[') && word.parse::<LevelFilter>().is_err())
}

pub(super) fn install(handle: Handle<EnvFilter, Registry>, configured: &str) {
    let now = Mutex::new(CurrentFilter {
        filter: configured.to_owned(),
        until: None,
        change: 0,
    });

    // Stored only by the installer of the global subscriber, which is set once.
    LEVELS
        .set(LogLevels {
            handle,
            configured: configured.to_owned(),
            now,
        })
        .ok();
}

impl LogLevels {
    /// Returns the current filter.
    #[must_use]
    pub fn current(&self) -> LogFilter {
        self.snapshot(&self.now.lock())
    }

    /// Activates a filter, for `duration` if it is set: then the configured filter is restored.
    /// Call it on a tokio runtime.
    ///
    /// # Errors
    /// Fails if the filter is invalid.
    pub fn set(
        &'static self,
        filter: &str,
        lasting: Option<Duration>,
    ) -> Result<LogFilter, String> {
        let parsed = parse(filter)?;
        // Held during the change, so that the filter and its description change together.
        let mut now = self.now.lock();

        self.handle
            .reload(parsed)
            .map_err(|error| error.to_string())?;
        now.change += 1;
        filter.clone_into(&mut now.filter);
        now.until = lasting.map(|lasting| SystemClock.now().saturating_add(lasting));

        if let Some(lasting) = lasting {
            // A later change must not be reverted by the timer of an earlier one.
            let change = now.change;
            tokio::spawn(async move {
                tokio::time::sleep(lasting).await;
                self.revert(Some(change));
            });
        }

        tracing::info!(filter, ?lasting, "log filter changed");
        Ok(self.snapshot(&now))
    }

    /// Restores the configured filter.
    pub fn reset(&self) -> LogFilter {
        self.revert(None);
        self.current()
    }

    /// Reverts a change; `None`: the last one.
    fn revert(&self, change: Option<u64>) {
        let mut now = self.now.lock();
        if change.is_some_and(|change| change != now.change) {
            return;
        }

        let configured = parse(&self.configured).and_then(|filter| {
            self.handle
                .reload(filter)
                .map_err(|error| error.to_string())
        });
        if let Err(error) = configured {
            return tracing::error!(error, "cannot restore the configured log filter");
        }

        // The timer of a change that was reset must not end a later one.
        now.change += 1;
        now.filter.clone_from(&self.configured);
        now.until = None;
        tracing::info!(filter = self.configured, "log filter reset");
    }

    fn snapshot(&self, now: &CurrentFilter) -> LogFilter {
        LogFilter {
            filter: now.filter.clone(),
            configured: self.configured.clone(),
            until: now.until,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_level_is_rejected() {
        let error = parse("dbug").expect_err("it is no level");
        assert!(
            error.starts_with("\"dbug\" is not a log level; did you mean `debug`?"),
            "{error}"
        );
        let error = parse("info, orlog_actors").expect_err("the module has no level");
        assert!(error.contains("orlog_actors=debug"), "{error}");
        for valid in [
            "info",
            "WARN",
            "off",
            "3",
            "info,orlog_actors=debug",
            "orlog[saga{x=1}]=trace",
            "info,",
        ] {
            assert!(parse(valid).is_ok(), "{valid}");
        }
    }
}
