//! Directory of a store: the tables, the journal and the metadata.
//!
//! The directory of a replicated store has no journal: the replicated log is its journal. The
//! tables store the last entry that they contain.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orlog_journal::{DurablePosition, Journal, Syncer};
use orlog_model::TenantId;
use parking_lot::{Mutex, MutexGuard};

use crate::encoding::record::StoreState;
use crate::encoding::value;
use crate::error::Error;
use crate::index::{Indexes, VariableReader};
use crate::lock::lock;
use crate::mdbx::Mdbx;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::presence;
use crate::replication::commit_log::LogPosition;
use crate::replication::follower::{EntryId, RecordPosition};
use crate::table::Table;
use crate::tables::{IndexChanges, Tables};
use crate::usage::{TenantUsage, Usages};

/// Store format that this release reads and writes.
const FORMAT: u32 = 3;
/// Earlier format that this release upgrades when it opens a store.
const UPGRADED_FORMAT: u32 = 2;

/// Segment size of the journal of a copy.
const COPIED_SEGMENT_BYTES: u64 = 64 << 10;

/// Key of the format in the table `meta`: its first four bytes, big endian, in every release.
pub(crate) const FORMAT_KEY: &[u8] = b"format";
pub(crate) const IDENTITY_KEY: &[u8] = b"identity";
pub(crate) const STATE_KEY: &[u8] = b"heads";
const WINDOW_KEY: &[u8] = b"window";
const INDEXES_KEY: &[u8] = b"indexes";
/// Key of the [`LogPosition`] of the tables of a replicated store.
pub(crate) const LOG_POSITION_KEY: &[u8] = b"log";

/// Open directory, locked until this value is dropped.
#[derive(Debug)]
pub(crate) struct StoreDir {
    tables: Box<dyn Tables>,
    journal: Option<LocalJournal>,
    about: StoreMetadata,
    indexes: Mutex<Arc<Indexes>>,
    variables: VariableReader,
    /// Sizes of the rows in the tables, by tenant.
    usages: Mutex<Arc<Usages>>,
}

/// Journal of a store without replication.
#[derive(Debug)]
struct LocalJournal {
    journal: Mutex<Journal>,
    syncer: Syncer,
    log: orlog_journal::Reader,
}

impl StoreDir {
    /// Opens the directory, or creates it.
    pub(crate) fn open(
        dir: &Path,
        options: &Options,
        device: Arc<dyn orlog_journal::Disk>,
    ) -> Result<Arc<Self>, Error> {
        // Before anything is created: an empty directory can be a lost store.
        presence::admit(dir, options)?;
        let (tables, about) = open_tables(dir, options, StoreOrigin::local(identity()))?;
        if about.location.is_some() {
            let reason = "it follows a log in JetStream and lacks the unflushed commits; open it \
                          with replication";
            return Err(Error::Mismatch {
                path: dir.to_owned(),
                reason: reason.to_owned(),
            });
        }

        // The tables state which commits the journal must contain.
        let journal = presence::open_journal(
            dir,
            options,
            DurablePosition {
                identity: about.identity,
                position: about.store_state.position,
            },
            device,
        )?;

        let journal = LocalJournal {
            syncer: journal.syncer(),
            log: journal.reader(),
            journal: Mutex::new(journal),
        };
        let journal = Some(journal);
        Self::new(tables, journal, about, options)
    }

    /// Opens the directory of a replicated store, or creates one that follows the log with this
    /// identity from its start.
    pub(crate) fn open_replicated(
        dir: &Path,
        options: &Options,
        log: [u8; 16],
    ) -> Result<Arc<Self>, Error> {
        let start = LogPosition {
            log,
            position: 0,
            number: 0,
            epoch: 0,
            writer: 0,
        };
        let origin = StoreOrigin {
            identity: identity(),
            log_start: Some(start),
        };

        let (tables, about) = open_tables(dir, options, origin)?;
        if about.location.is_none() {
            let reason =
                "it was created without replication; move it away, or open it without replication";
            return Err(Error::Mismatch {
                path: dir.to_owned(),
                reason: reason.to_owned(),
            });
        }

        Self::new(tables, None, about, options)
    }

    fn new(
        tables: Box<dyn Tables>,
        journal: Option<LocalJournal>,
        about: StoreMetadata,
        options: &Options,
    ) -> Result<Arc<Self>, Error> {
        let indexes = Mutex::new(Arc::new(about.indexes.clone()));
        let usages = Usages::open(&*tables, about.store_state.position)?;
        Ok(Arc::new(Self {
            tables,
            journal,
            about,
            indexes,
            variables: options.variables,
            usages: Mutex::new(Arc::new(usages)),
        }))
    }

