//! Sweep: iterates over the rows of all tenants page by page, in key order, for retention.

use orlog_model::{DeadLetter, InstanceKey, TaskRow, TenantId};
use uuid::Uuid;

use crate::encoding::range::KeyRange;
use crate::encoding::value::{decode, readable};
use crate::error::Error;
use crate::read::reader::{Reader, ScanLimits};
use crate::table::Table;
use crate::translate::is_orphaned_task;

/// Maximum number of rows that one retention change deletes.
pub const PURGE_BATCH: usize = crate::translate::PURGE_BATCH;

/// End of a page; the default is the start of the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepCursor(Option<Vec<u8>>);

impl SweepCursor {
    /// Returns the cursor after a row.
    pub(crate) fn at(row: &[u8]) -> Self {
        Self(Some(row.to_vec()))
    }

    /// Returns the last row of the previous page.
    pub(crate) fn row(&self) -> Option<&[u8]> {
        self.0.as_deref()
    }
}

/// Page of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SweepPage<T> {
    /// Matching rows.
    pub found: Vec<T>,
    /// Start of the next page; `None` after the last one.
    pub next: Option<SweepCursor>,
    /// Number of scanned rows.
    pub scanned: usize,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns the tasks, among at most `scanned`, whose instance was deleted or has been restarted
    /// since.
    pub fn sweep_tasks(
        &self,
        from: &SweepCursor,
        scanned: usize,
    ) -> Result<SweepPage<(InstanceKey, Uuid)>, Error> {
        let limits = ScanLimits::rows(usize::MAX, scanned);
        self.sweep(Table::Task, from, limits, |_, value| {
            let row: TaskRow = decode(Table::Task, value)?;
            // The tasks of an unreadable instance remain.
            let Some(instance) = readable(self.instance(&row.instance))? else {
                return Ok(None);
            };
            // Also an open task: a dropped instance could not be read, so its tasks were unknown.
            let is_orphaned = is_orphaned_task(&row, instance.as_ref());
            Ok(is_orphaned.then_some((row.instance, row.task.id)))
        })
    }

    /// Returns the matching dead letters: at most `found`, among at most `scanned`.
    pub fn sweep_dead_letters(
        &self,
        from: &SweepCursor,
        found: usize,
        scanned: usize,
        is_match: impl Fn(&DeadLetter) -> bool,
    ) -> Result<SweepPage<(TenantId, Uuid)>, Error> {
        let limits = ScanLimits::rows(found, scanned);
        self.sweep(Table::DeadLetter, from, limits, |_, value| {
            let dead_letter: DeadLetter = decode(Table::DeadLetter, value)?;
            Ok(is_match(&dead_letter).then_some((dead_letter.tenant, dead_letter.id)))
        })
    }

    fn sweep<T>(
        &self,
        table: Table,
        from: &SweepCursor,
        limits: ScanLimits,
        read: impl Fn(&[u8], &[u8]) -> Result<Option<T>, Error>,
    ) -> Result<SweepPage<T>, Error> {
        let range = match from.row() {
            Some(key) => KeyRange::all().after(key),
            None => KeyRange::all(),
        };

        let page = self.scan_page(table, &[range], limits, read)?;
        Ok(SweepPage {
            found: page.items,
            next: page.last.map(|key| SweepCursor(Some(key))),
            scanned: page.scanned,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Barrier;

    use orlog_model::{Change, Commit, Status};

    use super::*;
    use crate::samples::{at, instance, key, small};

    /// Number of concurrent readers: more than the threads for blocking work.
    const READERS: usize = 600;

    #[test]
    fn every_thread_of_a_process_can_read_at_the_same_time() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let snapshot = instance(1, Status::Running);
        let commit = Commit {
            instance: Some(std::sync::Arc::new(snapshot)),
            ..Commit::empty(key("acme", "a"), at(1))
        };
        writer
            .commit(&[Change::Apply(Box::new(commit))], at(1))
            .unwrap();
        writer.flush().unwrap();
        let all_read = Barrier::new(READERS);
        let found = std::thread::scope(|scope| {
            let read = || {
                let mut rows = 0;
                let found = reader.shared.read(|tables| {
                    tables.scan(Table::Instance, &[], None, &mut |_, _| {
                        all_read.wait();
                        rows += 1;
                        Ok(ControlFlow::Continue(()))
                    })
                });
                // The others must not wait for a reader that failed.
                if found.is_err() {
                    all_read.wait();
                }
                found.map(|()| rows).map_err(|error| error.to_string())
            };
            let threads: Vec<_> = (0..READERS)
                .map(|_| {
                    std::thread::Builder::new()
                        .stack_size(256 << 10)
                        .spawn_scoped(scope, read)
                        .unwrap()
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect::<Vec<_>>()
        });
        assert_eq!(found, vec![Ok(1); READERS]);
    }
}
