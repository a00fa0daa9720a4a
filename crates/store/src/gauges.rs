//! What is looked up when somebody asks how a store does. Nothing here goes through a whole table.

use std::collections::BTreeMap;

use orlog_model::{Timestamp, WorkItem, WorkKind};

use crate::encoding::keys;
use crate::encoding::range::Range;
use crate::encoding::tuple::successor;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::merged::Tables;
use crate::read::reader::Reader;
use crate::stats::Pages;
use crate::table::Table;

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
    use orlog_model::{Change, Commit, EventType, Fact, OutboxKey, Work};

    use super::*;
    use crate::samples::{apply, at, key, small, work};

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
