//! Going through what there is of every tenant, a stretch at a time, in the order of keys: for what is forgotten one day.

use std::ops::ControlFlow;

use orlog_model::{DeadLetter, Instance, InstanceKey, TaskRow, TaskStatus, TenantId};
use uuid::Uuid;

use crate::encoding::keys;
use crate::encoding::range::Range;
use crate::encoding::tuple::Fields;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// How many rows one change of retention forgets at most.
pub const PURGED_AT_ONCE: usize = crate::translate::PURGED_AT_ONCE;

/// Where a stretch ended; the default is the beginning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bookmark(Option<Vec<u8>>);

/// A part of a table that was gone through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stretch<T> {
    /// What is wanted.
    pub found: Vec<T>,
    /// Where the next one begins; `None` after the last one.
    pub next: Option<Bookmark>,
    /// How many rows were looked at.
    pub scanned: usize,
}

impl Reader {
    /// The instances that are wanted, with the versions they stand at: at most `found` of them, among at most `scanned`.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn sweep_instances(
        &self,
        from: &Bookmark,
        (found, scanned): (usize, usize),
        wanted: impl Fn(&InstanceKey, &Instance) -> bool,
    ) -> Result<Stretch<(InstanceKey, u64)>, Error> {
        self.sweep(Table::Instance, from, (found, scanned), |key, value| {
            let (_, key) = keys::read_instance(&mut Fields::of(key))?;
            let instance: Instance = decode(Table::Instance, value)?;
            Ok(wanted(&key, &instance).then_some((key, instance.version)))
        })
    }

    /// Among at most `scanned` tasks those whose instance is gone, or has begun anew since.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn sweep_tasks(
        &self,
        from: &Bookmark,
        scanned: usize,
    ) -> Result<Stretch<(InstanceKey, Uuid)>, Error> {
        let closed = self.sweep(Table::Task, from, (usize::MAX, scanned), |_, value| {
            let row: TaskRow = decode(Table::Task, value)?;
            let closed = matches!(row.status, TaskStatus::Completed | TaskStatus::Closed);
            Ok(closed.then_some((row.instance, row.task.id, row.updated_at)))
        })?;
        // Not within the scan, which holds the tables.
        let mut found = Vec::new();
        for (key, id, updated_at) in closed.found {
            if self.instance(&key)?.is_none_or(|instance| updated_at < instance.created_at) {
                found.push((key, id));
            }
        }
        Ok(Stretch { found, next: closed.next, scanned: closed.scanned })
    }

    /// The dead letters that are wanted: at most `found` of them, among at most `scanned`.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn sweep_dead_letters(
        &self,
        from: &Bookmark,
        (found, scanned): (usize, usize),
        wanted: impl Fn(&DeadLetter) -> bool,
    ) -> Result<Stretch<(TenantId, Uuid)>, Error> {
        self.sweep(Table::DeadLetter, from, (found, scanned), |_, value| {
            let letter: DeadLetter = decode(Table::DeadLetter, value)?;
            Ok(wanted(&letter).then_some((letter.tenant, letter.id)))
        })
    }

    fn sweep<T>(
        &self,
        table: Table,
        from: &Bookmark,
        (found, scanned): (usize, usize),
        read: impl Fn(&[u8], &[u8]) -> Result<Option<T>, Error>,
    ) -> Result<Stretch<T>, Error> {
        let range = match &from.0 {
            Some(key) => Range::all().after(key),
            None => Range::all(),
        };
        let mut stretch = Stretch { found: Vec::new(), next: None, scanned: 0 };
        self.shared.scan(table, &range, |key, value| {
            stretch.found.extend(read(key, value)?);
            stretch.scanned += 1;
            if stretch.found.len() < found && stretch.scanned < scanned {
                return Ok(ControlFlow::Continue(()));
            }
            stretch.next = Some(Bookmark(Some(key.to_vec())));
            Ok(ControlFlow::Break(()))
        })?;
        Ok(stretch)
    }
}
