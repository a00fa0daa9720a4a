//! Deltas: snapshots that contain only the rows that changed after another snapshot, their base.
//!
//! A delta is made from the log alone, by merging its records after the base. It is a sequence of
//! parts, each not larger than a memtable: position, entry number, epoch, writer and length (each
//! u64, little endian), then a record. A snapshot is loaded by its chain: the full snapshot, then
//! each delta.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use crate::encoding::record::{RecordWriter, StoreState};
use crate::error::Error;
use crate::memtable::Memtable;
use crate::merged::MergedTables;
use crate::options::Options;
use crate::replication::commit_log::{CommitLog, LogEntry, LogPosition, Snapshot};
use crate::replication::follower::{EntryId, FollowStep, LogFollower, RecordPosition};
use crate::replication::frame::{self, LogOwner};
use crate::store_dir::StoreDir;

/// Maximum number of deltas after a full snapshot.
const MAX_DELTAS: usize = 16;

/// Returns the snapshots of this log, newest first: those with its identity, and those with the
/// identity that it had before it was restored.
pub(crate) fn list(log: &dyn CommitLog, identity: [u8; 16]) -> Result<Vec<Snapshot>, Error> {
    let mut snapshots = log.snapshots()?;
    snapshots
        .sort_by_key(|snapshot| Reverse((snapshot.position.position, snapshot.position.number)));

    let mut earlier: BTreeMap<[u8; 16], bool> = BTreeMap::from([(identity, true)]);
    for Snapshot { position, .. } in &snapshots {
        // Newest first: the entries of older ones may be purged.
        if let Entry::Vacant(entry) = earlier.entry(position.log) {
            entry.insert(contains(log, position)?);
        }
    }

    snapshots.retain(|snapshot| earlier.get(&snapshot.position.log) == Some(&true));
    Ok(snapshots)
}

/// Returns whether the log has the entry at this position. Each writer has a random number, so no
/// other log has it. A restored log has another identity, and the same entries.
pub(crate) fn contains(log: &dyn CommitLog, position: &LogPosition) -> Result<bool, Error> {
    // Before the first commit, no entry identifies the log.
    let Some(before) = position.number.checked_sub(1) else {
        return Ok(false);
    };

    let mut found = None;
    log.read(before, &mut |entry| {
        found = Some(entry);
        ControlFlow::Break(())
    })?;

    let header = found
        .filter(|entry| entry.number == position.number)
        .and_then(|entry| frame::read(&entry.bytes).ok());

    let owner = position.last_entry().owner;
    Ok(header
        .is_some_and(|(header, _)| header.owner == owner && header.position == position.position))
}

/// Returns the chain of the snapshot at `position`, the full snapshot first; `None` if one is
/// missing.
fn chain(snapshots: &[Snapshot], position: &LogPosition) -> Option<Vec<Snapshot>> {
    let mut chain = Vec::new();
    let mut next = Some(*position);
    while let Some(position) = next {
        // Two owners can save a delta and a full snapshot of one position. The full one makes a
        // shorter chain.
        let mut of_position = snapshots
            .iter()
            .filter(|snapshot| snapshot.position == position);
        let snapshot = of_position
            .clone()
            .find(|same| same.base.is_none())
            .or_else(|| of_position.next())?;

        // A base that is not older could make the chain endless.
        next = snapshot
            .base
            .filter(|base| base.position < position.position);
        chain.push(*snapshot);
    }

    chain.reverse();
    Some(chain)
}

/// Returns the complete chains of these snapshots, in their order, one for each position.
pub(crate) fn chains(snapshots: &[Snapshot]) -> impl Iterator<Item = Vec<Snapshot>> {
    let mut positions: Vec<_> = snapshots.iter().map(|snapshot| snapshot.position).collect();
    // The list is sorted, so equal positions are adjacent.
    positions.dedup();
    positions
        .into_iter()
        .filter_map(|position| chain(snapshots, &position))
}

/// Returns whether the next snapshot after this chain is a delta: while all deltas together are
/// smaller than half of the full snapshot.
pub(crate) fn is_worthwhile(chain: &[Snapshot], next_bytes: u64) -> bool {
    let Some((full, deltas)) = chain.split_first() else {
        return false;
    };

    let bytes = deltas
        .iter()
        .map(|delta| delta.bytes)
        .sum::<u64>()
        .saturating_add(next_bytes);

    deltas.len() < MAX_DELTAS && bytes < full.bytes / 2
}

/// Writes the rows that changed after `base` to a new file. Returns the position of the delta;
/// `None` if the log does not continue the base, or no commit follows.
pub(crate) fn write(
    log: &dyn CommitLog,
    base: &LogPosition,
    memtable_bytes: usize,
    path: &Path,
) -> Result<Option<LogPosition>, Error> {
    let mut delta = DeltaWriter::create(path, base, memtable_bytes)?;
    let mut outcome = Ok(());
    // From the last entry of the base: the follower compares it, to detect another log.
    log.read(
        base.number.saturating_sub(1),
        &mut |entry| match delta.take(&entry) {
            Ok(flow) => flow,
            Err(error) => {
                outcome = Err(error);
                ControlFlow::Break(())
            }
        },
    )?;
    outcome?;

    Ok(delta.finish()?.map(|last| base.at(last)))
}

