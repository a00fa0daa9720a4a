//! Opens a replicated store: takes a copy of a prefix of the log, follows the log to its end, and
//! claims it.
//!
//! | found | result |
//! |---|---|
//! | a directory that ends with an entry of this log, also of a restored one | it is the copy |
//! | a directory of another log, or of purged entries | it is moved aside, with a warning |
//! | a directory or snapshot that ends after the log | [`Error::LogLost`]: an operator decides |
//! | no directory, a snapshot | the newest one is the copy |
//! | neither, and a log that is complete from its start | an empty copy |
//! | a log without the last recorded claim | [`Error::LogLost`], unless the loss is accepted |

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use std::{fs, io};

use bytes::Bytes;

use crate::error::Error;
use crate::merged::MergedTables;
use crate::options::Options;
use crate::replication::commit_log::{CommitLog, CommitLogError, LogEntry, Snapshot};
use crate::replication::delta;
use crate::replication::follower::{FollowStep, LogFollower, RecordPosition};
use crate::replication::frame::{self, EntryKind};
use crate::replication::log_writer::{self, LogEnd, LogWriter};
use crate::replication::metrics::LogMetrics;
use crate::store_dir::StoreDir;

/// Maximum number of replacements of a diverged copy. Snapshots can be replaced while one is read.
const MAX_COPY_ATTEMPTS: u32 = 4;

/// Prefix of the temporary file of a snapshot.
pub(crate) const COPY_PREFIX: &str = "snapshot-";

/// Visitor of the records of a log.
type RecordVisitor<'a> = dyn FnMut(RecordPosition, &Bytes) -> Result<(), Error> + 'a;

/// Options of replication: the log, the epoch and the snapshot thresholds.
#[derive(Debug, Clone)]
pub struct ReplicationOptions {
    /// Log of the shard.
    pub log: Arc<dyn CommitLog>,
    /// Epoch of the lease, which increases with every lease of the shard. The log rejects an epoch
    /// older than the latest one; of two owners with the same epoch, the later one takes over the
    /// log. `None`: the owner has no lease, and its epoch is one more than the latest one.
    pub epoch: Option<u64>,
    /// Number of commits after the last snapshot that triggers a snapshot …
    pub snapshot_commits: u64,
    /// … or their size in bytes.
    pub snapshot_bytes: u64,
}

impl ReplicationOptions {
    /// Creates options with snapshots every 100,000 commits or 256 MiB.
    #[must_use]
    pub fn new(log: Arc<dyn CommitLog>, epoch: u64) -> Self {
        Self {
            log,
            epoch: Some(epoch),
            snapshot_commits: 100_000,
            snapshot_bytes: 256 << 20,
        }
    }

    /// Returns whether the log after the last snapshot exceeds a threshold.
    pub(crate) fn is_snapshot_due(&self, meter: &LogMetrics) -> bool {
        let tail = meter.tail();
        tail.commits >= self.snapshot_commits || tail.bytes >= self.snapshot_bytes
    }

    /// Takes over the shard in the directory `dir`.
    pub(crate) fn take_over(
        &self,
        dir: &Path,
        options: &Options,
        meter: &Arc<LogMetrics>,
    ) -> Result<(MergedTables, LogWriter), Error> {
        drop_copies(dir)?;
        let identity = self.log.identity()?;
        let mut last_reason = String::new();
        for _ in 0..MAX_COPY_ATTEMPTS {
            let (disk, origin) = self.copy(dir, options, identity)?;
            match self.catch_up(&disk, options, meter) {
                Ok(taken) => return Ok(taken),
                Err(CopyError::Failed(error)) => return Err(error),
                Err(CopyError::Diverged(reason)) => {
                    // The tables are closed before their directory is moved.
                    drop(disk);
                    discard(dir, origin, &reason)?;
                    last_reason = reason;
                }
            }
        }

        Err(Error::Corrupt {
            location: "the log of the shard".to_owned(),
            reason: last_reason,
        })
    }

