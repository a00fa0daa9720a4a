//! Writes of the change feed: each commit stores the visible rows that it changes.
//!
//! | store opened | `meta` contains | with the first commit |
//! |---|---|---|
//! | with a feed | nothing | writes to `meta` that the feed is complete from here on |
//! | with a feed | the start of the feed | nothing; trims move the start |
//! | without | nothing | nothing |
//! | without | the start of the feed | deletes the start from `meta`: there is a gap from here on |
//!
//! A row of the feed is (position, part) → format u8 · writer id u64 · time i64 · changed keys, big
//! endian. A key is table u8 · length of the prefix that it shares with the previous key u16 ·
//! length of the rest u16 · the rest.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::encoding::keys;
use crate::encoding::record::{self, KeyPresence, RecordWriter, RowOp, StoreState};
use crate::encoding::tuple::KeyReader;
use crate::encoding::value;
use crate::error::Error;
use crate::merged::MergedTables;
use crate::table::Table;

/// Maximum number of keys in a row of the feed.
const KEYS: usize = 32;

/// Tables whose rows are in the feed.
pub(crate) const FEED_TABLES: [Table; 4] = [
    Table::Instance,
    Table::Task,
    Table::TaskEvent,
    Table::History,
];

/// Offset in the feed of a store, inclusive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedOffset {
    /// Position of the commit.
    pub position: u64,
    /// Part of the commit.
    pub part: u32,
    /// Id of the writer run that made the commit; unique for each run. 0 at the start of the feed.
    pub writer_id: u64,
}

impl FeedOffset {
    fn is_behind(&self, other: &Self) -> bool {
        (self.position, self.part) > (other.position, other.part)
    }
}

/// Bounds of a trim: a row that exceeds one of them is deleted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TrimBounds {
    /// Rows that were written earlier are deleted.
    pub(crate) before: Timestamp,
    /// Number of the last commits whose rows are retained.
    pub(crate) retained_commits: u64,
    /// Position of the last commit.
    pub(crate) last: u64,
}

impl TrimBounds {
    /// Returns whether a row was written too early, or too many commits before the last one. A row
    /// whose time is unreadable is expired.
    pub(crate) fn is_expired(&self, offset: &FeedOffset, at: Option<Timestamp>) -> bool {
        at.is_none_or(|at| {
            at < self.before || self.last.saturating_sub(offset.position) >= self.retained_commits
        })
    }
}

/// State of the feed in a writer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FeedWriter {
    /// Id of this writer run; `None` if the feed is disabled.
    pub(crate) writer_id: Option<u64>,
    /// Whether the content of `meta` is correct.
    pub(crate) is_meta_current: bool,
}

/// Row of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FeedRow {
    pub(crate) offset: FeedOffset,
    pub(crate) at: Timestamp,
    pub(crate) touched: Vec<(Table, Vec<u8>)>,
}

impl FeedWriter {
    /// Creates the state of a new writer run.
    pub(crate) fn new(is_on: bool) -> Self {
        Self {
            writer_id: is_on.then(new_writer_id),
            is_meta_current: false,
        }
    }

    /// Ends a group whose other operations are in `record`; `trimmed` is the last row that it
    /// deletes.
    pub(crate) fn write_group(
        self,
        tables: &MergedTables,
        store_state: &StoreState,
        trimmed: Option<FeedOffset>,
        record: &mut RecordWriter,
    ) -> Result<(), Error> {
        let Some(writer_id) = self.writer_id else {
            // Commits without a feed leave a gap. A consumer detects it by the missing start.
            return if !self.is_meta_current && feed_start(tables)?.is_some() {
                record.delete(Table::Meta, keys::FEED)
            } else {
                Ok(())
            };
        };

        // From the complete record, so that no change is omitted (ADR 0013).
        let mut rows = Vec::new();
        for (part, touched) in (0..).zip(touched(record)?.chunks(KEYS)) {
            rows.push((
                keys::feed(store_state.position, part),
                written(writer_id, store_state.latest, touched),
            ));
        }
        for (key, row) in rows {
            record.put(KeyPresence::Absent, Table::Feed, &key, |buffer| {
                buffer.extend_from_slice(&row);
            })?;
        }

        // The start is read only for the first commit of a writer run, and for a trim.
        if self.is_meta_current && trimmed.is_none() {
            return Ok(());
        }

        let start = match (feed_start(tables)?, trimmed) {
            // The first commit with a feed is the first complete one, so the start is the commit
            // before it.
            (None, _) => FeedOffset {
                position: store_state.position - 1,
                part: 0,
                writer_id: 0,
            },
            (Some(start), Some(trimmed)) if trimmed.is_behind(&start) => trimmed,
            (Some(_), _) => return Ok(()),
        };

        record.put(KeyPresence::Unknown, Table::Meta, keys::FEED, |buffer| {
            value::encode(buffer, &start);
        })
    }
}

/// Returns an id that no other writer run has. Like the identity of a store, it only distinguishes
/// two runs; nothing else depends on it.
fn new_writer_id() -> u64 {
    // The start of the feed has the id 0.
    std::hash::RandomState::new().build_hasher().finish().max(1)
}

