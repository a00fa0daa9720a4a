//! The few operations through which a journal changes a disk, behind a trait so that tests can make each one fail.

use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use rustix::fs::FallocateFlags;
use rustix::io::Errno;

/// Changes files. Implementations other than [`LocalDisk`] are for tests: they fail, or forget what was not synced.
pub trait Disk: fmt::Debug + Send + Sync {
    /// Gives the empty `file` a length of `bytes` and reserves the blocks, so that later writes cannot run out of
    /// room. Reads of it answer zeros.
    ///
    /// # Errors
    /// Whatever the file system answers; `StorageFull` or `QuotaExceeded` if there is no room.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()>;

    /// Writes all of `bytes` at `offset`. On an error any part of them may have been written.
    ///
    /// # Errors
    /// Whatever the file system answers.
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()>;

    /// Returns once the disk has what was written to `file` (fdatasync).
    ///
    /// # Errors
    /// Whatever the file system answers. What had been written since the last success is in doubt.
    fn sync(&self, file: &File) -> io::Result<()>;

    /// Returns once the disk has the names in `folder` (fsync).
    ///
    /// # Errors
    /// Whatever the file system answers. What was created, renamed or removed is in doubt.
    fn sync_folder(&self, folder: &File) -> io::Result<()>;
}

/// The local file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct LocalDisk;

impl Disk for LocalDisk {
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
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

    fn sync_folder(&self, folder: &File) -> io::Result<()> {
        folder.sync_all()
    }
}

/// A block of zeros, to write and to compare with.
pub(crate) static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Overwrites `from..to` with zeros.
pub(crate) fn write_zeros(disk: &dyn Disk, file: &File, from: u64, to: u64) -> io::Result<()> {
    let mut offset = from;
    while offset < to {
        let count = (to - offset).min(ZEROS.len() as u64);
        let block = usize::try_from(count).expect("a block is small");
        disk.write_at(file, &ZEROS[..block], offset)?;
        offset += count;
    }
    Ok(())
}