    /// Returns the initial copy and its origin.
    fn copy(
        &self,
        dir: &Path,
        options: &Options,
        log: [u8; 16],
    ) -> Result<(Arc<StoreDir>, CopyOrigin), Error> {
        if tables(dir).join("mdbx.dat").exists() {
            let disk = StoreDir::open_replicated(dir, options, log)?;
            // A restored log has another identity, but the same entries.
            if let Some(end) = disk.log_position()
                && (end.log == log || delta::contains(&*self.log, end)?)
            {
                return Ok((disk, CopyOrigin::Directory));
            }

            // Before the directory is moved aside: it may be the only copy of these commits.
            self.reject_empty_log(dir, disk.flushed_state().position)?;
            drop(disk);
            discard(dir, CopyOrigin::Directory, "it follows another log")?;
        }

        let ours = delta::list(&*self.log, log)?;
        if !ours.is_empty() {
            self.load_newest(dir, options, ours)?;
            return Ok((
                StoreDir::open_replicated(dir, options, log)?,
                CopyOrigin::Log,
            ));
        }

        // Snapshots of another log prove that the shard has commits, which an empty log does not
        // contain.
        if let Some(foreign) = self
            .log
            .snapshots()?
            .iter()
            .map(|foreign| foreign.position.position)
            .max()
        {
            self.reject_empty_log(dir, foreign)?;
        }

        // The window is the length of the buckets of all owners. Another one would hide their
        // dedupe keys.
        let dedupe_window = self.first_window()?.unwrap_or(options.dedupe_window);
        let options = Options {
            dedupe_window,
            ..options.clone()
        };
        Ok((
            StoreDir::open_replicated(dir, &options, log)?,
            CopyOrigin::Log,
        ))
    }

    /// Rejects an empty log next to data of another log: the stream was lost or recreated. A start
    /// from nothing would repeat all work.
    fn reject_empty_log(&self, dir: &Path, position: u64) -> Result<(), Error> {
        if position == 0 || self.log.last()?.is_some() {
            return Ok(());
        }

        let reason = format!(
            "the log of this shard is empty, but {position} commits of an earlier log exist: \
             restore the stream, or move this directory and the snapshots of the shard away to \
             start with nothing"
        );
        Err(Error::Mismatch {
            path: dir.to_owned(),
            reason,
        })
    }

    /// Returns the dedupe window that the first writer of the log chose, if its claim still exists.
    fn first_window(&self) -> Result<Option<Duration>, Error> {
        let mut first = None;
        self.log.read(0, &mut |entry| {
            first = Some(entry.bytes);
            ControlFlow::Break(())
        })?;

        let read = first.and_then(|entry| frame::read(&entry).ok());
        Ok(read
            .filter(|(header, _)| header.kind == EntryKind::Claim)
            .and_then(|(_, body)| frame::claim_dedupe_window(&body)))
    }

    /// Loads the newest snapshot that is intact. An older one only takes longer to catch up. While
    /// they are loaded, a former owner can replace them by newer ones.
    fn load_newest(
        &self,
        dir: &Path,
        options: &Options,
        mut ours: Vec<Snapshot>,
    ) -> Result<(), Error> {
        let mut result = self.load_one_of(dir, options, &ours);
        for _ in 1..MAX_COPY_ATTEMPTS {
            let Err(Error::Corrupt { .. }) = result else {
                break;
            };

            let current = delta::list(&*self.log, self.log.identity()?)?;
            // If the list is unchanged, another attempt would find the same damage.
            if current == ours {
                break;
            }

            ours = current;
            result = self.load_one_of(dir, options, &ours);
        }
        result
    }

