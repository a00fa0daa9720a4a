//! State shared by the writer, the readers and the background threads of a store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use orlog_journal::DurablePosition;
use orlog_model::count::{Operation, count};
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::watch;

use crate::encoding::keys::KeyEncoder;
use crate::encoding::record::StoreState;
use crate::error::Error;
use crate::index::VariableReader;
use crate::lock::lock;
use crate::merged::MergedTables;
use crate::options::Options;
use crate::read::downtime::DowntimeTracker;
use crate::replication::follower::RecordPosition;
use crate::replication::metrics::LogMetrics;
use crate::stats::{AtomicDurationHistogram, Stats, TimedCounter};
use crate::store_dir::StoreDir;
use crate::table::Table;

/// State of a store.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) keys: KeyEncoder,
    pub(crate) feed_enabled: bool,
    pub(crate) variables: VariableReader,
    pub(crate) resident_bytes: u64,
    pub(crate) memtable_bytes: usize,
    pub(crate) memtable_max_age: Duration,
    pub(crate) flushing: Mutex<()>,
    /// Lock held while the tables are copied.
    pub(crate) copying: Mutex<()>,
    pub(crate) flush_failure: Mutex<Option<String>>,
    pub(crate) flushes: TimedCounter,
    fsyncs: AtomicDurationHistogram,
    /// Range scans of each table.
    pub(crate) scans: [AtomicU64; Table::ALL.len()],
    /// Tables; `None` after the store is closed.
    tables: RwLock<Option<MergedTables>>,
    /// Tables on disk, for reads that do not hold the lock of all tables, for which commits wait.
    /// The store closes after such reads. Acquired before that lock; never twice by a thread.
    disk: RwLock<Option<Arc<StoreDir>>>,
    position: watch::Sender<u64>,
    poison: Mutex<Option<WriteBlock>>,
    /// Number of expired dedupe keys that are not purged, and whether the writer purges them.
    pub(crate) dedupe_backlog: AtomicU64,
    is_purging: AtomicBool,
    /// Durable position at the last close.
    closed_at: Mutex<Option<DurablePosition>>,
    pub(crate) downtime: DowntimeTracker,
    pub(crate) meter: Option<Arc<LogMetrics>>,
}

impl Shared {
    pub(crate) fn new(
        tables: MergedTables,
        options: Options,
        meter: Option<Arc<LogMetrics>>,
    ) -> Self {
        let window = tables.disk().dedupe_window();
        Self {
            keys: KeyEncoder::new(options.slots, window),
            feed_enabled: options.feed,
            variables: options.variables,
            resident_bytes: options.resident_bytes,
            memtable_bytes: options.memtable_bytes,
            memtable_max_age: options.memtable_max_age,
            flushing: Mutex::new(()),
            copying: Mutex::new(()),
            flush_failure: Mutex::new(None),
            flushes: TimedCounter::default(),
            fsyncs: AtomicDurationHistogram::default(),
            scans: std::array::from_fn(|_| AtomicU64::new(0)),
            position: watch::Sender::new(tables.state().position),
            disk: RwLock::new(Some(Arc::clone(tables.disk()))),
            tables: RwLock::new(Some(tables)),
            poison: Mutex::new(None),
            dedupe_backlog: AtomicU64::new(0),
            is_purging: AtomicBool::new(false),
            closed_at: Mutex::new(None),
            downtime: DowntimeTracker::default(),
            meter,
        }
    }

    /// Passes the current tables to `read`.
    pub(crate) fn read<R>(
        &self,
        read: impl FnOnce(&MergedTables) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.read_guard()
            .as_ref()
            .ok_or(Error::Closed)
            .and_then(read)
    }

