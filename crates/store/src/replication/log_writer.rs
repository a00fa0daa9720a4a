//! Writing a log as its owner: each record goes there, fenced, before it counts.
//!
//! An append that failed may have landed all the same. What became of it is looked up, and the same entry is appended again
//! until its fate is known; nothing else is written meanwhile.

use std::hash::{BuildHasher, Hasher};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::error::Error;
use crate::replication::commit_log::{CommitLog, Entry, LogError};
use crate::replication::follower::{At, Mark};
use crate::replication::frame::{self, HEAD_BYTES, Head, Kind, Owner};
use crate::replication::metrics::Meter;

/// How often an entry that did not land is appended at once. A cluster refuses one now and then although nobody else writes.
const TRIES: u32 = 3;

/// The owner's end of a log.
#[derive(Debug)]
pub(crate) struct Replica {
    log: Arc<dyn CommitLog>,
    owner: Owner,
    last: u64,
    pending: Option<Pending>,
    meter: Arc<Meter>,
}

/// A record that is not wholly in the log yet.
#[derive(Debug)]
struct Pending {
    position: u64,
    record: Bytes,
    next_part: u16,
}

/// What became of an entry.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Landed(u64),
    Absent,
}

impl Replica {
    /// For the owner whose claim, or the last entry behind it, has the number `last`.
    pub(crate) fn new(log: Arc<dyn CommitLog>, owner: Owner, last: u64, meter: Arc<Meter>) -> Self {
        Self { log, owner, last, pending: None, meter }
    }

    /// Puts a record into the log. Once this fails as unavailable, [`Replica::resume`] goes on with it.
    pub(crate) fn append(&mut self, position: u64, record: Bytes) -> Result<At, Error> {
        if self.pending.is_some() {
            let reason = "the commit before it is still on its way; resume that one first".to_owned();
            return Err(Error::Unavailable { reason });
        }
        let parts = record.len().div_ceil(self.body_bytes());
        if u16::try_from(parts).is_err() {
            let limit = self.body_bytes() as u64 * u64::from(u16::MAX);
            return Err(Error::TooLarge { bytes: record.len() as u64, limit });
        }
        self.pending = Some(Pending { position, record, next_part: 0 });
        Ok(self.resume()?.map_or(At::position(position), |(at, _)| at))
    }

    /// Goes on with the record that is on its way; nothing if none is.
    pub(crate) fn resume(&mut self) -> Result<Option<(At, Bytes)>, Error> {
        let begun = Instant::now();
        let result = self.push();
        self.meter.tried(result.as_ref().err());
        if let Ok(Some((_, record))) = &result {
            self.meter.appended(record.len() as u64, begun.elapsed());
        }
        result
    }

    fn push(&mut self) -> Result<Option<(At, Bytes)>, Error> {
        let size = self.body_bytes();
        while let Some(pending) = &self.pending {
            let parts = u16::try_from(pending.record.len().div_ceil(size)).unwrap_or(u16::MAX);
            let from = usize::from(pending.next_part) * size;
            let body = &pending.record[from..pending.record.len().min(from + size)];
            let head = Head {
                kind: Kind::Part(pending.next_part, parts),
                owner: self.owner,
                position: pending.position,
            };
            self.put(&head.with(body), &head)?;
            if let Some(pending) = &mut self.pending {
                pending.next_part += 1;
            }
            if let Some(Pending { position, record, .. }) =
                self.pending.take_if(|pending| pending.next_part == parts)
            {
                let mark = Mark { number: self.last, owner: self.owner };
                return Ok(Some((At { position, mark }, record)));
            }
        }
        Ok(None)
    }

    /// Appends one entry behind the last one.
    fn put(&mut self, entry: &Bytes, head: &Head) -> Result<(), Error> {
        let mut why = String::new();
        for _ in 0..TRIES {
            match self.log.append(Some(self.last), entry) {
                Ok(number) => {
                    self.last = number;
                    return Ok(());
                }
                Err(error) => why = error.to_string(),
            }
            if let Fate::Landed(number) = self.look(head)? {
                self.last = number;
                return Ok(());
            }
        }
        Err(Error::Unavailable { reason: why })
    }

