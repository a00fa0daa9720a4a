//! Backups of a running node, copied to a separate directory and then downloaded from it.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
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
                // A partial copy only uses space; the next start removes it too.
                std::fs::remove_dir_all(&dir).ok();
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
        if let Err(error) = std::fs::remove_dir_all(&handle.dir) {
            tracing::warn!(dir = %handle.dir.display(), %error, "backup removal failed; retrying \
                at the next start");
        }
        true
    }
}

/// Returns the directory of the backups, without those of an earlier run of the process.
pub(crate) fn claim_dir(config: &Config) -> anyhow::Result<PathBuf> {
    let shared = config
        .backup
        .dir
        .as_ref()
        .map(|dir| dir.join(own_name(&config.node_name())));
    let dir = shared.unwrap_or_else(|| config.data_dir.join("backups"));
    for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
        // Removes only backup directories; users may have stored other files here.
        let is_ours = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.starts_with(PREFIX));
        if is_ours && config.role.runs_sagas() {
            let path = entry.path();
            std::fs::remove_dir_all(&path)
                .with_context(|| format!("{} cannot be removed", path.display()))?;
        }
    }

    Ok(dir)
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
            claim_dir(&config).unwrap()
        };

        let backup = claim("pod.1").join(format!("{PREFIX}copy"));
        std::fs::create_dir_all(&backup).unwrap();
        claim("pod-1");
        claim("pod_1");
        assert!(backup.exists());

        claim("pod.1");
        assert!(!backup.exists());
    }
}
