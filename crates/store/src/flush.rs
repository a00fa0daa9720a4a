//! Flush: writes a memtable to the tables on disk.
//!
//! The active memtable becomes immutable. One durable transaction writes it in key order together
//! with its position; then the memtable is dropped and the journal is truncated. A crash in between
//! repeats the flush or nothing: replay starts after the position in the tables. A thread that
//! requires space flushes; a mutex admits one thread and blocks the others.

use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_model::{Name, SagaName};

use crate::error::Error;
use crate::index::Indexes;
use crate::lock::lock;
use crate::merged::MergedTables;
use crate::shared::Shared;
use crate::store_dir::StoreDir;
use crate::tables::IndexChanges;

/// Maximum delay until the maintenance starts to build a declared index.
const MAX_PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Flushes the immutable memtable, if there is one.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let one_at_a_time = lock(&self.flushing);
        let flushed = self.flush_immutable();
        // A success also clears the failure, so the statistics show the current state.
        *lock(&self.flush_failure) = flushed.as_ref().err().map(ToString::to_string);
        drop(one_at_a_time);
        self.record_failure(flushed)
    }

    fn flush_immutable(&self) -> Result<(), Error> {
        let (frozen, disk) =
            self.read(|tables| Ok((tables.immutable().cloned(), Arc::clone(tables.disk()))))?;
        let Some(frozen) = frozen else { return Ok(()) };

        let start = Instant::now();
        // Without the lock of the tables: reads and commits continue.
        disk.flush(&frozen)?;
        let position = frozen.state().position;
        drop(frozen);

        // Only after the rows are durable in the tables: until then readers need the memtable.
        let flushed = self.change(|tables| Ok(tables.drop_immutable()))?;
        self.flushes.record(start.elapsed());
        // A flush has touched many pages, which stay mapped.
        disk.tables().release_memory(self.resident_bytes);
        // Outside the lock: a large memtable takes a while to free.
        drop(flushed);
        disk.truncate(position)
    }

    /// Declares all variables that are indexed, by saga.
    pub(crate) fn declare_indexes(&self, variables: &[(SagaName, Vec<Name>)]) -> Result<(), Error> {
        self.change_indexes(|disk| {
            Ok(disk
                .indexes()
                .declare(variables)
                .map(|next| (next, Vec::new())))
        })?;
        Ok(())
    }

    /// Builds or removes a part of an index. Returns whether more may remain.
    fn advance_indexes(&self) -> Result<bool, Error> {
        self.change_indexes(|disk| disk.indexes().advance(disk.tables(), self.variables))
    }

    /// Changes the indexes, unless `change` returns `None`; returns whether it did. No flush runs
    /// meanwhile.
    fn change_indexes(
        &self,
        change: impl FnOnce(&StoreDir) -> Result<Option<(Indexes, IndexChanges)>, Error>,
    ) -> Result<bool, Error> {
        // A flush in between would maintain the old set of indexes.
        let one_at_a_time = lock(&self.flushing);
        let changed = self
            .read(|tables| Ok(Arc::clone(tables.disk())))
            .and_then(|disk| {
                let Some((next, changes)) = change(&disk)? else {
                    return Ok(false);
                };
                disk.change_indexes(next, &changes).map(|()| true)
            });

        drop(one_at_a_time);
        self.record_failure(changed)
    }

    /// Flushes all memtables.
    pub(crate) fn flush_all(&self) -> Result<(), Error> {
        // The first round freezes the active memtable, and the second one flushes it.
        for _ in 0..2 {
            self.flush()?;
            self.freeze()?;
        }
        Ok(())
    }

    /// Makes the active memtable immutable, unless another one is immutable.
    pub(crate) fn freeze(&self) -> Result<(), Error> {
        self.change(|tables| {
            tables.freeze();
            Ok(())
        })
    }

    /// Ensures memtable space for a group: if both memtables are full, the commit waits for the
    /// flush. Returns whether a memtable became immutable.
    pub(crate) fn wait_for_memtable_space(&self) -> Result<bool, Error> {
        let mut is_frozen = false;
        while self.read(|tables| Ok(self.is_full(tables)))? {
            // The commit flushes itself, or waits for the thread that does.
            self.flush()?;
            self.freeze()?;
            is_frozen = true;
        }
        Ok(is_frozen)
    }

    /// Makes the active memtable immutable if it is full and no other is immutable; returns whether
    /// it did.
    pub(crate) fn freeze_if_full(&self) -> Result<bool, Error> {
        let due = self.read(|tables| Ok(self.is_full(tables) && tables.immutable().is_none()))?;
        if due {
            self.freeze()?;
        }
        Ok(due)
    }

    fn is_full(&self, tables: &MergedTables) -> bool {
        tables.active().bytes() >= self.memtable_bytes
    }

    /// Flushes the immutable memtable, and the active one if it is old enough. Returns the time of
    /// the next check.
    pub(crate) fn run_maintenance(&self) -> Result<Option<Instant>, Error> {
        // The writer wakes this thread for a memtable that it has made immutable.
        self.flush()?;
        let due = self.read(|tables| Ok(self.flush_due(tables)))?;
        if due.is_some_and(|due| due <= Instant::now()) {
            self.freeze()?;
            self.flush()?;
        }

        // One step at a time: a commit that needs space waits for the lock of this step.
        if self.advance_indexes()? {
            return Ok(Some(Instant::now()));
        }
        self.read(|tables| Ok(self.flush_due(tables)))
    }

    /// Returns the time at which the active memtable is old enough to be flushed.
    fn flush_due(&self, tables: &MergedTables) -> Option<Instant> {
        let created = tables.active().created_at()?;
        Some(created + self.memtable_max_age)
    }
}

