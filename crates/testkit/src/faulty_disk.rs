//! Disk with injected faults: full, slow, failing, or without file descriptors.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orlog_journal::{Disk, LocalDisk};

/// Local disk with configurable faults. Clones share the same disk.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk(Arc<DiskFaults>);

#[derive(Debug, Default)]
struct DiskFaults {
    full: AtomicBool,
    no_descriptors: AtomicBool,
    failing_syncs: AtomicUsize,
    rejected: AtomicUsize,
    slow_millis: AtomicU64,
}

impl FaultyDisk {
    /// Sets whether the disk is full.
    pub fn set_full(&self, full: bool) {
        self.0.full.store(full, Ordering::SeqCst);
    }

    /// Sets whether opening a file fails because the process has no free file descriptor.
    pub fn set_no_descriptors(&self, none: bool) {
        self.0.no_descriptors.store(none, Ordering::SeqCst);
    }

    /// Lets the next `count` syncs fail; the state of the data written before them is unknown.
    pub fn fail_syncs(&self, count: usize) {
        self.0.failing_syncs.store(count, Ordering::SeqCst);
    }

    /// Delays each sync by this duration.
    pub fn set_slow(&self, by: Duration) {
        self.0.slow_millis.store(
            u64::try_from(by.as_millis()).unwrap_or(u64::MAX),
            Ordering::SeqCst,
        );
    }

    /// Returns the number of syncs that will fail.
    #[must_use]
    pub fn syncs_to_fail(&self) -> usize {
        self.0.failing_syncs.load(Ordering::SeqCst)
    }

    /// Returns the number of calls that failed because the disk was full or no file descriptor was free.
    #[must_use]
    pub fn rejected(&self) -> usize {
        self.0.rejected.load(Ordering::SeqCst)
    }

    fn check_space(&self) -> io::Result<()> {
        if self.0.full.load(Ordering::SeqCst) {
            self.0.rejected.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk for FaultyDisk {
    fn open(&self, options: &OpenOptions, path: &Path) -> io::Result<File> {
        if self.0.no_descriptors.load(Ordering::SeqCst) {
            self.0.rejected.fetch_add(1, Ordering::SeqCst);
            return Err(rustix::io::Errno::MFILE.into());
        }
        LocalDisk.open(options, path)
    }

    /// Allocates space. Only this call can fail for lack of space; allocated space is writable.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.check_space()?;
        LocalDisk.allocate(file, bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        LocalDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let fails = |remaining: usize| remaining.checked_sub(1);
        if self
            .0
            .failing_syncs
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails)
            .is_ok()
        {
            return Err(io::Error::other("the disk failed"));
        }
        let slow = Duration::from_millis(self.0.slow_millis.load(Ordering::SeqCst));
        let started = Instant::now();
        while let Some(remaining) = slow
            .checked_sub(started.elapsed())
            .filter(|remaining| !remaining.is_zero())
        {
            std::thread::park_timeout(remaining);
        }
        LocalDisk.sync(file)
    }

    fn sync_dir(&self, dir: &File) -> io::Result<()> {
        LocalDisk.sync_dir(dir)
    }
}
