//! Reads of the change feed: rows changed after an offset in their current state, and the initial
//! scan.
//!
//! A consumer first stores the [head](Reader::feed_head), scans, and then follows the feed from
//! that head. Every item states its commit. If two items describe the same row, the item of the
//! later commit is valid.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use bytes::Bytes;
use orlog_model::TenantId;
use serde::{Deserialize, Serialize};

use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::KeyWriter;
use crate::encoding::value::readable;
use crate::error::Error;
use crate::feed::items::{FeedItem, StoredRow, feed_items, size};
use crate::feed::write::{self, FEED_TABLES, FeedOffset, FeedRow, TrimBounds};
use crate::memtable::MemtableLookup;
use crate::merged::{Layers, MergedTables};
use crate::read::reader::Reader;
use crate::read::row_group::{MAX_GROUP_ROWS, RowGroup};
use crate::store_dir::StoreDir;
use crate::table::Table;
use crate::tables::TableSnapshot;

/// Kind of the entities in the feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FeedEntityKind {
    /// Snapshots of instances.
    Instances,
    /// Human tasks.
    Tasks,
    /// Task events.
    TaskEvents,
    /// History entries.
    History,
}

/// Filter of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedQuery {
    /// Tenant; `None`: all tenants.
    pub tenant: Option<TenantId>,
    /// Kinds of entities.
    pub kinds: Vec<FeedEntityKind>,
    /// Approximate maximum number of items. The items of one feed row are not split.
    pub limit: usize,
    /// Approximate maximum size of the items in bytes, as stored.
    pub bytes: usize,
}

/// Page of the feed.
#[derive(Debug, Clone, PartialEq)]
pub struct FeedPage<N> {
    /// Items, in the order of their changes.
    pub items: Vec<FeedItem>,
    /// Start of the next page.
    pub next: N,
    /// Whether more items are available.
    pub more: bool,
    /// Offset of the last commit at the time of the read. Items are as of this offset, not as of
    /// `next`. Only a store that [contains](Reader::check_feed_offset) it can continue from `next`.
    pub as_of: FeedOffset,
}

/// End of a scan; opaque.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct FeedScanCursor {
    table: Table,
    key: Vec<u8>,
}

impl FeedEntityKind {
    /// All kinds.
    pub const ALL: [FeedEntityKind; 4] = [
        FeedEntityKind::Instances,
        FeedEntityKind::Tasks,
        FeedEntityKind::TaskEvents,
        FeedEntityKind::History,
    ];

    /// Returns the name used in the API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            FeedEntityKind::Instances => "instances",
            FeedEntityKind::Tasks => "tasks",
            FeedEntityKind::TaskEvents => "task_events",
            FeedEntityKind::History => "history",
        }
    }

    fn table(self) -> Table {
        FEED_TABLES[self as usize]
    }
}

impl From<FeedScanCursor> for String {
    fn from(cursor: FeedScanCursor) -> Self {
        format!("{:02x}{}", cursor.table as u8, hex::encode(&cursor.key))
    }
}

impl TryFrom<String> for FeedScanCursor {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = hex::decode(&text).ok();
        let (table, key) = bytes
            .as_deref()
            .and_then(<[u8]>::split_first)
            .ok_or("invalid scan cursor")?;
        let table = Table::from_number(*table)
            .filter(|table| FEED_TABLES.contains(table))
            .ok_or("invalid scan cursor")?;

        Ok(Self {
            table,
            key: key.to_vec(),
        })
    }
}

impl FeedQuery {
    fn matches(&self, table: Table, key: &[u8]) -> bool {
        self.kinds.iter().any(|kind| kind.table() == table) && self.is_of_tenant(key)
    }

    fn is_of_tenant(&self, key: &[u8]) -> bool {
        let Some(tenant) = &self.tenant else {
            return true;
        };

        // The keys of the tables in the feed start with a slot, then the tenant.
        key.get(2..)
            .is_some_and(|key| key.starts_with(&KeyWriter::new().text(tenant.as_str()).finish()))
    }

