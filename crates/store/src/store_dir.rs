//! A store's folder: the tables, the journal, and the few rows that say what they are.
//!
//! The folder of a replicated store has no journal: the log is its journal, and the tables remember up to which entry they hold it.

use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use orlog_journal::{Journal, Syncer};

use crate::encoding::record::Heads;
use crate::encoding::value;
use crate::error::Error;
use crate::lock::lock;
use crate::mdbx::Mdbx;
use crate::memtable::Generation;
use crate::options::Options;
use crate::replication::commit_log::Place;
use crate::replication::follower::Mark;
use crate::replication::frame::Owner;
use crate::table::Table;

/// The format of a store as this release writes it.
const FORMAT: u32 = 1;

/// What makes a store of format n + 1 from one of format n, at index n - 1.
const MIGRATIONS: &[Migration] = &[];

type Migration = fn(&Mdbx) -> Result<(), Error>;

/// The size of a file of the journal of a copy.
const COPIED_SEGMENT_BYTES: u64 = 64 << 10;

/// The key under which the format lies in the table `meta`, as four bytes, big endian, in every release.
pub(crate) const FORMAT_KEY: &[u8] = b"format";
const IDENTITY_KEY: &[u8] = b"identity";
pub(crate) const HEADS_KEY: &[u8] = b"heads";
const WINDOW_KEY: &[u8] = b"window";
/// The [`Place`] of the tables of a replicated store.
pub(crate) const PLACE_KEY: &[u8] = b"log";

/// An open folder. The lock on it ends with this.
#[derive(Debug)]
pub(crate) struct Disk {
    tables: Mdbx,
    journal: Option<Local>,
    about: About,
}

/// The journal of a store that is not replicated.
#[derive(Debug)]
struct Local {
    journal: Mutex<Journal>,
    syncer: Syncer,
    log: orlog_journal::Reader,
}

impl Disk {
    /// Opens the folder, or makes it.
    pub(crate) fn open(
        dir: &Path,
        options: &Options,
        device: Arc<dyn orlog_journal::Disk>,
    ) -> Result<Arc<Self>, Error> {
        let (tables, about) = open_tables(dir, options, None)?;
        if about.place.is_some() {
            let reason =
                "it follows a log in JetStream and lacks what was not folded; open it with replication";
            return Err(Error::Mismatch { path: dir.to_owned(), reason: reason.to_owned() });
        }
        let mut journal_options = orlog_journal::Options::new(about.identity);
        journal_options.segment_bytes = options.journal_segment_bytes;
        let (journal, _) = Journal::open_on(made(&dir.join("journal"))?, journal_options, device)?;
        let (syncer, log) = (journal.syncer(), journal.reader());
        let journal = Some(Local { journal: Mutex::new(journal), syncer, log });
        Ok(Arc::new(Self { tables, journal, about }))
    }

    /// Opens the folder of a replicated store, or makes one that follows the log of this identity from its beginning.
    pub(crate) fn open_replicated(dir: &Path, options: &Options, log: [u8; 16]) -> Result<Arc<Self>, Error> {
        let begin = Place { log, position: 0, number: 0, epoch: 0, writer: 0 };
        let (tables, about) = open_tables(dir, options, Some(begin))?;
        if about.place.is_none() {
            let reason = "it was made without replication; move it away, or open it without replication";
            return Err(Error::Mismatch { path: dir.to_owned(), reason: reason.to_owned() });
        }
        Ok(Arc::new(Self { tables, journal: None, about }))
    }

    /// Shows `apply` the journal's records behind `position`, with their positions.
    pub(crate) fn replay(
        &self,
        position: u64,
        apply: impl FnMut(u64, &[u8]) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some(local) = &self.journal else { return Ok(()) };
        let last = local.log.last_written();
        if last < position {
            let reason = format!("it ends at record {last}, but the tables hold record {position}");
            let place = local.journal().path().display().to_string();
            return Err(Error::Corrupt { place, reason });
        }
        if last == position { Ok(()) } else { local.log.for_each(position + 1, apply) }
    }

    /// Up to where the tables followed a log before this opening; nothing in a store without one.
    pub(crate) fn place(&self) -> Option<&Place> {
        self.about.place.as_ref()
    }

