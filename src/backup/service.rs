//! Backups of a running node: copied to a separate directory, then downloaded from it.

use std::sync::Arc;

use uuid::Uuid;

use crate::app::App;
use crate::app::layout;
use crate::app::transport::Transport;
use crate::backup::downloads::{BackupError, BackupHandle, PREFIX};
use crate::backup::{self, BackupFailure};
use crate::config::ClusterMode;

impl App {
    /// Copies the stored data of this running node, for download file by file.
    ///
    /// # Errors
    /// See [`BackupError`].
    pub async fn backup(self: &Arc<Self>, replace: bool) -> Result<BackupHandle, BackupError> {
        let turn = Arc::clone(&self.backups.turn).try_lock_owned().map_err(|_| BackupError::AlreadyExists)?;
        let old = self.backups.handle().clone();
        match old {
            Some(_) if !replace => return Err(BackupError::AlreadyExists),
            Some(old) => drop(self.delete_backup(old.id)),
            None => {}
        }
        let app = Arc::clone(self);
        let copying = tokio::task::spawn_blocking(move || {
            // Held for the duration of the copy, even if the caller has disconnected.
            let _turn = turn;
            app.take_backup()
        });
        let handle = copying.await.map_err(|_| BackupError::ShuttingDown)??;
        tracing::info!(id = %handle.id, bytes = handle.manifest.bytes(), "backup created");
        Ok(handle)
    }

    fn take_backup(&self) -> Result<BackupHandle, BackupFailure> {
        if self.config.replicated() {
            return Err(BackupFailure::Replicated);
        }
        let id = Uuid::now_v7();
        let dir = self.backups.dir.join(format!("{PREFIX}{id}"));
        let data = &self.config.data_dir;
        let layout = layout::backup_text(data).map_err(|error| BackupFailure::Io {
            path: data.clone(),
            source: std::io::Error::other(error),
        })?;
        let bus = match &self.transport {
            Transport::Embedded(bus) => Some(&**bus),
            Transport::Nats(_) => None,
        };
        let source = backup::BackupSource {
            shards: self.runtime.numbered_readers().collect(),
            division: self.config.shards,
            layout,
            bus,
            node: self.config.node_name(),
            now: self.clock.now().to_string(),
        };
        let missing =
            (0..self.config.shards).find(|shard| !source.shards.iter().any(|(known, _)| known == shard));
        match missing {
            Some(_) if source.shards.is_empty() => return Err(BackupFailure::NoShards),
            // This node has only a part of the replicated shards.
            Some(shard) if self.config.cluster.mode == ClusterMode::Standalone => {
                return Err(BackupFailure::Missing(shard));
            }
            _ => self.has_room(&source)?,
        }
        match backup::create(&source, &dir) {
            Ok(manifest) => {
                let handle = BackupHandle { id, manifest, dir };
                *self.backups.handle() = Some(handle.clone());
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
    fn has_room(&self, source: &backup::BackupSource<'_>) -> Result<(), BackupFailure> {
        let path = &self.backups.dir;
        std::fs::create_dir_all(path).map_err(|source| BackupFailure::Io { path: path.clone(), source })?;
        let stored = |(_, reader): &(u16, orlog_store::Reader)| {
            reader.stats().tables.iter().map(|table| table.bytes).sum::<u64>()
        };
        let events = source.bus.map_or(0, orlog_bus::embedded::Embedded::bytes);
        let needed = source.shards.iter().map(stored).sum::<u64>() + events + HEADROOM_BYTES;
        let free =
            backup::free_bytes(path).map_err(|source| BackupFailure::Io { path: path.clone(), source })?;
        if free < needed {
            Err(BackupFailure::OutOfSpace { path: path.clone(), free, needed })
        } else {
            Ok(())
        }
    }

    /// Returns the backup with this id, if it exists.
    #[must_use]
    pub fn current_backup(&self, id: Uuid) -> Option<BackupHandle> {
        self.backups.handle().clone().filter(|handle| handle.id == id)
    }

    /// Removes a backup. Returns `false` if it does not exist.
    pub fn delete_backup(&self, id: Uuid) -> bool {
        let Some(handle) = self.backups.handle().take_if(|handle| handle.id == id) else { return false };
        if let Err(error) = std::fs::remove_dir_all(&handle.dir) {
            tracing::warn!(dir = %handle.dir.display(), %error, "backup removal failed; retrying at the next start");
        }
        true
    }
}

/// Free space reserved for the node beside a copy, because its journals grow during the copy.
const HEADROOM_BYTES: u64 = 64 << 20;