    /// Creates a store in memory.
    #[cfg(any(test, feature = "memory"))]
    pub(crate) fn in_memory(options: &Options) -> Result<Arc<Self>, Error> {
        let tables = crate::memory::MemoryTables::default();
        let about = StoreMetadata::make(&tables, options, StoreOrigin::local(identity()))?;
        Self::new(Box::new(tables), None, about, options)
    }

    /// Creates the tables of a store with this identity in the directory `dir`, without a journal.
    pub(crate) fn create_tables(
        dir: &Path,
        options: &Options,
        identity: [u8; 16],
    ) -> Result<Arc<Self>, Error> {
        let (tables, about) = open_tables(dir, options, StoreOrigin::local(identity))?;
        Self::new(tables, None, about, options)
    }

    /// Passes the journal records after `position`, with their positions, to `apply`.
    pub(crate) fn replay(
        &self,
        position: u64,
        apply: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(local) = &self.journal else {
            return Ok(());
        };

        if local.log.last_written() == position {
            Ok(())
        } else {
            local.log.for_each(position + 1, apply)
        }
    }

    /// Returns the log position of the tables before this opening; `None` for a store without a
    /// log.
    pub(crate) fn log_position(&self) -> Option<&LogPosition> {
        self.about.location.as_ref()
    }

    /// Returns the log entry that contains the last commit of [`StoreDir::flushed_state`].
    pub(crate) fn last_entry(&self) -> EntryId {
        self.log_position()
            .map_or(EntryId::NONE, LogPosition::last_entry)
    }

    /// Returns the state of the store at the last flush before this opening.
    pub(crate) fn flushed_state(&self) -> &StoreState {
        &self.about.store_state
    }

    /// Returns the table engine.
    pub(crate) fn tables(&self) -> &dyn Tables {
        &*self.tables
    }

    /// Returns the minimum time for which dedupe keys are stored, as fixed when the store was
    /// created.
    pub(crate) fn dedupe_window(&self) -> Duration {
        self.about.window
    }

    /// Appends a record to the journal, if there is one. The record need not be durable yet.
    pub(crate) fn append(&self, position: u64, record: &[u8]) -> Result<(), Error> {
        let Some(local) = &self.journal else {
            return Ok(());
        };

        let written = local.journal().append(&[record])?;
        assert_eq!(
            written, position,
            "the journal and the store count the same commits"
        );
        Ok(())
    }

    /// Syncs all appended records; returns whether a sync was necessary.
    pub(crate) fn sync(&self) -> Result<bool, Error> {
        let Some(local) = &self.journal else {
            return Ok(false);
        };
        // The thread of the interval calls this also when nothing was committed.
        if local.log.last_synced() == local.log.last_written() {
            return Ok(false);
        }

        local.syncer.sync()?;
        Ok(true)
    }

    /// Writes a memtable to the tables.
    pub(crate) fn flush(&self, memtable: &Memtable) -> Result<(), Error> {
        // The journal first: tables that are ahead of it could not be continued.
        self.sync()?;

        let store_state = encoded(memtable.state());
        let position = RecordPosition {
            position: memtable.state().position,
            last_entry: memtable.last_entry(),
        };
        let location = self
            .log_position()
            .map(|start| encoded(&start.at(position)));
        let mut meta = vec![(STATE_KEY, store_state.as_slice())];
        meta.extend(
            location
                .as_ref()
                .map(|location| (LOG_POSITION_KEY, location.as_slice())),
        );

        // Before the write, because the replaced rows are read from the tables.
        let changes = self
            .indexes()
            .changes(&*self.tables, memtable, self.variables)?;
        let current = Arc::clone(&lock(&self.usages));
        let usages = current.changed(&*self.tables, memtable)?;
        let usage_rows = usages.rows(position.position);
        meta.extend(
            usage_rows
                .iter()
                .map(|(key, row)| (key.as_slice(), row.as_slice())),
        );

        // Rows, indexes, sizes and the position are one transaction.
        self.tables.write(Some(memtable), &changes, &meta)?;

        // Without this reference, `make_mut` changes the sizes without a copy.
        drop(current);
        Arc::make_mut(&mut lock(&self.usages)).replace(usages);
        Ok(())
    }

    /// Returns the size of the rows of a tenant at the last flush.
    pub(crate) fn usage(&self, tenant: &TenantId) -> TenantUsage {
        lock(&self.usages).tenant(tenant)
    }

    /// Returns the size of the rows of each tenant at the last flush.
    pub(crate) fn usages(&self) -> BTreeMap<TenantId, TenantUsage> {
        lock(&self.usages).all()
    }

    /// Returns the indexes.
    pub(crate) fn indexes(&self) -> Arc<Indexes> {
        Arc::clone(&lock(&self.indexes))
    }

