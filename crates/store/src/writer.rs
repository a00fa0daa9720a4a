//! The one that commits.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use orlog_journal::LocalDisk;
use orlog_model::{Change, Timestamp};

use crate::background::Background;
use crate::encoding::record::{Heads, Record};
use crate::error::Error;
use crate::feed::write::Feeding;
use crate::merged::Tables;
use crate::options::{Durability, Options};
use crate::read::reader::Reader;
use crate::replication::follower::At;
use crate::replication::log_writer::Replica;
use crate::replication::metrics::Meter;
use crate::replication::open::{Owned, Replication};
use crate::shared::Shared;
use crate::store_dir::Disk;
use crate::translate::translate;

/// The one writer of a store. Dropping it closes the store: its readers answer [`Error::Closed`].
#[derive(Debug)]
pub struct Writer {
    shared: Arc<Shared>,
    record: Record,
    feeding: Feeding,
    /// `None` in memory.
    home: Option<Home>,
}

/// Where a store on disk lives.
#[derive(Debug)]
struct Home {
    dir: PathBuf,
    options: Options,
    source: Source,
    /// `None` while the store is being recovered.
    open: Option<Open>,
}

/// Where what was committed is found again.
#[derive(Debug)]
enum Source {
    /// In a journal on this device.
    Journal(Arc<dyn orlog_journal::Disk>),
    /// In a log that others can follow too.
    Log(Replication),
}

/// An open folder and what works on it.
#[derive(Debug)]
struct Open {
    disk: Arc<Disk>,
    background: Background,
    replica: Option<Replica>,
}

/// An open folder on which nothing works yet.
struct Opened {
    disk: Arc<Disk>,
    replica: Option<Replica>,
}

/// Opens the store in the folder `dir`, or makes one there.
///
/// # Errors
/// [`Error::Locked`], [`Error::NewerFormat`], [`Error::Corrupt`], [`Error::Mismatch`], none of which changes anything;
/// [`Error::Full`] if a new store finds no room; [`Error::Io`] and [`Error::Poisoned`] if the disk fails.
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
    Home { dir: dir.to_owned(), options, source: Source::Journal(device), open: None }.settle()
}

/// Takes a shard over from its log: the folder `dir` becomes a copy of it, and whoever wrote it before is fenced. The durability of
/// the options means nothing here: a commit returns after the log has it.
///
/// # Errors
/// [`Error::Fenced`] if the log has seen a later epoch; [`Error::Unavailable`]: try again; [`Error::LogLost`] and
/// [`Error::Mismatch`], with which a person must deal; and those of [`open`].
pub fn open_replicated(
    dir: &Path,
    options: Options,
    replication: Replication,
) -> Result<(Writer, Reader), Error> {
    Home { dir: dir.to_owned(), options, source: Source::Log(replication), open: None }.settle()
}

/// A store without disk, for tests and trials: the same contract, but nothing survives the process.
#[must_use]
pub fn memory(options: Options) -> (Writer, Reader) {
    let feeding = Feeding::begin(options.feed);
    let shared = Arc::new(Shared::new(Tables::over(None, Heads::NONE), options, None));
    let writer = Writer { shared, record: Record::default(), feeding, home: None };
    let reader = writer.reader();
    (writer, reader)
}

impl Writer {
    /// Commits a group whole, at the time `now`, which decides for how long applied events are remembered. On return
    /// every reader sees it, and it is as durable as [`Durability`] says, or in the log. The answer is the position, which counts
    /// commits.
    ///
    /// Waits while the tables on disk are too far behind.
    ///
    /// # Errors
    /// [`Error::Full`]: try the same group again later. [`Error::KeyTooLong`], [`Error::TooLarge`]: this group never can be
    /// committed. In these cases nothing was. [`Error::Unavailable`]: whether it was is not known yet, [`Writer::resume`] goes on
    /// with it. [`Error::Poisoned`]: whether it was is not known, [`Writer::recover`] decides. [`Error::Fenced`]: somebody else
    /// owns the shard; this group was not committed, and no other will be.
    pub fn commit(&mut self, group: &[Change], now: Timestamp) -> Result<u64, Error> {
        self.shared.healthy()?;
        let aside = self.shared.make_room()?;
        let shared = &self.shared;
        let (record, feeding) = (&mut self.record, self.feeding);
        let heads = shared.read(|tables| translate(group, now, (tables, &shared.keys, feeding), record))?;
        let record = Bytes::copy_from_slice(self.record.seal(&heads));
        let at = match &mut self.home {
            Some(home) => shared.noted(home.write(shared, heads.position, &record))?,
            None => At::position(heads.position),
        };
        self.show(at, &record, aside)
    }