/// Runs the maintenance of the store until all wakers are dropped.
pub(crate) fn maintenance_loop(shared: &Arc<Shared>, wake: &std::sync::mpsc::Receiver<()>) {
    use std::sync::mpsc::RecvTimeoutError;

    let mut at = None;
    let mut failure = LoggedFailure::default();
    loop {
        let pause = at.map_or(shared.memtable_max_age, |at: Instant| {
            at.saturating_duration_since(Instant::now())
        });

        if wake.recv_timeout(pause.min(MAX_PAUSE)) == Err(RecvTimeoutError::Disconnected) {
            return;
        }

        at = match shared.run_maintenance() {
            Ok(at) => {
                failure = LoggedFailure::default();
                at
            }
            Err(error) => {
                if failure.is_due(&error.to_string(), Instant::now()) {
                    tracing::warn!(
                        %error,
                        "memtable flush failed; commits continue until the memtable is full"
                    );
                }
                None
            }
        };
    }
}

/// Failure that was logged last. Each commit repeats a flush that failed, and all of them can have
/// one cause.
#[derive(Default)]
struct LoggedFailure(Option<(String, Instant)>);

impl LoggedFailure {
    const REPEAT: Duration = Duration::from_mins(1);

    /// Returns whether a failure must be logged: it is another one, or the last record is old.
    fn is_due(&mut self, failure: &str, now: Instant) -> bool {
        let is_recent = self
            .0
            .as_ref()
            .is_some_and(|(last, at)| last == failure && now < *at + Self::REPEAT);
        let is_due = !is_recent;

        if is_due {
            self.0 = Some((failure.to_owned(), now));
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_flush_failure_is_logged_once_a_minute() {
        let (start, mut failure) = (Instant::now(), LoggedFailure::default());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(failure.is_due("full", start));
        assert!(!failure.is_due("full", after(59)));
        assert!(failure.is_due("disk failed", after(59)));
        assert!(!failure.is_due("disk failed", after(118)));
        assert!(failure.is_due("disk failed", after(119)));
    }
}
