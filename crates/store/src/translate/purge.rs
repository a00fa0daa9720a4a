//! Deletion of expired dedupe keys, and of instances and tasks after their retention, in limited steps.

use std::ops::ControlFlow;

use orlog_model::{InstanceKey, TaskRow, Timestamp};
use uuid::Uuid;

use super::{ChangeTranslator, DedupePurge, PURGE_BATCH};
use crate::encoding::range::KeyRange;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::table::Table;

impl ChangeTranslator<'_> {
    /// Starts a purge of the keys before a time, or extends the current one.
    pub(super) fn start_purge(&mut self, before: Timestamp) {
        let end = self.keys.dedupe_before(before).end.unwrap_or_default();
        match &mut self.purge {
            Some(purge) => purge.end = end.max(std::mem::take(&mut purge.end)),
            None => self.purge = Some(DedupePurge { from: Vec::new(), end }),
        }
    }

    /// Deletes at most `share` expired keys, oldest bucket first; returns their number.
    pub(super) fn purge_dedupe(&mut self, share: usize) -> Result<usize, Error> {
        let Some(DedupePurge { from, end }) = self.purge.take() else { return Ok(0) };
        let (record, mut purged, mut next) = (&mut *self.record, 0, None);
        self.tables.scan_keys(Table::Dedupe, &from, Some(&end), &mut |key, _| {
            if purged == share {
                next = Some(key.to_vec());
                return Ok(ControlFlow::Break(()));
            }
            purged += 1;
            record.delete(Table::Dedupe, key)?;
            Ok(ControlFlow::Continue(()))
        })?;
        self.purge = next.map(|from| DedupePurge { from, end });
        Ok(purged)
    }

    /// Purges an instance. It remains if it has buffered or spilled inputs, because they are about to be applied.
    pub(super) fn purge_instance(&mut self, key: &InstanceKey, version: u64) -> Result<(), Error> {
        let row = self.keys.instance(key);
        let is_unchanged =
            self.stored(&row)?.is_some_and(|stored| stored.version == version && stored.is_finished());
        if !is_unchanged || self.has_any(Table::BufferedInput, &row)? {
            return Ok(());
        }
        let mut remaining = PURGE_BATCH;
        self.delete_some(Table::History, &KeyRange::of_prefix(row.clone()), &mut remaining)?;
        if remaining > 0 { self.record.delete(Table::Instance, &row) } else { Ok(()) }
    }

    pub(super) fn purge_tasks(&mut self, instance: &InstanceKey, tasks: &[Uuid]) -> Result<(), Error> {
        let stored = self.stored(&self.keys.instance(instance))?;
        let mut remaining = PURGE_BATCH;
        for id in tasks {
            let key = self.keys.task(instance, *id);
            let row = self.tables.get(Table::Task, &key, |bytes| decode::<TaskRow>(Table::Task, bytes))?;
            let is_orphaned = |row: &TaskRow| stored.as_ref().is_none_or(|of| row.updated_at < of.created_at);
            if row.transpose()?.is_some_and(|row| is_orphaned(&row)) {
                self.delete_some(Table::TaskEvent, &KeyRange::of_prefix(key.clone()), &mut remaining)?;
                if remaining == 0 {
                    return Ok(());
                }
                self.record.delete(Table::Task, &key)?;
            }
        }
        Ok(())
    }

    /// Deletes the rows in a range, at most `remaining` of them.
    pub(super) fn delete_some(
        &mut self,
        table: Table,
        range: &KeyRange,
        remaining: &mut usize,
    ) -> Result<(), Error> {
        let record = &mut *self.record;
        self.tables.scan_keys(table, &range.start, range.end.as_deref(), &mut |key, _| {
            if *remaining == 0 {
                return Ok(ControlFlow::Break(()));
            }
            *remaining -= 1;
            record.delete(table, key)?;
            Ok(ControlFlow::Continue(()))
        })
    }
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
            commit.instance.as_mut().unwrap().state = vec![7; 20 << 20];
            apply(commit)
        };
        let group = [large("o-1"), large("o-2")];
        assert!(matches!(writer.commit(&group, at(5)), Err(Error::TooLarge { .. })));
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
        let applied =
            |number| apply(Commit { dedupe_key: Some(id(number)), ..Commit::empty(key.clone(), at(5)) });
        let old: Vec<_> = (0..3000).map(applied).collect();
        writer.commit(&old, at(5)).unwrap();
        let now = at(5).saturating_add(small().dedupe_window * 3);
        let counts = || (reader.stats().dedupe_backlog, reader.count_expired_dedupe_keys(now).unwrap());
        assert_eq!(counts().1, 3000);
        writer.commit(&[Change::PurgeDedupe { before: now }], now).unwrap();
        assert_eq!(counts(), (2000, 2000));
        assert!(!reader.is_dedupe_purge_due(now).unwrap(), "it is in progress");
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
        writer.commit(&[Change::PurgeDedupe { before: now }], now).unwrap();
        assert_eq!((counts(), writer.is_purging()), ((0, 0), false));
        assert!(reader.is_duplicate(&key, id(10_000 + 99 * 9 + 8), now).unwrap());
    }
}
