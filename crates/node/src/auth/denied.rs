//! Denied tokens: a file with ids of tokens, keys and subjects that are rejected before they
//! expire.
//!
//! A changed file applies to the next request. If it becomes unreadable or invalid, the last valid
//! list stays in effect.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use orlog_effect::secret::FileVersion;
use parking_lot::Mutex;
use serde::Deserialize;

/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 8 << 20;

/// Denied ids: the claims `jti` and `sub`, and the header `kid`.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct DeniedTokens {
    jti: BTreeSet<String>,
    kid: BTreeSet<String>,
    sub: BTreeSet<String>,
}

/// Ids of a token.
pub(super) struct TokenIds<'a> {
    pub(super) jti: Option<&'a str>,
    pub(super) kid: Option<&'a str>,
    pub(super) sub: &'a str,
}

impl DeniedTokens {
    pub(super) fn contains(&self, token: &TokenIds<'_>) -> bool {
        token.jti.is_some_and(|id| self.jti.contains(id))
            || token.kid.is_some_and(|id| self.kid.contains(id))
            || self.sub.contains(token.sub)
    }
}

pub(super) struct DeniedFile {
    path: PathBuf,
    read: Mutex<(Option<FileVersion>, Arc<DeniedTokens>)>,
}

impl DeniedFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If the file is unreadable, too large or invalid.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        // Before the content: a change in between causes another read, not a missed denial.
        let version = version(path)?;
        let denied = Arc::new(read(path)?);
        Ok(Self {
            path: path.to_owned(),
            read: Mutex::new((Some(version), denied)),
        })
    }

    /// Returns the current list.
    pub(super) fn current(&self) -> Arc<DeniedTokens> {
        let mut last = self.read.lock();

        // Each request compares the version of the file, so that a denial applies at once.
        let found = version(&self.path).ok();
        if found != last.0 {
            // Also if the file is invalid: it is reported once for each version.
            last.0 = found;
            match read(&self.path) {
                Ok(denied) => {
                    tracing::info!(file = %self.path.display(), "denied tokens reloaded");
                    last.1 = Arc::new(denied);
                }
                Err(error) => {
                    let error = format_args!("{error:#}");
                    tracing::error!(%error, "denied tokens not reloaded; the last valid list \
                        applies");
                }
            }
        }

        Arc::clone(&last.1)
    }
}

fn version(path: &Path) -> anyhow::Result<FileVersion> {
    let data =
        std::fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(
        data.len() <= MAX_BYTES,
        "{} has more than {MAX_BYTES} bytes",
        path.display()
    );
    Ok(FileVersion::of(&data))
}

fn read(path: &Path) -> anyhow::Result<DeniedTokens> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("{} is no list of denied tokens", path.display()))
}
