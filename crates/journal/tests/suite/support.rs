//! Test support: small journals, recognizable payloads, and a disk with injected failures.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use orlog_journal::{Disk, Error, Journal, LocalDisk, Options, Reader, RecoveryReport};
use parking_lot::{Mutex, MutexGuard};

pub(crate) const IDENTITY: [u8; 16] = *b"journal of tests";
pub(crate) const SEGMENT_HEADER: usize = 64;
pub(crate) const RECORD_HEADER: usize = 24;

/// Returns options with segments of 4 KiB.
pub(crate) fn small() -> Options {
    Options {
        segment_bytes: 4096,
        ..Options::new(IDENTITY)
    }
}

#[track_caller]
pub(crate) fn open(dir: &Path) -> (Journal, RecoveryReport) {
    Journal::open(dir, small()).unwrap()
}

/// Returns `size` nonzero bytes that are distinct for each `tag`.
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

/// Checks that the journal contains `payload(sequence, size)` for each sequence of the range and
/// nothing else.
#[track_caller]
pub(crate) fn check_records(
    journal: &Journal,
    sequences: std::ops::RangeInclusive<u64>,
    size: usize,
) {
    let (found, end) = (contents(&journal.reader()), sequences.end() + 1);
    let numbers: Vec<_> = found.iter().map(|(sequence, _)| *sequence).collect();
    assert_eq!(numbers, sequences.collect::<Vec<_>>());
    for (sequence, bytes) in found {
        assert!(
            bytes == payload(sequence, size),
            "record {sequence} has another payload"
        );
    }
    assert_eq!(journal.next_sequence(), end);
}

pub(crate) fn files(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> = entries
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .collect();
    paths.sort();
    paths
}

/// Returns the offset of the record with that index, if all payloads of the segment have this size.
pub(crate) fn record_offset(index: usize, size: usize) -> usize {
    SEGMENT_HEADER + index * (RECORD_HEADER + size.next_multiple_of(8))
}

/// Disk that fails on request and can lose unsynced data.
#[derive(Debug, Default)]
pub(crate) struct FaultyDisk {
    state: Mutex<DiskFaults>,
}

#[derive(Debug, Default)]
pub(crate) struct DiskFaults {
    /// Number of the operating system.
    pub(crate) open: Option<i32>,
    pub(crate) allocate: Option<ErrorKind>,
    /// Error of the writes, after this number of bytes.
    pub(crate) write: Option<(ErrorKind, usize)>,
    next_write: Option<(ErrorKind, usize)>,
    pub(crate) sync: Option<ErrorKind>,
    pub(crate) sync_dir_error: Option<ErrorKind>,
    /// Previous contents that the unsynced writes replaced, oldest first.
    rollback: Vec<UndoLogEntry>,
}

impl DiskFaults {
    /// Makes the next write fail with this error after `count` bytes; later writes succeed.
    pub(crate) fn fail_next_write(&mut self, kind: ErrorKind, count: usize) {
        self.next_write = Some((kind, count));
    }
}

#[derive(Debug)]
struct UndoLogEntry {
    file: File,
    inode: u64,
    offset: u64,
    before: Vec<u8>,
    /// Whether a failed fsync marked the pages clean: a later fsync does not write them.
    discarded: bool,
}

const SECTOR: usize = 512;

impl FaultyDisk {
    pub(crate) fn set(&self) -> MutexGuard<'_, DiskFaults> {
        self.state.lock()
    }

    /// Simulates a power failure: each sector written since the last sync has one of its contents since
    /// then.
    pub(crate) fn lose_power(&self, random: &mut fastrand::Rng) {
        let chance = random.f64();
        for rollback in self.set().rollback.drain(..).rev() {
            let mut at = 0;
            while at < rollback.before.len() {
                let offset = rollback.offset + at as u64;
                let to_border = SECTOR - usize::try_from(offset).unwrap() % SECTOR;
                let end = rollback.before.len().min(at + to_border);
                if random.f64() < chance {
                    rollback
                        .file
                        .write_all_at(&rollback.before[at..end], offset)
                        .unwrap();
                }
                at = end;
            }
        }
    }
}

impl Disk for FaultyDisk {
    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        match self.set().open {
            Some(number) => Err(io::Error::from_raw_os_error(number)),
            None => LocalDisk.open(options, path),
        }
    }

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
        for rollback in state
            .rollback
            .iter_mut()
            .filter(|rollback| rollback.inode == inode)
        {
            rollback.discarded &=
                rollback.offset < offset || rollback.offset + rollback.before.len() as u64 > end;
        }
        let mut before = vec![0; bytes.len()];
        file.read_exact_at(&mut before, offset)?;
        state.rollback.push(UndoLogEntry {
            file: file.try_clone()?,
            inode,
            offset,
            before,
            discarded: false,
        });
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
            state
                .rollback
                .iter_mut()
                .filter(|rollback| rollback.inode == inode)
                .for_each(|rollback| rollback.discarded = true);
            return Err(kind.into());
        }
        state
            .rollback
            .retain(|rollback| rollback.inode != inode || rollback.discarded);
        Ok(())
    }

    fn sync_dir(&self, _dir: &File) -> io::Result<()> {
        self.set()
            .sync_dir_error
            .map_or(Ok(()), |kind| Err(kind.into()))
    }
}
