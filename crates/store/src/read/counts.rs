//! Counts of the instances of a tenant, and the longest unchanged instances.
//!
//! Reads every snapshot of the tenant, but skips its state, waits and work. Commits can proceed after
//! every few hundred rows.

use crate::encoding::range::KeyRange;
use crate::encoding::tuple::successor;
use crate::merged::MergedTables;
use crate::stats::PageStats;
use orlog_model::{Timestamp, WorkItem, WorkKind};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use orlog_model::{DefinitionRef, InstanceKey, SagaName, Status, TenantId};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::encoding::keys;
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

impl Reader {
    /// Counts the instances of a tenant; scans at most `limit` of them.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn count_instances(&self, tenant: &TenantId, limit: u64) -> Result<InstanceCounts, Error> {
        let mut counts = InstanceCounts { complete: true, ..InstanceCounts::default() };
        let mut is_cut = false;
        for range in self.keys().instances(tenant, None, "") {
            self.shared.scan(Table::Instance, &range, |row, value| {
                if counts.scanned >= limit {
                    (counts.complete, is_cut) = (false, true);
                    return Ok(ControlFlow::Break(()));
                }
                let (_, key) = keys::read_instance(&mut KeyReader::of(row))?;
                match readable(decode(Table::Instance, value))? {
                    Some(header) => counts.note(key, &header),
                    None => counts.complete = false,
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if is_cut {
                break;
            }
        }
        counts.truncate(NAMED);
        Ok(counts)
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

/// Kinds of work in key order.
const KINDS: [WorkKind; 4] = [WorkKind::Command, WorkKind::Effect, WorkKind::Fact, WorkKind::Saga];

impl Reader {
    /// Returns the number of work items of each kind, in constant time.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox_depths(&self) -> Result<[(WorkKind, u64); 4], Error> {
        let by_kind = self.shared.read(|tables| Ok(tables.state().by_kind))?;
        Ok(std::array::from_fn(|kind| (KINDS[kind], by_kind[kind])))
    }

    /// Returns the creation time of the oldest work item of each kind, with one lookup for each
    /// destination.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn oldest_work(&self) -> Result<BTreeMap<WorkKind, Timestamp>, Error> {
        let (mut oldest, mut rest) = (BTreeMap::new(), KeyRange::all());
        let read = |key: &[u8], value: &[u8]| {
            let item: WorkItem = decode(Table::Outbox, value)?;
            Ok((keys::read_outbox(key)?.destination, item.created_at))
        };
        while let Some((destination, at)) = self.first(Table::Outbox, &rest, read)? {
            oldest
                .entry(destination.kind)
                .and_modify(|first: &mut Timestamp| *first = at.min(*first))
                .or_insert(at);
            let Some(behind) = successor(&keys::outbox_destination(&destination).start) else { break };
            rest.start = behind;
        }
        Ok(oldest)
    }

    /// Returns the approximate number of armed timers, in constant time.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn timers_armed(&self) -> Result<u64, Error> {
        self.shared.read(|tables| {
            let stats = tables.disk().map(|disk| disk.tables().stats()).transpose()?.unwrap_or_default();
            let flushed =
                stats.iter().find(|table| table.name == Table::Timer.name()).map_or(0, |table| table.rows);
            Ok(flushed.saturating_add_signed(tables.unflushed_timers()))
        })
    }

    /// Returns the number of armed timers that are due at `now`, at most `limit`, and the earliest due
    /// time.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn timers_overdue(&self, now: Timestamp, limit: usize) -> Result<(usize, Option<Timestamp>), Error> {
        let due = self.timers_due(now, limit)?;
        Ok((due.len(), due.first().map(|(_, timer)| timer.due)))
    }

    /// Returns the page statistics of the tables on disk; zero for a store in memory.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn pages(&self) -> Result<PageStats, Error> {
        let pages = |tables: &MergedTables| tables.disk().map(|disk| disk.tables().pages()).transpose();
        Ok(self.shared.read(pages)?.unwrap_or_default())
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
        Change::Apply(Box::new(Commit { instance: Some(snapshot), ..empty }))
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

    use orlog_model::{EventType, Fact, OutboxKey, Work};

    use crate::samples::{apply, work};

    #[track_caller]
    fn check(reader: &Reader, effects: u64, facts: u64) {
        let depths = [0, effects, facts, 0];
        assert_eq!(reader.outbox_depths().unwrap().map(|(_, depth)| depth), depths);
        assert_eq!(reader.outbox_depth().unwrap(), effects + facts);
    }

    #[test]
    fn outbox_counts_survive_flush_and_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let of = key("acme", "a");
        let emitted_fact =
            Fact { kind: EventType::new("Emitted").unwrap(), data: serde_json::Value::Null, key: None };
        let fact = WorkItem { work: Work::Fact(emitted_fact), ..work(&of, "x", 3) };
        let items = vec![work(&of, "x.a", 1), work(&of, "x.b", 2), fact];
        writer.commit(&[apply(Commit { work: items, ..Commit::empty(of, at(1)) })], at(1)).unwrap();
        check(&reader, 2, 1);
        writer.flush().unwrap();
        let destination = reader.outbox_destinations().unwrap().remove(0);
        writer.commit(&[Change::Settle(OutboxKey { destination, sequence: 1 })], at(2)).unwrap();
        check(&reader, 1, 1);
        assert_eq!(
            reader.oldest_work().unwrap().into_keys().collect::<Vec<_>>(),
            [WorkKind::Effect, WorkKind::Fact]
        );
        drop(writer);
        let (writer, reader) = crate::open(dir.path(), small()).unwrap();
        check(&reader, 1, 1);
        assert!(reader.pages().unwrap().total > reader.pages().unwrap().free);
        drop(writer);
    }
}
