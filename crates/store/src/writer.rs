//! Writer of a store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use orlog_journal::LocalDisk;
use orlog_model::{Change, Timestamp};

use crate::background::Background;
use crate::counts::CountChanges;
use crate::encoding::record::RecordWriter;
use crate::error::Error;
use crate::feed::write::FeedWriter;
use crate::merged::MergedTables;
use crate::options::{Durability, Options};
use crate::read::reader::Reader;
use crate::replication::follower::RecordPosition;
use crate::replication::log_writer::LogWriter;
use crate::replication::metrics::LogMetrics;
use crate::replication::open::ReplicationOptions;
use crate::shared::Shared;
use crate::store_dir::StoreDir;
use crate::translate::{DedupePurge, Translation, TranslationOutput, TranslationSource, translate};

/// Single writer of a store. Drop closes the store: its readers return [`Error::Closed`].
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    record: RecordWriter,
    /// Outbox sequences of the work items of the last group.
    work: Vec<u64>,
    /// Changes of counts by the last group.
    counts: CountChanges,
    feeding: FeedWriter,
    /// Purge of expired dedupe keys; `None` if no key is expired.
    purge: Option<DedupePurge>,
    /// Location on disk; `None` in memory.
    home: Option<StoreHome>,
}

/// Location of a store on disk.
#[derive(Debug)]
struct StoreHome {
    dir: PathBuf,
    options: Options,
    source: DurableSource,
    /// Open store; `None` during a recovery.
    open: Option<OpenStore>,
}

/// Durable source of committed data.
#[derive(Debug)]
enum DurableSource {
    /// Journal on this device.
    Journal(Arc<dyn orlog_journal::Disk>),
    /// Log that other nodes can also follow.
    Log(ReplicationOptions),
}

/// Open directory, with its background threads.
#[derive(Debug)]
struct OpenStore {
    disk: Arc<StoreDir>,
    background: Background,
    replica: Option<LogWriter>,
}

/// Opens the store in the directory `dir`, or creates it.
///
/// # Errors
/// [`Error::Locked`], [`Error::NewerFormat`], [`Error::Corrupt`], [`Error::DamagedJournal`] and
/// [`Error::Mismatch`], which change nothing; [`Error::Full`] if there is no space for a new store;
/// [`Error::Io`] and [`Error::Poisoned`] if the disk fails.
pub fn open(dir: &Path, options: Options) -> Result<(Writer, Reader), Error> {
    open_with_disk(dir, options, Arc::new(LocalDisk))
}

/// Opens the store like [`open`], with a journal on the given device: for tests that inject
/// failures.
///
/// # Errors
/// The errors of [`open`].
pub fn open_with_disk(
    dir: &Path,
    options: Options,
    device: Arc<dyn orlog_journal::Disk>,
) -> Result<(Writer, Reader), Error> {
    StoreHome {
        dir: dir.to_owned(),
        options,
        source: DurableSource::Journal(device),
        open: None,
    }
    .open_writer()
}

/// Takes over a shard from its log: the directory `dir` becomes a copy of the log, and the previous
/// writer is fenced. The durability option has no effect: a commit returns after it is in the log.
///
/// # Errors
/// [`Error::Fenced`] if the log contains a later epoch; [`Error::Unavailable`]: retry;
/// [`Error::LogLost`] and [`Error::Mismatch`], which require an operator; and the errors of
/// [`open`].
pub fn open_replicated(
    dir: &Path,
    options: Options,
    replication: ReplicationOptions,
) -> Result<(Writer, Reader), Error> {
    StoreHome {
        dir: dir.to_owned(),
        options,
        source: DurableSource::Log(replication),
        open: None,
    }
    .open_writer()
}

/// Creates a store whose tables are in memory, for tests: the same contract, but its data ends with
/// the process.
///
/// # Panics
/// Never: tables in memory do not fail.
#[cfg(any(test, feature = "memory"))]
#[must_use]
pub fn open_in_memory(options: Options) -> (Writer, Reader) {
    let disk = StoreDir::in_memory(&options).expect("tables in memory do not fail");
    let mut tables = MergedTables::new(disk);
    tables
        .count_if_needed()
        .expect("tables in memory do not fail");
    Writer::new(Arc::new(Shared::new(tables, options, None)), None)
}

impl Writer {
    fn new(shared: Arc<Shared>, home: Option<StoreHome>) -> (Self, Reader) {
        let reader = Reader::new(Arc::clone(&shared));
        let writer = Self {
            feeding: FeedWriter::new(shared.feed_enabled),
            shared,
            record: RecordWriter::default(),
            work: Vec::new(),
            counts: CountChanges::default(),
            purge: None,
            home,
        };
        (writer, reader)
    }