    /// Stores other indexes with their changed rows. Neither a flush nor another change of the
    /// indexes may run meanwhile.
    pub(crate) fn change_indexes(
        &self,
        next: Indexes,
        changes: &IndexChanges,
    ) -> Result<(), Error> {
        self.tables
            .write(None, changes, &[(INDEXES_KEY, &encoded(&next))])?;
        // Only after the rows are durable: a query uses a ready index at once.
        *lock(&self.indexes) = Arc::new(next);
        Ok(())
    }

    /// Copies the tables on disk, without unflushed commits, into a new file. Returns the position
    /// of the copy.
    pub(crate) fn copy_tables(&self, file: &Path) -> Result<(u64, Option<LogPosition>), Error> {
        let snapshot = self.tables.snapshot()?;
        // Read from the snapshot, because flushes have moved the position since the opening.
        let store_state: StoreState =
            value::decode(Table::Meta, &snapshot.meta(STATE_KEY)?.unwrap_or_default())?;
        let location = snapshot
            .meta(LOG_POSITION_KEY)?
            .map(|row| value::decode(Table::Meta, &row))
            .transpose()?;

        snapshot.copy(file)?;
        Ok((store_state.position, location))
    }

    /// Creates a journal in the new directory `dir` with the commits of this store after `after` up
    /// to `last`.
    pub(crate) fn copy_journal(&self, dir: &Path, after: u64, last: u64) -> Result<(), Error> {
        let mut options = orlog_journal::Options::new(self.identity());
        // Small segments and no spares, because allocated space is copied and moved too.
        options.first_sequence = after + 1;
        options.segment_bytes = COPIED_SEGMENT_BYTES;
        options.spare_segments = 0;

        let (mut copy, _) = Journal::open(created_dir(dir)?, options)?;

        if let Some(local) = &self.journal {
            // The caller prevents flushes, so these records are not truncated.
            let mut cursor = local.log.read_from(after + 1)?;
            while let Some(record) = cursor.read_up_to(last)? {
                copy.append(&[record.payload])?;
            }
            copy.sync()?;
        }
        Ok(())
    }

    /// Truncates the journal up to `position`, in whole segments.
    pub(crate) fn truncate(&self, position: u64) -> Result<(), Error> {
        let Some(local) = &self.journal else {
            return Ok(());
        };

        Ok(local.journal().truncate_before(position + 1)?)
    }

    /// Returns the last commit that is synced to the journal; `None` for a store without a journal.
    pub(crate) fn durable_position(&self) -> Option<DurablePosition> {
        let position = self.journal.as_ref()?.log.last_synced();
        Some(DurablePosition {
            identity: self.identity(),
            position,
        })
    }

    /// Returns the size of the journal on disk, in bytes.
    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal
            .as_ref()
            .map_or(0, |local| local.journal().bytes_on_disk())
    }

    /// Returns the identity for the journal of a copy of this store.
    pub(crate) fn identity(&self) -> [u8; 16] {
        self.about.identity
    }
}

impl LocalJournal {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        lock(&self.journal)
    }
}

/// Properties that a store has from its creation.
#[derive(Debug, Clone, Copy)]
struct StoreOrigin {
    identity: [u8; 16],
    /// Position from which the store follows its log; `None` for a store without a log.
    log_start: Option<LogPosition>,
}

impl StoreOrigin {
    /// Returns the origin of a store without a log.
    fn local(identity: [u8; 16]) -> Self {
        Self {
            identity,
            log_start: None,
        }
    }
}

/// Opens the tables in the directory, or creates them with this origin.
fn open_tables(
    dir: &Path,
    options: &Options,
    new: StoreOrigin,
) -> Result<(Box<dyn Tables>, StoreMetadata), Error> {
    let dir = created_dir(&dir.join("tables"))?;
    let mut found = None;
    let tables = Mdbx::open(&dir, options.max_bytes, FORMAT_KEY, |row| {
        found = check_format(row, &dir)?;
        Ok(())
    })?;

    // Without a format row, the store is new or its creation was interrupted.
    let about = match found {
        None => StoreMetadata::make(&tables, options, new)?,
        Some(format) => StoreMetadata::read(&tables, options, format)?,
    };
    Ok((Box::new(tables), about))
}

fn created_dir(dir: &Path) -> Result<PathBuf, Error> {
    fs::create_dir_all(dir).map_err(Error::io("create the directory", dir))?;
    Ok(dir.to_owned())
}

