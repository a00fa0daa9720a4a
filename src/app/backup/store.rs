//! What is known of backups: the one that can be fetched, and copies of folders that no process uses.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use uuid::Uuid;

use crate::app::stores::Look;
use crate::app::{layout, part_config};
use crate::backup::{self, Error, Manifest};
use crate::config::Config;

/// A backup that can be fetched.
#[derive(Clone, Debug)]
pub struct Taken {
    /// By which it is asked for.
    pub id: Uuid,
    /// What is in it.
    pub manifest: Manifest,
    pub(crate) folder: PathBuf,
}

impl Taken {
    /// Where a file of it is.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<PathBuf> {
        let is_known = self.manifest.files.iter().any(|file| file.path == path);
        let is_about = [backup::MANIFEST, backup::SUMS].contains(&path);
        (is_known || is_about).then(|| self.folder.join(path))
    }
}

/// The one backup that may be there.
pub(crate) struct Backups {
    pub(crate) folder: PathBuf,
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
    taken: Mutex<Option<Taken>>,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum NoBackup {
    /// One at a time.
    #[error(
        "another backup is being taken, or was taken and not fetched; wait, or drop that one (--replace)"
    )]
    Another,
    /// The process ends.
    #[error("the process is ending")]
    Ending,
    /// It failed.
    #[error(transparent)]
    Failed(#[from] Error),
}

impl Backups {
    /// Removes what an earlier life of the process has left.
    ///
    /// # Errors
    /// When it cannot.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Self> {
        let shared = config.backup.folder.as_ref().map(|folder| folder.join(own_name(&config.node_name())));
        let folder = shared.unwrap_or_else(|| config.data.join("backups"));
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            // Only what was made here: people may have put other things there.
            let is_ours = entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX));
            if is_ours && config.roles.runs_sagas() {
                let path = entry.path();
                std::fs::remove_dir_all(&path)
                    .with_context(|| format!("{} cannot be removed", path.display()))?;
            }
        }
        Ok(Self { folder, turn: Arc::default(), taken: Mutex::default() })
    }

    pub(crate) fn taken(&self) -> std::sync::MutexGuard<'_, Option<Taken>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The folder of a node in one that others may use too.
fn own_name(node: &str) -> String {
    node.chars().map(|letter| if letter.is_ascii_alphanumeric() { letter } else { '-' }).collect()
}

/// What the names of folders begin with that are removed at the start.
pub(crate) const PREFIX: &str = "orlog-backup-";

/// Copies a data folder that no process uses into the folder `to`, which is new or empty. Blocks.
///
/// # Errors
/// When it is no data folder, is in use or damaged, or [`Error`].
pub fn backup_at_rest(data: &Path, to: &Path) -> anyhow::Result<Manifest> {
    let look = Look::into(data)?;
    let division = layout::of(data)?.shards;
    let bus = open_bus(data)?;
    let source = backup::Source {
        shards: (0..).zip(look.readers().cloned()).collect(),
        division,
        layout: &layout::file(data),
        bus: bus.as_ref(),
        node: String::new(),
        now: orlog_model::Clock::now(&crate::clock::SystemClock).to_string(),
    };
    Ok(backup::copy(&source, to)?)
}

/// The stream of events in a data folder, where there is one.
fn open_bus(data: &Path) -> anyhow::Result<Option<orlog_bus::embedded::Embedded>> {
    let dir = data.join("bus");
    if !dir.is_dir() {
        return Ok(None);
    }
    let options = part_config::bus(&Config::default());
    Ok(Some(orlog_bus::embedded::Embedded::open(dir, &options, Arc::new(crate::clock::SystemClock))?))
}