/// Delta under construction.
struct DeltaWriter<'a> {
    path: &'a Path,
    file: BufWriter<File>,
    follower: LogFollower,
    /// Rows that are not in the file yet.
    rows: Memtable,
    /// Size of the rows at which a part is written, in bytes.
    memtable_bytes: usize,
    /// Last commit; `None` if no commit follows the base, or the log does not continue it.
    last: Option<RecordPosition>,
}

impl<'a> DeltaWriter<'a> {
    fn create(path: &'a Path, base: &LogPosition, memtable_bytes: usize) -> Result<Self, Error> {
        let file = File::create_new(path).map_err(Error::io("write", path))?;
        Ok(Self {
            path,
            file: BufWriter::new(file),
            follower: LogFollower::from(base),
            rows: Memtable::new(StoreState::NONE, base.last_entry()),
            memtable_bytes,
            last: None,
        })
    }

    /// Adds the next entry of the log. Breaks if the log does not continue the base.
    fn take(&mut self, entry: &LogEntry) -> Result<ControlFlow<()>, Error> {
        match self.follower.take(entry)? {
            FollowStep::Nothing => Ok(ControlFlow::Continue(())),
            FollowStep::Diverged(_) => {
                // The caller saves a full snapshot instead.
                self.last = None;
                Ok(ControlFlow::Break(()))
            }
            FollowStep::Record(at, record) => {
                self.rows.apply(at, &record, Instant::now())?;
                self.last = Some(at);
                // The rows of many commits must not stay in memory.
                if self.rows.bytes() >= self.memtable_bytes {
                    self.write_part(at)?;
                    self.rows = Memtable::new(*self.rows.state(), at.last_entry);
                }
                Ok(ControlFlow::Continue(()))
            }
        }
    }

    /// Writes the remaining rows durably. Returns the last commit of the delta.
    fn finish(mut self) -> Result<Option<RecordPosition>, Error> {
        let Some(last) = self.last else {
            return Ok(None);
        };
        if self.rows.created_at().is_some() {
            self.write_part(last)?;
        }

        self.file
            .into_inner()
            .map_err(io::IntoInnerError::into_error)
            .and_then(|file| file.sync_all())
            .map_err(Error::io("write", self.path))?;
        Ok(Some(last))
    }

    fn write_part(&mut self, at: RecordPosition) -> Result<(), Error> {
        write_part(&mut self.file, at, &self.rows).map_err(Error::io("write", self.path))
    }
}

fn write_part(file: &mut BufWriter<File>, at: RecordPosition, rows: &Memtable) -> io::Result<()> {
    let mut record = RecordWriter::default();
    record.clear();
    rows.copy_to(&mut record).map_err(io::Error::other)?;
    let record = record.finish(rows.state());
    let EntryId {
        number,
        owner: LogOwner { epoch, writer },
    } = at.last_entry;
    for field in [at.position, number, epoch, writer, record.len() as u64] {
        file.write_all(&field.to_le_bytes())?;
    }
    file.write_all(record)
}

/// Applies a delta to the tables of its base.
pub(crate) fn apply(disk: &Arc<StoreDir>, path: &Path, options: &Options) -> Result<(), Error> {
    let io_error = || Error::io("read", path);
    let mut file = BufReader::new(File::open(path).map_err(io_error())?);
    let mut tables = MergedTables::new(Arc::clone(disk));

    while let Some([position, number, epoch, writer, length]) =
        read_header(&mut file).map_err(io_error())?
    {
        let mut record = Vec::new();
        // The length may be damaged, so the buffer grows only with the bytes that the file has.
        let read = file
            .by_ref()
            .take(length)
            .read_to_end(&mut record)
            .map_err(io_error())?;

        if read as u64 != length {
            let location = format!("the delta of commit {position}");
            return Err(Error::Corrupt {
                location,
                reason: format!("{read} bytes instead of {length}"),
            });
        }

        let last_entry = EntryId {
            number,
            owner: LogOwner { epoch, writer },
        };
        tables.apply(
            RecordPosition {
                position,
                last_entry,
            },
            &Bytes::from(record),
        )?;
        tables.flush_if_full(options.memtable_bytes)?;
    }
    tables.flush()
}

/// Reads the numbers before a part; `None` at the end of the file.
fn read_header(file: &mut BufReader<File>) -> io::Result<Option<[u64; 5]>> {
    let mut bytes = [0; 40];
    // The file may end only between two parts.
    if file.by_ref().take(1).read(&mut bytes)? == 0 {
        return Ok(None);
    }

    file.read_exact(&mut bytes[1..])?;
    let (fields, _) = bytes.as_chunks::<8>();
    let mut header = [0; 5];
    header
        .iter_mut()
        .zip(fields)
        .for_each(|(field, bytes)| *field = u64::from_le_bytes(*bytes));
    Ok(Some(header))
}
