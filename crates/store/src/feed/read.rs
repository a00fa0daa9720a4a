//! The feed as it is read: what changed since a mark, each as it stands now; and what there is, for whoever begins.
//!
//! A consumer scans first, from the [head](Reader::feed_head) it has noted before, and then follows. Everything says as of which
//! commit it is so; of two things said about the same row the one of the later commit holds.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use orlog_model::{Instance, InstanceKey, Record, TaskEvent, TaskRow, TenantId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::encoding::keys;
use crate::encoding::range::Range;
use crate::encoding::tuple::{Fields, Key, hex, unhex};
use crate::encoding::value::decode;
use crate::error::Error;
use crate::feed::write::{self, FED, FeedMark, Row};
use crate::merged::Tables;
use crate::read::reader::Reader;
use crate::table::Table;

/// Rows of the feed, or of a table, that are looked at under one lock.
const AT_ONCE: usize = 256;

/// What is fed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fed {
    /// Snapshots of instances.
    Instances,
    /// Tasks for people.
    Tasks,
    /// What happened to them.
    TaskEvents,
    /// Transitions.
    History,
}

/// What of it is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedQuery {
    /// Whose; `None`: everybody's.
    pub tenant: Option<TenantId>,
    /// Of which kinds.
    pub kinds: Vec<Fed>,
    /// About how many at most. What one row of the feed names is not divided.
    pub limit: usize,
    /// About how many bytes of them at most, as they are stored.
    pub bytes: usize,
}

/// Something as it stood at a commit.
#[derive(Debug, Clone, PartialEq)]
pub struct Touched {
    /// The commit, or a later one.
    pub position: u64,
    /// What.
    pub entity: Entity,
}

/// What people are shown, under its key; gone where there is nothing.
#[derive(Debug, Clone, PartialEq)]
pub enum Entity {
    /// An instance.
    Instance(InstanceKey, Option<Box<Instance>>),
    /// A task.
    Task(TenantId, Uuid, Option<Box<TaskRow>>),
    /// Something that happened to a task, by its number.
    TaskEvent(TenantId, Uuid, u64, Option<Box<TaskEvent>>),
    /// A transition, by the state version after it.
    Record(InstanceKey, u64, Option<Box<Record>>),
}

/// A part of the feed.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedPage<N> {
    /// In the order in which they were touched.
    pub items: Vec<Touched>,
    /// Where the next part begins.
    pub next: N,
    /// There is more at once.
    pub more: bool,
    /// The mark of all that was committed when this was read: things stand as of it, not as of `next`. Only a store that
    /// [holds](Reader::feed_holds) it can go on from `next`.
    pub seen: FeedMark,
}

/// Where a scan ended. Not meant to be understood.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FeedPlace {
    table: Table,
    key: Vec<u8>,
}

impl Fed {
    /// All of them.
    pub const ALL: [Fed; 4] = [Fed::Instances, Fed::Tasks, Fed::TaskEvents, Fed::History];

    /// The word people write.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Fed::Instances => "instances",
            Fed::Tasks => "tasks",
            Fed::TaskEvents => "task_events",
            Fed::History => "history",
        }
    }

    fn table(self) -> Table {
        FED[self as usize]
    }
}

impl From<FeedPlace> for String {
    fn from(place: FeedPlace) -> Self {
        format!("{:02x}{}", place.table as u8, hex(&place.key))
    }
}

impl TryFrom<String> for FeedPlace {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = unhex(&text);
        let (table, key) = bytes.as_deref().and_then(<[u8]>::split_first).ok_or("it is no place")?;
        let table = Table::numbered(*table).filter(|table| FED.contains(table)).ok_or("it is no place")?;
        Ok(Self { table, key: key.to_vec() })
    }
}

impl FeedQuery {
    fn wants(&self, (table, key): &(Table, Vec<u8>)) -> bool {
        let tenant = || match &self.tenant {
            Some(tenant) => {
                key.get(2..).is_some_and(|key| key.starts_with(&Key::new().text(tenant.as_str()).done()))
            }
            None => true,
        };
        self.kinds.iter().any(|kind| kind.table() == *table) && tenant()
    }

    /// The wanted tables in the order in which they are scanned.
    fn tables(&self) -> impl Iterator<Item = Table> {
        FED.into_iter().filter(|table| self.kinds.iter().any(|kind| kind.table() == *table))
    }
}

