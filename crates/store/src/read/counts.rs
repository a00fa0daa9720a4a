//! Counts of instances, and the longest unchanged instances.
//!
//! Reads every snapshot, but skips its state, waits and work: 1,000,000 rows take 1.5 s if they are in memory
//! (measured with 100,000). Commits can proceed after every few hundred rows.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use orlog_model::{DefinitionRef, InstanceKey, SagaName, Status, TenantId, Timestamp};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::KeyReader;
use crate::encoding::value::{decode, readable};
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// Maximum number of unchanged instances that are listed.
const NAMED: usize = 20;
/// Number of snapshot fields between `paused` and `updated_at`.
const SKIPPED: usize = 10;

/// Instance counts of one tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceCounts {
    /// Counts.
    pub groups: BTreeMap<CountKey, u64>,
    /// Stuck instances, longest first; at most twenty.
    pub stuck: Vec<UnchangedInstance>,
    /// Running or compensating instances with the longest time since a change; at most twenty.
    pub longest_unchanged: Vec<UnchangedInstance>,
    /// Number of scanned instances.
    pub scanned: u64,
    /// Whether every instance was scanned; otherwise the counts are lower bounds.
    pub complete: bool,
}

/// Common properties of the instances of one count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct CountKey {
    /// Name of the saga.
    pub saga: SagaName,
    /// Version number, assigned by the author.
    pub version: u32,
    /// Hash of the definition.
    pub hash: [u8; 16],
    /// Status.
    pub status: Status,
    /// Whether inputs are buffered instead of applied.
    pub paused: bool,
}

/// Instance that has not changed for a long time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnchangedInstance {
    /// Key of the instance.
    pub key: InstanceKey,
    /// Status.
    pub status: Status,
    /// Whether inputs are buffered instead of applied.
    pub paused: bool,
    /// Time of the last change.
    pub since: Timestamp,
}

impl InstanceCounts {
    /// Adds the counts of another store.
    pub fn add(&mut self, other: Self) {
        for (group, count) in other.groups {
            *self.groups.entry(group).or_default() += count;
        }
        self.stuck.extend(other.stuck);
        self.longest_unchanged.extend(other.longest_unchanged);
        self.scanned += other.scanned;
        self.complete &= other.complete;
        self.truncate(NAMED);
    }

    fn note(&mut self, key: InstanceKey, header: &SnapshotHeader) {
        let SnapshotHeader { definition, status, paused, updated_at } = header;
        let (status, paused) = (*status, *paused);
        self.scanned += 1;
        let group = CountKey {
            saga: key.saga.clone(),
            version: definition.version,
            hash: definition.hash,
            status,
            paused,
        };
        *self.groups.entry(group).or_default() += 1;
        if status.is_final() {
            return;
        }
        let unchanged = if status == Status::Stuck { &mut self.stuck } else { &mut self.longest_unchanged };
        unchanged.push(UnchangedInstance { key, status, paused, since: *updated_at });
        if unchanged.len() > NAMED * 50 {
            longest(unchanged, NAMED);
        }
    }

    fn truncate(&mut self, named: usize) {
        longest(&mut self.stuck, named);
        longest(&mut self.longest_unchanged, named);
    }
}

fn longest(unchanged: &mut Vec<UnchangedInstance>, named: usize) {
    unchanged.sort_by(|a, b| (a.since, &a.key).cmp(&(b.since, &b.key)));
    unchanged.truncate(named);
}

/// Number of instances pinned to each definition, by hash. Definitions without instances are not
/// listed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinCounts {
    /// Counts by definition hash.
    pub by_hash: BTreeMap<[u8; 16], PinCount>,
    /// Whether every instance was scanned; otherwise the counts are lower bounds.
    pub complete: bool,
}

/// Number of instances pinned to one definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PinCount {
    /// Instances that have not ended, including stuck and paused ones.
    pub live: u64,
    /// Instances that have ended and are still stored.
    pub ended: u64,
}

impl PinCounts {
    /// Returns the counts of one definition.
    #[must_use]
    pub fn of(&self, hash: &[u8; 16]) -> PinCount {
        self.by_hash.get(hash).copied().unwrap_or_default()
    }

    /// Adds the counts of another store.
    pub fn add(&mut self, other: &Self) {
        for (hash, pinned) in &other.by_hash {
            let sum = self.by_hash.entry(*hash).or_default();
            sum.live += pinned.live;
            sum.ended += pinned.ended;
        }
        self.complete &= other.complete;
    }
}

#[expect(clippy::missing_errors_doc, reason = "`Reader` documents the errors of its methods")]
impl Reader {
    /// Counts the instances of a tenant by saga and status. Reads all of them.
    pub fn count(&self, tenant: &TenantId) -> Result<BTreeMap<(SagaName, Status), u64>, Error> {
        let mut counts = BTreeMap::new();
        for (group, count) in self.count_instances(tenant, u64::MAX)?.groups {
            *counts.entry((group.saga, group.status)).or_default() += count;
        }
        Ok(counts)
    }

