//! Which definitions instances are pinned to, counted.
//!
//! Reads every snapshot, but of each only its beginning: 1,000,000 rows take 1.5 s when they lie in memory
//! (measured with 100,000).
//! Commits are let through every few hundred rows.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use orlog_model::{ProgramRef, Status};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::encoding::range::Range;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// How many instances are pinned to each definition, by hash. Definitions without instances are not in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    /// The counts.
    pub by_hash: BTreeMap<[u8; 16], Pinned>,
    /// Every instance was looked at; otherwise the counts are lower bounds.
    pub complete: bool,
}

/// How many instances are pinned to one definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pinned {
    /// Those that have not ended; stuck and paused ones are among them.
    pub live: u64,
    /// Those that have ended and are still stored.
    pub ended: u64,
}

impl Pins {
    /// The counts of one definition.
    #[must_use]
    pub fn of(&self, hash: &[u8; 16]) -> Pinned {
        self.by_hash.get(hash).copied().unwrap_or_default()
    }

    /// Adds what another store counted.
    pub fn add(&mut self, other: &Self) {
        for (hash, pinned) in &other.by_hash {
            let sum = self.by_hash.entry(*hash).or_default();
            sum.live += pinned.live;
            sum.ended += pinned.ended;
        }
        self.complete &= other.complete;
    }
}

impl Reader {
    /// Counts the instances of all tenants by the definition they are pinned to; looks at `limit` of them at most. An
    /// instance that is moved to another definition meanwhile may be counted for either.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn pins(&self, limit: u64) -> Result<Pins, Error> {
        let mut pins = Pins { complete: true, ..Pins::default() };
        let mut left = limit;
        self.shared.scan(Table::Instance, &Range::all(), |_, value| {
            if left == 0 {
                pins.complete = false;
                return Ok(ControlFlow::Break(()));
            }
            left -= 1;
            let Beginning { hash, status } = decode(Table::Instance, value)?;
            let pinned = pins.by_hash.entry(hash).or_default();
            *(if status.is_final() { &mut pinned.ended } else { &mut pinned.live }) += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(pins)
    }
}

/// The beginning of a snapshot: its definition and its status. The rest is skipped, not read.
struct Beginning {
    hash: [u8; 16],
    status: Status,
}

impl<'de> Deserialize<'de> for Beginning {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Beginning;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the snapshot of an instance")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Beginning, A::Error> {
        let missing = || A::Error::custom("it ends too early");
        let program: ProgramRef = fields.next_element()?.ok_or_else(missing)?;
        let _version: u64 = fields.next_element()?.ok_or_else(missing)?;
        let status: Status = fields.next_element()?.ok_or_else(missing)?;
        while fields.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Beginning { hash: program.hash, status })
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, Commit};

    use super::*;
    use crate::samples::{at, instance, key, small};

    fn pinned(correlation: &str, hash: u8, status: Status) -> Change {
        let mut snapshot = instance(1, status);
        snapshot.program.hash = [hash; 16];
        let empty = Commit::empty(key("acme", correlation), at(1));
        Change::Apply(Box::new(Commit { instance: Some(snapshot), ..empty }))
    }

    #[test]
    fn instances_are_counted_by_definition_on_disk_and_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(folder.path(), small()).unwrap();
        let group: Vec<_> = (0..600).map(|n| pinned(&format!("a-{n}"), 1, Status::Running)).collect();
        writer.commit(&group, at(1)).unwrap();
        writer.flush().unwrap();
        let ended = [Status::Completed, Status::Failed, Status::Cancelled, Status::Stuck];
        let group: Vec<_> = ended.iter().map(|status| pinned(&format!("b-{status}"), 2, *status)).collect();
        writer.commit(&group, at(2)).unwrap();
        writer.commit(&[pinned("a-0", 2, Status::Running)], at(3)).unwrap();

        let mut pins = reader.pins(u64::MAX).unwrap();
        assert!(pins.complete);
        assert_eq!(pins.of(&[1; 16]), Pinned { live: 599, ended: 0 });
        assert_eq!(pins.of(&[2; 16]), Pinned { live: 2, ended: 3 });
        assert_eq!(pins.of(&[3; 16]), Pinned::default());
        let part = reader.pins(10).unwrap();
        assert_eq!((part.complete, part.of(&[1; 16]).live + part.of(&[2; 16]).live), (false, 10));
        pins.add(&part);
        assert!(!pins.complete);
    }

    #[test]
    #[ignore = "a measurement: run it alone, with --release and --nocapture"]
    fn how_long_the_count_of_many_instances_takes() {
        let folder = tempfile::tempdir().unwrap();
        let options = crate::Options { max_bytes: 4 << 30, ..small() };
        let (mut writer, reader) = crate::open(folder.path(), options).unwrap();
        for batch in 0..100 {
            let one = |n| pinned(&format!("order-{batch}-{n}"), 1, Status::Running);
            let group: Vec<_> = (0..1000).map(one).collect();
            writer.commit(&group, at(1)).unwrap();
        }
        writer.flush().unwrap();
        let begun = std::time::Instant::now();
        assert_eq!(reader.pins(u64::MAX).unwrap().of(&[1; 16]).live, 100_000);
        println!("100,000 instances in {:?}", begun.elapsed());
    }
}