    /// Loads the first of these snapshots that is intact.
    fn load_one_of(
        &self,
        dir: &Path,
        options: &Options,
        snapshots: &[Snapshot],
    ) -> Result<(), Error> {
        // In a directory of its own, so that an interrupted load does not look like a copy.
        let target = dir.join("tables.new");
        let mut damage = None;
        for chain in delta::chains(snapshots) {
            match self.load_chain(&target, options, &chain) {
                Ok(()) => {
                    // The tables are complete before they get the name that an opening examines.
                    fs::rename(tables(&target), tables(dir))
                        .map_err(Error::io("rename", &target))?;
                    return remove(&target);
                }
                Err(LoadError::Damaged(reason)) => {
                    let position = chain.last().map_or(0, |newest| newest.position.position);
                    tracing::warn!(position, reason, "shard snapshot is unusable");
                    damage = Some((format!("the snapshot of commit {position}"), reason));
                }
                Err(LoadError::Failed(error)) => return Err(error),
            }
        }

        let (location, reason) = damage.unwrap_or_else(|| {
            (
                "the snapshots of the shard".to_owned(),
                "the bases of all snapshots are missing".to_owned(),
            )
        });
        Err(Error::Corrupt { location, reason })
    }

    /// Loads a full snapshot into the directory `target`, and applies the deltas after it.
    fn load_chain(
        &self,
        target: &Path,
        options: &Options,
        chain: &[Snapshot],
    ) -> Result<(), LoadError> {
        let [full, deltas @ ..] = chain else {
            return Err(LoadError::Damaged("it is empty".to_owned()));
        };

        // An earlier load may have been interrupted.
        remove(target)?;
        fs::create_dir_all(tables(target)).map_err(Error::io("create the directory", target))?;
        self.log.load(full, &tables(target).join("mdbx.dat"))?;
        if deltas.is_empty() {
            return Ok(());
        }

        let disk = StoreDir::open_replicated(target, options, full.position.log)?;
        for delta in deltas {
            let file = target.join("delta");
            self.log.load(delta, &file)?;
            delta::apply(&disk, &file, options)?;
            fs::remove_file(&file).map_err(Error::io("remove", &file))?;
        }
        Ok(())
    }

    /// Follows the log to its end and claims it.
    fn catch_up(
        &self,
        disk: &Arc<StoreDir>,
        options: &Options,
        meter: &Arc<LogMetrics>,
    ) -> Result<(MergedTables, LogWriter), CopyError> {
        let start = disk.log_position().copied().ok_or(Error::Closed)?;
        meter.start_takeover(start);
        let mut tables = MergedTables::new(Arc::clone(disk));
        let mut follower = LogFollower::from(&start);

        // The recorded claim outlasts the log: it distinguishes a lost log from a new one.
        if !options.accept_data_loss
            && let Some(claim) = self.log.recorded_claim().map_err(Error::from)?
        {
            follower.require_claim(claim.last_entry());
        }

        let claim = log_writer::claim(&*self.log, self.epoch, disk.dedupe_window(), || {
            self.follow(&mut follower, &mut |at, record| {
                tables.apply(at, &Bytes::copy_from_slice(record))?;
                meter.record_followed(record.len() as u64);
                // A long log must not stay in memory as one memtable.
                tables.flush_if_full(options.memtable_bytes)
            })?;
            Ok::<_, CopyError>(LogEnd {
                number: follower.number,
                position: follower.position,
                owner: follower.owner,
                claim: follower.claim,
            })
        })?;

        let owner = claim.entry.owner;
        let claimed = start.at(RecordPosition {
            position: follower.position,
            last_entry: claim.entry,
        });
        // Recorded only after the log has the claim: a recorded claim that the log lacks proves a
        // loss.
        self.log.record_claim(&claimed).map_err(Error::from)?;
        meter.set_epoch(owner.epoch);

        Ok((
            tables,
            LogWriter::new(Arc::clone(&self.log), owner, claim.last, Arc::clone(meter)),
        ))
    }

