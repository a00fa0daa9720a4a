//! The identity of a stream: made once, kept in a file beside the log, so that a checkpoint cannot be taken for one of
//! another stream.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use uuid::Uuid;

use super::error::OpenError;

const FILE: &str = "stream-id";

/// The id in the folder `dir`; a new one, durably, where there is none.
pub(super) fn read_or_make(dir: &Path) -> Result<Uuid, OpenError> {
    let path = dir.join(FILE);
    let failed = |source| OpenError::Io { path: path.clone(), source };
    match fs::read_to_string(&path) {
        Ok(text) => text.trim().parse().map_err(|_| OpenError::StreamId { path: path.clone() }),
        Err(error) if error.kind() == ErrorKind::NotFound => make(dir).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

fn make(dir: &Path) -> std::io::Result<Uuid> {
    let id = Uuid::new_v4();
    write(dir, id)?;
    Ok(id)
}

/// Gives the folder this id, durably.
pub(super) fn write(dir: &Path, id: Uuid) -> std::io::Result<()> {
    fs::create_dir_all(dir)?;
    let fresh = dir.join("stream-id.new");
    let mut file = File::create(&fresh)?;
    writeln!(file, "{id}")?;
    file.sync_all()?;
    fs::rename(&fresh, dir.join(FILE))?;
    File::open(dir)?.sync_all()
}
