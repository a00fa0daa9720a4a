//! Work items of the outbox, and timers.

use std::collections::BTreeMap;

use orlog_model::{
    Destination, InstanceKey, OutboxKey, TenantId, Timer, Timestamp, WorkItem, WorkKind,
};

use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::{KeyReader, successor};
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns the last assigned outbox sequence or a later one, in constant time.
    #[must_use]
    pub fn last_sequence(&self) -> u64 {
        self.shared.state().sequence
    }

    /// Returns the destinations with pending work, in order, with one lookup for each destination.
    pub fn outbox_destinations(&self) -> Result<Vec<Destination>, Error> {
        self.destinations_in(KeyRange::all())
    }

    /// Returns the destinations of a tenant as [`Reader::outbox_destinations`].
    pub fn tenant_destinations(&self, tenant: &TenantId) -> Result<Vec<Destination>, Error> {
        let ranges = keys::tenant_destinations(tenant);
        let found: Result<Vec<_>, _> = ranges.map(|range| self.destinations_in(range)).collect();
        Ok(found?.concat())
    }

    fn destinations_in(&self, mut rest: KeyRange) -> Result<Vec<Destination>, Error> {
        let mut destinations = Vec::new();
        while let Some(key) = self.first(Table::Outbox, &rest, |key, _| keys::read_outbox(key))? {
            // Each destination costs one lookup: the search continues after all of its rows.
            let Some(behind) = successor(&keys::outbox_destination(&key.destination).start) else {
                break;
            };

            rest.start = behind;
            destinations.push(key.destination);
        }
        Ok(destinations)
    }

    /// Returns the work items of a destination after a sequence number, in order.
    pub fn outbox(
        &self,
        destination: &Destination,
        after: u64,
        limit: usize,
    ) -> Result<Vec<(OutboxKey, WorkItem)>, Error> {
        let behind = keys::outbox(&OutboxKey {
            destination: destination.clone(),
            sequence: after,
        });
        let range = keys::outbox_destination(destination).after(&behind);
        self.scan_rows(Table::Outbox, &range, limit, |key, value| {
            Ok((keys::read_outbox(key)?, decode(Table::Outbox, value)?))
        })
    }

    /// Returns one work item; `None` after it is completed.
    pub fn outbox_item(&self, key: &OutboxKey) -> Result<Option<WorkItem>, Error> {
        self.row(Table::Outbox, &keys::outbox(key))
    }

    /// Returns the number of work items, in constant time.
    pub fn outbox_depth(&self) -> Result<u64, Error> {
        self.shared.read(|tables| Ok(tables.state().outbox_depth))
    }

    /// Returns the timers due at `until` or earlier, ordered by due time.
    pub fn timers_due(
        &self,
        until: Timestamp,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, Timer)>, Error> {
        self.scan_rows(Table::Timer, &keys::timers_until(until), limit, |key, _| {
            keys::read_timer(key)
        })
    }

    /// Returns the timers after `after`, or the first ones, in the order (due time, slot, instance,
    /// name, token).
    pub fn timers_after(
        &self,
        after: Option<(&InstanceKey, &Timer)>,
        limit: usize,
    ) -> Result<Vec<(InstanceKey, Timer)>, Error> {
        let range = after.map_or_else(KeyRange::all, |(key, timer)| {
            KeyRange::all().after(&self.keys().timer(key, timer))
        });
        self.scan_rows(Table::Timer, &range, limit, |key, _| keys::read_timer(key))
    }

    /// Returns the due time of the next timer.
    pub fn next_timer(&self) -> Result<Option<Timestamp>, Error> {
        self.first(Table::Timer, &KeyRange::all(), |key, _| {
            KeyReader::of(key).i64().map(Timestamp::from_millis)
        })
    }

    /// Returns the number of work items of each kind, in constant time.
    pub fn outbox_depths(&self) -> Result<[(WorkKind, u64); 4], Error> {
        let by_kind = self.shared.read(|tables| Ok(tables.state().by_kind))?;
        Ok(std::array::from_fn(|kind| {
            (keys::KINDS[kind], by_kind[kind])
        }))
    }

    /// Returns the creation time of the oldest work item of each kind, with one lookup for each
    /// destination.
    pub fn oldest_work(&self) -> Result<BTreeMap<WorkKind, Timestamp>, Error> {
        let mut oldest = BTreeMap::new();
        let mut rest = KeyRange::all();
        while let Some((destination, at)) = self.first(Table::Outbox, &rest, read_creation)? {
            oldest
                .entry(destination.kind)
                .and_modify(|first: &mut Timestamp| *first = at.min(*first))
                .or_insert(at);

            let Some(behind) = successor(&keys::outbox_destination(&destination).start) else {
                break;
            };
            rest.start = behind;
        }
        Ok(oldest)
    }

    /// Returns the approximate number of armed timers, in constant time.
    pub fn timers_armed(&self) -> Result<u64, Error> {
        self.shared.read(|tables| {
            // The engine has the number of rows on disk, so no scan is necessary.
            let stats = tables.disk().tables().stats()?;
            let flushed = stats
                .iter()
                .find(|table| table.name == Table::Timer.name())
                .map_or(0, |table| table.rows);
            Ok(flushed.saturating_add_signed(tables.unflushed_timers()))
        })
    }

    /// Returns the number of armed timers that are due at `now`, at most `limit`, and the earliest
    /// due time.
    pub fn timers_overdue(
        &self,
        now: Timestamp,
        limit: usize,
    ) -> Result<(usize, Option<Timestamp>), Error> {
        let due = self.timers_due(now, limit)?;
        Ok((due.len(), due.first().map(|(_, timer)| timer.due)))
    }
}

