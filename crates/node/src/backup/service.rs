//! Backups of a running node, copied to a separate directory and then downloaded from it.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use orlog_actors::Runtime;
use orlog_model::Clock;
use parking_lot::Mutex;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use uuid::Uuid;

use crate::access::AccessRegistry;
use crate::backup::{self, BackupFailure, Manifest};
use crate::config::{ClusterMode, Config};
use crate::layout;
use crate::transport::Transport;

/// Name prefix of the directories that are removed at the start.
const PREFIX: &str = "orlog-backup-";
/// Characters that the name of a node's directory contains encoded.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-');
/// Free space reserved for the node beside a copy, because its journals grow during the copy.
const HEADROOM_BYTES: u64 = 64 << 20;

/// Downloadable backup.
#[derive(Clone, Debug)]
pub struct BackupHandle {
    /// Id of the backup.
    pub id: Uuid,
    /// Contents of the backup.
    pub manifest: Manifest,
    dir: PathBuf,
}

impl BackupHandle {
    /// Returns the path of a file of the backup.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<PathBuf> {
        let is_known = self.manifest.files.iter().any(|file| file.path == path);
        let is_about = [backup::MANIFEST, backup::SUMS].contains(&path);
        (is_known || is_about).then(|| self.dir.join(path))
    }
}

/// Reason why a backup is not available.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// Another backup exists or is in progress.
    #[error("another backup is in progress or not downloaded; wait, or delete it (--replace)")]
    AlreadyExists,
    /// The process is shutting down.
    #[error("the process is shutting down")]
    ShuttingDown,
    /// The backup failed.
    #[error(transparent)]
    Failed(#[from] BackupFailure),
}

/// Backups of a running node; at most one is stored.
pub struct Backups {
    pub(crate) config: Arc<Config>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) transport: Arc<Transport>,
    pub(crate) access: Arc<AccessRegistry>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Directory of [`claim_dir`].
    pub(crate) dir: PathBuf,
    /// Held while a backup is created.
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    pub(crate) handle: Mutex<Option<BackupHandle>>,
}

impl Backups {
    /// Copies the stored data of this running node, for download file by file.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub async fn create(self: &Arc<Self>, replace: bool) -> Result<BackupHandle, BackupError> {
        let turn = Arc::clone(&self.turn)
            // A second backup at the same time would need the space twice; the caller learns of the
            // first one.
            .try_lock_owned()
            .map_err(|_| BackupError::AlreadyExists)?;
        let old = self.handle.lock().clone();
        if old.is_some() && !replace {
            return Err(BackupError::AlreadyExists);
        }

        let backups = Arc::clone(self);
        let copying = tokio::task::spawn_blocking(move || {
            // Held for the duration of the copy, even if the caller has disconnected.
            let _turn = turn;

            // First, so that both copies do not need the space at the same time.
            if let Some(old) = old {
                backups.delete(old.id);
            }
            // A copy that failed, and could not be removed then, must not use the space of this
            // one. No other backup exists while this one has the turn.
            remove_all(&backups.dir);
            backups.copy()
        });
        let handle = copying.await.map_err(|_| BackupError::ShuttingDown)??;

        tracing::info!(id = %handle.id, bytes = handle.manifest.bytes(), "backup created");
        Ok(handle)
    }

    fn copy(&self) -> Result<BackupHandle, BackupFailure> {
        if self.config.replicated() {
            return Err(BackupFailure::Replicated);
        }

        let id = Uuid::now_v7();
        let dir = self.dir.join(format!("{PREFIX}{id}"));
        let data = &self.config.data_dir;
        let layout = layout::backup_text(data).map_err(|error| BackupFailure::Io {
            path: data.clone(),
            source: std::io::Error::other(error),
        })?;

        let bus = match &*self.transport {
            Transport::Embedded(bus) => Some(&**bus),
            Transport::Nats(_) => None,
        };
        let source = backup::BackupSource {
            shards: self.runtime.numbered_readers().collect(),
            division: self.config.shards,
            layout,
            bus,
            registry: self.access.local(),
            node: self.config.node_name(),
            now: self.clock.now().to_string(),
        };

        // A copy without a shard would restore a node that misses instances, and that would not be
        // noticed.
        let missing = (0..self.config.shards)
            .find(|shard| !source.shards.iter().any(|(known, _)| known == shard));
        match missing {
            Some(_) if source.shards.is_empty() => return Err(BackupFailure::NoShards),
            // This node has only a part of the replicated shards.
            Some(shard) if self.config.cluster.mode == ClusterMode::Standalone => {
                return Err(BackupFailure::Missing(shard));
            }
            _ => self.check_space(&source)?,
        }

        match backup::create(&source, &dir) {
            Ok(manifest) => {
                let handle = BackupHandle { id, manifest, dir };
                *self.handle.lock() = Some(handle.clone());
                Ok(handle)
            }
            Err(error) => {
                // A partial copy only uses space.
                remove(&dir);
                Err(error)
            }
        }
    }

    /// Rejects a backup that would fill the disk of the node.
    fn check_space(&self, source: &backup::BackupSource<'_>) -> Result<(), BackupFailure> {
        let path = &self.dir;
        std::fs::create_dir_all(path).map_err(|source| BackupFailure::Io {
            path: path.clone(),
            source,
        })?;

        let events = source.bus.map_or(0, orlog_bus::embedded::Embedded::bytes);

        // With less free space, the copy would stop the commits of the node.
        let needed = source
            .shards
            .iter()
            .map(|(_, reader): &(u16, orlog_store::Reader)| {
                reader
                    .stats()
                    .tables
                    .iter()
                    .map(|table| table.bytes)
                    .sum::<u64>()
            })
            .sum::<u64>()
            + events
            + HEADROOM_BYTES;

        let free = backup::free_bytes(path).map_err(|source| BackupFailure::Io {
            path: path.clone(),
            source,
        })?;
        if free < needed {
            Err(BackupFailure::OutOfSpace {
                path: path.clone(),
                free,
                needed,
            })
        } else {
            Ok(())
        }
    }

    /// Returns the backup with this id, if it exists.
    #[must_use]
    pub fn get(&self, id: Uuid) -> Option<BackupHandle> {
        self.handle.lock().clone().filter(|handle| handle.id == id)
    }

    /// Removes a backup. Returns `false` if it does not exist. Blocks.
    pub fn delete(&self, id: Uuid) -> bool {
        // The id protects a newer backup from a client that deletes its own old one late.
        let Some(handle) = self.handle.lock().take_if(|handle| handle.id == id) else {
            return false;
        };
        remove(&handle.dir);
        true
    }
}

