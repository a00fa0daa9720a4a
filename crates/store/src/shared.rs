//! What the writer, the readers and the background threads of a store share.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;

use crate::encoding::keys::Keys;
use crate::encoding::range::{Range, just_after};
use crate::encoding::record::Heads;
use crate::error::Error;
use crate::histogram::Clocked;
use crate::lock::lock;
use crate::merged::Tables;
use crate::options::Options;
use crate::read::downtime::Rest;
use crate::replication::follower::At;
use crate::replication::metrics::Meter;
use crate::stats::{Stats, Timed};
use crate::store_dir::Disk;
use crate::table::Table;

/// How many rows are shown under one lock. A longer scan lets commits through in between.
const ROWS_AT_ONCE: usize = 256;

/// The state of a store.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: Keys,
    pub(crate) keeps_feed: bool,
    pub(crate) generation_bytes: usize,
    pub(crate) generation_age: Duration,
    pub(crate) folding: Mutex<()>,
    /// Held while the tables are copied.
    pub(crate) copying: Mutex<()>,
    pub(crate) fold_failure: Mutex<Option<String>>,
    pub(crate) folds: Timed,
    fsyncs: Clocked,
    /// `None` once the store is closed.
    tables: RwLock<Option<Tables>>,
    position: watch::Sender<u64>,
    poison: Mutex<Option<Doubt>>,
    pub(crate) rest: Rest,
    pub(crate) meter: Option<Arc<Meter>>,
}

impl Shared {
    pub(crate) fn new(tables: Tables, options: Options, meter: Option<Arc<Meter>>) -> Self {
        let window = tables.disk().map_or(options.dedupe_window, |disk| disk.window());
        Self {
            keys: Keys::new(options.slots, window),
            keeps_feed: options.feed,
            generation_bytes: options.generation_bytes,
            generation_age: options.generation_age,
            folding: Mutex::new(()),
            copying: Mutex::new(()),
            fold_failure: Mutex::new(None),
            folds: Timed::default(),
            fsyncs: Clocked::default(),
            position: watch::Sender::new(tables.heads().position),
            tables: RwLock::new(Some(tables)),
            poison: Mutex::new(None),
            rest: Rest::default(),
            meter,
        }
    }

