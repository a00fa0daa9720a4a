//! Deletion of expired dedupe keys, and of instances and tasks after their retention, in limited
//! steps.

use std::ops::ControlFlow;

use orlog_model::{Instance, InstanceKey, TaskRow, TaskStatus};
use uuid::Uuid;

use crate::encoding::keys::KeyEncoder;
use crate::encoding::range::KeyRange;
use crate::encoding::record::RecordWriter;
use crate::encoding::tuple::Key;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::merged::MergedTables;
use crate::table::Table;

/// Maximum number of rows that one change deletes.
pub(crate) const PURGE_BATCH: usize = 1000;

/// Purge of expired dedupe keys, continued by each group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DedupePurge {
    /// Earlier keys are deleted. Their tombstones are not scanned again.
    from: Key,
    end: Key,
}

impl DedupePurge {
    /// Returns a purge of the keys before `end` that continues the current one.
    pub(super) fn extended(current: Option<Self>, end: Key) -> Self {
        match current {
            // The purge continues behind the keys that are deleted already.
            Some(purge) => Self {
                end: end.max(purge.end),
                ..purge
            },
            None => Self {
                from: Key::new(),
                end,
            },
        }
    }

    /// Deletes at most `share` expired keys, oldest bucket first; returns their number and the
    /// rest.
    pub(super) fn run(
        self,
        tables: &MergedTables,
        record: &mut RecordWriter,
        share: usize,
    ) -> Result<(usize, Option<Self>), Error> {
        let mut purged = 0;
        let mut next = None;
        // Damaged rows are deleted too, because a deletion needs only the key.
        tables.scan_keys(Table::Dedupe, &self.from, Some(&self.end), &mut |key, _| {
            if purged == share {
                next = Some(Key::from_slice(key));
                return Ok(ControlFlow::Break(()));
            }
            purged += 1;
            record.delete(Table::Dedupe, key)?;
            Ok(ControlFlow::Continue(()))
        })?;

        Ok((
            purged,
            next.map(|from| Self {
                from,
                end: self.end,
            }),
        ))
    }
}

/// Purges an instance; returns it if no row of it remains. It remains if it has buffered or spilled
/// inputs, because they are about to be applied.
pub(super) fn purge_instance(
    tables: &MergedTables,
    record: &mut RecordWriter,
    row: &[u8],
    version: u64,
) -> Result<Option<Instance>, Error> {
    // A transition since the instance was found keeps it.
    let unchanged =
        stored(tables, row)?.filter(|stored| stored.version == version && stored.is_finished());
    if unchanged.is_none() || has_any(tables, Table::BufferedInput, row)? {
        return Ok(None);
    }

    // One limit for all tables, because one record contains all these deletions.
    let mut remaining = PURGE_BATCH;
    for table in [Table::History, Table::JobLog, Table::JobClaim] {
        delete_some(
            tables,
            record,
            table,
            &KeyRange::of_prefix(Key::from_slice(row)),
            &mut remaining,
        )?;
    }
    // The snapshot is deleted last, so that the next pass finds an instance with remaining rows.
    if remaining == 0 {
        return Ok(None);
    }

    record.delete(Table::Instance, row)?;
    Ok(unchanged)
}

/// Purges the tasks of an instance that was deleted or has been restarted since.
pub(super) fn purge_tasks(
    tables: &MergedTables,
    record: &mut RecordWriter,
    keys: &KeyEncoder,
    instance: &InstanceKey,
    tasks: &[Uuid],
) -> Result<(), Error> {
    let stored = stored(tables, &keys.instance(instance))?;
    let mut remaining = PURGE_BATCH;

    for id in tasks {
        let key = keys.task(instance, *id);
        let row = tables.get(Table::Task, &key, |bytes| {
            decode::<TaskRow>(Table::Task, bytes)
        })?;
        let row = row.transpose()?;
        if !row.is_some_and(|row| is_orphaned_task(&row, stored.as_ref())) {
            continue;
        }

        let events = KeyRange::of_prefix(key.clone());
        delete_some(tables, record, Table::TaskEvent, &events, &mut remaining)?;
        // The task is deleted after its events, so that the next pass finds it again.
        if remaining == 0 {
            return Ok(());
        }
        record.delete(Table::Task, &key)?;
    }
    Ok(())
}

