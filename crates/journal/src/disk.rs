//! Disk operations of a journal, behind a trait so that tests can inject failures.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// File operations of a journal. Implementations other than [`LocalDisk`] are for tests: they fail,
/// or lose unsynced data.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Opens or creates a segment.
    ///
    /// # Errors
    /// The error of the operating system, for example if the process has no free file descriptor.
    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        options.open(path)
    }

    /// Sets the length of the empty `file` to `bytes` and reserves the blocks, so that later writes
    /// cannot run out of space. Reads of it return zeros.
    ///
    /// # Errors
    /// The error of the file system; `StorageFull` or `QuotaExceeded` if there is no space.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. On an error, any part of them may have been written.
    ///
    /// # Errors
    /// The error of the file system.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Syncs the writes to `file` to the disk (fdatasync).
    ///
    /// # Errors
    /// The error of the file system. The writes since the last success are in doubt.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Syncs the names in `dir` to the disk (fsync).
    ///
    /// # Errors
    /// The error of the file system. Files that were created, renamed or removed are in doubt.
    fn sync_dir(&self, dir: &File) -> io::Result<()>;
}

/// Local file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
            // Some file systems cannot reserve blocks. Zeros written in full reserve them too, and
            // report a full disk now, not in an append.
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => write_zeros(self, file, 0, bytes),
            other => Ok(other?),
        }
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        file.write_all_at(bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        file.sync_data()
    }

    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        dir.sync_all()
    }
}

/// Block of zeros, to write and to compare with.
pub(crate) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Overwrites `from..to` with zeros.
pub(crate) fn write_zeros(disk: &dyn Disk, file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut offset = from;
    while offset < to {
        let count = (to - offset).min(ZEROS.len() as u64);
        let block = usize::try_from(count).expect("a block size fits in usize");
        disk.write_at(file, &ZEROS[..block], offset)?;
        offset += count;
    }
    Ok(())
}