    /// The entry of the log in which the last commit of [`Disk::folded`] lies.
    pub(crate) fn mark(&self) -> Mark {
        let mark = |place: &Place| Mark {
            number: place.number,
            owner: Owner { epoch: place.epoch, writer: place.writer },
        };
        self.place().map_or(Mark::NONE, mark)
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

    /// Appends a record to the journal, if there is one. The disk need not have it yet.
    pub(crate) fn append(&self, position: u64, record: &[u8]) -> Result<(), Error> {
        let Some(local) = &self.journal else { return Ok(()) };
        let written = local.journal().append(&[record])?;
        assert_eq!(written, position, "the journal and the store count the same commits");
        Ok(())
    }

    /// Returns once the disk has every record appended before; says whether there was anything to do.
    pub(crate) fn sync(&self) -> Result<bool, Error> {
        let Some(local) = &self.journal else { return Ok(false) };
        if local.log.last_synced() == local.log.last_written() {
            return Ok(false);
        }
        local.syncer.sync()?;
        Ok(true)
    }

    /// Makes a generation part of the tables.
    pub(crate) fn fold(&self, generation: &Generation) -> Result<(), Error> {
        // The journal first: tables that are ahead of it could not be continued.
        self.sync()?;
        let heads = encoded(generation.heads());
        let place = self.reached(generation).map(|place| encoded(&place));
        let mut meta = vec![(HEADS_KEY, heads.as_slice())];
        meta.extend(place.as_ref().map(|place| (PLACE_KEY, place.as_slice())));
        self.tables.fold(generation, &meta)
    }

    fn reached(&self, generation: &Generation) -> Option<Place> {
        let Mark { number, owner } = generation.mark();
        let position = generation.heads().position;
        let place =
            |begin: &Place| Place { position, number, epoch: owner.epoch, writer: owner.writer, ..*begin };
        self.place().map(place)
    }

    /// Copies the tables as they are on the disk, without what is not folded, into a new file. The answer is the place that the
    /// copy reaches.
    pub(crate) fn copy_tables(&self, file: &Path) -> Result<(u64, Option<Place>), Error> {
        let still = self.tables.still()?;
        let heads: Heads = value::decode(Table::Meta, &still.meta(HEADS_KEY)?.unwrap_or_default())?;
        let place = still.meta(PLACE_KEY)?.map(|row| value::decode(Table::Meta, &row)).transpose()?;
        still.copy(file)?;
        Ok((heads.position, place))
    }

    /// Makes a journal in the new folder `dir` that goes on behind the commit `after` and ends with `last`, both of this store.
    pub(crate) fn copy_journal(&self, dir: &Path, after: u64, last: u64) -> Result<(), Error> {
        let mut options = orlog_journal::Options::new(self.identity());
        // What is allocated is copied and moved about: little of it.
        (options.first_sequence, options.segment_bytes, options.spare_segments) =
            (after + 1, COPIED_SEGMENT_BYTES, 0);
        let (mut copy, _) = Journal::open(made(dir)?, options)?;
        if let Some(local) = &self.journal {
            let mut cursor = local.log.read_from(after + 1)?;
            while let Some(record) = cursor.read_up_to(last)? {
                copy.append(&[record.payload])?;
            }
            copy.sync()?;
        }
        Ok(())
    }

    /// Drops the journal up to `position`, as far as whole segments go.
    pub(crate) fn truncate(&self, position: u64) -> Result<(), Error> {
        let Some(local) = &self.journal else { return Ok(()) };
        Ok(local.journal().truncate_before(position + 1)?)
    }

    /// Bytes of the journal on disk.
    pub(crate) fn journal_bytes(&self) -> u64 {
        self.journal.as_ref().map_or(0, |local| local.journal().bytes_on_disk())
    }

    /// What the journal of a copy of this store is made for.
    pub(crate) fn identity(&self) -> [u8; 16] {
        self.about.identity
    }
}

impl Local {
    fn journal(&self) -> MutexGuard<'_, Journal> {
        lock(&self.journal)
    }
}

fn open_tables(dir: &Path, options: &Options, begin: Option<Place>) -> Result<(Mdbx, About), Error> {
    let dir = made(&dir.join("tables"))?;
    let mut found = None;
    let tables = Mdbx::open(&dir, options.max_bytes, FORMAT_KEY, |row| {
        found = admitted(row, &dir)?;
        Ok(())
    })?;
    let about = About::read_or_make(&tables, found, options, begin)?;
    Ok((tables, about))
}

fn made(dir: &Path) -> Result<PathBuf, Error> {
    let wrong = |source| Error::Io { action: "create the folder", path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(wrong)?;
    Ok(dir.to_owned())
}

/// Says which format the row states; `None` for a store that is yet to be made.
pub(crate) fn admitted(row: Option<&[u8]>, path: &Path) -> Result<Option<u32>, Error> {
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
    place: Option<Place>,
}

impl About {
    fn read_or_make(
        tables: &Mdbx,
        found: Option<u32>,
        options: &Options,
        begin: Option<Place>,
    ) -> Result<Self, Error> {
        match found {
            None => Self::make(tables, options, begin),
            Some(found) => {
                migrate(tables, found)?;
                Self::read(tables, options)
            }
        }
    }

    fn make(tables: &Mdbx, options: &Options, begin: Option<Place>) -> Result<Self, Error> {
        let window_millis = u64::try_from(options.dedupe_window.as_millis()).unwrap_or(u64::MAX);
        let about =
            Self { identity: identity(), heads: Heads::NONE, window: options.dedupe_window, place: begin };
        let mut rows = vec![
            (FORMAT_KEY, FORMAT.to_be_bytes().to_vec()),
            (IDENTITY_KEY, encoded(&about.identity)),
            (HEADS_KEY, encoded(&about.heads)),
            (WINDOW_KEY, encoded(&window_millis)),
        ];
        rows.extend(begin.map(|begin| (PLACE_KEY, encoded(&begin))));
        let rows: Vec<_> = rows.iter().map(|(key, row)| (*key, row.as_slice())).collect();
        tables.describe(&rows)?;
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
        let place = tables.get(Table::Meta, PLACE_KEY, |bytes| value::decode(Table::Meta, bytes))?;
        let (identity, heads, place) =
            (row(tables, IDENTITY_KEY)?, row(tables, HEADS_KEY)?, place.transpose()?);
        let heads = counted(tables, heads)?;
        Ok(Self { identity, heads, window, place })
    }
}

/// Counts the outbox by kind where the store is from before that was kept.
fn counted(tables: &Mdbx, mut heads: Heads) -> Result<Heads, Error> {
    if heads.by_kind.iter().sum::<u64>() == heads.outbox_depth {
        return Ok(heads);
    }
    heads.by_kind = [0; 4];
    let end: Result<ControlFlow<()>, Error> = tables.scan(Table::Outbox, &[], None, &mut |key, _| {
        if let Some(count) = key.first().and_then(|kind| heads.by_kind.get_mut(usize::from(*kind))) {
            *count += 1;
        }
        Ok(ControlFlow::Continue(()))
    });
    end.map(|_| heads)
}

fn encoded(value: &impl serde::Serialize) -> Vec<u8> {
    let mut row = Vec::new();
    value::encode(&mut row, value);
    row
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