    fn follow(
        &self,
        follower: &mut LogFollower,
        apply: &mut RecordVisitor<'_>,
    ) -> Result<(), CopyError> {
        let mut outcome = Ok(());
        let read = self.log.read(follower.number, &mut |entry| {
            outcome = follow_entry(follower, &entry, apply);
            if outcome.is_ok() {
                ControlFlow::Continue(())
            } else {
                ControlFlow::Break(())
            }
        });

        outcome?;
        read.map_err(Error::from)?;

        // The log ends before the last entry of the copy, or before the recorded claim.
        let missing = if follower.awaits_start_entry() {
            Some(follower.number + 1)
        } else {
            follower.missing_claim().map(|claim| claim.number)
        };
        let Some(acknowledged) = missing else {
            return Ok(());
        };

        let last = self.log.last().map_err(Error::from)?;
        let found = last.map_or(0, |last| last.number);
        Err(Error::LogLost {
            acknowledged,
            found,
        }
        .into())
    }
}

/// Applies the commit that an entry completes, if any.
fn follow_entry(
    follower: &mut LogFollower,
    entry: &LogEntry,
    apply: &mut RecordVisitor<'_>,
) -> Result<(), CopyError> {
    match follower.take(entry)? {
        FollowStep::Nothing => Ok(()),
        FollowStep::Record(at, record) => Ok(apply(at, &record)?),
        FollowStep::Diverged(reason) => Err(CopyError::Diverged(reason)),
    }
}

/// Origin of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CopyOrigin {
    /// Local directory.
    Directory,
    /// Snapshot, or an empty copy.
    Log,
}

/// Reason why a snapshot is not loaded.
enum LoadError {
    /// Another snapshot can be used.
    Damaged(String),
    Failed(Error),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        match error {
            // A file that cannot be opened or applied is a damaged snapshot. An older one may be
            // intact.
            Error::Corrupt { .. } => LoadError::Damaged(error.to_string()),
            error => LoadError::Failed(error),
        }
    }
}

impl From<CommitLogError> for LoadError {
    fn from(error: CommitLogError) -> Self {
        match error {
            CommitLogError::Damaged(reason) => LoadError::Damaged(reason),
            error => LoadError::Failed(error.into()),
        }
    }
}

/// Reason why a copy did not become the store.
enum CopyError {
    /// The copy is not a prefix of the current log.
    Diverged(String),
    Failed(Error),
}

impl From<Error> for CopyError {
    fn from(error: Error) -> Self {
        CopyError::Failed(error)
    }
}

/// Removes the current copy to make space for another one. A local directory is kept for
/// inspection.
fn discard(dir: &Path, origin: CopyOrigin, reason: &str) -> Result<(), Error> {
    let tables = tables(dir);
    if origin == CopyOrigin::Log {
        return remove(&tables);
    }

    let target_dir = |number: u32| dir.join(format!("aside-{number}"));
    let free = (1..=999)
        .map(target_dir)
        .find(|path| !path.exists())
        .unwrap_or_else(|| target_dir(0));

    fs::rename(&tables, &free).map_err(Error::io("move aside", &tables))?;
    tracing::warn!(
        reason,
        path = %free.display(),
        "stale tables moved aside and the shard restored from the log; delete them when no longer \
         needed"
    );
    Ok(())
}

/// Deletes the temporary snapshot files of earlier runs.
fn drop_copies(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(Error::io("create the directory", dir))?;

    for entry in fs::read_dir(dir).map_err(Error::io("read", dir))? {
        let entry = entry.map_err(Error::io("read", dir))?;
        if entry.file_name().to_string_lossy().starts_with(COPY_PREFIX) {
            // An earlier run that is still sending it deletes it too.
            ignore_missing(fs::remove_file(entry.path()))
                .map_err(Error::io("remove", &entry.path()))?;
        }
    }
    Ok(())
}

fn tables(dir: &Path) -> PathBuf {
    dir.join("tables")
}

fn remove(dir: &Path) -> Result<(), Error> {
    ignore_missing(fs::remove_dir_all(dir)).map_err(Error::io("remove", dir))
}

fn ignore_missing(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