    /// Returns the requested tables in scan order.
    fn tables(&self) -> impl Iterator<Item = Table> {
        FEED_TABLES
            .into_iter()
            .filter(|table| self.kinds.iter().any(|kind| kind.table() == *table))
    }
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns whether commits write the feed.
    #[must_use]
    pub fn is_feed_enabled(&self) -> bool {
        self.shared.feed_enabled
    }

    /// Returns the offset of the last commit.
    ///
    /// # Errors
    /// [`Error::FeedDisabled`], and the errors of [`Reader`].
    pub fn feed_head(&self) -> Result<FeedOffset, Error> {
        self.shared.read(|tables| self.head(tables))
    }

    /// Checks that the store still contains all commits up to this offset.
    ///
    /// # Errors
    /// [`Error::FeedDisabled`]; [`Error::FeedOffsetExpired`] if commits are missing; and the errors
    /// of [`Reader`].
    pub fn check_feed_offset(&self, offset: &FeedOffset) -> Result<(), Error> {
        self.shared.read(|tables| self.follows(tables, offset))
    }

    /// Returns the entities changed after an offset, each once, in their current state.
    ///
    /// # Errors
    /// [`Error::FeedDisabled`]; [`Error::FeedOffsetExpired`] if the feed is incomplete after the
    /// offset, or a changed row is damaged; and the errors of [`Reader`].
    pub fn feed(
        &self,
        query: &FeedQuery,
        after: FeedOffset,
    ) -> Result<FeedPage<FeedOffset>, Error> {
        self.check_cancelled()?;
        // The guard keeps the tables on disk open until the rows are read.
        let disk = self.shared.disk_guard();
        let disk = disk.as_ref().ok_or(Error::Closed)?;
        let changes = self.changes_behind(disk, query, &after);
        let changes = changes.map_err(expired_if_damaged)?;

        // An entity that several changes name is read once: its state is that of the snapshot.
        let mut found = Vec::new();
        let mut next = after;
        let mut more = changes.is_cut;
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        for row in &changes.rows {
            // A page ends between two rows of the feed, because an offset cannot point into a row.
            if found.len() >= query.limit || bytes >= query.bytes {
                more = true;
                break;
            }

            for touched in &row.touched {
                if !seen.insert((touched.table, &touched.key)) {
                    continue;
                }

                let value = touched.value(&*changes.snapshot);
                let value = value.map_err(expired_if_damaged)?;
                found.push((touched.table, touched.key.clone(), value));
                bytes += found.last().map_or(0, size);
            }
            // Also if nothing matched: the next page must not read this row again.
            next = row.offset;
        }

        let as_of = if more { changes.head } else { next };
        let items = feed_items(changes.position, found)
            .collect::<Result<_, _>>()
            .map_err(expired_if_damaged)?;

        Ok(FeedPage {
            items,
            next,
            more,
            as_of,
        })
    }

