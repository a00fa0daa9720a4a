//! Backups of a running node: copied into a folder of their own, from where they are fetched.

pub(crate) mod store;

use std::sync::Arc;

use uuid::Uuid;

use super::App;
use super::layout;
use super::transport::Transport;
use crate::backup::{self, Error};
use crate::config::ClusterMode;
use store::{NoBackup, PREFIX, Taken};

impl App {
    /// Copies what this node has stored while it goes on, to be fetched file by file.
    ///
    /// # Errors
    /// See [`NoBackup`].
    pub async fn backup(self: &Arc<Self>, replace: bool) -> Result<Taken, NoBackup> {
        let turn = Arc::clone(&self.backups.turn).try_lock_owned().map_err(|_| NoBackup::Another)?;
        let old = self.backups.taken().clone();
        match old {
            Some(_) if !replace => return Err(NoBackup::Another),
            Some(old) => drop(self.drop_backup(old.id)),
            None => {}
        }
        let app = Arc::clone(self);
        let copying = tokio::task::spawn_blocking(move || {
            // Held for as long as it copies, also where nobody waits for the answer any more.
            let _turn = turn;
            app.take_backup()
        });
        let taken = copying.await.map_err(|_| NoBackup::Ending)??;
        tracing::info!(id = %taken.id, bytes = taken.manifest.bytes(), "a backup was taken");
        Ok(taken)
    }

    fn take_backup(&self) -> Result<Taken, Error> {
        if self.config.replicated() {
            return Err(Error::Replicated);
        }
        let id = Uuid::now_v7();
        let folder = self.backups.folder.join(format!("{PREFIX}{id}"));
        let layout = layout::file(&self.config.data);
        let bus = match &self.transport {
            Transport::Embedded(bus) => Some(&**bus),
            Transport::Nats(_) => None,
        };
        let source = backup::Source {
            shards: self.runtime.numbered_readers().collect(),
            division: self.config.shards,
            layout: &layout,
            bus,
            node: self.config.node_name(),
            now: self.clock.now().to_string(),
        };
        let missing =
            (0..self.config.shards).find(|shard| !source.shards.iter().any(|(known, _)| known == shard));
        match missing {
            Some(_) if source.shards.is_empty() => return Err(Error::NoShards),
            // Of those that are shared with others, this node has some.
            Some(shard) if self.config.cluster.mode == ClusterMode::Alone => {
                return Err(Error::Missing(shard));
            }
            _ => self.has_room(&source)?,
        }
        match backup::copy(&source, &folder) {
            Ok(manifest) => {
                let taken = Taken { id, manifest, folder };
                *self.backups.taken() = Some(taken.clone());
                Ok(taken)
            }
            Err(error) => {
                // What is left of it would only take room; the next start removes it too.
                std::fs::remove_dir_all(&folder).ok();
                Err(error)
            }
        }
    }

    /// Refuses early what would fill the disk of a node that needs it.
    fn has_room(&self, source: &backup::Source<'_>) -> Result<(), Error> {
        let path = &self.backups.folder;
        std::fs::create_dir_all(path).map_err(|source| Error::Io { path: path.clone(), source })?;
        let stored = |(_, reader): &(u16, orlog_store::Reader)| {
            reader.stats().tables.iter().map(|table| table.bytes).sum::<u64>()
        };
        let events = source.bus.map_or(0, orlog_bus::embedded::Embedded::bytes);
        let needed = source.shards.iter().map(stored).sum::<u64>() + events + HEADROOM_BYTES;
        let free = backup::free_bytes(path).map_err(|source| Error::Io { path: path.clone(), source })?;
        if free < needed { Err(Error::NoRoom { path: path.clone(), free, needed }) } else { Ok(()) }
    }

    /// The backup of this id, while it is there.
    #[must_use]
    pub fn taken_backup(&self, id: Uuid) -> Option<Taken> {
        self.backups.taken().clone().filter(|taken| taken.id == id)
    }

    /// Removes a backup; `false` where it is not there.
    pub fn drop_backup(&self, id: Uuid) -> bool {
        let Some(taken) = self.backups.taken().take_if(|taken| taken.id == id) else { return false };
        if let Err(error) = std::fs::remove_dir_all(&taken.folder) {
            tracing::warn!(folder = %taken.folder.display(), %error, "a backup could not be removed; the next start does it");
        }
        true
    }
}

/// What is left to the node beside a copy: its journals grow while it copies.
const HEADROOM_BYTES: u64 = 64 << 20;
