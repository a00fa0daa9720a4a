//! A disk that a test fills, empties and breaks.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use orlog_journal::{Disk, LocalDisk};

/// The local disk, until told otherwise. Clones are the same disk.
#[derive(Clone, Debug, Default)]
pub struct FaultyDisk(Arc<Faults>);

#[derive(Debug, Default)]
struct Faults {
    full: AtomicBool,
    failing_syncs: AtomicUsize,
    refused: AtomicUsize,
    slow_millis: AtomicU64,
}

impl FaultyDisk {
    /// There is no room from now on, or there is again.
    pub fn set_full(&self, full: bool) {
        self.0.full.store(full, Ordering::SeqCst);
    }

    /// The next so many syncs fail; whether the disk has what was written before them is not known.
    pub fn fail_syncs(&self, count: usize) {
        self.0.failing_syncs.store(count, Ordering::SeqCst);
    }

    /// Each sync takes so much longer from now on.
    pub fn set_slow(&self, by: Duration) {
        self.0.slow_millis.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }

    /// How many syncs are still to fail.
    #[must_use]
    pub fn syncs_to_fail(&self) -> usize {
        self.0.failing_syncs.load(Ordering::SeqCst)
    }

    /// How often it was asked for room and had none.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.0.refused.load(Ordering::SeqCst)
    }

    fn room(&self) -> io::Result<()> {
        if self.0.full.load(Ordering::SeqCst) {
            self.0.refused.fetch_add(1, Ordering::SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

impl Disk for FaultyDisk {
    /// Only here is there no room: what was allocated can be written.
    fn allocate(&self, file: &File, bytes: u64) -> io::Result<()> {
        self.room()?;
        LocalDisk.allocate(file, bytes)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        LocalDisk.write_at(file, bytes, offset)
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        let fails = |left: usize| left.checked_sub(1);
        if self.0.failing_syncs.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fails).is_ok() {
            return Err(io::Error::other("the disk failed"));
        }
        let slow = Duration::from_millis(self.0.slow_millis.load(Ordering::SeqCst));
        let begun = Instant::now();
        while let Some(left) = slow.checked_sub(begun.elapsed()).filter(|left| !left.is_zero()) {
            std::thread::park_timeout(left);
        }
        LocalDisk.sync(file)
    }

    fn sync_folder(&self, folder: &File) -> io::Result<()> {
        LocalDisk.sync_folder(folder)
    }
}
