//! Log follower: converts entries to commits.
//!
//! | entry | result |
//! |---|---|
//! | claim, epoch not older than the owner's | its writer owns the log; drops incomplete parts |
//! | claim of an older epoch | ignored: it arrived too late |
//! | part 0 of the commit after the last one | a record starts; incomplete parts are dropped |
//! | part n after part n - 1 of the same record | the record grows; its last part completes it |
//! | part of a record with another number of parts | the parts do not fit together |
//! | any other entry of the owner | entries are missing before it |
//! | any other entry | corruption: the log accepted an entry that it must reject |

use bytes::{Bytes, BytesMut};

use crate::error::Error;
use crate::replication::commit_log::{LogEntry, LogPosition};
use crate::replication::frame::{self, EntryHeader, EntryKind, LogOwner, UNKNOWN};

/// Position of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordPosition {
    /// Number of commits.
    pub(crate) position: u64,
    /// Last entry of the record in a log; empty without a log.
    pub(crate) last_entry: EntryId,
}

impl RecordPosition {
    /// Returns a position in a store without a log.
    pub(crate) fn position(position: u64) -> Self {
        Self {
            position,
            last_entry: EntryId::NONE,
        }
    }
}

/// Identity of a log entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryId {
    pub(crate) number: u64,
    pub(crate) owner: LogOwner,
}

impl EntryId {
    /// Id before the first entry.
    pub(crate) const NONE: Self = Self {
        number: 0,
        owner: LogOwner {
            epoch: 0,
            writer: 0,
        },
    };
}

impl LogPosition {
    /// Returns the entry at this position.
    pub(crate) fn last_entry(&self) -> EntryId {
        EntryId {
            number: self.number,
            owner: LogOwner {
                epoch: self.epoch,
                writer: self.writer,
            },
        }
    }

    /// Returns another position in the same log.
    pub(crate) fn at(
        &self,
        RecordPosition {
            position,
            last_entry,
        }: RecordPosition,
    ) -> Self {
        let EntryId {
            number,
            owner: LogOwner { epoch, writer },
        } = last_entry;
        Self {
            log: self.log,
            position,
            number,
            epoch,
            writer,
        }
    }
}

/// Log follower; see the module.
#[derive(Debug)]
pub(crate) struct LogFollower {
    /// Position of the last commit.
    pub(crate) position: u64,
    /// Number of the last entry.
    pub(crate) number: u64,
    /// Last known owner of the log.
    pub(crate) owner: Option<LogOwner>,
    /// Entry that must be first, if known.
    expected: Option<EntryId>,
    /// Last claim after the start.
    pub(crate) claim: Option<EntryId>,
    /// Recorded claim that was not passed yet.
    awaited_claim: Option<EntryId>,
    parts: BytesMut,
    next_part: u16,
    /// Number of parts of the incomplete record.
    part_count: u16,
}

/// Result of an entry.
#[derive(Debug)]
pub(crate) enum FollowStep {
    /// No commit yet.
    Nothing,
    /// Complete record.
    Record(RecordPosition, Bytes),
    /// Entries before this one are missing, or the entry differs from the local one: the copy does
    /// not belong to this log.
    Diverged(String),
}

impl LogFollower {
    /// Continues at the end of a copy. The caller must first pass the entry at that position, which
    /// detects a copy of another log.
    pub(crate) fn from(position: &LogPosition) -> Self {
        Self {
            position: position.position,
            // The entry at the position is read again, to compare it with the copy.
            number: position.number.saturating_sub(1),
            owner: None,
            expected: (position.number > 0).then(|| position.last_entry()),
            claim: None,
            awaited_claim: None,
            parts: BytesMut::new(),
            next_part: 0,
            part_count: 0,
        }
    }

    /// Requires this claim, unless it is before the start: its entry and those after it are only
    /// purged with a later snapshot.
    pub(crate) fn require_claim(&mut self, claim: EntryId) {
        self.awaited_claim = Some(claim).filter(|claim| claim.number > self.number);
    }

    /// Returns the required claim if it was not passed: the log is empty, or lost its end.
    pub(crate) fn missing_claim(&self) -> Option<EntryId> {
        self.awaited_claim
    }

