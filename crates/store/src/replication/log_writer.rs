//! Writer of a replicated log: appends each record, fenced, before it counts.
//!
//! A failed append may still have been stored. The writer reads the log to find out, and appends
//! the same entry again until the result is known; it writes nothing else meanwhile.

use std::hash::{BuildHasher, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Error;
use crate::replication::commit_log::{CommitLog, CommitLogError, LogEntry};
use crate::replication::follower::{EntryId, RecordPosition};
use crate::replication::frame::{self, EntryHeader, EntryKind, HEADER_BYTES, LogOwner};
use crate::replication::metrics::LogMetrics;

/// Maximum number of immediate appends of an entry that was not stored. A cluster occasionally
/// rejects an entry without a competing writer.
const MAX_APPEND_ATTEMPTS: u32 = 3;

/// Writer end of a log.
#[derive(Debug)]
pub(crate) struct LogWriter {
    log: Arc<dyn CommitLog>,
    owner: LogOwner,
    last: u64,
    pending: Option<PendingRecord>,
    meter: Arc<LogMetrics>,
}

/// Record that is not completely in the log yet.
#[derive(Debug)]
struct PendingRecord {
    position: u64,
    record: Bytes,
    /// Size of each part except the last one. It does not follow the limit of the log, which can
    /// change with a reconnect: parts of two sizes would skip or repeat bytes.
    part_bytes: usize,
    parts: u16,
    next_part: u16,
}

impl PendingRecord {
    /// Divides a record into parts of this size.
    fn divide(position: u64, record: Bytes, part_bytes: usize) -> Result<Self, Error> {
        let parts = u16::try_from(record.len().div_ceil(part_bytes));
        let parts = parts.map_err(|_| Error::TooLarge {
            bytes: record.len() as u64,
            limit: part_bytes as u64 * u64::from(u16::MAX),
        })?;
        Ok(Self {
            position,
            record,
            part_bytes,
            parts,
            next_part: 0,
        })
    }

    /// Returns the bytes of the next part.
    fn next_body(&self) -> &[u8] {
        let from = usize::from(self.next_part) * self.part_bytes;
        let to = self.record.len().min(from + self.part_bytes);
        &self.record[from..to]
    }
}

/// Result of an append.
#[derive(Debug, PartialEq, Eq)]
enum AppendResult {
    Landed(u64),
    Absent,
}

impl LogWriter {
    /// Creates the writer of an owner whose claim, or the last entry after it, has the number
    /// `last`.
    pub(crate) fn new(
        log: Arc<dyn CommitLog>,
        owner: LogOwner,
        last: u64,
        meter: Arc<LogMetrics>,
    ) -> Self {
        Self {
            log,
            owner,
            last,
            pending: None,
            meter,
        }
    }

    /// Appends a record to the log. After [`Error::Unavailable`], [`LogWriter::resume`] continues
    /// it; after [`Error::Poisoned`], only another claim of the log does.
    pub(crate) fn append(&mut self, position: u64, record: Bytes) -> Result<RecordPosition, Error> {
        // The pending record may be stored already, and this one needs the position after it.
        if self.pending.is_some() {
            let reason = "the previous commit is still pending; resume it first".to_owned();
            return Err(Error::Unavailable { reason });
        }

        // Checked before the record is pending: nothing was appended, so the caller can divide the
        // group.
        self.pending = Some(PendingRecord::divide(position, record, self.body_bytes())?);

        Ok(self
            .resume()?
            .map_or(RecordPosition::position(position), |(at, _)| at))
    }

    /// Continues the pending record; returns `None` if there is none.
    pub(crate) fn resume(&mut self) -> Result<Option<(RecordPosition, Bytes)>, Error> {
        let start = Instant::now();
        let result = self.push();
        let appended = match &result {
            Ok(Some((_, record))) => Ok(Some((record.len() as u64, start.elapsed()))),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        self.meter.record_attempt(appended);
        result
    }

    fn push(&mut self) -> Result<Option<(RecordPosition, Bytes)>, Error> {
        while let Some(pending) = &self.pending {
            let header = EntryHeader {
                kind: EntryKind::Part(pending.next_part, pending.parts),
                owner: self.owner,
                position: pending.position,
            };
            let entry = header.encode(pending.next_body());

            self.check_size(&entry)?;
            self.put(&entry, &header)?;
            // A retry continues with the next part.
            if let Some(pending) = &mut self.pending {
                pending.next_part += 1;
            }

            if let Some(PendingRecord {
                position, record, ..
            }) = self
                .pending
                .take_if(|pending| pending.next_part == pending.parts)
            {
                let last_entry = EntryId {
                    number: self.last,
                    owner: self.owner,
                };
                return Ok(Some((
                    RecordPosition {
                        position,
                        last_entry,
                    },
                    record,
                )));
            }
        }
        Ok(None)
    }

    /// Returns an error that requires a recovery if the log does not accept this entry any more.
    ///
    /// The record is never divided again: an entry with the same header may be stored already, with
    /// the bytes of the earlier division. A recovery claims the log, which drops incomplete parts.
    fn check_size(&self, entry: &Bytes) -> Result<(), Error> {
        let limit = self.log.max_entry_bytes();
        if entry.len() <= limit {
            return Ok(());
        }

        let cause = format!(
            "the log accepts entries of up to {limit} bytes, but the pending commit has one of {}",
            entry.len()
        );
        Err(Error::Poisoned { cause })
    }

    /// Appends one entry after the last one.
    fn put(&mut self, entry: &Bytes, header: &EntryHeader) -> Result<(), Error> {
        let mut reason = String::new();
        for _ in 0..MAX_APPEND_ATTEMPTS {
            // The expected last entry fences this writer: the append fails after another writer has
            // appended.
            match self.log.append(Some(self.last), entry) {
                Ok(number) => {
                    self.last = number;
                    return Ok(());
                }
                Err(error) => reason = error.to_string(),
            }

            // A failed append may have been stored, and must not be stored twice.
            if let AppendResult::Landed(number) = self.inspect(header)? {
                self.last = number;
                return Ok(());
            }
        }
        Err(Error::Unavailable { reason })
    }

    /// Determines the result of the entry with this header.
    fn inspect(&mut self, header: &EntryHeader) -> Result<AppendResult, Error> {
        let Some(last) = self.log.last()? else {
            return if self.last == 0 {
                Ok(AppendResult::Absent)
            } else {
                // Entries were acknowledged, so an empty log has lost them.
                Err(self.lost(0))
            };
        };

        if last.number < self.last {
            return Err(self.lost(last.number));
        }
        if last.number == self.last {
            return Ok(AppendResult::Absent);
        }

        // Usually the last entry decides. A scan is necessary only after late claims.
        if let Some(result) = self.classify(&last, header)? {
            return Ok(result);
        }
        self.scan(header)
    }

    /// Scans all entries after our last entry: late claims may be before and after ours.
    fn scan(&mut self, header: &EntryHeader) -> Result<AppendResult, Error> {
        let log = Arc::clone(&self.log);
        let mut result = Ok(AppendResult::Absent);
        let mut number = self.last;

        log.read(self.last, &mut |entry| {
            number = entry.number;
            match self.classify(&entry, header) {
                Ok(None) => ControlFlow::Continue(()),
                Ok(Some(found)) => {
                    result = Ok(found);
                    ControlFlow::Break(())
                }
                Err(error) => {
                    result = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;

        // Only late claims follow the last entry, and the next append must follow them.
        if let Ok(AppendResult::Absent) = result {
            self.last = number;
        }
        result
    }

    /// Derives the result of our entry from an entry after our last one; `None` for a late claim.
    fn classify(
        &self,
        entry: &LogEntry,
        header: &EntryHeader,
    ) -> Result<Option<AppendResult>, Error> {
        let (found, _) = frame::read(&entry.bytes).map_err(|reason| Error::Corrupt {
            location: format!("entry {} of the log", entry.number),
            reason,
        })?;

        // Epoch, writer, position and part identify the entry. No other run of a writer has the
        // same number.
        if found == *header {
            return Ok(Some(AppendResult::Landed(entry.number)));
        }
        // Readers ignore such a claim too, so it does not end this ownership.
        if found.kind == EntryKind::Claim && found.owner.epoch < self.owner.epoch {
            return Ok(None);
        }

        let ours = self.owner.epoch;
        let theirs = found.owner.epoch;
        let reason = format!(
            "entry {} of its log has epoch {theirs}, but this writer has epoch {ours}",
            entry.number
        );
        Err(Error::Fenced {
            reason,
            epoch: theirs,
        })
    }

    fn lost(&self, found: u64) -> Error {
        Error::LogLost {
            acknowledged: self.last,
            found,
        }
    }

    fn body_bytes(&self) -> usize {
        self.log
            .max_entry_bytes()
            .saturating_sub(HEADER_BYTES)
            .max(1)
    }
}

/// End of the log that a copy has followed.
pub(crate) struct LogEnd {
    /// Last entry.
    pub(crate) number: u64,
    /// Number of commits.
    pub(crate) position: u64,
    pub(crate) owner: Option<LogOwner>,
    /// Last claim that was followed.
    pub(crate) claim: Option<EntryId>,
}

/// Claim of a log.
pub(crate) struct Claim {
    pub(crate) entry: EntryId,
    /// Last entry: that of the claim, or one after it.
    pub(crate) last: u64,
}

/// Becomes the owner: claims the log and follows it up to the claim. Without the epoch of a lease,
/// the epoch is one more than that of the last owner. `follow` continues at the end of the copy and
/// returns the end that it found.
pub(crate) fn claim<E: From<Error>>(
    log: &dyn CommitLog,
    lease_epoch: Option<u64>,
    window: Duration,
    mut follow: impl FnMut() -> Result<LogEnd, E>,
) -> Result<Claim, E> {
    let writer = random_writer_id();
    let mut fenced_tries = MAX_APPEND_ATTEMPTS;
    loop {
        let end = follow()?;
        let last = end.number;
        // An earlier round may have stored the claim although its append failed.
        if let Some(entry) = end.claim.filter(|claim| claim.owner.writer == writer) {
            return Ok(Claim { entry, last });
        }

        let newest = end.owner.map_or(0, |found| found.epoch);
        let epoch = lease_epoch.unwrap_or(newest + 1);
        // A claim with an older epoch than the log would be ignored.
        if newest > epoch {
            let reason = format!(
                "its log was claimed for epoch {newest}, but this writer has epoch {epoch}"
            );
            return Err(Error::Fenced {
                reason,
                epoch: newest,
            }
            .into());
        }

        let owner = LogOwner { epoch, writer };
        // Against a busy predecessor a fenced claim loses the race for the next entry repeatedly. A
        // claim without a fence is always stored, and readers determine by its epoch whether it is
        // valid.
        let after = (fenced_tries > 0).then_some(last);
        fenced_tries = fenced_tries.saturating_sub(1);
        let position = after.map_or(frame::UNKNOWN, |_| end.position);

        match log.append(after, &EntryHeader::claim(owner, position, window)) {
            Ok(number) if after.is_some() => {
                let entry = EntryId { number, owner };
                return Ok(Claim {
                    entry,
                    last: number,
                });
            }
            // It was stored, or may have been; the scan below determines it.
            Ok(_) | Err(CommitLogError::Conflict(_)) => {}
            // If the claim was stored nevertheless, the next attempt follows it as one of an
            // earlier run.
            Err(error) => return Err(Error::from(error).into()),
        }
    }
}

/// Returns a number that no other run of a writer has.
fn random_writer_id() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
