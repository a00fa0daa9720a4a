//! What the writer, the syncers and the readers of one open journal share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use crate::disk::Disk;
use crate::error::{Error, Result};
use crate::segment::Segment;

/// The segments in use and how far they are written and synced.
#[derive(Debug)]
pub(crate) struct Log {
    disk: Arc<dyn Disk>,
    /// Never empty. Only the last one may hold records that are not synced.
    segments: RwLock<VecDeque<Arc<Segment>>>,
    written: AtomicU64,
    synced: AtomicU64,
    /// Held during an fsync: the kernel reports a failure to one caller only, and a second one must not take the
    /// silence for success.
    syncing: Mutex<()>,
    /// The first failure that leaves the disk in doubt; always [`Error::Poisoned`].
    poison: OnceLock<Error>,
}

impl Log {
    /// A log whose records, up to `last`, are synced.
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

    /// The last sequence that readers may read.
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// The last sequence that the disk has.
    pub(crate) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Shows a record that is in its segment.
    pub(crate) fn publish(&self, sequence: u64) {
        self.written.store(sequence, Ordering::Release);
    }

    /// Returns once the disk has every record written before the call; the answer is the last such record.
    pub(crate) fn sync(&self) -> Result<u64> {
        let wanted = self.written();
        let _turn = self.syncing.lock().expect("no holder of this lock panics");
        self.intact()?;
        if self.synced() >= wanted {
            return Ok(self.synced());
        }
        let reached = self.written();
        let segment = self.active();
        // Records up to `reached` lie in this segment or in one that was synced before this one was added.
        self.remember(self.disk.sync(&segment.file).map_err(Error::poison(&segment.path)))?;
        self.synced.store(reached, Ordering::Release);
        Ok(reached)
    }

    /// Refuses if an earlier failure left the disk in doubt.
    pub(crate) fn intact(&self) -> Result<()> {
        match self.poison.get() {
            Some(Error::Poisoned { path, cause }) => {
                Err(Error::Poisoned { path: path.clone(), cause: Arc::clone(cause) })
            }
            _ => Ok(()),
        }
    }

    /// Passes a result on; if it leaves the disk in doubt, every later call will say so.
    pub(crate) fn remember<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(Error::Poisoned { path, cause }) = &result {
            self.poison.get_or_init(|| Error::Poisoned { path: path.clone(), cause: Arc::clone(cause) });
        }
        result
    }

    /// The segment that is written.
    pub(crate) fn active(&self) -> Arc<Segment> {
        let segments = self.segments.read().expect("no holder of this lock panics");
        Arc::clone(segments.back().expect("a log has a segment"))
    }

    /// The segment that holds `sequence`, if the log reaches so far back.
    pub(crate) fn holding(&self, sequence: u64) -> Result<Arc<Segment>> {
        let segments = self.segments.read().expect("no holder of this lock panics");
        let after = segments.partition_point(|segment| segment.first <= sequence);
        let found = after.checked_sub(1).and_then(|index| segments.get(index));
        found.map(Arc::clone).ok_or_else(|| Error::Truncated { wanted: sequence, first: segments[0].first })
    }

    /// The first sequence that the log holds, or the next one to be written if it holds none.
    pub(crate) fn first(&self) -> u64 {
        self.segments.read().expect("no holder of this lock panics")[0].first
    }

    /// Makes `segment` the one that is written. It takes the place of one that begins with the same sequence.
    pub(crate) fn push(&self, segment: Arc<Segment>) {
        let mut segments = self.segments.write().expect("no holder of this lock panics");
        if segments.back().is_some_and(|last| last.first == segment.first) {
            segments.pop_back();
        }
        segments.push_back(segment);
    }

    /// The oldest segment, if all of its records lie before `sequence` and it is not the one that is written.
    pub(crate) fn oldest_before(&self, sequence: u64) -> Option<Arc<Segment>> {
        let segments = self.segments.read().expect("no holder of this lock panics");
        let next = segments.get(1)?;
        (next.first <= sequence).then(|| Arc::clone(&segments[0]))
    }

    /// Forgets the oldest segment.
    pub(crate) fn pop_oldest(&self) {
        self.segments.write().expect("no holder of this lock panics").pop_front();
    }

    /// The bytes that the segments take up.
    pub(crate) fn bytes(&self) -> u64 {
        self.segments
            .read()
            .expect("no holder of this lock panics")
            .iter()
            .map(|segment| segment.capacity)
            .sum()
    }
}