/// Returns the rows that a record changes, each once, in the order of the record.
fn touched(record: &RecordWriter) -> Result<Vec<(Table, Vec<u8>)>, Error> {
    let (_, mut ops) = record::read(0, record.bytes())?;
    let mut seen = BTreeSet::new();
    let mut touched = Vec::new();

    while let Some(op) = ops.next()? {
        let (RowOp::Insert(table, key, _) | RowOp::Put(table, key, _) | RowOp::Delete(table, key)) =
            op;
        // A row that a group changes twice is listed once, because the feed contains no values.
        if FEED_TABLES.contains(&table) && seen.insert((table, key)) {
            touched.push((table, key.to_vec()));
        }
    }
    Ok(touched)
}

/// Returns the offset after which the feed is complete; `None` if it is unknown.
pub(crate) fn feed_start(tables: &MergedTables) -> Result<Option<FeedOffset>, Error> {
    tables
        .get(Table::Meta, keys::FEED, |bytes| {
            value::decode(Table::Meta, bytes)
        })?
        .transpose()
}

fn written(writer_id: u64, at: Timestamp, touched: &[(Table, Vec<u8>)]) -> Vec<u8> {
    let mut row = value::EMPTY.to_vec();
    row.extend_from_slice(&writer_id.to_be_bytes());
    row.extend_from_slice(&at.as_millis().to_be_bytes());

    let mut last: &[u8] = &[];
    for (table, key) in touched {
        // Keys of one commit often start with the same instance.
        let shared = last.iter().zip(key).take_while(|(a, b)| a == b).count();
        row.push(*table as u8);
        for part in [shared, key.len() - shared] {
            let length = u16::try_from(part).expect("the record has accepted the key");
            row.extend_from_slice(&length.to_be_bytes());
        }
        row.extend_from_slice(&key[shared..]);
        last = key;
    }
    row
}

/// Returns the offset and the time of a row, without its keys.
pub(crate) fn read_header(key: &[u8], bytes: &[u8]) -> Result<(FeedOffset, Timestamp), Error> {
    let (position, part) = keys::read_feed(key)?;
    let mut fields = KeyReader::of(bytes);
    let format = fields.u8()?;
    if [format] != *value::EMPTY {
        return Err(fields.corrupt(format!("unsupported format {format}")));
    }

    let writer_id = fields.u64()?;
    let at = i64::from_be_bytes(fields.fixed()?);
    Ok((
        FeedOffset {
            position,
            part,
            writer_id,
        },
        Timestamp::from_millis(at),
    ))
}

/// Returns the offset and the time of a row that may be damaged. If its header is unreadable, the
/// writer id is 0 and there is no time.
pub(crate) fn read_offset(
    key: &[u8],
    bytes: &[u8],
) -> Result<(FeedOffset, Option<Timestamp>), Error> {
    let (position, part) = keys::read_feed(key)?;
    let header = value::readable(read_header(key, bytes))?;
    Ok(header.map_or(
        (
            FeedOffset {
                position,
                part,
                writer_id: 0,
            },
            None,
        ),
        |(offset, at)| (offset, Some(at)),
    ))
}

/// Decodes a row.
pub(crate) fn read(key: &[u8], bytes: &[u8]) -> Result<FeedRow, Error> {
    let (offset, at) = read_header(key, bytes)?;
    // The keys follow the format, the writer id and the time.
    let mut rest = bytes.get(17..).unwrap_or_default();
    let corrupt = || KeyReader::of(bytes).corrupt("a row of the feed is truncated");
    let mut touched: Vec<(Table, Vec<u8>)> = Vec::new();

    while let Some(([table, s1, s2, l1, l2], behind)) = rest.split_first_chunk() {
        let shared = usize::from(u16::from_be_bytes([*s1, *s2]));
        let (own, behind) = behind
            .split_at_checked(usize::from(u16::from_be_bytes([*l1, *l2])))
            .ok_or_else(corrupt)?;

        let before = touched.last().map_or(&[][..], |(_, key)| key.as_slice());
        let key = [before.get(..shared).ok_or_else(corrupt)?, own].concat();
        touched.push((Table::from_number(*table).ok_or_else(corrupt)?, key));
        rest = behind;
    }

    if rest.is_empty() {
        Ok(FeedRow {
            offset,
            at,
            touched,
        })
    } else {
        Err(corrupt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OFFSET: FeedOffset = FeedOffset {
        position: 7,
        part: 1,
        writer_id: 9,
    };

    #[test]
    fn feed_rows_are_stable_and_round_trip() {
        let touched = vec![
            (Table::Instance, b"acme-1".to_vec()),
            (Table::History, b"acme-1-8".to_vec()),
            (Table::Task, b"b".to_vec()),
        ];
        let (key, row) = (
            keys::feed(7, 1),
            written(9, Timestamp::from_millis(-2), &touched),
        );
        assert_eq!(hex::encode(&key), "000000000000000700000001");
        let text = "01 0000000000000009 fffffffffffffffe 0000000006 61636d652d31 0100060002 2d38 0a00000001 62";
        assert_eq!(hex::encode(&row), text.replace(' ', ""));
        assert_eq!(
            read(&key, &row).unwrap(),
            FeedRow {
                offset: OFFSET,
                at: Timestamp::from_millis(-2),
                touched
            }
        );
        for length in 18..row.len() {
            // A row is valid if it ends between two keys, and only there.
            assert_eq!(
                read(&key, &row[..length]).is_ok(),
                [28, 35].contains(&length),
                "{length}"
            );
        }
    }

    #[test]
    fn writer_ids_differ() {
        assert_ne!(
            FeedWriter::new(true).writer_id,
            FeedWriter::new(true).writer_id
        );
        assert_eq!(FeedWriter::new(false).writer_id, None);
    }
}
