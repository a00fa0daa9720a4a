//! Opening a replicated store: a copy of a beginning of the log, brought up to its end, and the claim to write it.
//!
//! | found                                                     | what becomes of it                                  |
//! |-----------------------------------------------------------|-----------------------------------------------------|
//! | a folder that ends with an entry of this log              | it is the copy                                      |
//! | a folder of another log, or of entries that were purged   | it is moved aside, with a warning                   |
//! | a folder or a snapshot that ends behind the log           | [`Error::LogLost`]: nobody goes on without a person |
//! | no folder, a snapshot                                     | the newest one is the copy                          |
//! | neither, and a log that begins with its beginning         | an empty copy                                       |

use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use bytes::Bytes;

use crate::error::Error;
use crate::merged::Tables;
use crate::options::Options;
use crate::replication::commit_log::{CommitLog, Entry, LogError, Place};
use crate::replication::follower::{Follower, Step};
use crate::replication::frame::{self, Kind};
use crate::replication::log_writer::{self, Replica};
use crate::replication::metrics::Meter;
use crate::store_dir::Disk;

/// How often a copy that turns out to be stray is replaced. Snapshots come and go while one is being read.
const TRIES: u32 = 4;

/// Begins the name of what a snapshot is copied to on its way.
pub(crate) const COPY_PREFIX: &str = "snapshot-";

/// What a store follows, and as whom.
#[derive(Debug, Clone)]
pub struct Replication {
    /// The log of the shard.
    pub log: Arc<dyn CommitLog>,
    /// Grows with every lease on the shard. Whoever comes with an older one than the log has seen is refused; of two with the same one,
    /// the later takes the log from the earlier.
    pub epoch: u64,
    /// Save a snapshot when the log holds this many commits behind the last one …
    pub snapshot_commits: u64,
    /// … or this many bytes of them.
    pub snapshot_bytes: u64,
}

impl Replication {
    /// With snapshots every 100,000 commits or 256 MiB.
    #[must_use]
    pub fn new(log: Arc<dyn CommitLog>, epoch: u64) -> Self {
        Self { log, epoch, snapshot_commits: 100_000, snapshot_bytes: 256 << 20 }
    }

    /// Whether so much lies behind the last snapshot that another one is worth it.
    pub(crate) fn is_due(&self, meter: &Meter) -> bool {
        let (commits, bytes) = meter.behind();
        commits >= self.snapshot_commits || bytes >= self.snapshot_bytes
    }

    /// Takes the shard over into the folder `dir`.
    pub(crate) fn take(&self, dir: &Path, options: &Options, meter: &Arc<Meter>) -> Result<Owned, Error> {
        drop_copies(dir)?;
        let identity = self.log.identity()?;
        let mut why = String::new();
        for _ in 0..TRIES {
            let (disk, origin) = self.copy(dir, options, identity)?;
            match self.catch_up(&disk, options, meter) {
                Ok((tables, replica)) => return Ok(Owned { disk, tables, replica }),
                Err(Setback::Failed(error)) => return Err(error),
                Err(Setback::Stray(reason)) => {
                    drop(disk);
                    discard(dir, origin, &reason)?;
                    why = reason;
                }
            }
        }
        Err(Error::Corrupt { place: "the log of the shard".to_owned(), reason: why })
    }

    /// A copy to begin with, and whence it is.
    fn copy(&self, dir: &Path, options: &Options, log: [u8; 16]) -> Result<(Arc<Disk>, Origin), Error> {
        if tables(dir).join("mdbx.dat").exists() {
            let disk = Disk::open_replicated(dir, options, log)?;
            if disk.place().is_some_and(|place| place.log == log) {
                return Ok((disk, Origin::Folder));
            }
            self.refuse_to_begin_anew(dir, disk.folded().position)?;
            drop(disk);
            discard(dir, Origin::Folder, "it follows another log")?;
        }
        let mut snapshots = self.log.snapshots()?;
        snapshots.sort_by_key(|place| Reverse((place.position, place.number)));
        let (ours, foreign): (Vec<_>, Vec<_>) = snapshots.into_iter().partition(|place| place.log == log);
        if !ours.is_empty() {
            self.load_one_of(dir, &ours)?;
            return Ok((Disk::open_replicated(dir, options, log)?, Origin::Log));
        }
        if let Some(newest) = foreign.first() {
            self.refuse_to_begin_anew(dir, newest.position)?;
        }
        let dedupe_window = self.first_window()?.unwrap_or(options.dedupe_window);
        let options = Options { dedupe_window, ..options.clone() };
        Ok((Disk::open_replicated(dir, &options, log)?, Origin::Log))
    }

    /// An empty log beside something that was made from another one: the stream was lost or made anew. To begin with nothing would do
    /// everything again.
    fn refuse_to_begin_anew(&self, dir: &Path, position: u64) -> Result<(), Error> {
        if position == 0 || self.log.last()?.is_some() {
            return Ok(());
        }
        let reason = format!(
            "the log of this shard is empty, but {position} commits of an earlier one are known: restore the stream, or move this folder and the \
             snapshots of the shard away to begin with nothing"
        );
        Err(Error::Mismatch { path: dir.to_owned(), reason })
    }

    /// The window of deduplication that the first writer of the log chose, if its claim is still there.
    fn first_window(&self) -> Result<Option<Duration>, Error> {
        let mut first = None;
        self.log.read(0, &mut |entry| {
            first = Some(entry.bytes);
            ControlFlow::Break(())
        })?;
        let read = first.and_then(|entry| frame::read(&entry).ok());
        Ok(read.filter(|(head, _)| head.kind == Kind::Claim).and_then(|(_, body)| frame::window(&body)))
    }