    /// Finds out what became of the entry with this head.
    fn look(&mut self, head: &Head) -> Result<Fate, Error> {
        let Some(last) = self.log.last()? else {
            return if self.last == 0 { Ok(Fate::Absent) } else { Err(self.lost(0)) };
        };
        if last.number < self.last {
            return Err(self.lost(last.number));
        }
        if last.number == self.last {
            return Ok(Fate::Absent);
        }
        if let Some(fate) = self.judge(&last, head)? {
            return Ok(fate);
        }
        self.scan(head)
    }

    /// Looks through everything behind our last entry: claims that came too late may lie before and behind ours.
    fn scan(&mut self, head: &Head) -> Result<Fate, Error> {
        let (log, mut fate) = (Arc::clone(&self.log), Ok(Fate::Absent));
        let mut number = self.last;
        log.read(self.last, &mut |entry| {
            number = entry.number;
            match self.judge(&entry, head) {
                Ok(None) => ControlFlow::Continue(()),
                Ok(Some(found)) => {
                    fate = Ok(found);
                    ControlFlow::Break(())
                }
                Err(error) => {
                    fate = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        if let Ok(Fate::Absent) = fate {
            self.last = number;
        }
        fate
    }

    /// What an entry behind our last one says about ours; nothing if it is a claim that came too late.
    fn judge(&self, entry: &Entry, head: &Head) -> Result<Option<Fate>, Error> {
        let wrong = |reason| Error::Corrupt { place: format!("entry {} of the log", entry.number), reason };
        let (found, _) = frame::read(&entry.bytes).map_err(wrong)?;
        if found == *head {
            return Ok(Some(Fate::Landed(entry.number)));
        }
        if found.kind == Kind::Claim && found.owner.epoch < self.owner.epoch {
            return Ok(None);
        }
        let (ours, theirs) = (self.owner.epoch, found.owner.epoch);
        let reason = format!("entry {} of its log is of epoch {theirs}, ours is {ours}", entry.number);
        Err(Error::Fenced { reason })
    }

    fn lost(&self, found: u64) -> Error {
        Error::LogLost { held: self.last, found }
    }

    fn body_bytes(&self) -> usize {
        self.log.max_entry_bytes().saturating_sub(HEAD_BYTES).max(1)
    }
}

/// Becomes the owner: claims the log and follows it up to the claim. `follow` reads on from where the copy ends; its answer is
/// the last entry, the position, and the owner that it found.
pub(crate) fn claim<E: From<Error>>(
    log: &dyn CommitLog,
    epoch: u64,
    window: Duration,
    mut follow: impl FnMut() -> Result<(u64, u64, Option<Owner>), E>,
) -> Result<(Owner, u64), E> {
    let owner = Owner { epoch, writer: chance() };
    let mut fenced_tries = TRIES;
    loop {
        let (last, position, found) = follow()?;
        if found == Some(owner) {
            return Ok((owner, last));
        }
        if let Some(found) = found.filter(|found| found.epoch > epoch) {
            let reason = format!("its log was claimed for epoch {}, ours is {epoch}", found.epoch);
            return Err(Error::Fenced { reason }.into());
        }
        // Against a busy predecessor the race for the next entry is lost again and again. A claim without a fence always lands,
        // and whoever reads it knows by its epoch whether it counts.
        let after = (fenced_tries > 0).then_some(last);
        fenced_tries = fenced_tries.saturating_sub(1);
        let position = after.map_or(frame::UNKNOWN, |_| position);
        match log.append(after, &Head::claim(owner, position, window)) {
            Ok(number) if after.is_some() => return Ok((owner, number)),
            // It landed, or may have: what follows tells.
            Ok(_) | Err(LogError::Conflict(_)) => {}
            Err(error) => return Err(Error::from(error).into()),
        }
    }
}

/// A number that no other life of a writer has.
fn chance() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}
