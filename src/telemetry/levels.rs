//! Which lines are logged, changeable while the process runs: for good, or for a while.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use orlog_model::{Clock, Timestamp};
use tracing_subscriber::reload::Handle;
use tracing_subscriber::{EnvFilter, Registry};

use crate::clock::SystemClock;

/// A process logs in one place only.
static LEVELS: OnceLock<Levels> = OnceLock::new();

/// See the top of this file.
pub struct Levels {
    handle: Handle<EnvFilter, Registry>,
    configured: String,
    now: Mutex<Now>,
}

struct Now {
    filter: String,
    until: Option<Timestamp>,
    /// Counts changes: what was to end an earlier one leaves a later one alone.
    change: u64,
}

/// Which lines are logged now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// In force.
    pub filter: String,
    /// What the configuration says.
    pub configured: String,
    /// When the configured one is in force again; `None`: not by itself.
    pub until: Option<Timestamp>,
}

/// The levels of this process; `None` where something else logs.
#[must_use]
pub fn levels() -> Option<&'static Levels> {
    LEVELS.get()
}

/// Reads a filter.
///
/// # Errors
/// When it is none; the text says what one looks like.
pub(super) fn parse(text: &str) -> Result<EnvFilter, String> {
    let looks = "such as \"info\" or \"info,orlog_actors=debug\"";
    if text.trim().is_empty() {
        return Err(format!("an empty filter would log nothing; give one {looks}"));
    }
    EnvFilter::try_new(text).map_err(|error| format!("{text:?} is no filter {looks}: {error}"))
}

pub(super) fn keep(handle: Handle<EnvFilter, Registry>, configured: &str) {
    let now = Mutex::new(Now { filter: configured.to_owned(), until: None, change: 0 });
    // It is only kept by whoever became the subscriber of the process, which nobody else can become after it.
    LEVELS.set(Levels { handle, configured: configured.to_owned(), now }).ok();
}

impl Levels {
    /// What is in force.
    #[must_use]
    pub fn look(&self) -> Filter {
        self.shown(&self.lock())
    }

    /// Puts a filter in force, for a while where `lasting` says how long: then the configured one is back. Call it on a tokio
    /// runtime.
    ///
    /// # Errors
    /// When it is no filter.
    pub fn set(&'static self, filter: &str, lasting: Option<Duration>) -> Result<Filter, String> {
        let parsed = parse(filter)?;
        let mut now = self.lock();
        self.handle.reload(parsed).map_err(|error| error.to_string())?;
        now.change += 1;
        filter.clone_into(&mut now.filter);
        now.until = lasting.map(|lasting| SystemClock.now().after(lasting));
        if let Some(lasting) = lasting {
            let change = now.change;
            tokio::spawn(async move {
                tokio::time::sleep(lasting).await;
                self.back(Some(change));
            });
        }
        tracing::info!(filter, ?lasting, "which lines are logged was changed");
        Ok(self.shown(&now))
    }

    /// Puts the configured filter in force again.
    pub fn reset(&self) -> Filter {
        self.back(None);
        self.look()
    }

    /// Ends a change, the last one where none is named.
    fn back(&self, change: Option<u64>) {
        let mut now = self.lock();
        if change.is_some_and(|change| change != now.change) {
            return;
        }
        let configured = parse(&self.configured)
            .and_then(|filter| self.handle.reload(filter).map_err(|error| error.to_string()));
        if let Err(error) = configured {
            return tracing::error!(error, "the configured filter of the log cannot be put back");
        }
        now.change += 1;
        now.filter.clone_from(&self.configured);
        now.until = None;
        tracing::info!(filter = self.configured, "which lines are logged is as configured again");
    }

    fn shown(&self, now: &Now) -> Filter {
        Filter { filter: now.filter.clone(), configured: self.configured.clone(), until: now.until }
    }

    fn lock(&self) -> MutexGuard<'_, Now> {
        // Whole between any two statements that can panic.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