/// Returns the format that the row states; `None` for a store that is not created yet.
pub(crate) fn check_format(row: Option<&[u8]>, path: &Path) -> Result<Option<u32>, Error> {
    let Some(row) = row else { return Ok(None) };

    let bytes = row.first_chunk::<4>().ok_or_else(|| Error::Corrupt {
        location: path.display().to_string(),
        reason: "its format row is shorter than four bytes".to_owned(),
    })?;

    match u32::from_be_bytes(*bytes) {
        found if found > FORMAT => Err(Error::NewerFormat {
            path: path.to_owned(),
            found,
            supported: FORMAT,
        }),
        found @ (FORMAT | UPGRADED_FORMAT) => Ok(Some(found)),
        found => {
            let reason = format!(
                "it has store format {found} of a development release, which this release cannot \
                 read; move it away"
            );
            Err(Error::Mismatch {
                path: path.to_owned(),
                reason,
            })
        }
    }
}

/// Metadata of a store.
#[derive(Debug)]
struct StoreMetadata {
    identity: [u8; 16],
    store_state: StoreState,
    window: Duration,
    location: Option<LogPosition>,
    /// Indexes when the store was opened.
    indexes: Indexes,
}

impl StoreMetadata {
    fn make(tables: &dyn Tables, options: &Options, origin: StoreOrigin) -> Result<Self, Error> {
        let window_millis = u64::try_from(options.dedupe_window.as_millis()).unwrap_or(u64::MAX);
        let about = Self {
            identity: origin.identity,
            store_state: StoreState::NONE,
            window: options.dedupe_window,
            location: origin.log_start,
            indexes: Indexes::new_store(),
        };

        let mut rows = vec![
            (FORMAT_KEY, FORMAT.to_be_bytes().to_vec()),
            (IDENTITY_KEY, encoded(&about.identity)),
            (STATE_KEY, encoded(&about.store_state)),
            (WINDOW_KEY, encoded(&window_millis)),
            (INDEXES_KEY, encoded(&about.indexes)),
        ];
        rows.extend(
            origin
                .log_start
                .map(|start| (LOG_POSITION_KEY, encoded(&start))),
        );

        let rows: Vec<_> = rows
            .iter()
            .map(|(key, row)| (*key, row.as_slice()))
            .collect();

        // One transaction: a store has all of these rows or none.
        tables.write(None, &Vec::new(), &rows)?;
        Ok(about)
    }

    fn read(tables: &dyn Tables, options: &Options, format: u32) -> Result<Self, Error> {
        // The format is durable before any row of it, so that an older release rejects the store.
        if format == UPGRADED_FORMAT {
            let format = FORMAT.to_be_bytes();
            let indexes = encoded(&Indexes::older_store());
            tables.write(
                None,
                &Vec::new(),
                &[(FORMAT_KEY, &format), (INDEXES_KEY, &indexes)],
            )?;
        }

        let window = Duration::from_millis(row(tables, WINDOW_KEY)?);
        // The window is the length of the stored buckets, so it cannot change.
        if window.as_millis() != options.dedupe_window.as_millis() {
            tracing::warn!(
                requested_seconds = options.dedupe_window.as_secs(),
                stored_seconds = window.as_secs(),
                "store.dedupe_window differs from the stored value; using the stored value",
            );
        }

        let location = tables.row(Table::Meta, LOG_POSITION_KEY, |bytes| {
            value::decode(Table::Meta, bytes)
        })?;
        let location = location.transpose()?;

        Ok(Self {
            identity: row(tables, IDENTITY_KEY)?,
            store_state: row(tables, STATE_KEY)?,
            window,
            location,
            indexes: row(tables, INDEXES_KEY)?,
        })
    }
}

fn encoded(value: &impl serde::Serialize) -> Vec<u8> {
    let mut row = Vec::new();
    value::encode(&mut row, value);
    row
}

fn row<T: serde::de::DeserializeOwned>(tables: &dyn Tables, key: &[u8]) -> Result<T, Error> {
    tables
        .row(Table::Meta, key, |bytes| value::decode(Table::Meta, bytes))?
        .ok_or_else(|| Error::Corrupt {
            location: "the table meta".to_owned(),
            reason: format!("the row {} is missing", String::from_utf8_lossy(key)),
        })?
}

/// Returns sixteen bytes that no other store has. It is the only random value in a store, and no
/// decision depends on it.
fn identity() -> [u8; 16] {
    let half = || std::hash::RandomState::new().build_hasher().finish();
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&half().to_be_bytes());
    bytes[8..].copy_from_slice(&half().to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_format_is_rejected_with_both_versions() {
        let error = check_format(Some(&7u32.to_be_bytes()), Path::new("/data/tables")).unwrap_err();
        let text = "/data/tables has store format 7, this release supports up to 3; upgrade orlog";
        assert_eq!(error.to_string(), text);
        assert_eq!(check_format(None, Path::new("/data")).unwrap(), None);
    }

    #[test]
    fn identities_differ() {
        assert_ne!(identity(), identity());
    }
}
