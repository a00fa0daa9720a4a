//! Durable cursors: the position of each durable name, one small file a name.
//!
//! A file is `OCU1`, the CRC-32 of stream id and floor, and the floor (little-endian). Its 16 bytes are
//! overwritten in place without sync, because a lost cursor only causes redeliveries. The existence of
//! a name is synced, because it prevents messages from being dropped. A file with an invalid checksum
//! or of another stream counts as floor 0.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crossbeam_channel::{Receiver, Sender};
use uuid::Uuid;

use super::options::OpenError;
use crate::Error;
use crate::subject::{decode_token, encode_token};

const MAGIC: [u8; 4] = *b"OCU1";

/// Maximum length of a file name.
const MAX_FILE_NAME_BYTES: usize = 255;

/// All durable names of a stream.
#[derive(Debug)]
pub(super) struct Cursors {
    dir: PathBuf,
    stream_id: Uuid,
    names: Mutex<BTreeMap<String, DurableName>>,
    moved: Sender<()>,
    notifications: Receiver<()>,
}

#[derive(Debug)]
struct DurableName {
    file: File,
    ack_floor: Arc<AtomicU64>,
    written: u64,
    in_use: bool,
}

/// Exclusive right to consume under a name; dropping it releases the name.
#[derive(Debug)]
pub(super) struct SubscriptionGuard {
    cursors: Arc<Cursors>,
    name: String,
    /// Position of the cursor. The cursor moves with it.
    pub(super) ack_floor: Arc<AtomicU64>,
    /// Whether the consumer has its own checkpoint, which the cursor follows.
    pub(super) has_checkpoint: bool,
    /// Notify it after the cursor moves.
    pub(super) moved: CursorMovedNotifier,
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

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        if let Some(name) = self.cursors.names().get_mut(&self.name) {
            name.in_use = false;
        }
    }
}

impl Cursors {
    /// Reads the cursors in a directory, or creates the directory.
    pub(super) fn open(dir: PathBuf, stream_id: Uuid) -> Result<Self, OpenError> {
        let names =
            read_all(&dir, stream_id).map_err(|source| OpenError::Io { path: dir.clone(), source })?;
        let (moved, notifications) = crossbeam_channel::bounded(1);
        Ok(Self { dir, stream_id, names: Mutex::new(names), moved, notifications })
    }

    /// Acquires a name, creates it if it does not exist, and sets its cursor to `after` if that is given.
    /// May block.
    pub(super) fn acquire(
        self: Arc<Self>,
        name: &str,
        after: Option<u64>,
    ) -> Result<SubscriptionGuard, Error> {
        let mut names = self.names();
        if !names.contains_key(name) {
            names.insert(name.to_owned(), self.make(name)?);
        }
        let entry = names.get_mut(name).expect("the entry was created if it did not exist");
        if entry.in_use {
            return Err(Error::InUse(name.to_owned()));
        }
        entry.in_use = true;
        // A separate counter, so that late acknowledgements of an earlier consumer have no effect.
        entry.ack_floor = Arc::new(AtomicU64::new(after.unwrap_or(entry.ack_floor.load(Ordering::Relaxed))));
        let ack_floor = Arc::clone(&entry.ack_floor);
        drop(names);
        let moved = CursorMovedNotifier(self.moved.clone());
        moved.notify();
        let has_checkpoint = after.is_some();
        Ok(SubscriptionGuard { cursors: self, name: name.to_owned(), ack_floor, has_checkpoint, moved })
    }

    /// Returns the cursor of a name; 0 if it does not exist.
    pub(super) fn cursor(&self, name: &str) -> u64 {
        self.names().get(name).map_or(0, |entry| entry.ack_floor.load(Ordering::Relaxed))
    }

    /// Deletes a name that has no consumer.
    pub(super) fn delete(&self, name: &str) -> Result<(), Error> {
        let mut names = self.names();
        match names.get(name) {
            None => return Ok(()),
            Some(entry) if entry.in_use => return Err(Error::InUse(name.to_owned())),
            Some(_) => {}
        }
        let path = self.path(name)?;
        fs::remove_file(&path).map_err(|e| Error::Unavailable(format!("{}: {e}", path.display())))?;
        names.remove(name);
        CursorMovedNotifier(self.moved.clone()).notify();
        Ok(())
    }

    /// Writes the cursors that moved and returns the lowest of all.
    pub(super) fn save(&self) -> Option<u64> {
        let mut lowest = None;
        for name in self.names().values_mut() {
            let ack_floor = name.ack_floor.load(Ordering::Relaxed);
            // A failed write is repeated next time; until then the cursor on disk is older.
            if ack_floor != name.written
                && name.file.write_all_at(&encode(ack_floor, self.stream_id), 0).is_ok()
            {
                name.written = ack_floor;
            }
            // Retention relies on written cursors only: after a crash the consumer starts there.
            let relied_on = ack_floor.min(name.written);
            lowest = Some(lowest.map_or(relied_on, |lowest: u64| lowest.min(relied_on)));
        }
        lowest
    }

    /// Returns a receiver that is notified after a cursor moves.
    pub(super) fn moved(&self) -> Receiver<()> {
        self.notifications.clone()
    }

    fn make(&self, name: &str) -> Result<DurableName, Error> {
        let path = self.path(name)?;
        let made = || {
            let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&path)?;
            file.write_all_at(&encode(0, self.stream_id), 0)?;
            file.sync_all()?;
            File::open(&self.dir)?.sync_all()?;
            Ok(file)
        };
        let file = made().map_err(|e: io::Error| {
            let text = format!("{}: {e}", path.display());
            if e.kind() == io::ErrorKind::StorageFull { Error::Full(text) } else { Error::Unavailable(text) }
        })?;
        Ok(DurableName { file, ack_floor: Arc::default(), written: 0, in_use: false })
    }

    fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let token = encode_token(name);
        if name.is_empty() || token.len() > MAX_FILE_NAME_BYTES {
            let reason = format!(
                "percent-encoded it has {} bytes; 1 to {MAX_FILE_NAME_BYTES} are allowed",
                if name.is_empty() { 0 } else { token.len() }
            );
            return Err(Error::InvalidSubject { subject: name.to_owned(), kind: "durable name", reason });
        }
        Ok(self.dir.join(token.as_ref()))
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, DurableName>> {
        self.names.lock().expect("no thread panics while it holds this lock")
    }
}

fn read_all(dir: &Path, stream_id: Uuid) -> io::Result<BTreeMap<String, DurableName>> {
    fs::create_dir_all(dir)?;
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let token = entry.file_name();
        let Some(Ok(name)) = token.to_str().map(decode_token) else { continue };
        let file = OpenOptions::new().read(true).write(true).open(entry.path())?;
        let mut bytes = [0u8; 16];
        let read = file.read_at(&mut bytes, 0)?;
        let ack_floor = if read == bytes.len() { decode(bytes, stream_id) } else { 0 };
        let (written, ack_floor) = (ack_floor, Arc::new(AtomicU64::new(ack_floor)));
        names.insert(name.into_owned(), DurableName { file, ack_floor, written, in_use: false });
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
    if bytes == encode(ack_floor, stream_id) { ack_floor } else { 0 }
}

fn checksum(ack_floor: u64, stream_id: Uuid) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(stream_id.as_bytes());
    crc.update(&ack_floor.to_le_bytes());
    crc.finalize()
}
