//! A log of a shard in memory that loses acknowledgements, delivers late, and goes away when a test says so.

use std::collections::{HashMap, VecDeque};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use orlog_store::{CommitLog, Entry, LogError, Place};

/// What happens to an append.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing: it is stored and acknowledged.
    None,
    /// It is not stored, and the writer hears nothing.
    Lost,
    /// It is stored, and the writer hears nothing.
    AckLost,
    /// The writer hears nothing; it arrives with [`MemoryLog::deliver`].
    Late,
    /// It is refused although nobody else wrote.
    Refused,
}

/// One client's end of a log. [`MemoryLog::client`] makes another end of the same log.
#[derive(Clone, Debug)]
pub struct MemoryLog {
    log: Arc<Mutex<Log>>,
    end: Arc<Mutex<End>>,
}

#[derive(Debug)]
struct Log {
    identity: [u8; 16],
    max_entry_bytes: usize,
    entries: VecDeque<Entry>,
    next: u64,
    snapshots: HashMap<Place, Vec<u8>>,
    damaged: Vec<u64>,
    late: Vec<(Option<u64>, Bytes)>,
}

#[derive(Debug, Default)]
struct End {
    faults: VecDeque<Fault>,
    appends: usize,
    cut: Option<(usize, bool)>,
    down: bool,
}

impl MemoryLog {
    /// An empty log whose entries have so many bytes at most.
    #[must_use]
    pub fn new(max_entry_bytes: usize) -> Self {
        let log = Log {
            identity: *b"a log in memory.",
            max_entry_bytes,
            entries: VecDeque::new(),
            next: 1,
            snapshots: HashMap::new(),
            damaged: Vec::new(),
            late: Vec::new(),
        };
        Self { log: Arc::new(Mutex::new(log)), end: Arc::default() }
    }

    /// Another client, without faults.
    #[must_use]
    pub fn client(&self) -> Self {
        Self { log: Arc::clone(&self.log), end: Arc::default() }
    }

    /// As the store takes it.
    #[must_use]
    pub fn port(&self) -> Arc<dyn CommitLog> {
        Arc::new(self.clone())
    }

    /// What happens to the next appends of this client.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.end().faults.extend(faults);
    }

    /// This client is cut off during its append number `append`, counted from 0, for good; that append is stored or not.
    pub fn cut(&self, append: usize, stored: bool) {
        self.end().cut = Some((append, stored));
    }

    /// The log does not answer this client, or does again.
    pub fn set_down(&self, down: bool) {
        self.end().down = down;
    }

    /// How many appends this client has tried.
    #[must_use]
    pub fn appends(&self) -> usize {
        self.end().appends
    }

    /// What is late arrives now; what was overtaken is refused, and nobody hears of it. Says how many entries were stored.
    #[must_use]
    pub fn deliver(&self) -> usize {
        let mut log = self.log();
        let late = std::mem::take(&mut log.late);
        late.into_iter().filter(|(after, entry)| log.append(*after, entry).is_ok()).count()
    }

    /// All entries.
    #[must_use]
    pub fn entries(&self) -> Vec<Entry> {
        self.log().entries.iter().cloned().collect()
    }

    /// The last entries are gone, as after a power failure of a server that had not written them.
    pub fn lose_tail(&self, count: usize) {
        let mut log = self.log();
        let left = log.entries.len().saturating_sub(count);
        log.entries.truncate(left);
        log.next = log.entries.back().map_or(1, |last| last.number + 1);
    }

    /// The log was deleted and made anew.
    pub fn replace(&self) {
        let mut log = self.log();
        log.identity[0] += 1;
        log.entries.clear();
    }

    /// The snapshot of this position cannot be read any more.
    pub fn damage(&self, position: u64) {
        self.log().damaged.push(position);
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) -> MutexGuard<'_, End> {
        self.end.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn up(&self) -> Result<MutexGuard<'_, Log>, LogError> {
        if self.end().down { Err(silence()) } else { Ok(self.log()) }
    }
}

impl Log {
    fn append(&mut self, after: Option<u64>, entry: &Bytes) -> Result<u64, LogError> {
        let last = self.entries.back().map_or(0, |last| last.number);
        if let Some(after) = after.filter(|after| *after != last) {
            return Err(LogError::Conflict(format!("{last}, not {after}")));
        }
        let number = self.next;
        // Other shards write to the same stream.
        self.next += 1 + number % 3;
        self.entries.push_back(Entry { number, bytes: entry.clone() });
        Ok(number)
    }
}

impl End {
    /// What happens to the next append.
    fn next(&mut self) -> Fault {
        let index = self.appends;
        self.appends += 1;
        match self.cut {
            Some((append, stored)) if append == index => {
                self.down = true;
                if stored { Fault::AckLost } else { Fault::Lost }
            }
            _ => self.faults.pop_front().unwrap_or(Fault::None),
        }
    }
}

fn silence() -> LogError {
    LogError::Unavailable("no answer".to_owned())
}

impl CommitLog for MemoryLog {
    fn identity(&self) -> Result<[u8; 16], LogError> {
        Ok(self.up()?.identity)
    }

    fn max_entry_bytes(&self) -> usize {
        self.log().max_entry_bytes
    }

    fn append(&self, after: Option<u64>, entry: &Bytes) -> Result<u64, LogError> {
        assert!(entry.len() <= self.max_entry_bytes(), "the entry is larger than the log takes");
        drop(self.up()?);
        let fault = self.end().next();
        let mut log = self.log();
        match fault {
            Fault::None => log.append(after, entry),
            Fault::Lost => Err(silence()),
            Fault::AckLost => log.append(after, entry).and(Err(silence())),
            Fault::Late => {
                log.late.push((after, entry.clone()));
                Err(silence())
            }
            Fault::Refused => Err(LogError::Conflict("somebody else is faster".to_owned())),
        }
    }

    fn last(&self) -> Result<Option<Entry>, LogError> {
        Ok(self.up()?.entries.back().cloned())
    }

    fn read(&self, after: u64, visit: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), LogError> {
        let entries: Vec<_> =
            self.up()?.entries.iter().filter(|entry| entry.number > after).cloned().collect();
        for entry in entries {
            if visit(entry).is_break() {
                break;
            }
        }
        Ok(())
    }

    fn purge_before(&self, number: u64) -> Result<(), LogError> {
        self.up()?.entries.retain(|entry| entry.number >= number);
        Ok(())
    }

    fn snapshots(&self) -> Result<Vec<Place>, LogError> {
        let mut places: Vec<_> = self.up()?.snapshots.keys().copied().collect();
        places.sort_by_key(|place| place.position);
        Ok(places)
    }

    fn save(&self, place: &Place, file: &Path) -> Result<(), LogError> {
        let bytes = std::fs::read(file).map_err(|error| LogError::Unavailable(error.to_string()))?;
        self.up()?.snapshots.insert(*place, bytes);
        Ok(())
    }

    fn load(&self, place: &Place, file: &Path) -> Result<(), LogError> {
        let log = self.up()?;
        let bytes = log.snapshots.get(place).filter(|_| !log.damaged.contains(&place.position));
        let bytes = bytes.ok_or_else(|| LogError::Damaged("it is not what was saved".to_owned()))?;
        std::fs::write(file, bytes).map_err(|error| LogError::Unavailable(error.to_string()))
    }

    fn forget(&self, place: &Place) -> Result<(), LogError> {
        self.up()?.snapshots.remove(place);
        Ok(())
    }
}
