//! What the tests share: small journals, payloads that can be recognised, and a disk that fails on demand.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use orlog_journal::{Disk, Error, Journal, LocalDisk, Options, Reader, Recovery};

pub(crate) const IDENTITY: [u8; 16] = *b"journal of tests";
pub(crate) const SEGMENT_HEADER: usize = 64;
pub(crate) const RECORD_HEADER: usize = 24;

/// Segments of 4 KiB.
pub(crate) fn small() -> Options {
    Options { segment_bytes: 4096, ..Options::new(IDENTITY) }
}

#[track_caller]
pub(crate) fn open(dir: &Path) -> (Journal, Recovery) {
    Journal::open(dir, small()).unwrap()
}

/// `size` bytes that differ from those of every other `tag`, none of them zero.
pub(crate) fn payload(tag: u64, size: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(tag);
    (0..size).map(|_| random.u8(1..)).collect()
}

/// Appends `payload(sequence, size)` `count` times.
#[track_caller]
pub(crate) fn fill(journal: &mut Journal, count: u64, size: usize) {
    for _ in 0..count {
        let bytes = payload(journal.next_sequence(), size);
        journal.append(&[&bytes]).unwrap();
    }
}

#[track_caller]
pub(crate) fn contents(reader: &Reader) -> Vec<(u64, Vec<u8>)> {
    let mut all = Vec::new();
    let visited = reader.for_each(reader.first_sequence(), |sequence, payload| {
        all.push((sequence, payload.to_vec()));
        Ok::<(), Error>(())
    });
    visited.unwrap();
    all
}

/// The journal holds `payload(sequence, size)` for each sequence of the range and nothing else.
#[track_caller]
pub(crate) fn check_holds(journal: &Journal, sequences: std::ops::RangeInclusive<u64>, size: usize) {
    let (found, end) = (contents(&journal.reader()), sequences.end() + 1);
    let numbers: Vec<_> = found.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(numbers, sequences.collect::<Vec<_>>());
    for (sequence, bytes) in found {
        assert!(bytes == payload(sequence, size), "record {sequence} has another payload");
    }
    assert_eq!(journal.next_sequence(), end);
}

pub(crate) fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == extension)).collect();
    paths.sort();
    paths
}

/// Where the record with that index begins in a segment of records of one payload size.
pub(crate) fn place(index: usize, size: usize) -> usize {
    SEGMENT_HEADER + index * (RECORD_HEADER + size.next_multiple_of(8))
}

/// A disk that fails on demand, and that can lose what was not synced.
#[derive(Debug, Default)]
pub(crate) struct FrailDisk {
    state: Mutex<Frailty>,
}

#[derive(Debug, Default)]
pub(crate) struct Frailty {
    pub(crate) allocate: Option<ErrorKind>,
    /// Writes stop with this error after so many bytes.
    pub(crate) write: Option<(ErrorKind, usize)>,
    next_write: Option<(ErrorKind, usize)>,
    pub(crate) sync: Option<ErrorKind>,
    pub(crate) sync_folder: Option<ErrorKind>,
    /// What the disk would hold had it not taken the writes that were not synced, oldest first.
    undo: Vec<Undo>,
}

impl Frailty {
    /// The next write stops with this error after so many bytes; those after it succeed.
    pub(crate) fn fail_next_write(&mut self, kind: ErrorKind, count: usize) {
        self.next_write = Some((kind, count));
    }
}

#[derive(Debug)]
struct Undo {
    file: File,
    inode: u64,
    offset: u64,
    before: Vec<u8>,
    /// A failed fsync has marked the pages clean: a later one does not write them.
    forgotten: bool,
}

const SECTOR: usize = 512;

impl FrailDisk {
    pub(crate) fn set(&self) -> MutexGuard<'_, Frailty> {
        self.state.lock().unwrap()
    }

    /// The power fails: each sector written since the last sync has one of the contents that it had meanwhile.
    pub(crate) fn lose_power(&self, random: &mut fastrand::Rng) {
        let chance = random.f64();
        for undo in self.set().undo.drain(..).rev() {
            let mut at = 0;
            while at < undo.before.len() {
                let offset = undo.offset + at as u64;
                let to_border = SECTOR - usize::try_from(offset).unwrap() % SECTOR;
                let end = undo.before.len().min(at + to_border);
                if random.f64() < chance {
                    undo.file.write_all_at(&undo.before[at..end], offset).unwrap();
                }
                at = end;
            }
        }
    }
}

impl Disk for FrailDisk {
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        match self.set().allocate {
            Some(kind) => Err(kind.into()),
            None => LocalDisk.allocate(file, bytes),
        }
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.set();
        let inode = file.metadata()?.ino();
        let end = offset + bytes.len() as u64;
        for undo in state.undo.iter_mut().filter(|undo| undo.inode == inode) {
            undo.forgotten &= undo.offset < offset || undo.offset + undo.before.len() as u64 > end;
        }
        let mut before = vec![0; bytes.len()];
        file.read_exact_at(&mut before, offset)?;
        state.undo.push(Undo { file: file.try_clone()?, inode, offset, before, forgotten: false });
        match state.next_write.take().or(state.write) {
            Some((kind, count)) => {
                LocalDisk.write_at(file, &bytes[..count.min(bytes.len())], offset)?;
                Err(kind.into())
            }
            None => LocalDisk.write_at(file, bytes, offset),
        }
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let mut state = self.set();
        let inode = file.metadata()?.ino();
        if let Some(kind) = state.sync {
            state.undo.iter_mut().filter(|undo| undo.inode == inode).for_each(|undo| undo.forgotten = true);
            return Err(kind.into());
        }
        state.undo.retain(|undo| undo.inode != inode || undo.forgotten);
        Ok(())
    }

    fn sync_folder(&self, _folder: &File) -> io::Result<()> {
        self.set().sync_folder.map_or(Ok(()), |kind| Err(kind.into()))
    }
}
