//! Store of the downloadable backup, and copies of offline data directories.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use uuid::Uuid;

use crate::app::stores::ReadOnlyStores;
use crate::app::{component_config, layout};
use crate::backup::{self, BackupFailure, Manifest};
use crate::config::Config;

/// Downloadable backup.
#[derive(Clone, Debug)]
pub struct BackupHandle {
    /// Id of the backup.
    pub id: Uuid,
    /// Contents of the backup.
    pub manifest: Manifest,
    pub(crate) dir: PathBuf,
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

/// Store of at most one backup.
pub(crate) struct BackupStore {
    pub(crate) dir: PathBuf,
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    handle: Mutex<Option<BackupHandle>>,
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

impl BackupStore {
    /// Opens the store and removes the backups of an earlier run of the process.
    ///
    /// # Errors
    /// Fails if a backup cannot be removed.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Self> {
        let shared = config.backup.dir.as_ref().map(|dir| dir.join(own_name(&config.node_name())));
        let dir = shared.unwrap_or_else(|| config.data_dir.join("backups"));
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            // Removes only backup directories; users may have stored other files here.
            let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if is_ours && config.role.runs_sagas() {
                let path = entry.path();
                std::fs::remove_dir_all(&path)
                    .with_context(|| format!("{} cannot be removed", path.display()))?;
            }
        }
        Ok(Self { dir, turn: Arc::default(), handle: Mutex::default() })
    }

    pub(crate) fn handle(&self) -> std::sync::MutexGuard<'_, Option<BackupHandle>> {
        self.handle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the name of the node's directory within a directory that other nodes may share.
fn own_name(node: &str) -> String {
    node.chars().map(|character| if character.is_ascii_alphanumeric() { character } else { '-' }).collect()
}

/// Name prefix of the directories that are removed at the start.
pub(crate) const PREFIX: &str = "orlog-backup-";

/// Copies an offline data directory to the directory `to`, which must be new or empty. Blocks.
///
/// # Errors
/// Fails if the source is not a data directory, is in use or is damaged, and with [`BackupFailure`].
pub fn backup_offline(data: &Path, to: &Path) -> anyhow::Result<Manifest> {
    let stores = ReadOnlyStores::open(data)?;
    let division = layout::stored_config(data)?.shards;
    let bus = open_bus(data)?;
    let source = backup::BackupSource {
        shards: (0..).zip(stores.readers().cloned()).collect(),
        division,
        layout: layout::backup_text(data)?,
        bus: bus.as_ref(),
        node: String::new(),
        now: orlog_model::Clock::now(&crate::clock::SystemClock).to_string(),
    };
    Ok(backup::create(&source, to)?)
}

/// Opens the embedded log in a data directory, if it exists.
fn open_bus(data: &Path) -> anyhow::Result<Option<orlog_bus::embedded::Embedded>> {
    let dir = data.join("bus");
    if !dir.is_dir() {
        return Ok(None);
    }
    let options = component_config::bus(&Config::default());
    Ok(Some(orlog_bus::embedded::Embedded::open(dir, &options, Arc::new(crate::clock::SystemClock))?))
}
