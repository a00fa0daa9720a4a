//! The tables as they stand: the generation being filled, over the one being folded, over the disk.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::encoding::range::Visit;
use crate::encoding::record::Heads;
use crate::error::Error;
use crate::memtable::{Generation, Known};
use crate::replication::follower::{At, Mark};
use crate::store_dir::Disk;
use crate::table::Table;

/// All rows. What lies higher hides what lies lower.
#[derive(Debug)]
pub(crate) struct Tables {
    active: Generation,
    frozen: Option<Arc<Generation>>,
    disk: Option<Arc<Disk>>,
    folded: u64,
}

impl Tables {
    /// Tables over a disk that holds everything up to `heads`, or over nothing.
    pub(crate) fn over(disk: Option<Arc<Disk>>, heads: Heads) -> Self {
        let mark = disk.as_ref().map_or(Mark::NONE, |disk| disk.mark());
        Self { active: Generation::on(heads, mark), frozen: None, disk, folded: heads.position }
    }

    /// Tables over a disk, with what its journal holds and its tables do not.
    pub(crate) fn replayed(disk: &Arc<Disk>) -> Result<Self, Error> {
        let folded = *disk.folded();
        let mut tables = Self::over(Some(Arc::clone(disk)), folded);
        disk.replay(folded.position, |position, record| {
            tables.apply(At::position(position), &Bytes::copy_from_slice(record))
        })?;
        Ok(tables)
    }

    /// Where the store stands.
    pub(crate) fn heads(&self) -> &Heads {
        self.active.heads()
    }

    /// The generation being filled.
    pub(crate) fn active(&self) -> &Generation {
        &self.active
    }

    /// The generation being folded.
    pub(crate) fn frozen(&self) -> Option<&Arc<Generation>> {
        self.frozen.as_ref()
    }

    /// What lies below; nothing in a store in memory.
    pub(crate) fn disk(&self) -> Option<&Arc<Disk>> {
        self.disk.as_ref()
    }

    /// Applies a record that the journal or the log has.
    pub(crate) fn apply(&mut self, at: At, record: &Bytes) -> Result<(), Error> {
        self.active.apply(at, record, self.disk.is_none(), Instant::now())
    }

    /// Puts the active generation aside to be folded, unless there is nothing to fold or still one aside.
    pub(crate) fn freeze(&mut self) {
        if self.disk.is_some() && self.frozen.is_none() && self.active.born().is_some() {
            let next = Generation::on(*self.active.heads(), self.active.mark());
            self.frozen = Some(Arc::new(std::mem::replace(&mut self.active, next)));
        }
    }

    /// Forgets the generation that was folded; hands it out, so that it is freed outside the lock.
    pub(crate) fn thaw(&mut self) -> Option<Arc<Generation>> {
        let folded = self.frozen.take();
        self.folded = folded.as_ref().map_or(self.folded, |generation| generation.heads().position);
        folded
    }

    /// The last commit that is folded into the tables on disk.
    pub(crate) fn folded_position(&self) -> u64 {
        self.folded
    }

    /// Timers armed less timers disarmed that the disk does not know of yet.
    pub(crate) fn unfolded_timers(&self) -> i64 {
        self.active.timers() + self.frozen.as_ref().map_or(0, |frozen| frozen.timers())
    }

    /// Shows `read` the row with this key; `None` if there is none.
    pub(crate) fn get<R>(
        &self,
        table: Table,
        key: &[u8],
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>, Error> {
        let frozen = || self.frozen.as_ref().and_then(|frozen| frozen.get(table, key));
        match (self.active.get(table, key).or_else(frozen), &self.disk) {
            (Some(Known(row)), _) => Ok(row.map(read)),
            (None, Some(disk)) => disk.tables().get(table, key, read),
            (None, None) => Ok(None),
        }
    }

    /// Shows `visit` the rows from `from` to just before `end`, in key order, until it breaks.
    pub(crate) fn scan(
        &self,
        table: Table,
        from: &[u8],
        end: Option<&[u8]>,
        visit: &mut Visit<'_>,
    ) -> Result<(), Error> {
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range(table, from, end));
        let lower = frozen.into_iter().flatten().peekable();
        let mut overlay = Overlay { upper: self.active.range(table, from, end).peekable(), lower }.peekable();
        if let Some(disk) = &self.disk {
            let flow = disk.tables().scan(table, from, end, &mut |key, value| {
                while let Some((above, row)) = overlay.next_if(|(above, _)| *above < key) {
                    if let Some(row) = row
                        && visit(above, row)?.is_break()
                    {
                        return Ok(ControlFlow::Break(()));
                    }
                }
                match overlay.next_if(|(above, _)| *above == key) {
                    Some((_, Some(row))) => visit(key, row),
                    Some((_, None)) => Ok(ControlFlow::Continue(())),
                    None => visit(key, value),
                }
            })?;
            if flow.is_break() {
                return Ok(());
            }
        }
        for (key, row) in overlay {
            if let Some(row) = row
                && visit(key, row)?.is_break()
            {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// Two generations read as one; the upper hides the lower.
struct Overlay<U: Iterator, L: Iterator> {
    upper: Peekable<U>,
    lower: Peekable<L>,
}

/// A key, and the row that it has, if any.
type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

impl<'a, U, L> Iterator for Overlay<U, L>
where
    U: Iterator<Item = Entry<'a>>,
    L: Iterator<Item = Entry<'a>>,
{
    type Item = Entry<'a>;

    fn next(&mut self) -> Option<Entry<'a>> {
        let order = match (self.upper.peek(), self.lower.peek()) {
            (Some((upper, _)), Some((lower, _))) => upper.cmp(lower),
            (None, Some(_)) => Ordering::Greater,
            (_, None) => Ordering::Less,
        };
        if order == Ordering::Equal {
            self.lower.next();
        }
        if order == Ordering::Greater { self.lower.next() } else { self.upper.next() }
    }
}