/// Returns whether a task belongs to no instance any more: its instance was deleted, or has been
/// restarted since. `stored` is the instance with its key.
pub(crate) fn is_orphaned_task(row: &TaskRow, stored: Option<&Instance>) -> bool {
    let Some(stored) = stored else {
        return true;
    };
    match row.status {
        // An instance lists its open tasks. Their times prove nothing if the clock was set back.
        TaskStatus::Open | TaskStatus::Claimed => {
            stored.tasks.iter().all(|task| task.id != row.task.id)
        }
        TaskStatus::Completed | TaskStatus::Closed => row.updated_at < stored.created_at,
    }
}

/// Deletes the rows in a range, at most `remaining` of them.
pub(super) fn delete_some(
    tables: &MergedTables,
    record: &mut RecordWriter,
    table: Table,
    range: &KeyRange,
    remaining: &mut usize,
) -> Result<(), Error> {
    tables.scan_keys(table, &range.start, range.end.as_deref(), &mut |key, _| {
        if *remaining == 0 {
            return Ok(ControlFlow::Break(()));
        }

        *remaining -= 1;
        record.delete(table, key)?;
        Ok(ControlFlow::Continue(()))
    })
}

/// Returns the stored instance of a row.
pub(super) fn stored(tables: &MergedTables, row: &[u8]) -> Result<Option<Instance>, Error> {
    tables
        .get(Table::Instance, row, |bytes| decode(Table::Instance, bytes))?
        .transpose()
}

fn has_any(tables: &MergedTables, table: Table, prefix: &[u8]) -> Result<bool, Error> {
    let range = KeyRange::of_prefix(Key::from_slice(prefix));
    let mut any = false;
    tables.scan_keys(table, &range.start, range.end.as_deref(), &mut |_, _| {
        any = true;
        Ok(ControlFlow::Break(()))
    })?;
    Ok(any)
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, Commit, DedupeKey};
    use uuid::Uuid;

    use crate::samples::{apply, at, key, small, transition};
    use crate::{Error, open, open_in_memory};

    #[test]
    fn group_is_limited_by_size_but_a_single_change_is_not() {
        let (mut writer, reader) = open_in_memory(small());
        let large = |number: &str| {
            let key = key("acme", number);
            let mut commit = transition(&key, 1);
            std::sync::Arc::make_mut(commit.instance.as_mut().unwrap()).state = vec![7; 20 << 20];
            apply(commit)
        };
        let group = [large("o-1"), large("o-2")];
        assert!(matches!(
            writer.commit(&group, at(5)),
            Err(Error::TooLarge { .. })
        ));
        assert_eq!(reader.position(), 0, "nothing is committed");
        // The committer divides the group.
        for change in group {
            writer.commit(&[change], at(5)).unwrap();
        }
        assert_eq!(reader.position(), 2);
    }

    #[test]
    fn purge_of_dedupe_keys_keeps_pace_with_commits() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = open(dir.path(), small()).unwrap();
        let key = key("acme", "o-1");
        let id = |number: u128| DedupeKey::from_uuid(Uuid::from_u128(number));
        let applied = |number| {
            apply(Commit {
                dedupe_key: Some(id(number)),
                ..Commit::empty(key.clone(), at(5))
            })
        };
        let old: Vec<_> = (0..3000).map(applied).collect();
        writer.commit(&old, at(5)).unwrap();
        let now = at(5).saturating_add(small().dedupe_window * 3);
        let counts = || {
            (
                reader.stats().dedupe_backlog,
                reader.count_expired_dedupe_keys(now).unwrap(),
            )
        };
        assert_eq!(counts().1, 3000);
        writer
            .commit(&[Change::PurgeDedupe { before: now }], now)
            .unwrap();
        assert_eq!(counts(), (2000, 2000));
        assert!(
            !reader.is_dedupe_purge_due(now).unwrap(),
            "it is in progress"
        );
        for n in 0..100 {
            let group: Vec<_> = (0..9).map(|m| applied(10_000 + n * 9 + m)).collect();
            writer.commit(&group, now).unwrap();
            // A flush removes the tombstones; the purge continues after them.
            if n == 50 {
                writer.flush().unwrap();
            }
        }
        assert_eq!(counts(), (200, 200));
        // A recovery ends the purge; housekeeping starts it again.
        writer.recover().unwrap();
        assert!(reader.is_dedupe_purge_due(now).unwrap());
        assert_eq!(reader.stats().dedupe_backlog, 200);
        writer
            .commit(&[Change::PurgeDedupe { before: now }], now)
            .unwrap();
        assert_eq!((counts(), writer.is_purging()), ((0, 0), false));
        assert!(
            reader
                .is_duplicate(&key, id(10_000 + 99 * 9 + 8), now)
                .unwrap()
        );
    }
}
