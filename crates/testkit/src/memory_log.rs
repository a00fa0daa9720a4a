//! In-memory shard log that loses acknowledgements, delivers late or becomes unavailable on request.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use orlog_store::{CommitLog, CommitLogError, LogEntry, LogPosition, Snapshot};
use parking_lot::{Mutex, MutexGuard};

/// Fault of an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AppendFault {
    /// No fault: the entry is stored and acknowledged.
    None,
    /// The entry is not stored, and the writer receives no response.
    Lost,
    /// The entry is stored, and the writer receives no response.
    AckLost,
    /// The writer receives no response; the entry is stored by [`MemoryLog::deliver_late`].
    Late,
    /// The append is rejected although no other writer appended.
    Rejected,
}

/// Client of a log. [`MemoryLog::client`] creates another client of the same log.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    log: Arc<Mutex<LogState>>,
    end: Arc<Mutex<ClientState>>,
}

/// Position and base of a snapshot.
type SnapshotId = (LogPosition, Option<LogPosition>);

#[derive(Debug)]
struct LogState {
    identity: [u8; 16],
    max_entry_bytes: usize,
    entries: VecDeque<LogEntry>,
    next: u64,
    snapshots: HashMap<SnapshotId, (Snapshot, Vec<u8>)>,
    damaged: Vec<u64>,
    late: Vec<(Option<u64>, Bytes)>,
    claim: Option<LogPosition>,
    /// First entry that can be read.
    first_readable: u64,
}

#[derive(Debug, Default)]
struct ClientState {
    faults: VecDeque<AppendFault>,
    appends: usize,
    partitioned: Option<(usize, bool)>,
    down: bool,
    ended: bool,
}

impl MemoryLog {
    /// Creates an empty log with a maximum entry size.
    #[must_use]
    pub fn new(max_entry_bytes: usize) -> Self {
        let log = LogState {
            identity: *b"memory log 00001",
            max_entry_bytes,
            entries: VecDeque::new(),
            next: 1,
            snapshots: HashMap::new(),
            damaged: Vec::new(),
            late: Vec::new(),
            claim: None,
            first_readable: 0,
        };
        Self {
            log: Arc::new(Mutex::new(log)),
            end: Arc::default(),
        }
    }

    /// Creates another client without faults.
    #[must_use]
    pub fn client(&self) -> Self {
        Self {
            log: Arc::clone(&self.log),
            end: Arc::default(),
        }
    }

    /// Returns the log as the interface of the store.
    #[must_use]
    pub fn commit_log(&self) -> Arc<dyn CommitLog> {
        Arc::new(self.clone())
    }

    /// Sets the faults of the next appends of this client.
    pub fn inject_faults(&self, faults: impl IntoIterator<Item = AppendFault>) {
        self.end.lock().faults.extend(faults);
    }

    /// Partitions this client permanently during its append number `append`, counted from 0; `stored` tells
    /// whether that append is stored.
    pub fn set_partitioned(&self, append: usize, stored: bool) {
        self.end.lock().partitioned = Some((append, stored));
    }

    /// Sets the maximum entry size, as another server can have another one.
    pub fn set_max_entry_bytes(&self, bytes: usize) {
        self.log.lock().max_entry_bytes = bytes;
    }

    /// Lets reads fail that start before the entry `number`.
    pub fn set_unreadable_before(&self, number: u64) {
        self.log.lock().first_readable = number;
    }

    /// Sets whether the log is unavailable to this client.
    pub fn set_down(&self, down: bool) {
        self.end.lock().down = down;
    }

    /// Ends the process of this client: its threads that still run save no snapshot.
    pub fn end_process(&self) {
        self.end.lock().ended = true;
    }

    /// Returns the number of append attempts of this client.
    #[must_use]
    pub fn appends(&self) -> usize {
        self.end.lock().appends
    }

    /// Delivers the late entries. Outdated entries are rejected without a response. Returns the number of
    /// stored entries.
    #[must_use]
    pub fn deliver_late(&self) -> usize {
        let mut log = self.log.lock();
        let late = std::mem::take(&mut log.late);
        late.into_iter()
            .filter(|(after, entry)| log.append(*after, entry).is_ok())
            .count()
    }

    /// Returns all entries.
    #[must_use]
    pub fn entries(&self) -> Vec<LogEntry> {
        self.log.lock().entries.iter().cloned().collect()
    }

    /// Removes the last entries, as after a power failure of a server without fsync.
    pub fn lose_tail(&self, count: usize) {
        let mut log = self.log.lock();
        let remaining = log.entries.len().saturating_sub(count);
        log.entries.truncate(remaining);
        log.next = log.entries.back().map_or(1, |last| last.number + 1);
    }

    /// Removes all entries, as an operator can. Later ones have higher numbers.
    pub fn purge(&self) {
        self.log.lock().entries.clear();
    }

    /// Loses the record of a claim whose entry was lost: the record is newer than the entry.
    pub fn lose_record_of_lost_claim(&self) {
        let mut log = self.log.lock();
        let last = log.entries.back().map_or(0, |last| last.number);
        log.claim.take_if(|claim| claim.number > last);
    }

    /// Restores the log from a copy: only its identity changes.
    pub fn restore(&self) {
        self.log.lock().identity[0] += 1;
    }