    /// Returns a guard of the current tables. Commits wait until it is dropped.
    pub(crate) fn read_guard(&self) -> RwLockReadGuard<'_, Option<MergedTables>> {
        count(Operation::Lock);
        self.tables.read()
    }

    /// Returns a guard of the tables on disk. The close of the store waits until it is dropped.
    pub(crate) fn disk_guard(&self) -> RwLockReadGuard<'_, Option<Arc<StoreDir>>> {
        count(Operation::Lock);
        self.disk.read()
    }

    fn disk_exclusive(&self) -> RwLockWriteGuard<'_, Option<Arc<StoreDir>>> {
        count(Operation::Lock);
        self.disk.write()
    }

    /// Passes the tables to `change` for modification.
    pub(crate) fn change<R>(
        &self,
        change: impl FnOnce(&mut MergedTables) -> Result<R, Error>,
    ) -> Result<R, Error> {
        self.exclusive()
            .as_mut()
            .ok_or(Error::Closed)
            .and_then(change)
    }

    fn exclusive(&self) -> RwLockWriteGuard<'_, Option<MergedTables>> {
        count(Operation::Lock);
        self.tables.write()
    }

    /// Returns the state of the store; the last state if it is closed.
    pub(crate) fn state(&self) -> StoreState {
        self.read(|tables| Ok(*tables.state()))
            .unwrap_or(StoreState {
                position: *self.position.borrow(),
                ..StoreState::NONE
            })
    }

    /// Makes a record with the requested durability visible to all readers, and wakes the watchers.
    pub(crate) fn publish(&self, at: RecordPosition, record: &Bytes) -> Result<(), Error> {
        self.change(|tables| tables.apply(at, record))?;
        // A watcher that wakes must find the rows, so they are visible first.
        self.position.send_replace(at.position);
        Ok(())
    }

    /// Returns a receiver of the number of commits.
    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.position.subscribe()
    }

    /// Syncs the journal and records the duration.
    pub(crate) fn sync(&self, disk: &StoreDir) -> Result<(), Error> {
        let start = Instant::now();
        // A call without anything to sync would distort the durations.
        if disk.sync()? {
            self.fsyncs.record(start.elapsed());
        }
        Ok(())
    }

    /// Returns an error if the store is in doubt.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        lock(&self.poison)
            .as_ref()
            .map_or(Ok(()), |block| Err(block.error()))
    }

    /// Returns the result; records a failure that leaves the content of the disk unknown.
    pub(crate) fn record_failure<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        let Err(error) = result else { return result };

        if error.is_recoverable() {
            return Err(error);
        }

        let block = match error {
            Error::Poisoned { cause } => WriteBlock::Poisoned(cause),
            Error::Fenced { reason, epoch } => WriteBlock::Fenced(reason, epoch),
            other => WriteBlock::Poisoned(other.to_string()),
        };

        let error = block.error();
        // The first failure is the cause of the later ones.
        lock(&self.poison).get_or_insert(block);
        Err(error)
    }

    /// Returns the last commit that is synced to the journal, also after the store is closed.
    pub(crate) fn durable_position(&self) -> Option<DurablePosition> {
        match &*self.read_guard() {
            Some(tables) => tables.disk().durable_position(),
            None => *lock(&self.closed_at),
        }
    }

    /// Releases the disk; readers return [`Error::Closed`] from now on.
    pub(crate) fn close(&self) {
        // Neither a flush nor a copy may use the tables while they are released.
        let flushing = lock(&self.flushing);
        let copying = lock(&self.copying);
        let position = self.durable_position();
        *lock(&self.closed_at) = position;

        // Waits for the reads on disk. Readers acquire the two locks in the same order.
        let disk = self.disk_exclusive().take();
        let closed = self.exclusive().take();
        // The files are closed here, so that another writer can open them.
        drop((disk, closed));
        drop((flushing, copying));
    }

    /// Records the progress of the purge of dedupe keys.
    pub(crate) fn record_purge(&self, purged: usize, is_purging: bool) {
        let backlog = self.dedupe_backlog.load(Ordering::Relaxed);
        let backlog = if is_purging {
            backlog.saturating_sub(purged as u64)
        } else {
            0
        };

        self.dedupe_backlog.store(backlog, Ordering::Relaxed);
        self.is_purging.store(is_purging, Ordering::Relaxed);
    }

    /// Returns whether the writer purges expired dedupe keys.
    pub(crate) fn is_purging(&self) -> bool {
        self.is_purging.load(Ordering::Relaxed)
    }

    /// Continues with reopened tables.
    pub(crate) fn reopen(&self, tables: MergedTables) {
        // A recovery ends the purge. The next check for expired keys starts it again.
        self.is_purging.store(false, Ordering::Relaxed);
        let position = tables.state().position;
        *self.disk_exclusive() = Some(Arc::clone(tables.disk()));
        *self.exclusive() = Some(tables);
        // Commits are accepted only after the tables are in place.
        *lock(&self.poison) = None;
        *lock(&self.flush_failure) = None;

        self.position.send_replace(position);
    }

    /// Returns the statistics.
    pub(crate) fn stats(&self) -> Stats {
        let (folds, last_flush) = self.flushes.read();
        let mut stats = Stats {
            position: *self.position.borrow(),
            fsync: self.fsyncs.read(),
            flushes: folds,
            last_flush,
            flush_failure: lock(&self.flush_failure).clone(),
            dedupe_window: self.keys.window(),
            dedupe_backlog: self.dedupe_backlog.load(Ordering::Relaxed),
            replication: self.meter.as_ref().map(|meter| meter.read()),
            scans: Table::ALL
                .iter()
                .zip(&self.scans)
                .map(|(table, scans)| (table.name(), scans.load(Ordering::Relaxed)))
                .collect(),
            ..Stats::default()
        };

        // A closed store has no further statistics. The disk stays inside the lock, so that closing
        // releases it.
        self.read(|tables| fill(&mut stats, tables)).ok();
        stats
    }
}

/// Reason why commits are blocked.
#[derive(Debug)]
enum WriteBlock {
    /// See [`Error::Poisoned`].
    Poisoned(String),
    /// See [`Error::Fenced`].
    Fenced(String, u64),
}

impl WriteBlock {
    fn error(&self) -> Error {
        match self {
            WriteBlock::Poisoned(cause) => Error::Poisoned {
                cause: cause.clone(),
            },
            WriteBlock::Fenced(reason, epoch) => Error::Fenced {
                reason: reason.clone(),
                epoch: *epoch,
            },
        }
    }
}

fn fill(stats: &mut Stats, tables: &MergedTables) -> Result<(), Error> {
    let frozen = tables.immutable().map(|frozen| &**frozen);
    for memtable in std::iter::once(tables.active()).chain(frozen) {
        stats.memtable_rows += memtable.rows() as u64;
        stats.memtable_bytes += memtable.bytes() as u64;
    }

    stats.flushed_position = tables.flushed_position();
    let disk = tables.disk();
    stats.journal_bytes = disk.journal_bytes();
    (stats.tables_bytes, stats.tables_max_bytes) = disk.tables().bytes();
    stats.damaged_reads = disk.tables().damaged_reads();
    stats.tables = disk.tables().stats()?;
    Ok(())
}
