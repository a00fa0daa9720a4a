//! Durable cursors: how far each durable name has got, one small file a name.
//!
//! A file is `OCU1`, the CRC-32 of stream id and floor, the floor (little-endian); 16 bytes that are overwritten in place,
//! without sync: what is lost is delivered again. The existence of a name is synced, because it keeps messages from being
//! dropped. A file that does not check, or of another stream, counts as floor 0.

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

/// The longest file name there is.
const MAX_FILE_NAME_BYTES: usize = 255;

/// All durable names of a stream.
#[derive(Debug)]
pub(super) struct Cursors {
    dir: PathBuf,
    stream_id: Uuid,
    names: Mutex<BTreeMap<String, Name>>,
    moved: Sender<()>,
    news: Receiver<()>,
}

#[derive(Debug)]
struct Name {
    file: File,
    floor: Arc<AtomicU64>,
    written: u64,
    in_use: bool,
}

/// The right to consume under a name; dropping it gives the name back.
#[derive(Debug)]
pub(super) struct Claim {
    cursors: Arc<Cursors>,
    name: String,
    /// Where the cursor lies. It moves when this does.
    pub(super) floor: Arc<AtomicU64>,
    /// Tell it when the floor has moved.
    pub(super) moved: Moved,
}

/// Tells the keeper that there is a cursor to write.
#[derive(Clone, Debug)]
pub(super) struct Moved(Sender<()>);

impl Moved {
    /// Cheap, and never waits.
    pub(super) fn tell(&self) {
        // Where there is no room, it has been told already.
        self.0.try_send(()).ok();
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Some(name) = self.cursors.names().get_mut(&self.name) {
            name.in_use = false;
        }
    }
}

impl Cursors {
    /// Reads the cursors in a folder, or makes the folder.
    pub(super) fn open(dir: PathBuf, stream_id: Uuid) -> Result<Self, OpenError> {
        let names =
            read_all(&dir, stream_id).map_err(|source| OpenError::Io { path: dir.clone(), source })?;
        let (moved, news) = crossbeam_channel::bounded(1);
        Ok(Self { dir, stream_id, names: Mutex::new(names), moved, news })
    }

    /// Takes a name, which is made where there is none, and sets its cursor to `after` where that is given. May block.
    pub(super) fn claim(self: Arc<Self>, name: &str, after: Option<u64>) -> Result<Claim, Error> {
        let mut names = self.names();
        if !names.contains_key(name) {
            names.insert(name.to_owned(), self.make(name)?);
        }
        let entry = names.get_mut(name).expect("it was made where there was none");
        if entry.in_use {
            return Err(Error::InUse(name.to_owned()));
        }
        entry.in_use = true;
        // A counter of its own, so that late answers to an earlier consumer move nothing.
        entry.floor = Arc::new(AtomicU64::new(after.unwrap_or(entry.floor.load(Ordering::Relaxed))));
        let floor = Arc::clone(&entry.floor);
        drop(names);
        let moved = Moved(self.moved.clone());
        moved.tell();
        Ok(Claim { cursors: self, name: name.to_owned(), floor, moved })
    }

    /// Forgets a name that nobody consumes under.
    pub(super) fn forget(&self, name: &str) -> Result<(), Error> {
        let mut names = self.names();
        match names.get(name) {
            None => return Ok(()),
            Some(entry) if entry.in_use => return Err(Error::InUse(name.to_owned())),
            Some(_) => {}
        }
        let path = self.path(name)?;
        fs::remove_file(&path).map_err(|e| Error::Unavailable(format!("{}: {e}", path.display())))?;
        names.remove(name);
        Moved(self.moved.clone()).tell();
        Ok(())
    }

    /// Writes the cursors that have moved and answers the lowest of all.
    pub(super) fn save(&self) -> Option<u64> {
        let mut lowest = None;
        for name in self.names().values_mut() {
            let floor = name.floor.load(Ordering::Relaxed);
            // What cannot be written now is written next time; until then the cursor on the disk lies further back.
            if floor != name.written && name.file.write_all_at(&encode(floor, self.stream_id), 0).is_ok() {
                name.written = floor;
            }
            // Only what is written may be relied on: after a crash the consumer begins there.
            let relied_on = floor.min(name.written);
            lowest = Some(lowest.map_or(relied_on, |lowest: u64| lowest.min(relied_on)));
        }
        lowest
    }

    /// Answers when a cursor has moved.
    pub(super) fn news(&self) -> Receiver<()> {
        self.news.clone()
    }

    fn make(&self, name: &str) -> Result<Name, Error> {
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
        Ok(Name { file, floor: Arc::default(), written: 0, in_use: false })
    }

    fn path(&self, name: &str) -> Result<PathBuf, Error> {
        let token = encode_token(name);
        if name.is_empty() || token.len() > MAX_FILE_NAME_BYTES {
            let reason = format!(
                "percent-encoded it is {} bytes long; 1 to {MAX_FILE_NAME_BYTES} are allowed",
                if name.is_empty() { 0 } else { token.len() }
            );
            return Err(Error::Subject { subject: name.to_owned(), what: "durable name", reason });
        }
        Ok(self.dir.join(token.as_ref()))
    }

    fn names(&self) -> MutexGuard<'_, BTreeMap<String, Name>> {
        self.names.lock().expect("no holder of this lock panics")
    }
}

fn read_all(dir: &Path, stream_id: Uuid) -> io::Result<BTreeMap<String, Name>> {
    fs::create_dir_all(dir)?;
    let mut names = BTreeMap::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let token = entry.file_name();
        let Some(Ok(name)) = token.to_str().map(decode_token) else { continue };
        let file = OpenOptions::new().read(true).write(true).open(entry.path())?;
        let mut bytes = [0u8; 16];
        let read = file.read_at(&mut bytes, 0)?;
        let floor = if read == bytes.len() { decode(bytes, stream_id) } else { 0 };
        let (written, floor) = (floor, Arc::new(AtomicU64::new(floor)));
        names.insert(name.into_owned(), Name { file, floor, written, in_use: false });
    }
    Ok(names)
}

fn encode(floor: u64, stream_id: Uuid) -> [u8; 16] {
    let mut bytes = [0u8; 16];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4..8].copy_from_slice(&checksum(floor, stream_id).to_le_bytes());
    bytes[8..].copy_from_slice(&floor.to_le_bytes());
    bytes
}

fn decode(bytes: [u8; 16], stream_id: Uuid) -> u64 {
    let floor = u64::from_le_bytes(*bytes.last_chunk().expect("sixteen bytes end in eight"));
    if bytes == encode(floor, stream_id) { floor } else { 0 }
}

fn checksum(floor: u64, stream_id: Uuid) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(stream_id.as_bytes());
    crc.update(&floor.to_le_bytes());
    crc.finalize()
}