    /// Returns whether the entry at the start position has not been passed yet.
    pub(crate) fn awaits_start_entry(&self) -> bool {
        self.expected.is_some()
    }

    /// Processes the next entry.
    pub(crate) fn take(&mut self, entry: &LogEntry) -> Result<FollowStep, Error> {
        let corrupt = |reason: String| Error::Corrupt {
            location: format!("entry {} of the log", entry.number),
            reason,
        };

        let (header, body) = frame::read(&entry.bytes).map_err(corrupt)?;
        // The first entry only identifies the log. Its commit is already in the copy.
        if let Some(expected) = self.expected.take() {
            return Ok(self.check_start_entry(expected, entry.number, &header));
        }

        self.number = entry.number;
        let id = EntryId {
            number: entry.number,
            owner: header.owner,
        };
        // Its entry proves that the log did not lose its end, also if the claim itself is ignored.
        self.awaited_claim.take_if(|awaited| *awaited == id);

        let current = self.owner.map_or(0, |owner| owner.epoch);
        match header.kind {
            EntryKind::Claim if header.owner.epoch < current => Ok(FollowStep::Nothing),
            // A claim states the last commit that its writer has read. Another number means that
            // entries are missing.
            EntryKind::Claim if ![self.position, UNKNOWN].contains(&header.position) => {
                Ok(self.missing(&header))
            }
            EntryKind::Claim => {
                // The previous owner cannot complete the record that it has started.
                self.owner = Some(header.owner);
                self.claim = Some(id);
                self.drop_parts();
                Ok(FollowStep::Nothing)
            }
            // A replaced writer cannot append, because its expected last entry is no longer the
            // last one.
            EntryKind::Part(..) if self.owner.is_some_and(|owner| owner != header.owner) => {
                Err(corrupt(format!(
                    "{:?} wrote it, but {:?} owns the log",
                    header.owner, self.owner
                )))
            }
            EntryKind::Part(part, parts) => Ok(self.part(entry.number, &header, part, parts, body)),
        }
    }

    fn check_start_entry(
        &mut self,
        expected: EntryId,
        number: u64,
        header: &EntryHeader,
    ) -> FollowStep {
        self.number = number;
        self.owner = Some(header.owner);

        let found = EntryId {
            number,
            owner: header.owner,
        };
        // A copy ends with a commit, so another kind of entry is from another log.
        if found == expected
            && header.position == self.position
            && matches!(header.kind, EntryKind::Part(..))
        {
            return FollowStep::Nothing;
        }

        FollowStep::Diverged(format!(
            "entry {} of the log differs from the entry in the copy",
            expected.number
        ))
    }

    fn part(
        &mut self,
        number: u64,
        header: &EntryHeader,
        part: u16,
        parts: u16,
        body: Bytes,
    ) -> FollowStep {
        if part == 0 {
            self.drop_parts();
            self.part_count = parts;
        }

        // The writer appends the parts in order, so another one means that entries are missing.
        if header.position != self.position + 1 || part != self.next_part || part >= parts {
            return self.missing(header);
        }
        // Parts of two divisions of a record do not fit together.
        if parts != self.part_count {
            return FollowStep::Diverged(format!(
                "commit {} has {} parts, but part {part} states {parts}",
                header.position, self.part_count
            ));
        }

        self.owner = Some(header.owner);
        if part + 1 < parts {
            self.parts.extend_from_slice(&body);
            self.next_part += 1;
            return FollowStep::Nothing;
        }

        // A record of one part, the usual case, is not copied.
        let record = if part == 0 {
            body
        } else {
            self.parts.extend_from_slice(&body);
            self.parts.split().freeze()
        };

        self.drop_parts();
        self.position = header.position;
        FollowStep::Record(
            RecordPosition {
                position: self.position,
                last_entry: EntryId {
                    number,
                    owner: header.owner,
                },
            },
            record,
        )
    }

    fn missing(&self, header: &EntryHeader) -> FollowStep {
        FollowStep::Diverged(format!(
            "the log continues with commit {}, but commit {} was the last",
            header.position, self.position
        ))
    }