/// Returns the directory of the backups, without those of an earlier run of the process.
pub(crate) fn claim_dir(config: &Config) -> PathBuf {
    let shared = config
        .backup
        .dir
        .as_ref()
        .map(|dir| dir.join(own_name(&config.node_name())));
    let own = config.data_dir.join("backups");
    let dir = shared.unwrap_or_else(|| own.clone());

    if config.role.runs_sagas() {
        remove_all(&dir);
        // Without `backup.dir`, an earlier run stored its backup here.
        if dir != own {
            remove_all(&own);
        }
    }

    dir
}

/// Removes the backups in the directory of a node. One that cannot be removed stops neither the
/// node nor the next backup: it only uses space.
fn remove_all(dir: &Path) {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        // It is created with the first backup.
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!(dir = %dir.display(), %error, "earlier backups not removed");
            return;
        }
    };

    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                tracing::warn!(dir = %dir.display(), %error, "earlier backups not removed");
                continue;
            }
        };

        // Only backup directories; users may have stored other files here, also backups that they
        // have named themselves.
        let is_backup = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX))
            .is_some_and(|id| Uuid::parse_str(id).is_ok());
        if is_backup {
            remove(&entry.path());
        }
    }
}

fn remove(backup: &Path) {
    match std::fs::remove_dir_all(backup) {
        Ok(()) => {}
        // A copy that failed early has created no directory.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => {
            let dir = backup.display();
            tracing::warn!(%dir, %error, "backup not removed; retrying at the next start at the \
                latest");
        }
    }
}

/// Returns the name of the node's directory within a directory that other nodes may share. Names of
/// different nodes differ: a node removes the backups in its directory.
fn own_name(node: &str) -> String {
    utf8_percent_encode(node, ENCODED).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_different_directories_in_a_shared_one() {
        let names = ["a-b", "a.b", "a_b", "a%2Eb", "a/b", ".."].map(own_name);
        assert_eq!(
            names,
            ["a-b", "a%2Eb", "a%5Fb", "a%252Eb", "a%2Fb", "%2E%2E"]
        );
    }

    #[test]
    fn start_of_a_node_keeps_the_backups_of_another_node() {
        let shared = tempfile::tempdir().unwrap();
        let claim = |node: &str| {
            let mut config = Config {
                node_name: node.to_owned(),
                ..Config::default()
            };
            config.backup.dir = Some(shared.path().to_owned());
            claim_dir(&config)
        };

        let backup = claim("pod.1").join(format!("{PREFIX}{}", Uuid::nil()));
        std::fs::create_dir_all(&backup).unwrap();
        claim("pod-1");
        claim("pod_1");
        assert!(backup.exists());

        claim("pod.1");
        assert!(!backup.exists());
    }

    #[test]
    fn backups_of_earlier_runs_are_removed_and_those_of_users_stay() {
        let root = tempfile::tempdir().unwrap();
        let mut config = Config {
            node_name: "a".to_owned(),
            data_dir: root.path().join("data"),
            ..Config::default()
        };

        // A failed backup, of a run without `backup.dir`.
        let own = claim_dir(&config);
        let partial = own.join(format!("{PREFIX}{}", Uuid::nil()));
        std::fs::create_dir_all(partial.join("shard-0")).unwrap();
        let named = own.join(format!("{PREFIX}monday"));
        std::fs::create_dir_all(&named).unwrap();

        config.backup.dir = Some(root.path().join("shared"));
        let shared = claim_dir(&config);
        assert!(!partial.exists());
        assert!(named.exists());

        // The next backup removes the directory that this run has left.
        let left = shared.join(format!("{PREFIX}{}", Uuid::nil()));
        std::fs::create_dir_all(&left).unwrap();
        remove_all(&shared);
        assert!(!left.exists());
    }
}
