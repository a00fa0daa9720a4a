//! A store's folder: the tables, the journal, and the few rows that say what they are.

use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlog_journal::{Journal, Syncer};

use crate::error::Error;
use crate::generation::Generation;
use crate::mdbx::Mdbx;
use crate::options::Options;
use crate::record::Heads;
use crate::table::Table;
use crate::value;

/// The format of a store as this release writes it.
const FORMAT: u32 = 1;

/// What makes a store of format n + 1 from one of format n, at index n - 1.
const MIGRATIONS: &[Migration] = &[];

type Migration = fn(&Mdbx) -> Result<(), Error>;

/// The key under which the format lies in the table `meta`, as four bytes, big endian, in every release.
const FORMAT_KEY: &[u8] = b"format";
const IDENTITY_KEY: &[u8] = b"identity";
const HEADS_KEY: &[u8] = b"heads";
const WINDOW_KEY: &[u8] = b"window";

/// An open folder. The lock on it ends with this.
#[derive(Debug)]
pub(crate) struct Disk {
    tables: Mdbx,
    journal: Mutex<Journal>,
    syncer: Syncer,
    log: orlog_journal::Reader,
    about: About,
}

impl Disk {
    /// Opens the folder, or makes it.
    pub(crate) fn open(
        dir: &Path,
        options: &Options,
        device: Arc<dyn orlog_journal::Disk>,
    ) -> Result<Arc<Self>, Error> {
        let (tables_dir, journal_dir) = (dir.join("tables"), dir.join("journal"));
        for dir in [&tables_dir, &journal_dir] {
            let wrong = |source| Error::Io { action: "create the folder", path: dir.clone(), source };
            fs::create_dir_all(dir).map_err(wrong)?;
        }
        let mut found = None;
        let tables = Mdbx::open(&tables_dir, options.max_bytes, FORMAT_KEY, |row| {
            found = admitted(row, &tables_dir)?;
            Ok(())
        })?;
        let about = About::read_or_make(&tables, found, options)?;
        let mut journal_options = orlog_journal::Options::new(about.identity);
        journal_options.segment_bytes = options.journal_segment_bytes;
        let (journal, _) = Journal::open_on(&journal_dir, journal_options, device)?;
        let (syncer, log) = (journal.syncer(), journal.reader());
        Ok(Arc::new(Self { tables, journal: Mutex::new(journal), syncer, log, about }))
    }

    /// Shows `apply` the journal's records behind `position`, with their positions.
    pub(crate) fn replay(
        &self,
        position: u64,
        apply: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let last = self.log.last_written();
        if last < position {
            let reason = format!("it ends at record {last}, but the tables hold record {position}");
            let place = self.journal().path().display().to_string();
            return Err(Error::Corrupt { place, reason });
        }
        if last == position { Ok(()) } else { self.log.for_each(position + 1, apply) }
    }

    /// Where the store stood when the tables were written last before this opening.
    pub(crate) fn folded(&self) -> &Heads {
        &self.about.heads
    }

    /// The MDBX tables.
    pub(crate) fn tables(&self) -> &Mdbx {
        &self.tables
    }

    /// How long an applied event is remembered at least, as fixed when the store was made.
    pub(crate) fn window(&self) -> Duration {
        self.about.window
    }

    /// Appends a record; its position is the answer. The disk need not have it yet.
    pub(crate) fn append(&self, record: &[u8]) -> Result<u64, Error> {
        Ok(self.journal().append(&[record])?)
    }

    /// Returns once the disk has every record appended before; says whether there was anything to do.
    pub(crate) fn sync(&self) -> Result<bool, Error> {
        if self.log.last_synced() == self.log.last_written() {
            return Ok(false);
        }
        self.syncer.sync()?;
        Ok(true)
    }

    /// Makes a generation part of the tables and drops the journal behind it.
    pub(crate) fn fold(&self, generation: &Generation) -> Result<(), Error> {
        // The journal first: tables that are ahead of it could not be continued.
        self.sync()?;
        let mut heads = Vec::new();
        value::encode(&mut heads, generation.heads());
        self.tables.fold(generation, (HEADS_KEY, &heads))
    }

