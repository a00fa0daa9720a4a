//! Durable cursors: the position of each durable name, one small file a name.
//!
//! A file is `OCU1`, the CRC-32 of stream id and floor, and the floor (little-endian). Its 16 bytes
//! are overwritten in place without sync, because a lost cursor only causes redeliveries. The
//! existence of a name is synced, because it prevents messages from being dropped. A file with an
//! invalid checksum or of another stream counts as floor 0.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender};
use uuid::Uuid;

use super::options::OpenError;
use crate::Error;
use crate::consumer::{DurableName, DurableNames, NameGuard};
use crate::subject::{decode_token, encode_token};

const MAGIC: [u8; 4] = *b"OCU1";

/// Maximum length of a file name.
const MAX_FILE_NAME_BYTES: usize = 255;

/// All durable names of a stream.
#[derive(Debug)]
pub(super) struct Cursors {
    dir: PathBuf,
    stream_id: Uuid,
    names: Arc<DurableNames<CursorFile>>,
    moved: Sender<()>,
    notifications: Receiver<()>,
}

/// File of a cursor.
#[derive(Debug)]
pub(super) struct CursorFile {
    file: File,
    written: u64,
}

/// Notifies the maintenance thread of a cursor to write.
#[derive(Clone, Debug)]
pub(super) struct CursorMovedNotifier(Sender<()>);

impl CursorMovedNotifier {
    /// Notifies the thread; cheap and never blocks.
    pub(super) fn notify(&self) {
        // A full channel already contains a notification.
        self.0.try_send(()).ok();
    }
}

impl Cursors {
    /// Reads the cursors in a directory, or creates the directory.
    pub(super) fn open(dir: PathBuf, stream_id: Uuid) -> Result<Self, OpenError> {
        let names = read_all(&dir, stream_id).map_err(|source| OpenError::Io {
            path: dir.clone(),
            source,
        })?;
        let (moved, notifications) = crossbeam_channel::bounded(1);
        Ok(Self {
            dir,
            stream_id,
            names: DurableNames::new(names),
            moved,
            notifications,
        })
    }

    /// Acquires a name, creates it if it does not exist, and sets its cursor to `after` if that is
    /// given. May block.
    pub(super) fn acquire(
        &self,
        name: &str,
        after: Option<u64>,
    ) -> Result<NameGuard<CursorFile>, Error> {
        let guard = self.names.acquire(name, after, || self.make(name))?;
        // The position of the name may have been set, and retention uses only written cursors.
        self.notifier().notify();
        Ok(guard)
    }

    /// Returns a notifier of moved cursors.
    pub(super) fn notifier(&self) -> CursorMovedNotifier {
        CursorMovedNotifier(self.moved.clone())
    }

    /// Returns the cursor of a name; 0 if it does not exist.
    pub(super) fn cursor(&self, name: &str) -> u64 {
        self.names.cursor(name)
    }

    /// Deletes a name that has no consumer.
    pub(super) fn delete(&self, name: &str) -> Result<(), Error> {
        let mut names = self.names.names();
        match names.get(name) {
            None => return Ok(()),
            Some(entry) if entry.in_use => return Err(Error::InUse(name.to_owned())),
            Some(_) => {}
        }

        let path = self.path(name)?;
        // The file first: if it cannot be removed, the name still exists.
        fs::remove_file(&path)
            .map_err(|e| Error::Unavailable(format!("{}: {e}", path.display())))?;
        // The removal is not synced. After a power failure the name can exist again, and only
        // retains messages until it is deleted again.
        names.remove(name);
        self.notifier().notify();
        Ok(())
    }

    /// Writes the cursors that moved and returns the lowest of all.
    pub(super) fn save(&self) -> Option<u64> {
        let mut lowest = None;
        for name in self.names.names().values_mut() {
            let cursor = name.cursor();
            let stored = &mut name.details;
            // A failed write is repeated next time; until then the cursor on disk is older.
            if cursor != stored.written
                && stored
                    .file
                    .write_all_at(&encode(cursor, self.stream_id), 0)
                    .is_ok()
            {
                stored.written = cursor;
            }

            // Retention relies on written cursors only: after a crash the consumer starts there.
            let relied_on = cursor.min(stored.written);
            lowest = Some(lowest.map_or(relied_on, |lowest: u64| lowest.min(relied_on)));
        }
        lowest
    }

    /// Returns a receiver that is notified after a cursor moves.
    pub(super) fn moved(&self) -> Receiver<()> {
        self.notifications.clone()
    }

    fn make(&self, name: &str) -> Result<CursorFile, Error> {
        let path = self.path(name)?;
        let file = self.create(&path).map_err(|e| {
            let text = format!("{}: {e}", path.display());
            if e.kind() == io::ErrorKind::StorageFull {
                Error::Full(text)
            } else {
                Error::Unavailable(text)
            }
        })?;
        Ok(CursorFile { file, written: 0 })
    }

    /// Creates the file of a cursor durably: a name that a power failure removes would no longer
    /// prevent messages from being dropped.
    fn create(&self, path: &Path) -> io::Result<File> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)?;
        file.write_all_at(&encode(0, self.stream_id), 0)?;
        file.sync_all()?;
        File::open(&self.dir)?.sync_all()?;
        Ok(file)
    }

    fn path(&self, name: &str) -> Result<PathBuf, Error> {
        // The name becomes a file name. The encoding removes `/` and `.`, so that no name leaves
        // the directory.
        let token = encode_token(name);
        if name.is_empty() || token.len() > MAX_FILE_NAME_BYTES {
            let reason = format!(
                "percent-encoded it has {} bytes; 1 to {MAX_FILE_NAME_BYTES} are allowed",
                if name.is_empty() { 0 } else { token.len() }
            );
            return Err(Error::InvalidSubject {
                subject: name.to_owned(),
                kind: "durable name",
                reason,
            });
        }
        Ok(self.dir.join(token.as_ref()))
    }
}

fn read_all(dir: &Path, stream_id: Uuid) -> io::Result<BTreeMap<String, DurableName<CursorFile>>> {
    fs::create_dir_all(dir)?;
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let token = entry.file_name();
        // A file with another name was not created by this module.
        let Some(Ok(name)) = token.to_str().map(decode_token) else {
            continue;
        };

        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(entry.path())?;
        let mut bytes = [0u8; 16];
        let read = file.read_at(&mut bytes, 0)?;
        // A cursor that cannot be read still has a name, which retains messages from the first one
        // on.
        let written = if read == bytes.len() {
            decode(bytes, stream_id)
        } else {
            0
        };

        names.insert(
            name.into_owned(),
            DurableName::new(written, CursorFile { file, written }),
        );
    }
    Ok(names)
}

fn encode(ack_floor: u64, stream_id: Uuid) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&checksum(ack_floor, stream_id).to_le_bytes());
    bytes[8..].copy_from_slice(&ack_floor.to_le_bytes());
    bytes
}

fn decode(bytes: [u8; 16], stream_id: Uuid) -> u64 {
    let ack_floor = u64::from_le_bytes(*bytes.last_chunk().expect("sixteen bytes end in eight"));
    if bytes == encode(ack_floor, stream_id) {
        ack_floor
    } else {
        0
    }
}

fn checksum(ack_floor: u64, stream_id: Uuid) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(stream_id.as_bytes());
    crc.update(&ack_floor.to_le_bytes());
    crc.finalize()
}