    /// Counts the instances of a tenant; scans at most `limit` of them.
    pub fn count_instances(&self, tenant: &TenantId, limit: u64) -> Result<InstanceCounts, Error> {
        let mut counts = InstanceCounts::default();
        let ranges = self.keys().instances(tenant, None, "");
        counts.complete = self.scan_headers(&ranges, limit, |row, header| {
            let (_, key) = keys::read_instance(&mut KeyReader::of(row))?;
            counts.note(key, header);
            Ok(())
        })?;
        counts.truncate(NAMED);
        Ok(counts)
    }

    /// Counts the instances of all tenants by definition; scans at most `limit` of them. An instance that
    /// is migrated meanwhile may be counted for either definition.
    pub fn pin_counts(&self, limit: u64) -> Result<PinCounts, Error> {
        self.pin_counts_in(&[KeyRange::all()], limit)
    }

    /// Counts the instances of one tenant as [`Reader::pin_counts`]. Reads no row of another tenant.
    pub fn tenant_pin_counts(&self, tenant: &TenantId, limit: u64) -> Result<PinCounts, Error> {
        self.pin_counts_in(&self.keys().instances(tenant, None, ""), limit)
    }

    fn pin_counts_in(&self, ranges: &[KeyRange], limit: u64) -> Result<PinCounts, Error> {
        let mut pins = PinCounts::default();
        pins.complete = self.scan_headers(ranges, limit, |_, header| {
            let pinned = pins.by_hash.entry(header.definition.hash).or_default();
            *(if header.status.is_final() { &mut pinned.ended } else { &mut pinned.live }) += 1;
            Ok(())
        })?;
        Ok(pins)
    }

    /// Passes at most `limit` snapshots to `visit`; returns whether it was all of them.
    fn scan_headers(
        &self,
        ranges: &[KeyRange],
        limit: u64,
        mut visit: impl FnMut(&[u8], &SnapshotHeader) -> Result<(), Error>,
    ) -> Result<bool, Error> {
        let (mut remaining, mut complete) = (limit, true);
        for range in ranges {
            self.scan(Table::Instance, range, |key, value| {
                if remaining == 0 {
                    complete = false;
                    return Ok(ControlFlow::Break(()));
                }
                remaining -= 1;
                match readable(decode(Table::Instance, value))? {
                    Some(header) => visit(key, &header)?,
                    // It may be pinned to any definition.
                    None => complete = false,
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        Ok(complete)
    }
}

/// Fields that are read from a snapshot.
struct SnapshotHeader {
    definition: DefinitionRef,
    status: Status,
    paused: bool,
    updated_at: Timestamp,
}

impl<'de> Deserialize<'de> for SnapshotHeader {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Snapshot)
    }
}

struct Snapshot;

impl<'de> Visitor<'de> for Snapshot {
    type Value = SnapshotHeader;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the snapshot of an instance")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<SnapshotHeader, A::Error> {
        let missing = || A::Error::custom("it is truncated");
        let definition: DefinitionRef = fields.next_element()?.ok_or_else(missing)?;
        let _version: u64 = fields.next_element()?.ok_or_else(missing)?;
        let status: Status = fields.next_element()?.ok_or_else(missing)?;
        let paused: bool = fields.next_element()?.ok_or_else(missing)?;
        for _ in 0..SKIPPED {
            fields.next_element::<IgnoredAny>()?.ok_or_else(missing)?;
        }
        let updated_at: Timestamp = fields.next_element()?.ok_or_else(missing)?;
        while fields.next_element::<IgnoredAny>()?.is_some() {}
        Ok(SnapshotHeader { definition, status, paused, updated_at })
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, Commit};

    use super::*;
    use crate::samples::{at, instance, key, small};

    fn changed(correlation: &str, status: Status, paused: bool, when: i64) -> Change {
        let mut snapshot = instance(1, status);
        (snapshot.paused, snapshot.updated_at) = (paused, at(when));
        let empty = Commit::empty(key("acme", correlation), at(1));
        Change::Apply(Box::new(Commit { instance: Some(std::sync::Arc::new(snapshot)), ..empty }))
    }

    #[test]
    fn instance_counts_include_the_longest_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let running = |n: i64| changed(&format!("r-{n}"), Status::Running, n == 7, 10_000 - n);
        writer.commit(&(0..1_500).map(running).collect::<Vec<_>>(), at(1)).unwrap();
        writer.flush().unwrap();
        let stuck = |n: i64| changed(&format!("s-{n}"), Status::Stuck, false, n);
        writer.commit(&(0..3).map(stuck).collect::<Vec<_>>(), at(2)).unwrap();
        writer.commit(&[changed("done", Status::Completed, false, 0)], at(3)).unwrap();

        let acme = TenantId::new("acme").unwrap();
        let counts = reader.count_instances(&acme, u64::MAX).unwrap();
        assert_eq!((counts.scanned, counts.complete), (1_504, true));
        let count = |status, paused| -> u64 {
            let of = |(group, _): &(&CountKey, &u64)| group.status == status && group.paused == paused;
            counts.groups.iter().filter(of).map(|(_, count)| count).sum()
        };
        assert_eq!((count(Status::Running, false), count(Status::Running, true)), (1_499, 1));
        assert_eq!((count(Status::Stuck, false), count(Status::Completed, false)), (3, 1));
        let names = |unchanged: &[UnchangedInstance]| -> Vec<_> {
            unchanged.iter().map(|unchanged| unchanged.key.correlation.to_string()).collect()
        };
        assert_eq!(names(&counts.stuck), ["s-0", "s-1", "s-2"]);
        assert_eq!(names(&counts.longest_unchanged)[..2], ["r-1499", "r-1498"]);
        assert_eq!(counts.longest_unchanged.len(), NAMED);

        let part = reader.count_instances(&acme, 10).unwrap();
        assert_eq!((part.scanned, part.complete), (10, false));
        let mut sum = counts.clone();
        sum.add(part);
        assert_eq!((sum.scanned, sum.complete, sum.longest_unchanged.len()), (1_514, false, NAMED));
        assert_eq!(reader.count_instances(&TenantId::new("zeta").unwrap(), 10).unwrap().scanned, 0);
    }