    /// Drops the journal up to `position`, as far as whole segments go.
    pub(crate) fn truncate(&self, position: u64) -> Result<(), Error> {
        Ok(self.journal().truncate_before(position + 1)?)
    }

    /// Bytes of the journal on disk.
    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal().bytes_on_disk()
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says which format the row states; `None` for a store that is yet to be made.
fn admitted(row: Option<&[u8]>, path: &Path) -> Result<Option<u32>, Error> {
    let Some(row) = row else { return Ok(None) };
    let bytes = row.try_into().map_err(|_| Error::Corrupt {
        place: path.display().to_string(),
        reason: "its format row is not four bytes long".to_owned(),
    })?;
    match u32::from_be_bytes(bytes) {
        found if found > FORMAT => {
            Err(Error::NewerFormat { path: path.to_owned(), found, supported: FORMAT })
        }
        found => Ok(Some(found)),
    }
}

/// What a store says about itself.
#[derive(Debug)]
struct About {
    identity: [u8; 16],
    heads: Heads,
    window: Duration,
}

impl About {
    fn read_or_make(tables: &Mdbx, found: Option<u32>, options: &Options) -> Result<Self, Error> {
        match found {
            None => Self::make(tables, options),
            Some(found) => {
                migrate(tables, found)?;
                Self::read(tables, options)
            }
        }
    }

    fn make(tables: &Mdbx, options: &Options) -> Result<Self, Error> {
        let window_millis = u64::try_from(options.dedupe_window.as_millis()).unwrap_or(u64::MAX);
        let about = Self { identity: identity(), heads: Heads::NONE, window: options.dedupe_window };
        let (mut identity, mut heads, mut window) = (Vec::new(), Vec::new(), Vec::new());
        value::encode(&mut identity, &about.identity);
        value::encode(&mut heads, &about.heads);
        value::encode(&mut window, &window_millis);
        tables.describe(&[
            (FORMAT_KEY, &FORMAT.to_be_bytes()),
            (IDENTITY_KEY, &identity),
            (HEADS_KEY, &heads),
            (WINDOW_KEY, &window),
        ])?;
        Ok(about)
    }

    fn read(tables: &Mdbx, options: &Options) -> Result<Self, Error> {
        let window = Duration::from_millis(row(tables, WINDOW_KEY)?);
        if window.as_millis() != options.dedupe_window.as_millis() {
            tracing::warn!(
                asked_seconds = options.dedupe_window.as_secs(),
                kept_seconds = window.as_secs(),
                "the time for which applied events are remembered was fixed when the store was made",
            );
        }
        Ok(Self { identity: row(tables, IDENTITY_KEY)?, heads: row(tables, HEADS_KEY)?, window })
    }
}

/// Brings a store of an older format up to date, one format after the other.
fn migrate(tables: &Mdbx, found: u32) -> Result<(), Error> {
    for (from, migration) in (1u32..).zip(MIGRATIONS).skip_while(|(from, _)| *from < found) {
        migration(tables)?;
        tables.describe(&[(FORMAT_KEY, &(from + 1).to_be_bytes())])?;
    }
    Ok(())
}

fn row<T: serde::de::DeserializeOwned>(tables: &Mdbx, key: &[u8]) -> Result<T, Error> {
    let missing = || Error::Corrupt {
        place: "the table meta".to_owned(),
        reason: format!("the row {} is missing", String::from_utf8_lossy(key)),
    };
    tables.get(Table::Meta, key, |bytes| value::decode(Table::Meta, bytes))?.ok_or_else(missing)?
}

/// Sixteen bytes that no other store has. The only chance in a store, and nothing is decided by it.
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
    fn a_newer_format_is_refused_and_both_formats_are_named() {
        let error = admitted(Some(&7u32.to_be_bytes()), Path::new("/data/tables")).unwrap_err();
        let text = "/data/tables has store format 7, this release supports up to 1: use the newer release";
        assert_eq!(error.to_string(), text);
        assert_eq!(admitted(None, Path::new("/data")).unwrap(), None);
    }

    #[test]
    fn identities_differ() {
        assert_ne!(identity(), identity());
    }
}