    /// Goes on with the commit that answered [`Error::Unavailable`]. The answer is the position of that commit, or of the last one
    /// if none is on its way.
    ///
    /// # Errors
    /// [`Error::Unavailable`] again, [`Error::Fenced`], [`Error::Poisoned`]; see [`Writer::commit`].
    pub fn resume(&mut self) -> Result<u64, Error> {
        self.shared.healthy()?;
        let resumed = self.home.as_mut().map_or(Ok(None), Home::resume);
        match self.shared.noted(resumed)? {
            Some((at, record)) => self.show(at, &record, false),
            None => Ok(self.shared.heads().position),
        }
    }

    fn show(&mut self, at: At, record: &Bytes, aside: bool) -> Result<u64, Error> {
        let published = self.shared.publish(at, record);
        self.shared.noted(published)?;
        self.feeding.is_settled = true;
        self.record.relax();
        if aside | self.shared.freeze_if_full()? {
            self.wake_folder();
        }
        if let Some(home) = &self.home {
            home.tend_snapshots(&self.shared);
        }
        Ok(at.position)
    }

    /// Only for a generation newly put aside: a fold that failed is not worth a try at each commit.
    fn wake_folder(&self) {
        if let Some(Home { open: Some(open), .. }) = &self.home {
            open.background.wake_folder();
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
        if let Some(open) = home.open.take() {
            drop(open.background);
            if let Err(error) = open.disk.sync() {
                tracing::error!(%error, "the journal could not be synced while the store was closed");
            }
        }
        self.shared.close();
    }

    /// Opens the store anew after [`Error::Poisoned`], from what is durable. The commit that failed may be among it. Readers
    /// go on with what was found; while this runs, they answer [`Error::Closed`].
    ///
    /// # Errors
    /// Those of [`open`], or of [`open_replicated`]; the store stays closed, and this can be called again.
    pub fn recover(&mut self) -> Result<(), Error> {
        let Some(home) = &mut self.home else { return Ok(()) };
        home.open = None;
        self.shared.close();
        let (tables, opened) = home.open(self.shared.meter.as_ref())?;
        self.shared.reopen(tables);
        self.feeding = Feeding::begin(self.shared.keeps_feed);
        home.start(&self.shared, opened)
    }
}

impl Home {
    /// Opens it, and makes a writer and a reader of it.
    fn settle(mut self) -> Result<(Writer, Reader), Error> {
        let meter = matches!(self.source, Source::Log(_)).then(Arc::<Meter>::default);
        let (tables, opened) = self.open(meter.as_ref())?;
        let shared = Arc::new(Shared::new(tables, self.options.clone(), meter));
        self.start(&shared, opened)?;
        let feeding = Feeding::begin(self.options.feed);
        let writer = Writer { shared, record: Record::default(), feeding, home: Some(self) };
        let reader = writer.reader();
        Ok((writer, reader))
    }

    fn open(&self, meter: Option<&Arc<Meter>>) -> Result<(Tables, Opened), Error> {
        match (&self.source, meter) {
            (Source::Log(replication), Some(meter)) => {
                let Owned { disk, tables, replica } = replication.take(&self.dir, &self.options, meter)?;
                Ok((tables, Opened { disk, replica: Some(replica) }))
            }
            (Source::Log(_), None) => unreachable!("a store that follows a log counts"),
            (Source::Journal(device), _) => {
                let disk = Disk::open(&self.dir, &self.options, Arc::clone(device))?;
                Ok((Tables::replayed(&disk)?, Opened { disk, replica: None }))
            }
        }
    }

    /// Starts what works behind the commits.
    fn start(&mut self, shared: &Arc<Shared>, Opened { disk, replica }: Opened) -> Result<(), Error> {
        let mut background = Background::start(shared, &disk, self.options.durability, &self.dir)?;
        if let (Source::Log(replication), Some(meter)) = (&self.source, &shared.meter) {
            background.save_snapshots(shared, meter, replication, &self.dir)?;
        }
        self.open = Some(Open { disk, background, replica });
        self.tend_snapshots(shared);
        Ok(())
    }

    /// Puts a record into the log or the journal.
    fn write(&mut self, shared: &Shared, position: u64, record: &Bytes) -> Result<At, Error> {
        let Open { disk, replica, .. } = self.open.as_mut().ok_or(Error::Closed)?;
        if let Some(replica) = replica {
            return replica.append(position, record.clone());
        }
        disk.append(position, record)?;
        if self.options.durability == Durability::Sync {
            shared.sync(disk)?;
        }
        Ok(At::position(position))
    }

    fn resume(&mut self) -> Result<Option<(At, Bytes)>, Error> {
        let open = self.open.as_mut().ok_or(Error::Closed)?;
        open.replica.as_mut().map_or(Ok(None), Replica::resume)
    }

    fn tend_snapshots(&self, shared: &Shared) {
        if let (Source::Log(replication), Some(meter), Some(open)) = (&self.source, &shared.meter, &self.open)
            && replication.is_due(meter)
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
