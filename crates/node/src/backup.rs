//! Backups: directories with a copy of the stores, a manifest of the content, and checksums.
//!
//! All stores and the event stream are copied as of one point in time. If one shard published a
//! message that another shard consumed, the copy contains both. Every event accepted before that
//! point is in the stores, or in the stream behind their checkpoints.

mod error;
mod files;
mod manifest;
pub mod offline;
pub mod service;
mod verify;

use std::fs;
use std::path::{Path, PathBuf};

use orlog_bus::Bus as _;
use orlog_bus::embedded::{Embedded, JournalRegistry};
use orlog_store::{Reader, StoreCopy, copy_consistently};

pub use error::BackupFailure;
pub use files::{FileChecksum, MANIFEST, SUMS, free_bytes, new_dir};
pub use manifest::{BusBackup, FORMAT, Manifest, ShardBackup};
use manifest::{Checkpoint, DefinitionEntry};
pub use verify::{copy_shard, restore, verify, verify_fetched};

/// Source of a backup.
pub struct BackupSource<'a> {
    /// The stores, with their shard numbers.
    pub shards: Vec<(u16, Reader)>,
    /// Total number of shards.
    pub division: u16,
    /// Content of the layout file of the backup.
    pub layout: String,
    /// The event stream, if it is in the data directory.
    pub bus: Option<&'a Embedded>,
    /// The registry of contexts and actors, if it is in the data directory.
    pub registry: Option<&'a JournalRegistry>,
    /// Name of the node.
    pub node: String,
    /// Current time, RFC 3339.
    pub now: String,
}

/// Copies the source into the directory `to`, which must be new or empty. Blocks.
///
/// # Errors
/// See [`BackupFailure`]. Files copied before the failure remain.
pub fn create(source: &BackupSource<'_>, to: &Path) -> Result<Manifest, BackupFailure> {
    files::new_dir(to)?;
    if source
        .shards
        .iter()
        .any(|(_, reader)| reader.stats().replication.is_some())
    {
        return Err(BackupFailure::Replicated);
    }

    let (shards, bus) = copy_data(source, to)?;

    if let Some(registry) = source.registry {
        let dir = to.join("registry");
        registry
            .copy_to(&dir)
            .map_err(|error| files::io_error(&dir)(std::io::Error::other(error)))?;
    }

    // `checksums` syncs this file with all others.
    let layout = to.join("layout.toml");
    fs::write(&layout, &source.layout).map_err(files::io_error(&layout))?;

    let definitions = source
        .shards
        .first()
        .map(|(_, reader)| definitions(reader))
        .transpose()?;
    let mut manifest = Manifest {
        format: FORMAT,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        node: source.node.clone(),
        taken_at: source.now.clone(),
        division: source.division,
        shards,
        bus,
        definitions: definitions.unwrap_or_default(),
        files: Vec::new(),
    };

    // Before the checksums, which cover every file of the copy.
    remove_locks(to)?;
    manifest.files = files::checksums(to)?;
    manifest.write(to)?;
    Ok(manifest)
}

/// Copies the stores and the stream as of one point in time.
fn copy_data(
    source: &BackupSource<'_>,
    to: &Path,
) -> Result<(Vec<ShardBackup>, BusBackup), BackupFailure> {
    let shard_dir = |shard: u16| to.join(format!("shard-{shard}"));
    let stores: Vec<(Reader, PathBuf)> = source
        .shards
        .iter()
        .map(|(shard, reader)| (reader.clone(), shard_dir(*shard)))
        .collect();

    // Before the copy of the stores: events that they have not read by then must still be in the
    // copied stream.
    let retention_guard = source.bus.map(Embedded::hold_retention);
    let (copies, moment) = copy_consistently(&stores, || source.bus.map(Embedded::end_position))?;
    let bus = match source.bus.zip(moment) {
        Some((bus, moment)) => {
            let stream = bus.copy_to(&to.join("bus"), moment)?;
            BusBackup::Embedded {
                stream: bus.stream_id().to_string(),
                last_sequence: stream.last_sequence,
            }
        }
        None => BusBackup::Nats,
    };

    // The copied stream has all events that the copied stores have not read.
    drop(retention_guard);
    let mut shards = Vec::new();
    for ((shard, _), copied) in source.shards.iter().zip(copies) {
        // An unreadable copy is not a backup.
        let found = orlog_store::read_info(&shard_dir(*shard), None)?.map(|info| info.position());
        if found != Some(copied.position) {
            return Err(BackupFailure::NotTheSame {
                shard: *shard,
                expected: copied.position,
                found,
            });
        }

        shards.push(shard_backup(*shard, copied));
    }

    Ok((shards, bus))
}

fn shard_backup(shard: u16, copied: StoreCopy) -> ShardBackup {
    let checkpoints = copied
        .checkpoints
        .into_iter()
        .map(|(source, position)| Checkpoint {
            stream: source.stream,
            consumer: source.consumer,
            sequence: position.sequence,
        });
    ShardBackup {
        shard,
        position: copied.position,
        checkpoints: checkpoints.collect(),
    }
}

/// Removes lock files, which only mark a directory as open.
fn remove_locks(to: &Path) -> Result<(), BackupFailure> {
    for file in files::below(to)? {
        if file
            .file_name()
            .is_some_and(|name| name == "lock" || name == "mdbx.lck")
        {
            fs::remove_file(&file).map_err(files::io_error(&file))?;
        }
    }

    Ok(())
}

/// Returns the definition names for display; the definitions themselves are in the stores.
fn definitions(reader: &Reader) -> Result<Vec<DefinitionEntry>, BackupFailure> {
    let found = reader
        .definitions()?
        .into_iter()
        .map(|(program, _)| DefinitionEntry {
            saga: program.saga.to_string(),
            version: program.version,
            hash: uuid::Uuid::from_bytes(program.hash).simple().to_string(),
        });
    Ok(found.collect())
}