impl Reader {
    /// Whether commits note what they touch.
    #[must_use]
    pub fn keeps_feed(&self) -> bool {
        self.shared.keeps_feed
    }

    /// The mark of everything that was committed until now.
    ///
    /// # Errors
    /// [`Error::NoFeed`], and those of [`Reader`].
    pub fn feed_head(&self) -> Result<FeedMark, Error> {
        self.shared.read(|tables| self.head(tables))
    }

    /// Whether what a mark was given for is still so: nothing was lost or left out since.
    ///
    /// # Errors
    /// [`Error::NoFeed`]; [`Error::MarkGone`] if it is not; and those of [`Reader`].
    pub fn feed_holds(&self, mark: &FeedMark) -> Result<(), Error> {
        self.shared.read(|tables| self.follows(tables, mark))
    }

    /// What was touched behind a mark, each once, as it stands now.
    ///
    /// # Errors
    /// [`Error::NoFeed`]; [`Error::MarkGone`] if the feed is not whole behind the mark; and those of [`Reader`].
    pub fn feed(&self, query: &FeedQuery, after: FeedMark) -> Result<FeedPage<FeedMark>, Error> {
        let (mut found, mut next, mut more) = (Vec::new(), after, false);
        let (position, seen) = self.shared.read(|tables| {
            self.follows(tables, &after)?;
            let (mut seen, mut bytes) = (BTreeSet::new(), 0);
            let rows = rows_behind(tables, &after)?;
            more = rows.len() == AT_ONCE;
            for row in rows {
                if found.len() >= query.limit || bytes >= query.bytes {
                    more = true;
                    break;
                }
                for touched in row.touched.into_iter().filter(|touched| query.wants(touched)) {
                    if seen.insert(touched.clone()) {
                        let (table, key) = touched;
                        let value = tables.get(table, &key, <[u8]>::to_vec)?;
                        found.push((table, key, value));
                        bytes += found.last().map_or(0, size);
                    }
                }
                next = row.mark;
            }
            Ok((tables.heads().position, if more { self.head(tables)? } else { next }))
        })?;
        Ok(FeedPage { items: told(position, found)?, next, more, seen })
    }

