//! Follows a log: entries in, commits out.
//!
//! | entry                                        | what becomes of it                                        |
//! |----------------------------------------------|-----------------------------------------------------------|
//! | claim, epoch not older than the owner's      | its writer owns the log; parts without an end are dropped |
//! | claim of an older epoch                      | ignored: it came too late                                 |
//! | part 0 of the commit behind the last one     | a record begins; parts without an end are dropped         |
//! | part n behind part n - 1 of the same record  | the record grows, and is a commit with its last part      |
//! | anything else by the owner                   | entries are missing before it                             |
//! | anything else                                | damage: the log took what it must refuse                  |

use bytes::{Bytes, BytesMut};

use crate::error::Error;
use crate::replication::commit_log::{Entry, Place};
use crate::replication::frame::{self, Head, Kind, Owner, UNKNOWN};

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct At {
    /// The count of commits.
    pub(crate) position: u64,
    /// Its last entry in a log; nothing without a log.
    pub(crate) mark: Mark,
}

impl At {
    /// In a store without a log.
    pub(crate) fn position(position: u64) -> Self {
        Self { position, mark: Mark::NONE }
    }
}

/// An entry that can be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) number: u64,
    pub(crate) owner: Owner,
}

impl Mark {
    /// Before the first entry.
    pub(crate) const NONE: Self = Self { number: 0, owner: Owner { epoch: 0, writer: 0 } };
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Follower {
    /// The last commit.
    pub(crate) position: u64,
    /// The last entry.
    pub(crate) number: u64,
    /// Who may write, as far as is known.
    pub(crate) owner: Option<Owner>,
    /// The entry that must come first, where one is known.
    expected: Option<Mark>,
    parts: BytesMut,
    next_part: u16,
}

/// What an entry led to.
#[derive(Debug)]
pub(crate) enum Step {
    /// No commit yet.
    Nothing,
    /// A whole record.
    Record(At, Bytes),
    /// Entries before this one are missing, or it is not the one that was here: this beginning does not belong to this log.
    Stray(String),
}

impl Follower {
    /// Goes on where a copy ends. The entry of that place must be shown first, so that a copy of something else is found out.
    pub(crate) fn from(place: &Place) -> Self {
        let mark = Mark { number: place.number, owner: Owner { epoch: place.epoch, writer: place.writer } };
        Self {
            position: place.position,
            number: place.number.saturating_sub(1),
            owner: None,
            expected: (place.number > 0).then_some(mark),
            parts: BytesMut::new(),
            next_part: 0,
        }
    }

    /// Whether the entry of its place has not been shown yet.
    pub(crate) fn is_lost(&self) -> bool {
        self.expected.is_some()
    }

    /// Takes the next entry.
    pub(crate) fn take(&mut self, entry: &Entry) -> Result<Step, Error> {
        let wrong =
            |reason: String| Error::Corrupt { place: format!("entry {} of the log", entry.number), reason };
        let (head, body) = frame::read(&entry.bytes).map_err(wrong)?;
        if let Some(expected) = self.expected.take() {
            return Ok(self.begin(expected, entry.number, &head));
        }
        self.number = entry.number;
        let current = self.owner.map_or(0, |owner| owner.epoch);
        match head.kind {
            Kind::Claim if head.owner.epoch < current => Ok(Step::Nothing),
            Kind::Claim if ![self.position, UNKNOWN].contains(&head.position) => Ok(self.missing(&head)),
            Kind::Claim => {
                self.owner = Some(head.owner);
                self.drop_parts();
                Ok(Step::Nothing)
            }
            Kind::Part(..) if self.owner.is_some_and(|owner| owner != head.owner) => {
                Err(wrong(format!("{:?} wrote it, but {:?} owns the log", head.owner, self.owner)))
            }
            Kind::Part(part, parts) => Ok(self.part(entry.number, &head, (part, parts), body)),
        }
    }

    fn begin(&mut self, expected: Mark, number: u64, head: &Head) -> Step {
        self.number = number;
        self.owner = Some(head.owner);
        let found = Mark { number, owner: head.owner };
        if found == expected && head.position == self.position && matches!(head.kind, Kind::Part(..)) {
            return Step::Nothing;
        }
        Step::Stray(format!("entry {} of the log is not the one it was made from", expected.number))
    }

