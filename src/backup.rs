//! Backups: folders with a copy of what a node has stored, a manifest that says what is in it, and sums that tell whether it is
//! still that.
//!
//! All stores and the stream of events are copied as they stood at one moment: what one shard has heard another one has said, and every
//! event that was accepted before is in the stores, or in the stream behind their checkpoints.

mod error;
mod files;
mod manifest;
mod verify;

use std::fs;
use std::path::{Path, PathBuf};

use orlog_bus::Bus as _;
use orlog_bus::embedded::Embedded;
use orlog_store::{Copied, Reader, copy_together};

pub use error::Error;
pub use files::{FileSum, MANIFEST, SUMS, free_bytes, new_folder};
pub use manifest::{BusCopy, FORMAT, Manifest, ShardCopy};
use manifest::{Checkpoint, Definition};
pub use verify::{RESTORING, fetched, restore, verify};

/// What is copied.
pub struct Source<'a> {
    /// The stores, with their numbers.
    pub shards: Vec<(u16, Reader)>,
    /// Into how many the instances are divided.
    pub division: u16,
    /// The text that remembers the division.
    pub layout: &'a Path,
    /// The stream of events, where it lies in the data folder.
    pub bus: Option<&'a Embedded>,
    /// Who is copied.
    pub node: String,
    /// The present, RFC 3339.
    pub now: String,
}

/// Copies into the folder `to`, which is new or empty. Blocks.
///
/// # Errors
/// See [`Error`]; what was copied until then is left.
pub fn copy(source: &Source<'_>, to: &Path) -> Result<Manifest, Error> {
    files::new_folder(to)?;
    if source.shards.iter().any(|(_, reader)| reader.stats().replication.is_some()) {
        return Err(Error::Replicated);
    }
    let (shards, bus) = copy_data(source, to)?;
    let layout = to.join("layout.toml");
    fs::copy(source.layout, &layout).map_err(files::at(source.layout))?;
    let definitions = source.shards.first().map(|(_, reader)| definitions(reader)).transpose()?;
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
    remove_locks(to)?;
    manifest.files = files::sums(to)?;
    manifest.write(to)?;
    Ok(manifest)
}

/// The stores and the stream, as they stand at one moment.
fn copy_data(source: &Source<'_>, to: &Path) -> Result<(Vec<ShardCopy>, BusCopy), Error> {
    let folder = |shard: u16| to.join(format!("shard-{shard}"));
    let stores: Vec<(Reader, PathBuf)> =
        source.shards.iter().map(|(shard, reader)| (reader.clone(), folder(*shard))).collect();
    // Before the moment: what the stores have not read by then must still be in the stream when that is copied.
    let hold = source.bus.map(Embedded::hold);
    let (stood, moment) = copy_together(&stores, || source.bus.map(Embedded::moment))?;
    let bus = match source.bus.zip(moment) {
        Some((bus, moment)) => {
            let copied = bus.copy_to(&to.join("bus"), moment)?;
            BusCopy::Embedded { stream: bus.stream_id().to_string(), last_sequence: copied.last_sequence }
        }
        None => BusCopy::Nats,
    };
    drop(hold);
    let mut shards = Vec::new();
    for ((shard, _), copied) in source.shards.iter().zip(stood) {
        // A copy that cannot be read is none.
        let found = orlog_store::look(&folder(*shard))?.map(|look| look.position());
        if found != Some(copied.position) {
            return Err(Error::NotTheSame { shard: *shard, expected: copied.position, found });
        }
        shards.push(described(*shard, copied));
    }
    Ok((shards, bus))
}

fn described(shard: u16, copied: Copied) -> ShardCopy {
    let checkpoints = copied.checkpoints.into_iter().map(|(source, position)| Checkpoint {
        stream: source.stream,
        consumer: source.consumer,
        sequence: position.sequence,
    });
    ShardCopy { shard, position: copied.position, checkpoints: checkpoints.collect() }
}

/// What only says that somebody has a folder open is nothing to keep.
fn remove_locks(to: &Path) -> Result<(), Error> {
    for file in files::below(to)? {
        if file.file_name().is_some_and(|name| name == "lock" || name == "mdbx.lck") {
            fs::remove_file(&file).map_err(files::at(&file))?;
        }
    }
    Ok(())
}

/// Their names, for people; the definitions themselves are in the stores.
fn definitions(reader: &Reader) -> Result<Vec<Definition>, Error> {
    let found = reader.definitions()?.into_iter().map(|(program, _)| Definition {
        saga: program.saga.to_string(),
        version: program.version,
        hash: uuid::Uuid::from_bytes(program.hash).simple().to_string(),
    });
    Ok(found.collect())
}