    /// What there is, in the order of kinds and keys, behind a place. `next` is `None` at the end.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn feed_scan(
        &self,
        query: &FeedQuery,
        after: Option<&FeedPlace>,
    ) -> Result<FeedPage<Option<FeedPlace>>, Error> {
        let (mut items, mut next) = (Vec::new(), None);
        let mut bytes = 0;
        let begun = after.map_or(0, |place| FED.iter().position(|table| *table == place.table).unwrap_or(0));
        let tables = query.tables().filter(|table| FED[begun..].contains(table));
        'all: for (table, range) in tables.flat_map(|table| self.feed_ranges(query, table)) {
            let mut rest = match after {
                Some(place) if place.table == table => range.after(&place.key),
                _ => range,
            };
            while !rest.is_empty() {
                let (position, rows) = self.stretch(table, &rest, query, (items.len(), bytes))?;
                let Some((_, last, _)) = rows.last() else { break };
                let place = FeedPlace { table, key: last.clone() };
                rest = rest.after(&place.key);
                bytes += rows.iter().map(size).sum::<usize>();
                items.extend(told(position, rows)?);
                if items.len() >= query.limit || bytes >= query.bytes {
                    next = Some(place);
                    break 'all;
                }
            }
        }
        let more = next.is_some();
        Ok(FeedPage { items, next, more, seen: self.feed_head()? })
    }

    /// Whether [`orlog_model::Change::TrimFeed`] with the same bounds would still forget anything.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn is_trim_due(&self, before: orlog_model::Timestamp, keep: u64) -> Result<bool, Error> {
        let last = self.position();
        let first = self.first(Table::Feed, &Range::all(), write::head)?;
        let is_old = |(mark, at)| !self.keeps_feed() || write::is_old(&mark, at, (before, keep, last));
        Ok(first.is_some_and(is_old))
    }

    /// Some rows of a range, as of one commit.
    fn stretch(
        &self,
        table: Table,
        range: &Range,
        query: &FeedQuery,
        (mut count, mut bytes): (usize, usize),
    ) -> Result<(u64, Vec<Stored>), Error> {
        let mut rows: Vec<Stored> = Vec::new();
        let position = self.shared.read(|tables| {
            tables.scan(table, &range.start, range.end.as_deref(), &mut |key, row| {
                (count, bytes) = (count + 1, bytes + key.len() + row.len());
                rows.push((table, key.to_vec(), Some(row.to_vec())));
                let is_full = rows.len() == AT_ONCE || count >= query.limit || bytes >= query.bytes;
                Ok(if is_full { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
            })?;
            Ok(tables.heads().position)
        })?;
        Ok((position, rows))
    }

    /// Where in a table what is wanted lies.
    fn feed_ranges(&self, query: &FeedQuery, table: Table) -> Vec<(Table, Range)> {
        let ranges = match &query.tenant {
            Some(tenant) => self.keys().instances(tenant, None, ""),
            None => vec![Range::all()],
        };
        ranges.into_iter().map(|range| (table, range)).collect()
    }

    fn head(&self, tables: &Tables) -> Result<FeedMark, Error> {
        let begins = self.feed_beginning(tables)?;
        let (last, mut back) = (tables.heads().position, 1);
        // Rows are only found forwards: look from ever farther back until there is one.
        while last.saturating_sub(back) > begins.position {
            if let Some(mark) = last_behind(tables, last - back)? {
                return Ok(mark);
            }
            back *= 2;
        }
        Ok(last_behind(tables, begins.position)?.unwrap_or(begins))
    }

    fn feed_beginning(&self, tables: &Tables) -> Result<FeedMark, Error> {
        if !self.keeps_feed() {
            return Err(Error::NoFeed);
        }
        // Before the first commit nothing can have been missed.
        let here = || FeedMark { position: tables.heads().position, part: 0, life: 0 };
        Ok(write::beginning(tables)?.unwrap_or_else(here))
    }

    /// Whether the feed is whole behind a mark.
    fn follows(&self, tables: &Tables, after: &FeedMark) -> Result<(), Error> {
        let begins = self.feed_beginning(tables)?;
        if *after == begins {
            return Ok(());
        }
        let gone = |reason: &str| Err(Error::MarkGone { reason: reason.to_owned() });
        if (after.position, after.part) < (begins.position, begins.part) {
            return gone("what has changed since the cursor is not kept any more");
        }
        let key = keys::feed(after.position, after.part);
        match tables.get(Table::Feed, &key, |row| write::head(&key, row))?.transpose()? {
            Some((mark, _)) if mark.life == after.life => Ok(()),
            _ => gone(
                "the cursor is of another life of the store, which was restored or has lost its end since",
            ),
        }
    }
}

/// A row as it is stored.
type Stored = (Table, Vec<u8>, Option<Vec<u8>>);

fn size((_, key, row): &Stored) -> usize {
    key.len() + row.as_ref().map_or(0, Vec::len)
}

/// The last row of the feed behind a commit.
fn last_behind(tables: &Tables, position: u64) -> Result<Option<FeedMark>, Error> {
    let mut last = None;
    tables.scan(Table::Feed, &keys::feed(position + 1, 0), None, &mut |key, row| {
        last = Some(write::head(key, row)?.0);
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(last)
}

fn rows_behind(tables: &Tables, after: &FeedMark) -> Result<Vec<Row>, Error> {
    let mut rows = Vec::new();
    let range = Range::all().after(&keys::feed(after.position, after.part));
    tables.scan(Table::Feed, &range.start, None, &mut |key, row| {
        rows.push(write::read(key, row)?);
        Ok(if rows.len() < AT_ONCE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(rows)
}

fn told(position: u64, rows: Vec<Stored>) -> Result<Vec<Touched>, Error> {
    rows.into_iter().map(|row| Ok(Touched { position, entity: entity(row)? })).collect()
}

fn entity((table, key, row): Stored) -> Result<Entity, Error> {
    let row = row.as_deref();
    Ok(match table {
        Table::Task => {
            let (tenant, id, _) = keys::read_task(&key)?;
            Entity::Task(tenant, id, row.map(|row| decode(table, row)).transpose()?)
        }
        Table::TaskEvent => {
            let (tenant, id, number) = keys::read_task(&key)?;
            Entity::TaskEvent(
                tenant,
                id,
                number.unwrap_or_default(),
                row.map(|row| decode(table, row)).transpose()?,
            )
        }
        Table::History => {
            let (of, version) = keys::read_numbered(&key)?;
            Entity::Record(of, version, row.map(|row| decode(table, row)).transpose()?)
        }
        _ => {
            let (_, of) = keys::read_instance(&mut Fields::of(&key))?;
            Entity::Instance(of, row.map(|row| decode(table, row)).transpose()?)
        }
    })
}