/// Decodes the destination and the creation time of a work item.
fn read_creation(key: &[u8], value: &[u8]) -> Result<(Destination, Timestamp), Error> {
    let item: WorkItem = decode(Table::Outbox, value)?;
    Ok((keys::read_outbox(key)?.destination, item.created_at))
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, Commit, EventType, Fact, OutboxKey, Priority, Work};

    use super::*;
    use crate::samples::{apply, at, key, small, work};

    #[track_caller]
    fn check(reader: &Reader, effects: u64, facts: u64) {
        let depths = [0, effects, facts, 0];
        assert_eq!(
            reader.outbox_depths().unwrap().map(|(_, depth)| depth),
            depths
        );
        assert_eq!(reader.outbox_depth().unwrap(), effects + facts);
    }

    #[test]
    fn outbox_counts_survive_flush_and_reopen() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let of = key("acme", "a");
        let emitted_fact = Fact::new(EventType::new("Emitted").unwrap(), serde_json::Value::Null);
        let fact = WorkItem {
            work: Work::Fact(emitted_fact),
            ..work(&of, "x", 3)
        };
        let items = vec![work(&of, "x.a", 1), work(&of, "x.b", 2), fact];
        writer
            .commit(
                &[apply(Commit {
                    work: items,
                    ..Commit::empty(of, at(1))
                })],
                at(1),
            )
            .unwrap();
        check(&reader, 2, 1);
        writer.flush().unwrap();
        let destination = reader.outbox_destinations().unwrap().remove(0);
        writer
            .commit(
                &[Change::Settle(OutboxKey {
                    destination,
                    sequence: 1,
                })],
                at(2),
            )
            .unwrap();
        check(&reader, 1, 1);
        assert_eq!(
            reader
                .oldest_work()
                .unwrap()
                .into_keys()
                .collect::<Vec<_>>(),
            [WorkKind::Effect, WorkKind::Fact]
        );
        drop(writer);
        let (writer, reader) = crate::open(dir.path(), small()).unwrap();
        check(&reader, 1, 1);
        assert!(reader.pages().unwrap().total > reader.pages().unwrap().free);
        drop(writer);
    }

    #[test]
    fn destinations_include_the_priorities_of_one_effect() {
        let (mut writer, reader) = crate::open_in_memory(crate::Options::default());
        let of = key("acme", "a");
        let item = |priority, id| WorkItem {
            priority,
            ..work(&of, "x.a", id)
        };
        let items = vec![
            item(Priority::Low, 1),
            item(Priority::Normal, 2),
            item(Priority::High, 3),
            item(Priority::Low, 4),
        ];
        writer
            .commit(
                &[apply(Commit {
                    work: items,
                    ..Commit::empty(of.clone(), at(1))
                })],
                at(1),
            )
            .unwrap();
        check(&reader, 4, 0);
        let found = reader.outbox_destinations().unwrap();
        assert_eq!(found, reader.tenant_destinations(&of.tenant).unwrap());
        let ids = |destination| {
            let items = reader.outbox(destination, 0, 9).unwrap();
            items
                .iter()
                .map(|(_, item)| (item.priority, item.id.as_u128()))
                .collect::<Vec<_>>()
        };
        let found: Vec<_> = found.iter().map(ids).collect();
        let (high, normal, low) = (Priority::High, Priority::Normal, Priority::Low);
        assert_eq!(
            found,
            [vec![(normal, 2)], vec![(high, 3)], vec![(low, 1), (low, 4)]]
        );
    }
}