    /// Shows `read` the tables as they stand.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&Tables) -> Result<R, Error>) -> Result<R, Error> {
        self.still().as_ref().ok_or(Error::Closed).and_then(read)
    }

    /// The tables as they stand, for as long as the answer lives: commits wait for it.
    pub(crate) fn still(&self) -> RwLockReadGuard<'_, Option<Tables>> {
        self.tables.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `change` change the tables.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Tables) -> Result<R, Error>) -> Result<R, Error> {
        self.exclusive().as_mut().ok_or(Error::Closed).and_then(change)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Option<Tables>> {
        self.tables.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows `visit` the rows of a range, in key order, until it breaks. What is shown at once is of one moment; a scan of
    /// more than [`ROWS_AT_ONCE`] rows is not.
    pub(crate) fn scan(
        &self,
        table: Table,
        range: &Range,
        mut visit: impl FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error>,
    ) -> Result<(), Error> {
        let mut next = (!range.is_empty()).then(|| range.start.clone());
        while let Some(from) = next.take() {
            let mut left = ROWS_AT_ONCE;
            self.read(|tables| {
                tables.scan(table, &from, range.end.as_deref(), &mut |key, value| {
                    let flow = visit(key, value)?;
                    left -= 1;
                    if flow.is_break() || left > 0 {
                        return Ok(flow);
                    }
                    next = Some(just_after(key));
                    Ok(ControlFlow::Break(()))
                })
            })?;
        }
        Ok(())
    }

    /// Where the store stands; where it stood, if it is closed.
    pub(crate) fn heads(&self) -> Heads {
        self.read(|tables| Ok(*tables.heads()))
            .unwrap_or(Heads { position: *self.position.borrow(), ..Heads::NONE })
    }

    /// Makes a record that is as durable as asked for visible to all, and wakes those who watch.
    pub(crate) fn publish(&self, at: At, record: &Bytes) -> Result<(), Error> {
        self.change(|tables| tables.apply(at, record))?;
        self.position.send_replace(at.position);
        Ok(())
    }

    /// The count of commits, to wait on.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.position.subscribe()
    }

    /// Syncs the journal and notes how long it took.
    pub(crate) fn sync(&self, disk: &Disk) -> Result<(), Error> {
        let begun = Instant::now();
        if disk.sync()? {
            self.fsyncs.note(begun.elapsed());
        }
        Ok(())
    }

    /// Refuses once the store is in doubt.
    pub(crate) fn healthy(&self) -> Result<(), Error> {
        lock(&self.poison).as_ref().map_or(Ok(()), |doubt| Err(doubt.error()))
    }

    /// Notes a failure after which nobody knows what the disk has; hands it on.
    pub(crate) fn noted<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let Err(error) = result else { return result };
        if error.is_passing() {
            return Err(error);
        }
        let doubt = match error {
            Error::Poisoned { cause } => Doubt::Poisoned(cause),
            Error::Fenced { reason } => Doubt::Fenced(reason),
            other => Doubt::Poisoned(other.to_string()),
        };
        let error = doubt.error();
        lock(&self.poison).get_or_insert(doubt);
        Err(error)
    }

    /// Lets go of the disk; readers answer [`Error::Closed`] from now on.
    pub(crate) fn close(&self) {
        let (one_at_a_time, not_copied) = (lock(&self.folding), lock(&self.copying));
        let closed = self.exclusive().take();
        drop(closed);
        drop((one_at_a_time, not_copied));
    }

    /// Goes on with tables that were opened anew.
    pub(crate) fn reopen(&self, tables: Tables) {
        let position = tables.heads().position;
        *self.exclusive() = Some(tables);
        *lock(&self.poison) = None;
        *lock(&self.fold_failure) = None;
        self.position.send_replace(position);
    }

    /// Figures.
    pub(crate) fn stats(&self) -> Stats {
        let (folds, last_fold) = self.folds.read();
        let mut stats = Stats {
            position: *self.position.borrow(),
            fsync: self.fsyncs.read(),
            folds,
            last_fold,
            fold_failure: lock(&self.fold_failure).clone(),
            dedupe_window: self.keys.window(),
            replication: self.meter.as_ref().map(|meter| meter.read()),
            ..Stats::default()
        };
        // A closed store has no further figures. The disk is not taken out of the lock, so that closing really closes it.
        self.read(|tables| fill(&mut stats, tables)).ok();
        stats
    }
}

/// Why nothing more is committed.
#[derive(Debug)]
enum Doubt {
    /// See [`Error::Poisoned`].
    Poisoned(String),
    /// See [`Error::Fenced`].
    Fenced(String),
}

impl Doubt {
    fn error(&self) -> Error {
        match self {
            Doubt::Poisoned(cause) => Error::Poisoned { cause: cause.clone() },
            Doubt::Fenced(reason) => Error::Fenced { reason: reason.clone() },
        }
    }
}

fn fill(stats: &mut Stats, tables: &Tables) -> Result<(), Error> {
    let frozen = tables.frozen().map(|frozen| &**frozen);
    for generation in std::iter::once(tables.active()).chain(frozen) {
        stats.overlay_rows += generation.rows() as u64;
        stats.overlay_bytes += generation.bytes() as u64;
    }
    stats.folded_position = tables.folded_position();
    if let Some(disk) = tables.disk() {
        stats.journal_bytes = disk.journal_bytes();
        (stats.tables_bytes, stats.tables_max_bytes) = disk.tables().bytes();
        stats.tables = disk.tables().stats()?;
    }
    Ok(())
}