    /// Commits a group atomically at the time `now`, from which dedupe keys expire. On return every
    /// reader sees it, and it is durable according to [`Durability`], or in the log. Returns the
    /// position, which is the number of commits.
    ///
    /// Waits while the tables on disk are too far behind.
    ///
    /// # Errors
    /// - [`Error::Full`], [`Error::Rotation`]: nothing was committed; retry the same group later.
    /// - [`Error::KeyTooLong`], [`Error::TooLarge`]: nothing was committed, and this group can
    ///   never be committed.
    /// - [`Error::Unavailable`]: unknown whether it was committed; [`Writer::retry_commit`]
    ///   continues it.
    /// - [`Error::Poisoned`]: unknown whether it was committed; [`Writer::recover`] determines it.
    /// - [`Error::Fenced`]: the shard has another owner; neither this group nor a later one is
    ///   committed.
    pub fn commit(&mut self, group: &[Change], now: Timestamp) -> Result<u64, Error> {
        // After a failure, only a recovery determines what is committed.
        self.shared.check_writable()?;
        // Before the record is written: a committed record must also fit into a memtable.
        let frozen = self.shared.wait_for_memtable_space()?;

        let shared = &self.shared;
        let was_purging = self.purge.is_some();
        let purge = self.purge.clone();
        let feeding = self.feeding;
        let output = TranslationOutput {
            record: &mut self.record,
            work: &mut self.work,
            counts: &mut self.counts,
        };
        // Only this writer commits, so the rows that the translation reads do not change until its
        // record is shown.
        let Translation {
            store_state,
            purge,
            purged,
        } = shared.read(|tables| {
            let source = TranslationSource {
                tables,
                keys: &shared.keys,
                feeding,
            };
            translate(group, now, source, output, purge)
        })?;

        // The buffer is used again by the next group, but the memtable keeps the record.
        let record = Bytes::copy_from_slice(self.record.finish(&store_state));
        // Written first: with `sync`, readers see only what a restart finds again.
        let at = match &mut self.home {
            Some(home) => {
                shared.record_failure(home.write(shared, store_state.position, &record))?
            }
            None => RecordPosition::position(store_state.position),
        };

        let position = self.show(at, &record, frozen)?;
        // Only after the commit: a group that was not committed deletes no key.
        self.purge = purge;
        if was_purging || purged > 0 {
            self.shared.record_purge(purged, self.purge.is_some());
        }

        Ok(position)
    }

    /// Returns whether expired dedupe keys remain. Each commit deletes some of them, an empty one
    /// more.
    #[must_use]
    pub fn is_purging(&self) -> bool {
        self.purge.is_some()
    }

    /// Continues the commit that returned [`Error::Unavailable`]. Returns the position of that
    /// commit, or of the last one if none is pending.
    ///
    /// # Errors
    /// [`Error::Unavailable`] again, [`Error::Fenced`], [`Error::Poisoned`]; see
    /// [`Writer::commit`].
    pub fn retry_commit(&mut self) -> Result<u64, Error> {
        self.shared.check_writable()?;
        let resumed = self.home.as_mut().map_or(Ok(None), StoreHome::resume);
        match self.shared.record_failure(resumed)? {
            Some((at, record)) => self.show(at, &record, false),
            None => Ok(self.shared.state().position),
        }
    }

    /// Returns the outbox sequences of the work items of the last committed group, in the order of
    /// its changes. With their destinations they are the outbox keys, so that a caller need not
    /// read the rows.
    #[must_use]
    pub fn work_sequences(&self) -> &[u64] {
        &self.work
    }

    fn show(&mut self, at: RecordPosition, record: &Bytes, frozen: bool) -> Result<u64, Error> {
        let published = self.shared.publish(at, record);

        self.shared.record_failure(published)?;
        // The first commit has corrected the start of the feed, if necessary.
        self.feeding.is_meta_current = true;
        self.record.shrink();

        // The flusher is woken for a new immutable memtable only.
        if frozen | self.shared.freeze_if_full()? {
            self.wake_flusher();
        }
        if let Some(home) = &self.home {
            home.wake_snapshots_if_due(&self.shared);
        }
        Ok(at.position)
    }

    /// Wakes the flusher. Called only for a new immutable memtable: a failed flush is not retried
    /// at each commit.
    fn wake_flusher(&self) {
        if let Some(StoreHome {
            open: Some(open), ..
        }) = &self.home
        {
            open.background.wake_flusher();
        }
    }