    fn drop_parts(&mut self) {
        self.parts.clear();
        self.next_part = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const A: LogOwner = LogOwner {
        epoch: 1,
        writer: 7,
    };
    const B: LogOwner = LogOwner {
        epoch: 2,
        writer: 8,
    };

    fn claim(owner: LogOwner, position: u64) -> Bytes {
        EntryHeader::claim(owner, position, Duration::ZERO)
    }

    fn part(owner: LogOwner, position: u64, part: u16, parts: u16) -> Bytes {
        EntryHeader {
            kind: EntryKind::Part(part, parts),
            owner,
            position,
        }
        .encode(&[u8::try_from(part).unwrap()])
    }

    /// Checks the resulting records; `!` for corruption, `?` for missing entries.
    #[track_caller]
    fn check(entries: &[Bytes], expected: &[&str]) {
        let nothing = LogPosition {
            log: [0; 16],
            position: 0,
            number: 0,
            epoch: 0,
            writer: 0,
        };
        let mut follower = LogFollower::from(&nothing);
        let mut found = Vec::new();
        for (number, bytes) in (1..).zip(entries) {
            match follower.take(&LogEntry {
                number,
                bytes: bytes.clone(),
            }) {
                Ok(FollowStep::Nothing) => {}
                Ok(FollowStep::Record(at, record)) => {
                    found.push(format!("{}:{}", at.position, hex::encode(&record)));
                }
                Ok(FollowStep::Diverged(_)) => found.push("?".to_owned()),
                Err(_) => found.push("!".to_owned()),
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn record_is_complete_with_its_last_chunk() {
        check(
            &[
                claim(A, 0),
                part(A, 1, 0, 1),
                part(A, 2, 0, 3),
                part(A, 2, 1, 3),
            ],
            &["1:00"],
        );
        check(
            &[claim(A, 0), part(A, 1, 0, 2), part(A, 1, 1, 2)],
            &["1:0001"],
        );
    }

    #[test]
    fn incomplete_records_are_dropped() {
        check(
            &[claim(A, 0), part(A, 1, 0, 2), claim(B, 0), part(B, 1, 0, 1)],
            &["1:00"],
        );
        check(
            &[
                claim(A, 0),
                part(A, 1, 0, 2),
                part(A, 1, 0, 2),
                part(A, 1, 1, 2),
            ],
            &["1:0001"],
        );
    }

    #[test]
    fn stale_owner_claim_is_ignored() {
        check(
            &[claim(B, 0), part(B, 1, 0, 2), claim(A, 0), part(B, 1, 1, 2)],
            &["1:0001"],
        );
    }

    #[test]
    fn gaps_and_foreign_entries_are_detected() {
        check(&[claim(A, 0), part(A, 2, 0, 1)], &["?"]);
        check(&[claim(A, 3)], &["?"]);
        check(&[claim(A, 0), part(A, 1, 1, 2)], &["?"]);
        check(&[claim(A, 0), claim(B, 0), part(A, 1, 0, 1)], &["!"]);
    }

    #[test]
    fn parts_of_two_divisions_are_not_combined() {
        check(&[claim(A, 0), part(A, 1, 0, 3), part(A, 1, 1, 2)], &["?"]);
        check(
            &[
                claim(A, 0),
                part(A, 1, 0, 2),
                part(A, 1, 0, 3),
                part(A, 1, 1, 3),
                part(A, 1, 2, 3),
            ],
            &["1:000102"],
        );
    }

    #[test]
    fn copy_starts_at_its_last_entry() {
        let position = LogPosition {
            log: [0; 16],
            position: 1,
            number: 5,
            epoch: 1,
            writer: 7,
        };
        let mut follower = LogFollower::from(&position);
        assert!(follower.awaits_start_entry());
        let entry = |number, bytes| LogEntry { number, bytes };
        assert!(matches!(
            follower.take(&entry(5, part(A, 1, 0, 1))).unwrap(),
            FollowStep::Nothing
        ));
        assert!(!follower.awaits_start_entry());
        assert!(matches!(
            follower.take(&entry(9, part(A, 2, 0, 1))).unwrap(),
            FollowStep::Record(..)
        ));
        for (number, bytes) in [
            (6, part(A, 1, 0, 1)),
            (5, part(B, 1, 0, 1)),
            (5, claim(A, 1)),
        ] {
            let step = LogFollower::from(&position)
                .take(&entry(number, bytes))
                .unwrap();
            assert!(matches!(step, FollowStep::Diverged(_)));
        }
    }
}