    /// Returns the next changes after an offset. Commits wait while they are found, and not while
    /// the rows of the entities are read.
    fn changes_behind<'a>(
        &self,
        disk: &'a StoreDir,
        query: &FeedQuery,
        after: &FeedOffset,
    ) -> Result<FeedChanges<'a>, Error> {
        self.shared.read(|tables| {
            // With the same lock as the rows: a trim in between could delete changes after the
            // offset unnoticed.
            self.follows(tables, after)?;

            let rows = rows_behind(tables, after)?;
            // Rows of other tenants count too, so a page can be empty although more rows follow.
            let is_cut = rows.len() == MAX_GROUP_ROWS;
            let rows = rows
                .into_iter()
                .map(|row| FeedChange::new(tables, query, row));

            Ok(FeedChanges {
                rows: rows.collect(),
                is_cut,
                position: tables.state().position,
                head: self.head(tables)?,
                // With the lock, like the entries above: a flush in between would move rows from
                // one to the other.
                snapshot: disk.tables().snapshot()?,
            })
        })
    }

    /// Returns all entities after a cursor, in the order of kinds and keys. `next` is `None` at the
    /// end. Unreadable entities are skipped.
    pub fn feed_scan(
        &self,
        query: &FeedQuery,
        after: Option<&FeedScanCursor>,
    ) -> Result<FeedPage<Option<FeedScanCursor>>, Error> {
        let mut items = Vec::new();
        let mut next = None;
        let mut bytes = 0;

        let start_index = after.map_or(0, |cursor| {
            FEED_TABLES
                .iter()
                .position(|table| *table == cursor.table)
                .unwrap_or(0)
        });

        let tables = query
            .tables()
            .filter(|table| FEED_TABLES[start_index..].contains(table));

        'all: for (table, range) in tables.flat_map(|table| self.feed_ranges(query, table)) {
            let mut rest = match after {
                Some(cursor) if cursor.table == table => range.after(&cursor.key),
                _ => range,
            };

            while !rest.is_empty() {
                self.check_cancelled()?;
                let rows_left = query.limit.saturating_sub(items.len());
                let bytes_left = query.bytes.saturating_sub(bytes);
                // One group at a time, because its items have the position at which it was copied.
                let mut group = RowGroup::new(rows_left, bytes_left);
                let copied = self.copy_group(Layers::All, table, &rest, &mut group)?;

                let rows: Vec<StoredRow> = group
                    .iter()
                    .map(|(key, row)| (table, key.to_vec(), Some(row.to_vec())))
                    .collect();
                // The cursor is the last row of the group, also if it is unreadable and has no
                // item.
                let last = rows.last().map(|(_, key, _)| key.clone());
                bytes += rows.iter().map(size).sum::<usize>();
                for item in feed_items(copied.position, rows) {
                    items.extend(readable(item)?);
                }

                let is_full = items.len() >= query.limit || bytes >= query.bytes;
                if let Some(key) = last.filter(|_| is_full) {
                    next = Some(FeedScanCursor { table, key });
                    break 'all;
                }

                // A group can be empty before the end of the range: its rows are deleted.
                let Some(start) = copied.next else { break };
                rest.start = start;
            }
        }

        let more = next.is_some();
        Ok(FeedPage {
            items,
            next,
            more,
            // Read last: no item is newer than this head.
            as_of: self.feed_head()?,
        })
    }

    /// Returns whether [`orlog_model::Change::TrimFeed`] with the same bounds would still delete
    /// rows.
    pub fn is_trim_due(
        &self,
        before: orlog_model::Timestamp,
        retained_commits: u64,
    ) -> Result<bool, Error> {
        self.shared.read(|tables| {
            let bounds = TrimBounds {
                before,
                retained_commits,
                last: tables.state().position,
            };

            let mut is_due = false;
            // The first row is the oldest, so it decides alone.
            tables.scan_keys(Table::Feed, &[], None, &mut |key, row| {
                let (offset, at) = write::read_offset(key, row)?;
                is_due = !self.is_feed_enabled() || bounds.is_expired(&offset, at);
                Ok(ControlFlow::Break(()))
            })?;
            Ok(is_due)
        })
    }

    /// Returns the ranges of a table that match the query.
    fn feed_ranges(&self, query: &FeedQuery, table: Table) -> Vec<(Table, KeyRange)> {
        let ranges = match &query.tenant {
            Some(tenant) => self.keys().instances(tenant, None, ""),
            None => vec![KeyRange::all()],
        };
        ranges.into_iter().map(|range| (table, range)).collect()
    }

    fn head(&self, tables: &MergedTables) -> Result<FeedOffset, Error> {
        let start = self.feed_beginning(tables)?;
        let last = tables.state().position;

        // Scans are only forward: search from increasing distances back until a row is found.
        let mut back = 1;
        while last.saturating_sub(back) > start.position {
            if let Some(offset) = last_behind(tables, last - back)? {
                return Ok(offset);
            }
            back *= 2;
        }

        Ok(last_behind(tables, start.position)?.unwrap_or(start))
    }

    fn feed_beginning(&self, tables: &MergedTables) -> Result<FeedOffset, Error> {
        if !self.is_feed_enabled() {
            return Err(Error::FeedDisabled);
        }

        // Before the first commit no change can be missing.
        Ok(write::feed_start(tables)?.unwrap_or_else(|| FeedOffset {
            position: tables.state().position,
            part: 0,
            writer_id: 0,
        }))
    }

    /// Checks that the feed is complete after an offset.
    fn follows(&self, tables: &MergedTables, after: &FeedOffset) -> Result<(), Error> {
        let start = self.feed_beginning(tables)?;
        // The start of the feed is an offset without a row.
        if *after == start {
            return Ok(());
        }

        let expired = |reason: &str| {
            Err(Error::FeedOffsetExpired {
                reason: reason.to_owned(),
            })
        };

        if (after.position, after.part) < (start.position, start.part) {
            return expired("the changes since the cursor have been deleted");
        }

        let key = keys::feed(after.position, after.part);
        let mut found = None;
        // Only the header is required, so a damaged row is sufficient.
        tables.scan_keys(Table::Feed, &key, None, &mut |found_key, row| {
            if *found_key == *key {
                found = Some(write::read_offset(&key, row)?.0);
            }
            Ok(ControlFlow::Break(()))
        })?;

        // After a restore or the loss of its end, a store has the same positions with other writer
        // ids.
        match found {
            Some(offset) if offset.writer_id == after.writer_id => Ok(()),
            _ => expired(
                "the cursor belongs to another run of the store; the store was restored or has \
                 lost its end",
            ),
        }
    }
}