    fn part(&mut self, number: u64, head: &Head, (part, parts): (u16, u16), body: Bytes) -> Step {
        if part == 0 {
            self.drop_parts();
        }
        if head.position != self.position + 1 || part != self.next_part || part >= parts {
            return self.missing(head);
        }
        self.owner = Some(head.owner);
        if part + 1 < parts {
            self.parts.extend_from_slice(&body);
            self.next_part += 1;
            return Step::Nothing;
        }
        let record = if part == 0 {
            body
        } else {
            self.parts.extend_from_slice(&body);
            self.parts.split().freeze()
        };
        self.drop_parts();
        self.position = head.position;
        Step::Record(At { position: self.position, mark: Mark { number, owner: head.owner } }, record)
    }

    fn missing(&self, head: &Head) -> Step {
        Step::Stray(format!(
            "the log goes on with commit {}, commit {} was the last",
            head.position, self.position
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

    const A: Owner = Owner { epoch: 1, writer: 7 };
    const B: Owner = Owner { epoch: 2, writer: 8 };

    fn claim(owner: Owner, position: u64) -> Bytes {
        Head::claim(owner, position, Duration::ZERO)
    }

    fn part(owner: Owner, position: u64, part: u16, parts: u16) -> Bytes {
        Head { kind: Kind::Part(part, parts), owner, position }.with(&[u8::try_from(part).unwrap()])
    }

    /// The records that come out; `!` for damage, `?` for missing entries.
    #[track_caller]
    fn check(entries: &[Bytes], expected: &[&str]) {
        let nothing = Place { log: [0; 16], position: 0, number: 0, epoch: 0, writer: 0 };
        let mut follower = Follower::from(&nothing);
        let mut found = Vec::new();
        for (number, bytes) in (1..).zip(entries) {
            match follower.take(&Entry { number, bytes: bytes.clone() }) {
                Ok(Step::Nothing) => {}
                Ok(Step::Record(at, record)) => {
                    found.push(format!("{}:{}", at.position, crate::encoding::tuple::hex(&record)));
                }
                Ok(Step::Stray(_)) => found.push("?".to_owned()),
                Err(_) => found.push("!".to_owned()),
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn a_record_counts_when_its_last_part_is_there() {
        check(&[claim(A, 0), part(A, 1, 0, 1), part(A, 2, 0, 3), part(A, 2, 1, 3)], &["1:00"]);
        check(&[claim(A, 0), part(A, 1, 0, 2), part(A, 1, 1, 2)], &["1:0001"]);
    }

    #[test]
    fn parts_without_an_end_are_dropped() {
        check(&[claim(A, 0), part(A, 1, 0, 2), claim(B, 0), part(B, 1, 0, 1)], &["1:00"]);
        check(&[claim(A, 0), part(A, 1, 0, 2), part(A, 1, 0, 2), part(A, 1, 1, 2)], &["1:0001"]);
    }

    #[test]
    fn a_claim_that_came_too_late_changes_nothing() {
        check(&[claim(B, 0), part(B, 1, 0, 2), claim(A, 0), part(B, 1, 1, 2)], &["1:0001"]);
    }

    #[test]
    fn missing_entries_and_foreign_ones_are_noticed() {
        check(&[claim(A, 0), part(A, 2, 0, 1)], &["?"]);
        check(&[claim(A, 3)], &["?"]);
        check(&[claim(A, 0), part(A, 1, 1, 2)], &["?"]);
        check(&[claim(A, 0), claim(B, 0), part(A, 1, 0, 1)], &["!"]);
    }

    #[test]
    fn a_copy_begins_with_the_entry_it_ends_with() {
        let place = Place { log: [0; 16], position: 1, number: 5, epoch: 1, writer: 7 };
        let mut follower = Follower::from(&place);
        assert!(follower.is_lost());
        let entry = |number, bytes| Entry { number, bytes };
        assert!(matches!(follower.take(&entry(5, part(A, 1, 0, 1))).unwrap(), Step::Nothing));
        assert!(!follower.is_lost());
        assert!(matches!(follower.take(&entry(9, part(A, 2, 0, 1))).unwrap(), Step::Record(..)));
        for (number, bytes) in [(6, part(A, 1, 0, 1)), (5, part(B, 1, 0, 1)), (5, claim(A, 1))] {
            let step = Follower::from(&place).take(&entry(number, bytes)).unwrap();
            assert!(matches!(step, Step::Stray(_)));
        }
    }
}