    fn pinned(correlation: &str, hash: u8, status: Status) -> Change {
        let mut snapshot = instance(1, status);
        snapshot.definition.hash = [hash; 16];
        let empty = Commit::empty(key("acme", correlation), at(1));
        Change::Apply(Box::new(Commit { instance: Some(std::sync::Arc::new(snapshot)), ..empty }))
    }

    #[test]
    fn instances_of_one_tenant_are_counted_without_those_of_others() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let of_other = |change| match change {
            Change::Apply(mut commit) => {
                commit.key = key("other", commit.key.correlation.as_str());
                Change::Apply(commit)
            }
            other => other,
        };
        let others = (0..600).map(|n| of_other(pinned(&format!("a-{n}"), 1, Status::Running)));
        let group: Vec<_> = others.chain([pinned("own", 1, Status::Running)]).collect();
        writer.commit(&group, at(1)).unwrap();
        let tenant = TenantId::new("acme").unwrap();
        let counted = reader.tenant_pin_counts(&tenant, 1).unwrap();
        assert_eq!((counted.of(&[1; 16]), counted.complete), (PinCount { live: 1, ended: 0 }, true));
        assert_eq!(reader.pin_counts(u64::MAX).unwrap().of(&[1; 16]).live, 601);
    }

    #[test]
    fn instances_are_counted_by_definition_on_disk_and_in_memory() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let group: Vec<_> = (0..600).map(|n| pinned(&format!("a-{n}"), 1, Status::Running)).collect();
        writer.commit(&group, at(1)).unwrap();
        writer.flush().unwrap();
        let ended = [Status::Completed, Status::Failed, Status::Cancelled, Status::Stuck];
        let group: Vec<_> = ended.iter().map(|status| pinned(&format!("b-{status}"), 2, *status)).collect();
        writer.commit(&group, at(2)).unwrap();
        writer.commit(&[pinned("a-0", 2, Status::Running)], at(3)).unwrap();

        let mut pins = reader.pin_counts(u64::MAX).unwrap();
        assert!(pins.complete);
        assert_eq!(pins.of(&[1; 16]), PinCount { live: 599, ended: 0 });
        assert_eq!(pins.of(&[2; 16]), PinCount { live: 2, ended: 3 });
        assert_eq!(pins.of(&[3; 16]), PinCount::default());
        let part = reader.pin_counts(10).unwrap();
        assert_eq!((part.complete, part.of(&[1; 16]).live + part.of(&[2; 16]).live), (false, 10));
        pins.add(&part);
        assert!(!pins.complete);
    }

    #[test]
    #[ignore = "a measurement: run it alone, with --release and --nocapture"]
    fn pin_count_performance() {
        let dir = tempfile::tempdir().unwrap();
        let options = crate::Options { max_bytes: 4 << 30, ..small() };
        let (mut writer, reader) = crate::open(dir.path(), options).unwrap();
        for batch in 0..100 {
            let one = |n| pinned(&format!("order-{batch}-{n}"), 1, Status::Running);
            let group: Vec<_> = (0..1000).map(one).collect();
            writer.commit(&group, at(1)).unwrap();
        }
        writer.flush().unwrap();
        let start = std::time::Instant::now();
        assert_eq!(reader.pin_counts(u64::MAX).unwrap().of(&[1; 16]).live, 100_000);
        println!("100,000 instances in {:?}", start.elapsed());
    }
}