/// Returns the last row of the feed after a commit.
fn last_behind(tables: &MergedTables, position: u64) -> Result<Option<FeedOffset>, Error> {
    let mut last = None;
    tables.scan_keys(
        Table::Feed,
        &keys::feed(position + 1, 0),
        None,
        &mut |key, row| {
            last = Some(write::read_offset(key, row)?.0);
            Ok(ControlFlow::Continue(()))
        },
    )?;
    Ok(last)
}

fn rows_behind(tables: &MergedTables, after: &FeedOffset) -> Result<Vec<FeedRow>, Error> {
    let mut rows = Vec::new();
    let range = KeyRange::all().after(&keys::feed(after.position, after.part));
    let scanned = tables.scan(Table::Feed, &range.start, None, &mut |key, row| {
        rows.push(write::read(key, row)?);
        Ok(if rows.len() < MAX_GROUP_ROWS {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    });
    scanned.map(|()| rows)
}

/// Changes after an offset, as of one commit.
struct FeedChanges<'a> {
    rows: Vec<FeedChange>,
    /// Further changes may follow the rows.
    is_cut: bool,
    position: u64,
    head: FeedOffset,
    snapshot: Box<dyn TableSnapshot + 'a>,
}

/// Row of the feed, with those of its entities that match the query.
struct FeedChange {
    offset: FeedOffset,
    touched: Vec<TouchedEntity>,
}

struct TouchedEntity {
    table: Table,
    key: Vec<u8>,
    /// Its entry in the memtables; `None`: its row is on disk, if there is one.
    in_memory: Option<MemtableLookup<Bytes>>,
}

impl FeedChange {
    fn new(tables: &MergedTables, query: &FeedQuery, row: FeedRow) -> Self {
        let matching = row
            .touched
            .into_iter()
            .filter(|(table, key)| query.matches(*table, key));
        let touched = matching.map(|(table, key)| TouchedEntity {
            in_memory: tables.shared_entry(table, &key),
            table,
            key,
        });

        Self {
            offset: row.offset,
            touched: touched.collect(),
        }
    }
}

impl TouchedEntity {
    /// Returns the row of the entity; `None` if it was deleted.
    fn value(&self, disk: &dyn TableSnapshot) -> Result<Option<Vec<u8>>, Error> {
        match &self.in_memory {
            Some(MemtableLookup(row)) => Ok(row.as_deref().map(<[u8]>::to_vec)),
            None => disk.row(self.table, &self.key),
        }
    }
}

/// Converts damage: a full scan skips the damaged row.
fn expired_if_damaged(error: Error) -> Error {
    if error.is_damage() {
        Error::FeedOffsetExpired {
            reason: error.to_string(),
        }
    } else {
        error
    }
}