    /// Fetches the first of these snapshots that is whole. An older one takes longer to bring up to date, that is all.
    fn load_one_of(&self, dir: &Path, places: &[Place]) -> Result<(), Error> {
        let aside = dir.join("tables.new");
        let mut damage = None;
        for place in places {
            remove(&aside)?;
            fs::create_dir_all(&aside).map_err(wrong("create the folder", &aside))?;
            match self.log.load(place, &aside.join("mdbx.dat")) {
                Ok(()) => return fs::rename(&aside, tables(dir)).map_err(wrong("rename", &aside)),
                Err(LogError::Damaged(reason)) => {
                    tracing::warn!(
                        position = place.position,
                        reason,
                        "a snapshot of the shard cannot be used"
                    );
                    damage = Some((place.position, reason));
                }
                Err(error) => return Err(error.into()),
            }
        }
        let (position, reason) = damage.unwrap_or_default();
        Err(Error::Corrupt { place: format!("the snapshot of commit {position}"), reason })
    }

    /// Follows the log to its end and claims it.
    fn catch_up(
        &self,
        disk: &Arc<Disk>,
        options: &Options,
        meter: &Arc<Meter>,
    ) -> Result<(Tables, Replica), Setback> {
        let begin = disk.place().copied().ok_or(Error::Closed)?;
        let mut tables = Tables::over(Some(Arc::clone(disk)), *disk.folded());
        let mut follower = Follower::from(&begin);
        let follow = || {
            self.follow(&mut follower, &mut |at, record| {
                tables.apply(at, &Bytes::copy_from_slice(record))?;
                meter.followed(record.len() as u64);
                if tables.active().bytes() >= options.generation_bytes {
                    fold(&mut tables, disk)
                } else {
                    Ok(())
                }
            })?;
            Ok::<_, Setback>((follower.number, follower.position, follower.owner))
        };
        let (owner, last) = log_writer::claim(&*self.log, self.epoch, disk.window(), follow)?;
        meter.owned(owner.epoch);
        Ok((tables, Replica::new(Arc::clone(&self.log), owner, last, Arc::clone(meter))))
    }

    fn follow(
        &self,
        follower: &mut Follower,
        apply: &mut dyn FnMut(crate::replication::follower::At, &Bytes) -> Result<(), Error>,
    ) -> Result<(), Setback> {
        let (behind, mut outcome) = (follower.number, Ok(()));
        let mut take = |entry: &Entry| match follower.take(entry)? {
            Step::Nothing => Ok(()),
            Step::Record(at, record) => Ok(apply(at, &record)?),
            Step::Stray(reason) => Err(Setback::Stray(reason)),
        };
        let read = self.log.read(behind, &mut |entry| {
            outcome = take(&entry);
            if outcome.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        outcome?;
        read.map_err(Error::from)?;
        if follower.is_lost() {
            let found = self.log.last().map_err(Error::from)?.map_or(0, |last| last.number);
            return Err(Error::LogLost { held: follower.number + 1, found }.into());
        }
        Ok(())
    }
}

/// A shard that was taken over.
pub(crate) struct Owned {
    pub(crate) disk: Arc<Disk>,
    pub(crate) tables: Tables,
    pub(crate) replica: Replica,
}

/// Whence a copy is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// It was here.
    Folder,
    /// A snapshot, or nothing.
    Log,
}

/// Why a copy did not become the store.
enum Setback {
    /// It is no beginning of the log as it is.
    Stray(String),
    Failed(Error),
}

impl From<Error> for Setback {
    fn from(error: Error) -> Self {
        Setback::Failed(error)
    }
}

/// Brings into the tables on disk what was followed so far, so that a long log fits into memory.
fn fold(tables: &mut Tables, disk: &Disk) -> Result<(), Error> {
    tables.freeze();
    if let Some(frozen) = tables.frozen() {
        disk.fold(frozen)?;
    }
    tables.thaw();
    Ok(())
}

/// Makes room for another copy. What was here is kept for a person to look at.
fn discard(dir: &Path, origin: Origin, reason: &str) -> Result<(), Error> {
    let tables = tables(dir);
    if origin == Origin::Log {
        return remove(&tables);
    }
    let aside = |number: u32| dir.join(format!("aside-{number}"));
    let free = (1..=999).map(aside).find(|path| !path.exists()).unwrap_or_else(|| aside(0));
    fs::rename(&tables, &free).map_err(wrong("move aside", &tables))?;
    tracing::warn!(
        reason,
        kept = %free.display(),
        "the tables of this folder were moved aside, the shard is fetched anew; remove them when nobody needs them"
    );
    Ok(())
}

/// Removes what snapshots of an earlier life left.
fn drop_copies(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(wrong("create the folder", dir))?;
    for entry in fs::read_dir(dir).map_err(wrong("read", dir))? {
        let entry = entry.map_err(wrong("read", dir))?;
        if entry.file_name().to_string_lossy().starts_with(COPY_PREFIX) {
            // An earlier life that is still sending it removes it, too.
            ignore_missing(fs::remove_file(entry.path())).map_err(wrong("remove", &entry.path()))?;
        }
    }
    Ok(())
}

fn tables(dir: &Path) -> PathBuf {
    dir.join("tables")
}

fn remove(dir: &Path) -> Result<(), Error> {
    ignore_missing(fs::remove_dir_all(dir)).map_err(wrong("remove", dir))
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

fn wrong(action: &'static str, path: &Path) -> impl Fn(io::Error) -> Error {
    move |source| Error::Io { action, path: path.to_owned(), source }
}
