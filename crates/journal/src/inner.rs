//! State that the writer, the syncers and the readers of one open journal share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::segment::Segment;

/// Segments in use, and their written and synced positions.
#[derive(Debug)]
pub(crate) struct JournalInner {
    disk: Arc<dyn Disk>,
    /// Segments; never empty. Only the last one may contain unsynced records.
    segments: RwLock<VecDeque<Arc<Segment>>>,
    written: AtomicU64,
    synced: AtomicU64,
    /// Lock held during an fsync. The kernel reports a failure to one caller only; a second caller
    /// must not interpret the missing error as success.
    syncing: Mutex<()>,
    /// First failure that leaves the disk in doubt; always [`Error::Poisoned`].
    poison: OnceLock<Error>,
}

impl JournalInner {
    /// Creates a log whose records up to `last` are synced.
    pub(crate) fn new(disk: Arc<dyn Disk>, segments: VecDeque<Arc<Segment>>, last: u64) -> Self {
        Self {
            disk,
            segments: RwLock::new(segments),
            written: AtomicU64::new(last),
            synced: AtomicU64::new(last),
            syncing: Mutex::new(()),
            poison: OnceLock::new(),
        }
    }

    pub(crate) fn disk(&self) -> &dyn Disk {
        self.disk.as_ref()
    }

    /// Returns the last sequence that readers may read.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Returns the last synced sequence.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Publishes a record, already written to its segment, to readers.
    pub(crate) fn publish(&self, sequence: u64) {
        self.written.store(sequence, Ordering::Release);
    }

    /// Syncs every record written before the call and returns the last such sequence.
    pub(crate) fn sync(&self) -> Result<u64> {
        let requested = self.written();
        let _turn = self.syncing.lock();

        self.check_not_poisoned()?;

        // Another thread has synced the records of this call.
        if self.synced() >= requested {
            return Ok(self.synced());
        }

        // Records that were appended during the wait for the lock share this fsync.
        let reached = self.written();
        let segment = self.active();
        // Records up to `reached` are in this segment or in one that was synced before this one was
        // added.
        self.poison(
            self.disk
                .sync(&segment.file)
                .map_err(Error::poison(&segment.path)),
        )?;

        // The position moves only after the fsync: records are written with it as proof of what a
        // recovery must find.
        self.synced.store(reached, Ordering::Release);
        Ok(reached)
    }

    /// Returns an error if an earlier failure left the disk in doubt.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        match self.poison.get() {
            Some(Error::Poisoned { path, cause }) => Err(Error::Poisoned {
                path: path.clone(),
                cause: Arc::clone(cause),
            }),
            _ => Ok(()),
        }
    }

    /// Returns the result. If it leaves the disk in doubt, every later call fails with the same
    /// error.
    pub(crate) fn poison<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Poisoned { path, cause }) = &result {
            self.poison.get_or_init(|| Error::Poisoned {
                path: path.clone(),
                cause: Arc::clone(cause),
            });
        }
        result
    }

    /// Returns the segment that is written.
    pub(crate) fn active(&self) -> Arc<Segment> {
        Arc::clone(self.segments.read().back().expect("a log has a segment"))
    }

    /// Returns the segment that contains `sequence`, if it was not truncated.
    pub(crate) fn segment_of(&self, sequence: u64) -> Result<Arc<Segment>> {
        let segments = self.segments.read();
        let after = segments.partition_point(|segment| segment.first <= sequence);
        let found = after
            .checked_sub(1)
            .and_then(|index| segments.get(index))
            .map(Arc::clone);
        found.ok_or_else(|| Error::Truncated {
            requested: sequence,
            first: segments[0].first,
        })
    }

    /// Returns the first sequence in the log, or the next one if it is empty.
    pub(crate) fn first(&self) -> u64 {
        self.segments.read()[0].first
    }

    /// Makes `segment` the active one. It replaces a segment that starts with the same sequence.
    pub(crate) fn push(&self, segment: Arc<Segment>) {
        let mut segments = self.segments.write();
        // A record too large for an empty segment replaces that segment: both start with the same
        // sequence, and so have the same file name.
        if segments
            .back()
            .is_some_and(|last| last.first == segment.first)
        {
            segments.pop_back();
        }
        segments.push_back(segment);
    }

    /// Returns the oldest segment, if all of its records are before `sequence` and it is not the
    /// active one.
    pub(crate) fn oldest_before(&self, sequence: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.read();
        let next = segments.get(1)?;
        (next.first <= sequence).then(|| Arc::clone(&segments[0]))
    }

    /// Removes the oldest segment.
    pub(crate) fn pop_oldest(&self) {
        self.segments.write().pop_front();
    }

    /// Returns the size of the segments, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments
            .read()
            .iter()
            .map(|segment| segment.capacity)
            .sum()
    }
}
