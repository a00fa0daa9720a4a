//! The one that commits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use orlog_journal::LocalDisk;
use orlog_model::{Change, Timestamp};

use crate::background::Background;
use crate::disk::Disk;
use crate::error::Error;
use crate::keys::Keys;
use crate::options::{Durability, Options};
use crate::reader::Reader;
use crate::record::{Heads, Record};
use crate::shared::Shared;
use crate::tables::Tables;
use crate::translate::translate;

/// The one writer of a store. Dropping it closes the store: its readers answer [`Error::Closed`].
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    record: Record,
    /// `None` in memory.
    home: Option<Home>,
}

/// Where a store on disk lives.
#[derive(Debug)]
struct Home {
    dir: PathBuf,
    options: Options,
    device: Arc<dyn orlog_journal::Disk>,
    /// `None` while the store is being recovered.
    open: Option<(Arc<Disk>, Background)>,
}

/// Opens the store in the folder `dir`, or makes one there.
///
/// # Errors
/// [`Error::Locked`], [`Error::NewerFormat`], [`Error::Corrupt`], none of which changes anything; [`Error::Full`] if a new
/// store finds no room; [`Error::Io`] and [`Error::Poisoned`] if the disk fails.
pub fn open(dir: &Path, options: Options) -> Result<(Writer, Reader), Error> {
    open_on(dir, options, Arc::new(LocalDisk))
}

/// As [`open`], with a journal on a device of one's own: for tests, in which it fails.
///
/// # Errors
/// Those of [`open`].
pub fn open_on(
    dir: &Path,
    options: Options,
    device: Arc<dyn orlog_journal::Disk>,
) -> Result<(Writer, Reader), Error> {
    let disk = Disk::open(dir, &options, Arc::clone(&device))?;
    let tables = Tables::replayed(&disk)?;
    let keys = Keys::new(options.slots.clone(), disk.window());
    let shared = Arc::new(Shared::new(tables, keys, options.generation_bytes, options.generation_age));
    let background = Background::start(&shared, &disk, options.durability, dir)?;
    let home = Home { dir: dir.to_owned(), options, device, open: Some((disk, background)) };
    let writer = Writer { shared, record: Record::default(), home: Some(home) };
    let reader = writer.reader();
    Ok((writer, reader))
}

/// A store without disk, for tests and trials: the same contract, but nothing survives the process.
#[must_use]
pub fn memory(options: Options) -> (Writer, Reader) {
    let keys = Keys::new(options.slots, options.dedupe_window);
    let tables = Tables::over(None, Heads::NONE);
    let shared = Arc::new(Shared::new(tables, keys, options.generation_bytes, options.generation_age));
    let writer = Writer { shared, record: Record::default(), home: None };
    let reader = writer.reader();
    (writer, reader)
}

impl Writer {
    /// Commits a group whole, at the time `now`, which decides for how long applied events are remembered. On return
    /// every reader sees it, and it is as durable as [`Durability`] says. The answer is the position, which counts commits.
    ///
    /// Waits while the tables on disk are too far behind.
    ///
    /// # Errors
    /// [`Error::Full`]: try the same group again later. [`Error::KeyTooLong`], [`Error::TooLarge`]: this group never can be
    /// committed. In these cases nothing was. [`Error::Poisoned`]: whether it was is not known, [`Writer::recover`] decides.
    pub fn commit(&mut self, group: &[Change], now: Timestamp) -> Result<u64, Error> {
        self.shared.healthy()?;
        let aside = self.shared.make_room()?;
        let shared = &self.shared;
        let record = &mut self.record;
        let heads = shared.read(|tables| translate(group, now, (tables, &shared.keys), record))?;
        let record = Bytes::copy_from_slice(self.record.seal(&heads));
        if let Some(home) = &self.home {
            let written = home.write(shared, heads.position, &record);
            shared.noted(written)?;
        }
        let published = shared.publish(heads.position, &record);
        shared.noted(published)?;
        self.record.relax();
        if aside | self.shared.freeze_if_full()? {
            self.wake_folder();
        }
        Ok(heads.position)
    }

    /// Only for a generation newly put aside: a fold that failed is not worth a try at each commit.
    fn wake_folder(&self) {
        if let Some(Home { open: Some((_, background)), .. }) = &self.home {
            background.wake_folder();
        }
    }

    /// A reader of this store.
    #[must_use]
    pub fn reader(&self) -> Reader {
        Reader::new(Arc::clone(&self.shared))
    }

    /// Brings the tables on disk up to date and everything onto the disk, so that the next opening has nothing to do.
    ///
    /// # Errors
    /// [`Error::Full`], after which nothing is lost and commits may go on; [`Error::Poisoned`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.shared.healthy()?;
        self.shared.fold_all()
    }

    /// Flushes and closes: its files are free for another process, or another writer in this one. Readers answer
    /// [`Error::Closed`] from now on.
    ///
    /// # Errors
    /// Those of [`Writer::flush`]. It is closed all the same; what is committed is safe in the journal.
    pub fn close(&mut self) -> Result<(), Error> {
        let flushed = self.flush();
        self.release();
        flushed
    }

    fn release(&mut self) {
        let Some(home) = &mut self.home else { return };
        if let Some((disk, background)) = home.open.take() {
            drop(background);
            if let Err(error) = disk.sync() {
                tracing::error!(%error, "the journal could not be synced while the store was closed");
            }
        }
        self.shared.close();
    }

    /// Opens the store anew after [`Error::Poisoned`], from what is durable. The commit that failed may be among it. Readers
    /// go on with what was found; while this runs, they answer [`Error::Closed`].
    ///
    /// # Errors
    /// Those of [`open`]; the store stays closed, and this can be called again.
    pub fn recover(&mut self) -> Result<(), Error> {
        let Some(home) = &mut self.home else { return Ok(()) };
        home.open = None;
        self.shared.close();
        let disk = Disk::open(&home.dir, &home.options, Arc::clone(&home.device))?;
        self.shared.reopen(Tables::replayed(&disk)?);
        let background = Background::start(&self.shared, &disk, home.options.durability, &home.dir)?;
        home.open = Some((disk, background));
        Ok(())
    }
}

impl Home {
    /// Puts a record into the journal.
    fn write(&self, shared: &Shared, position: u64, record: &[u8]) -> Result<(), Error> {
        let (disk, _) = self.open.as_ref().ok_or(Error::Closed)?;
        let written = disk.append(record)?;
        assert_eq!(written, position, "the journal and the store count the same commits");
        match self.options.durability {
            Durability::Sync => shared.sync(disk),
            Durability::Interval(_) => Ok(()),
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.release();
    }
}