    /// Replaces the log, as if it was deleted and recreated.
    pub fn replace(&self) {
        let mut log = self.log.lock();
        log.identity[0] += 1;
        log.entries.clear();
    }

    /// Corrupts the snapshot at this position.
    pub fn damage(&self, position: u64) {
        self.log.lock().damaged.push(position);
    }

    fn up(&self) -> Result<MutexGuard<'_, LogState>, CommitLogError> {
        if self.end.lock().down {
            Err(no_response())
        } else {
            Ok(self.log.lock())
        }
    }
}

impl LogState {
    fn append(&mut self, after: Option<u64>, entry: &Bytes) -> Result<u64, CommitLogError> {
        let last = self.entries.back().map_or(0, |last| last.number);
        if let Some(after) = after.filter(|after| *after != last) {
            return Err(CommitLogError::Conflict(format!("{last}, not {after}")));
        }
        let number = self.next;
        // Other shards write to the same stream.
        self.next += 1 + number % 3;
        self.entries.push_back(LogEntry {
            number,
            bytes: entry.clone(),
        });
        Ok(number)
    }
}

impl ClientState {
    /// Returns the fault of the next append.
    fn next(&mut self) -> AppendFault {
        let index = self.appends;
        self.appends += 1;
        match self.partitioned {
            Some((append, stored)) if append == index => {
                self.down = true;
                if stored {
                    AppendFault::AckLost
                } else {
                    AppendFault::Lost
                }
            }
            _ => self.faults.pop_front().unwrap_or(AppendFault::None),
        }
    }
}

fn no_response() -> CommitLogError {
    CommitLogError::Unavailable("no response".to_owned())
}

impl CommitLog for MemoryLog {
    fn identity(&self) -> Result<[u8; 16], CommitLogError> {
        Ok(self.up()?.identity)
    }

    fn max_entry_bytes(&self) -> usize {
        self.log.lock().max_entry_bytes
    }

    fn append(&self, after: Option<u64>, entry: &Bytes) -> Result<u64, CommitLogError> {
        assert!(
            entry.len() <= self.max_entry_bytes(),
            "the entry exceeds the maximum entry size"
        );
        drop(self.up()?);
        let fault = self.end.lock().next();
        let mut log = self.log.lock();
        match fault {
            AppendFault::None => log.append(after, entry),
            AppendFault::Lost => Err(no_response()),
            AppendFault::AckLost => log.append(after, entry).and(Err(no_response())),
            AppendFault::Late => {
                log.late.push((after, entry.clone()));
                Err(no_response())
            }
            AppendFault::Rejected => Err(CommitLogError::Conflict(
                "another writer appended first".to_owned(),
            )),
        }
    }

    fn last(&self) -> Result<Option<LogEntry>, CommitLogError> {
        Ok(self.up()?.entries.back().cloned())
    }

    fn read(
        &self,
        after: u64,
        visit: &mut dyn FnMut(LogEntry) -> ControlFlow<()>,
    ) -> Result<(), CommitLogError> {
        let log = self.up()?;
        if after + 1 < log.first_readable {
            return Err(no_response());
        }

        let entries: Vec<_> = log
            .entries
            .iter()
            .filter(|entry| entry.number > after)
            .cloned()
            .collect();
        drop(log);
        for entry in entries {
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn purge_before(&self, number: u64) -> Result<(), CommitLogError> {
        self.up()?.entries.retain(|entry| entry.number >= number);
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<Snapshot>, CommitLogError> {
        let mut snapshots: Vec<_> = self
            .up()?
            .snapshots
            .values()
            .map(|(snapshot, _)| *snapshot)
            .collect();
        snapshots.sort_by_key(|snapshot| snapshot.position.position);
        Ok(snapshots)
    }

    fn save(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError> {
        let bytes =
            std::fs::read(file).map_err(|error| CommitLogError::Unavailable(error.to_string()))?;
        let mut log = self.up()?;
        // Checked while the log is locked: the log may lose its tail after the end of the process.
        if self.end.lock().ended {
            return Err(no_response());
        }
        log.snapshots
            .insert((snapshot.position, snapshot.base), (*snapshot, bytes));
        Ok(())
    }

    fn load(&self, snapshot: &Snapshot, file: &Path) -> Result<(), CommitLogError> {
        let log = self.up()?;
        let is_damaged = log.damaged.contains(&snapshot.position.position);
        let bytes = log
            .snapshots
            .get(&(snapshot.position, snapshot.base))
            .filter(|_| !is_damaged);
        let bytes =
            bytes.ok_or_else(|| CommitLogError::Damaged("the snapshot is corrupted".to_owned()))?;
        std::fs::write(file, &bytes.1)
            .map_err(|error| CommitLogError::Unavailable(error.to_string()))
    }

    fn delete_snapshot(&self, snapshot: &Snapshot) -> Result<(), CommitLogError> {
        self.up()?
            .snapshots
            .remove(&(snapshot.position, snapshot.base));
        Ok(())
    }

    fn recorded_claim(&self) -> Result<Option<LogPosition>, CommitLogError> {
        Ok(self.up()?.claim)
    }

    fn record_claim(&self, claim: &LogPosition) -> Result<(), CommitLogError> {
        self.up()?.claim = Some(*claim);
        Ok(())
    }
}
