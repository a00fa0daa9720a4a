//! How many instances a tenant has of each kind, and which of them stand still.
//!
//! Reads every snapshot of the tenant, but its state, its waits and its work are skipped, not read. Commits are let through
//! every few hundred rows.

use crate::encoding::range::Range;
use crate::encoding::tuple::successor;
use crate::merged::Tables;
use crate::stats::Pages;
use orlog_model::{Timestamp, WorkItem, WorkKind};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use orlog_model::{InstanceKey, ProgramRef, SagaName, Status, TenantId};
use serde::de::{Error as _, IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::encoding::keys;
use crate::encoding::tuple::Fields;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// How many instances are named of those that stand still.
const NAMED: usize = 20;
/// The fields of a snapshot between `paused` and `updated_at`.
const SKIPPED: usize = 10;

/// The instances of one tenant, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Census {
    /// The counts.
    pub groups: BTreeMap<Group, u64>,
    /// Those that are stuck, the longest first; the first twenty.
    pub stuck: Vec<Still>,
    /// Those that run or undo and have not changed for longest; the first twenty.
    pub quiet: Vec<Still>,
    /// How many were looked at.
    pub looked_at: u64,
    /// Every instance was looked at; otherwise the counts are lower bounds.
    pub complete: bool,
}

/// What the instances of one count have in common.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Their definition's name.
    pub saga: SagaName,
    /// Its author's number.
    pub version: u32,
    /// Its identity.
    pub hash: [u8; 16],
    /// Where they stand.
    pub status: Status,
    /// Inputs are kept, not applied.
    pub paused: bool,
}

/// An instance that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Still {
    /// Which.
    pub key: InstanceKey,
    /// Where it stands.
    pub status: Status,
    /// Inputs are kept, not applied.
    pub paused: bool,
    /// Since when.
    pub since: Timestamp,
}

impl Census {
    /// Adds what another store counted.
    pub fn add(&mut self, other: Self) {
        for (group, count) in other.groups {
            *self.groups.entry(group).or_default() += count;
        }
        self.stuck.extend(other.stuck);
        self.quiet.extend(other.quiet);
        self.looked_at += other.looked_at;
        self.complete &= other.complete;
        self.settle(NAMED);
    }

    fn note(&mut self, key: InstanceKey, head: &Head) {
        let Head { program, status, paused, updated_at } = head;
        let (status, paused) = (*status, *paused);
        self.looked_at += 1;
        let group =
            Group { saga: key.saga.clone(), version: program.version, hash: program.hash, status, paused };
        *self.groups.entry(group).or_default() += 1;
        if status.is_final() {
            return;
        }
        let still = if status == Status::Stuck { &mut self.stuck } else { &mut self.quiet };
        still.push(Still { key, status, paused, since: *updated_at });
        if still.len() > NAMED * 50 {
            longest(still, NAMED);
        }
    }

    fn settle(&mut self, named: usize) {
        longest(&mut self.stuck, named);
        longest(&mut self.quiet, named);
    }
}

fn longest(still: &mut Vec<Still>, named: usize) {
    still.sort_by(|a, b| (a.since, &a.key).cmp(&(b.since, &b.key)));
    still.truncate(named);
}

impl Reader {
    /// Counts the instances of a tenant; looks at `limit` of them at most.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn census(&self, tenant: &TenantId, limit: u64) -> Result<Census, Error> {
        let mut census = Census { complete: true, ..Census::default() };
        for range in self.keys().instances(tenant, None, "") {
            self.shared.scan(Table::Instance, &range, |row, value| {
                if census.looked_at >= limit {
                    census.complete = false;
                    return Ok(ControlFlow::Break(()));
                }
                let (_, key) = keys::read_instance(&mut Fields::of(row))?;
                census.note(key, &decode(Table::Instance, value)?);
                Ok(ControlFlow::Continue(()))
            })?;
            if !census.complete {
                break;
            }
        }
        census.settle(NAMED);
        Ok(census)
    }
}

/// What is read of a snapshot.
struct Head {
    program: ProgramRef,
    status: Status,
    paused: bool,
    updated_at: Timestamp,
}

impl<'de> Deserialize<'de> for Head {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Snapshot)
    }
}

struct Snapshot;

impl<'de> Visitor<'de> for Snapshot {
    type Value = Head;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the snapshot of an instance")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut fields: A) -> Result<Head, A::Error> {
        let missing = || A::Error::custom("it ends too early");
        let program: ProgramRef = fields.next_element()?.ok_or_else(missing)?;
        let _version: u64 = fields.next_element()?.ok_or_else(missing)?;
        let status: Status = fields.next_element()?.ok_or_else(missing)?;
        let paused: bool = fields.next_element()?.ok_or_else(missing)?;
        for _ in 0..SKIPPED {
            fields.next_element::<IgnoredAny>()?.ok_or_else(missing)?;
        }
        let updated_at: Timestamp = fields.next_element()?.ok_or_else(missing)?;
        while fields.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Head { program, status, paused, updated_at })
    }
}

/// The kinds of work in the order of their keys.
const KINDS: [WorkKind; 4] = [WorkKind::Command, WorkKind::Effect, WorkKind::Fact, WorkKind::Saga];