    /// Returns a reader of this store.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Flushes the memtables and syncs all data to the disk, so that the next opening replays
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Full`], after which nothing is lost and commits can continue; [`Error::Poisoned`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.shared.check_writable()?;
        self.shared.flush_all()
    }

    /// Flushes and closes the store: its files are available to another process or another writer.
    /// Readers return [`Error::Closed`] from now on.
    ///
    /// # Errors
    /// The errors of [`Writer::flush`]. The store is closed anyway; committed data is safe in the
    /// journal.
    pub fn close(&mut self) -> Result<(), Error> {
        let flushed = self.flush();
        self.release();
        flushed
    }

    fn release(&mut self) {
        let Some(home) = &mut self.home else { return };

        if let Some(open) = home.open.take() {
            // The threads use the tables, so they end first.
            drop(open.background);
            // With `Interval`, the last commits may not be synced yet.
            if let Err(error) = open.disk.sync() {
                tracing::error!(%error, "journal sync failed while closing the store");
            }
        }

        self.shared.close();
    }

    /// Reopens the store after [`Error::Poisoned`] from durable data, which may include the failed
    /// commit. Readers continue with the recovered data; during the recovery they return
    /// [`Error::Closed`].
    ///
    /// # Errors
    /// The errors of [`open`] or [`open_replicated`]; the store stays closed, and the call can be
    /// repeated.
    pub fn recover(&mut self) -> Result<(), Error> {
        let Some(home) = &mut self.home else {
            return Ok(());
        };

        // The directory is locked until its files are closed.
        home.open = None;
        self.purge = None;
        self.shared.close();

        let (tables, replica) = home.open(self.shared.meter.as_ref())?;
        let disk = Arc::clone(tables.disk());
        self.shared.reopen(tables);
        // Another writer id: the recovered store may lack commits that consumers of the feed have
        // read.
        self.feeding = FeedWriter::new(self.shared.feed_enabled);
        home.start(&self.shared, disk, replica)
    }
}

impl StoreHome {
    /// Opens the store and returns a writer and a reader.
    fn open_writer(mut self) -> Result<(Writer, Reader), Error> {
        // The metrics are created once, and a recovery continues them.
        let meter = matches!(self.source, DurableSource::Log(_)).then(Arc::<LogMetrics>::default);
        let (tables, replica) = self.open(meter.as_ref())?;
        let disk = Arc::clone(tables.disk());
        let shared = Arc::new(Shared::new(tables, self.options.clone(), meter));
        self.start(&shared, disk, replica)?;
        Ok(Writer::new(shared, Some(self)))
    }

    fn open(
        &self,
        meter: Option<&Arc<LogMetrics>>,
    ) -> Result<(MergedTables, Option<LogWriter>), Error> {
        let (mut tables, replica) = self.open_tables(meter)?;
        tables.count_if_needed()?;
        Ok((tables, replica))
    }

    fn open_tables(
        &self,
        meter: Option<&Arc<LogMetrics>>,
    ) -> Result<(MergedTables, Option<LogWriter>), Error> {
        match (&self.source, meter) {
            (DurableSource::Log(replication), Some(meter)) => {
                let (tables, replica) = replication.take_over(&self.dir, &self.options, meter)?;
                Ok((tables, Some(replica)))
            }
            (DurableSource::Log(_), None) => {
                unreachable!("a store that follows a log has log metrics")
            }
            (DurableSource::Journal(device), _) => {
                let disk = StoreDir::open(&self.dir, &self.options, Arc::clone(device))?;
                Ok((MergedTables::replay(&disk)?, None))
            }
        }
    }

    /// Starts the background threads.
    fn start(
        &mut self,
        shared: &Arc<Shared>,
        disk: Arc<StoreDir>,
        replica: Option<LogWriter>,
    ) -> Result<(), Error> {
        let mut background = Background::start(shared, &disk, self.options.durability, &self.dir)?;
        if let (DurableSource::Log(replication), Some(meter)) = (&self.source, &shared.meter) {
            background.save_snapshots(shared, meter, replication, &self.dir)?;
        }

        // After a takeover, the log behind the last snapshot may be long already: the thread counts
        // it.
        background.wake_snapshots();
        self.open = Some(OpenStore {
            disk,
            background,
            replica,
        });
        Ok(())
    }

    /// Appends a record to the log or the journal.
    fn write(
        &mut self,
        shared: &Shared,
        position: u64,
        record: &Bytes,
    ) -> Result<RecordPosition, Error> {
        let OpenStore { disk, replica, .. } = self.open.as_mut().ok_or(Error::Closed)?;

        if let Some(replica) = replica {
            return replica.append(position, record.clone());
        }
        disk.append(position, record)?;

        if self.options.durability == Durability::Sync {
            shared.sync(disk)?;
        }
        Ok(RecordPosition::position(position))
    }

    fn resume(&mut self) -> Result<Option<(RecordPosition, Bytes)>, Error> {
        let open = self.open.as_mut().ok_or(Error::Closed)?;
        open.replica.as_mut().map_or(Ok(None), LogWriter::resume)
    }

    fn wake_snapshots_if_due(&self, shared: &Shared) {
        if let (DurableSource::Log(replication), Some(meter), Some(open)) =
            (&self.source, &shared.meter, &self.open)
            && replication.is_snapshot_due(meter)
        {
            open.background.wake_snapshots();
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.release();
    }
}
