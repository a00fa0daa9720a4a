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
    last: Mutex<LastRead>,
}

struct LastRead {
    /// Version of the file whose content was read.
    version: FileVersion,
    denied: Arc<DeniedTokens>,
    /// Error of the last attempt to read the file, which is logged once; `None` after a read that
    /// succeeded.
    failure: Option<String>,
}

impl LastRead {
    /// Logs that the file cannot be read, unless the attempt before this one failed with the same
    /// error: each request reads the file.
    fn report(&mut self, error: &anyhow::Error) {
        let error = format!("{error:#}");
        if self.failure.as_ref() != Some(&error) {
            log_failure(&error);
            self.failure = Some(error);
        }
    }

    /// Ends a failure, so that the next one is logged, also if it has the same error.
    fn report_success(&mut self, path: &Path) {
        if self.failure.take().is_some() {
            tracing::info!(file = %path.display(), "denied tokens are readable again");
        }
    }
}

fn log_failure(error: &str) {
    tracing::error!(
        error,
        "denied tokens not reloaded; the last valid list applies"
    );
}

impl DeniedFile {
    /// Reads the file.
    ///
    /// # Errors
    /// If the file is unreadable, too large or invalid.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        // Before the content: a change in between causes another read, not a missed denial.
        let version = version(path)?;
        let denied = Arc::new(parse(path, &read(path)?)?);
        let last = LastRead {
            version,
            denied,
            failure: None,
        };
        Ok(Self {
            path: path.to_owned(),
            last: Mutex::new(last),
        })
    }

    /// Returns the current list.
    pub(super) fn current(&self) -> Arc<DeniedTokens> {
        let mut last = self.last.lock();

        match self.changed(last.version) {
            // The file can return with the version that it had before it was unreadable.
            Ok(None) => last.report_success(&self.path),
            Ok(Some((version, text))) => {
                last.report_success(&self.path);
                // Also if the content is invalid: another read would not change it. Its error is
                // therefore logged once.
                last.version = version;
                match parse(&self.path, &text) {
                    Ok(denied) => {
                        tracing::info!(file = %self.path.display(), "denied tokens reloaded");
                        last.denied = Arc::new(denied);
                    }
                    Err(error) => log_failure(&format!("{error:#}")),
                }
            }
            // The next request reads the file again: a denial must not be missed because the file
            // could not be read for a moment.
            Err(error) => last.report(&error),
        }

        Arc::clone(&last.denied)
    }

    /// Returns the version and the content of the file if it has another version than the known
    /// one. Each request compares them, so that a denial applies at once.
    fn changed(&self, known: FileVersion) -> anyhow::Result<Option<(FileVersion, String)>> {
        let found = version(&self.path)?;
        if found == known {
            return Ok(None);
        }
        Ok(Some((found, read(&self.path)?)))
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

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn parse(path: &Path, text: &str) -> anyhow::Result<DeniedTokens> {
    toml::from_str(text).with_context(|| format!("{} is no list of denied tokens", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: TokenIds<'_> = TokenIds {
        jti: Some("b"),
        kid: None,
        sub: "ada",
    };

    #[test]
    fn file_that_cannot_be_read_for_a_moment_is_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("denied.toml");
        std::fs::write(&path, "jti = [\"a\"]").unwrap();
        let file = DeniedFile::open(&path).unwrap();

        // Its version can be read, but not its content: a read of a directory fails.
        std::fs::rename(&path, dir.path().join("before")).unwrap();
        std::fs::create_dir(&path).unwrap();
        assert!(!file.current().contains(&TOKEN));
        let missed = version(&path).unwrap();
        assert_ne!(file.last.lock().version, missed);
        assert!(file.last.lock().failure.is_some());

        std::fs::remove_dir(&path).unwrap();
        std::fs::write(&path, "jti = [\"a\", \"b\"]").unwrap();
        assert!(file.current().contains(&TOKEN));
        assert_eq!(file.last.lock().failure, None);
    }

    #[test]
    fn invalid_file_keeps_the_last_valid_list() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("denied.toml");
        std::fs::write(&path, "jti = [\"b\"]").unwrap();
        let file = DeniedFile::open(&path).unwrap();

        std::fs::write(&path, "jti = [\"other\"").unwrap();
        assert!(file.current().contains(&TOKEN));
        assert_eq!(file.last.lock().version, version(&path).unwrap());
    }

    #[test]
    fn failure_ends_when_the_unchanged_file_is_readable_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("denied.toml");
        std::fs::write(&path, "jti = [\"b\"]").unwrap();
        let file = DeniedFile::open(&path).unwrap();

        let elsewhere = dir.path().join("elsewhere.toml");
        std::fs::rename(&path, &elsewhere).unwrap();
        assert!(file.current().contains(&TOKEN));
        assert!(file.last.lock().failure.is_some());

        std::fs::rename(&elsewhere, &path).unwrap();
        assert!(file.current().contains(&TOKEN));
        assert_eq!(file.last.lock().failure, None);
    }
}