impl Reader {
    /// How many items of work there are of each kind. Costs nothing.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn outbox_depths(&self) -> Result<[(WorkKind, u64); 4], Error> {
        let by_kind = self.shared.read(|tables| Ok(tables.heads().by_kind))?;
        Ok(std::array::from_fn(|kind| (KINDS[kind], by_kind[kind])))
    }

    /// When the oldest item of work of each kind was asked for. One look a lane, however much work it has.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn oldest_work(&self) -> Result<BTreeMap<WorkKind, Timestamp>, Error> {
        let (mut oldest, mut rest) = (BTreeMap::new(), Range::all());
        let read = |key: &[u8], value: &[u8]| {
            let item: WorkItem = decode(Table::Outbox, value)?;
            Ok((keys::read_outbox(key)?.lane, item.created_at))
        };
        while let Some((lane, at)) = self.first(Table::Outbox, &rest, read)? {
            oldest.entry(lane.kind).and_modify(|first: &mut Timestamp| *first = at.min(*first)).or_insert(at);
            let Some(behind) = successor(&keys::outbox_lane(&lane).start) else { break };
            rest.start = behind;
        }
        Ok(oldest)
    }

    /// About how many timers are armed. Costs nothing.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn timers_armed(&self) -> Result<u64, Error> {
        self.shared.read(|tables| {
            let stats = tables.disk().map(|disk| disk.tables().stats()).transpose()?.unwrap_or_default();
            let folded =
                stats.iter().find(|table| table.name == Table::Timer.name()).map_or(0, |table| table.rows);
            Ok(folded.saturating_add_signed(tables.unfolded_timers()))
        })
    }

    /// How many timers are due at `now` and still armed, `limit` at most, and when the first of them fell due.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn timers_overdue(&self, now: Timestamp, limit: usize) -> Result<(usize, Option<Timestamp>), Error> {
        let due = self.timers_due(now, limit)?;
        Ok((due.len(), due.first().map(|(_, timer)| timer.due)))
    }

    /// The pages of the tables on disk; nothing in memory.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn pages(&self) -> Result<Pages, Error> {
        let pages = |tables: &Tables| tables.disk().map(|disk| disk.tables().pages()).transpose();
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
    fn instances_are_counted_and_the_stillest_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(folder.path(), small()).unwrap();
        let running = |n: i64| changed(&format!("r-{n}"), Status::Running, n == 7, 10_000 - n);
        writer.commit(&(0..1_500).map(running).collect::<Vec<_>>(), at(1)).unwrap();
        writer.flush().unwrap();
        let stuck = |n: i64| changed(&format!("s-{n}"), Status::Stuck, false, n);
        writer.commit(&(0..3).map(stuck).collect::<Vec<_>>(), at(2)).unwrap();
        writer.commit(&[changed("done", Status::Completed, false, 0)], at(3)).unwrap();

        let acme = TenantId::new("acme").unwrap();
        let census = reader.census(&acme, u64::MAX).unwrap();
        assert_eq!((census.looked_at, census.complete), (1_504, true));
        let count = |status, paused| -> u64 {
            let of = |(group, _): &(&Group, &u64)| group.status == status && group.paused == paused;
            census.groups.iter().filter(of).map(|(_, count)| count).sum()
        };
        assert_eq!((count(Status::Running, false), count(Status::Running, true)), (1_499, 1));
        assert_eq!((count(Status::Stuck, false), count(Status::Completed, false)), (3, 1));
        let names = |still: &[Still]| -> Vec<_> {
            still.iter().map(|still| still.key.correlation.to_string()).collect()
        };
        assert_eq!(names(&census.stuck), ["s-0", "s-1", "s-2"]);
        assert_eq!(names(&census.quiet)[..2], ["r-1499", "r-1498"]);
        assert_eq!(census.quiet.len(), NAMED);

        let part = reader.census(&acme, 10).unwrap();
        assert_eq!((part.looked_at, part.complete), (10, false));
        let mut sum = census.clone();
        sum.add(part);
        assert_eq!((sum.looked_at, sum.complete, sum.quiet.len()), (1_514, false, NAMED));
        assert_eq!(reader.census(&TenantId::new("zeta").unwrap(), 10).unwrap().looked_at, 0);
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
    fn the_outbox_is_counted_by_kind_through_folds_and_openings() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(folder.path(), small()).unwrap();
        let of = key("acme", "a");
        let told = Fact { kind: EventType::new("Told").unwrap(), data: serde_json::Value::Null };
        let fact = WorkItem { work: Work::Fact(told), ..work(&of, "x", 3) };
        let items = vec![work(&of, "x.a", 1), work(&of, "x.b", 2), fact];
        writer.commit(&[apply(Commit { work: items, ..Commit::empty(of, at(1)) })], at(1)).unwrap();
        check(&reader, 2, 1);
        writer.flush().unwrap();
        let lane = reader.lanes().unwrap().remove(0);
        writer.commit(&[Change::Settle(OutboxKey { lane, sequence: 1 })], at(2)).unwrap();
        check(&reader, 1, 1);
        assert_eq!(
            reader.oldest_work().unwrap().into_keys().collect::<Vec<_>>(),
            [WorkKind::Effect, WorkKind::Fact]
        );
        drop(writer);
        let (writer, reader) = crate::open(folder.path(), small()).unwrap();
        check(&reader, 1, 1);
        assert!(reader.pages().unwrap().all > reader.pages().unwrap().free);
        drop(writer);
    }
}
