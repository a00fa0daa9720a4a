//! Log filter, changeable at run time: permanently or for a limited duration.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use orlog_model::{Clock, Timestamp};
use tracing_subscriber::reload::Handle;
use tracing_subscriber::{EnvFilter, Registry};

use crate::clock::SystemClock;

/// Directive before each filter, which can override it: ractor enters a span of level INFO at each poll of an actor.
const QUIET: &str = "ractor=warn";

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
    EnvFilter::try_new(format!("{QUIET},{text}"))
        .map_err(|error| format!("{text:?} is not a filter {example}: {error}"))
}

pub(super) fn install(handle: Handle<EnvFilter, Registry>, configured: &str) {
    let now = Mutex::new(CurrentFilter { filter: configured.to_owned(), until: None, change: 0 });
    // Stored only by the installer of the global subscriber, which is set once.
    LEVELS.set(LogLevels { handle, configured: configured.to_owned(), now }).ok();
}

impl LogLevels {
    /// Returns the current filter.
    #[must_use]
    pub fn current(&self) -> LogFilter {
        self.snapshot(&self.lock())
    }

    /// Activates a filter, for `duration` if it is set: then the configured filter is restored. Call it on
    /// a tokio runtime.
    ///
    /// # Errors
    /// Fails if the filter is invalid.
    pub fn set(&'static self, filter: &str, lasting: Option<Duration>) -> Result<LogFilter, String> {
        let parsed = parse(filter)?;
        let mut now = self.lock();
        self.handle.reload(parsed).map_err(|error| error.to_string())?;
        now.change += 1;
        filter.clone_into(&mut now.filter);
        now.until = lasting.map(|lasting| SystemClock.now().saturating_add(lasting));
        if let Some(lasting) = lasting {
            let change = now.change;
            tokio::spawn(async move {
                tokio::time::sleep(lasting).await;
                self.back(Some(change));
            });
        }
        tracing::info!(filter, ?lasting, "log filter changed");
        Ok(self.snapshot(&now))
    }

    /// Restores the configured filter.
    pub fn reset(&self) -> LogFilter {
        self.back(None);
        self.current()
    }

    /// Reverts a change; `None`: the last one.
    fn back(&self, change: Option<u64>) {
        let mut now = self.lock();
        if change.is_some_and(|change| change != now.change) {
            return;
        }
        let configured = parse(&self.configured)
            .and_then(|filter| self.handle.reload(filter).map_err(|error| error.to_string()));
        if let Err(error) = configured {
            return tracing::error!(error, "cannot restore the configured log filter");
        }
        now.change += 1;
        now.filter.clone_from(&self.configured);
        now.until = None;
        tracing::info!(filter = self.configured, "log filter reset");
    }

    fn snapshot(&self, now: &CurrentFilter) -> LogFilter {
        LogFilter { filter: now.filter.clone(), configured: self.configured.clone(), until: now.until }
    }

    fn lock(&self) -> MutexGuard<'_, CurrentFilter> {
        // No panic can occur between dependent updates, so the state is consistent.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
