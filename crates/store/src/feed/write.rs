//! The feed as it is written: which rows a commit touches that people are shown, kept by the commit itself.
//!
//! | store opened | `meta` says          | with the first commit                                   |
//! |--------------|----------------------|---------------------------------------------------------|
//! | with a feed  | nothing              | `meta` says that the feed is whole from here on         |
//! | with a feed  | where it begins      | nothing; what is trimmed moves the beginning            |
//! | without      | nothing              | nothing                                                 |
//! | without      | where it begins      | `meta` says nothing any more: from here on there is a gap |
//!
//! A row of the feed is (position, part) → format u8 · life u64 · time i64 · touched keys, big endian; a key is table u8 ·
//! length of the beginning that it shares with the one before u16 · length of the rest u16 · the rest.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::encoding::keys;
use crate::encoding::record::{self, Heads, Newness, Op, Record};
use crate::encoding::tuple::Fields;
use crate::encoding::value;
use crate::error::Error;
use crate::merged::Tables;
use crate::table::Table;

/// Keys that a row of the feed names at most.
const KEYS: usize = 32;

/// Whose rows are in the feed.
pub(crate) const FED: [Table; 4] = [Table::Instance, Table::Task, Table::TaskEvent, Table::History];

/// A place in the feed of a store: everything up to and with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FeedMark {
    /// The commit.
    pub position: u64,
    /// The part of it.
    pub part: u32,
    /// Whose commit it is: no other life of a writer has this number. 0 where the feed begins.
    pub life: u64,
}

impl FeedMark {
    fn is_behind(&self, other: &Self) -> bool {
        (self.position, self.part) > (other.position, other.part)
    }
}

/// How a writer keeps the feed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Feeding {
    /// `None`: there is none.
    pub(crate) life: Option<u64>,
    /// What `meta` says fits.
    pub(crate) is_settled: bool,
}

/// A row of the feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) mark: FeedMark,
    pub(crate) at: Timestamp,
    pub(crate) touched: Vec<(Table, Vec<u8>)>,
}

impl Feeding {
    /// That of a life that begins.
    pub(crate) fn begin(is_on: bool) -> Self {
        // Like the identity of a store nothing is decided by it, but whether two lives are the same.
        let number = || std::hash::RandomState::new().build_hasher().finish().max(1);
        Self { life: is_on.then(number), is_settled: false }
    }

    /// Ends a group whose other operations are in `record`; `trimmed` is the last row that it drops.
    pub(crate) fn end(
        self,
        (tables, heads): (&Tables, &Heads),
        trimmed: Option<FeedMark>,
        record: &mut Record,
    ) -> Result<(), Error> {
        let Some(life) = self.life else {
            return if !self.is_settled && beginning(tables)?.is_some() {
                record.delete(Table::Meta, keys::FEED)
            } else {
                Ok(())
            };
        };
        let mut rows = Vec::new();
        for (part, touched) in (0..).zip(touched(record)?.chunks(KEYS)) {
            rows.push((keys::feed(heads.position, part), written(life, heads.latest, touched)));
        }
        for (key, row) in rows {
            record.put(Newness::New, Table::Feed, &key, |buffer| buffer.extend_from_slice(&row))?;
        }
        if self.is_settled && trimmed.is_none() {
            return Ok(());
        }
        let begins = match (beginning(tables)?, trimmed) {
            (None, _) => FeedMark { position: heads.position - 1, part: 0, life: 0 },
            (Some(begins), Some(trimmed)) if trimmed.is_behind(&begins) => trimmed,
            (Some(_), _) => return Ok(()),
        };
        record.put(Newness::Any, Table::Meta, keys::FEED, |buffer| value::encode(buffer, &begins))
    }
}

/// What a record touches, each once, in its order.
fn touched(record: &Record) -> Result<Vec<(Table, Vec<u8>)>, Error> {
    let (_, mut ops) = record::read(0, record.bytes())?;
    let (mut seen, mut touched) = (BTreeSet::new(), Vec::new());
    while let Some(op) = ops.next()? {
        let (Op::Insert(table, key, _) | Op::Put(table, key, _) | Op::Delete(table, key)) = op;
        if FED.contains(&table) && seen.insert((table, key)) {
            touched.push((table, key.to_vec()));
        }
    }
    Ok(touched)
}

/// Behind which mark the feed is whole; `None`: nothing is known of it.
pub(crate) fn beginning(tables: &Tables) -> Result<Option<FeedMark>, Error> {
    tables.get(Table::Meta, keys::FEED, |bytes| value::decode(Table::Meta, bytes))?.transpose()
}

/// Whether a row was made before a time, or more than `keep` commits before the last one.
pub(crate) fn is_old(mark: &FeedMark, at: Timestamp, (before, keep, last): (Timestamp, u64, u64)) -> bool {
    at < before || last.saturating_sub(mark.position) >= keep
}

fn written(life: u64, at: Timestamp, touched: &[(Table, Vec<u8>)]) -> Vec<u8> {
    let mut row = value::EMPTY.to_vec();
    row.extend_from_slice(&life.to_be_bytes());
    row.extend_from_slice(&at.millis().to_be_bytes());
    let mut last: &[u8] = &[];
    for (table, key) in touched {
        let shared = last.iter().zip(key).take_while(|(a, b)| a == b).count();
        row.push(*table as u8);
        for part in [shared, key.len() - shared] {
            let length = u16::try_from(part).expect("the record has taken the key");
            row.extend_from_slice(&length.to_be_bytes());
        }
        row.extend_from_slice(&key[shared..]);
        last = key;
    }
    row
}

/// The mark and the time of a row, without its keys.
pub(crate) fn head(key: &[u8], bytes: &[u8]) -> Result<(FeedMark, Timestamp), Error> {
    let (position, part) = keys::read_feed(key)?;
    let mut fields = Fields::of(bytes);
    let format = fields.u8()?;
    if [format] != *value::EMPTY {
        return Err(fields.wrong(format!("its format is {format}")));
    }
    let (life, at) = (fields.u64()?, i64::from_be_bytes(fields.fixed()?));
    Ok((FeedMark { position, part, life }, Timestamp::from_millis(at)))
}

/// Reads a row.
pub(crate) fn read(key: &[u8], bytes: &[u8]) -> Result<Row, Error> {
    let (mark, at) = head(key, bytes)?;
    let mut rest = bytes.get(17..).unwrap_or_default();
    let wrong = || Fields::of(bytes).wrong("a row of the feed ends too early");
    let mut touched: Vec<(Table, Vec<u8>)> = Vec::new();
    while let Some(([table, s1, s2, l1, l2], behind)) = rest.split_first_chunk() {
        let shared = usize::from(u16::from_be_bytes([*s1, *s2]));
        let (own, behind) =
            behind.split_at_checked(usize::from(u16::from_be_bytes([*l1, *l2]))).ok_or_else(wrong)?;
        let before = touched.last().map_or(&[][..], |(_, key)| key.as_slice());
        let key = [before.get(..shared).ok_or_else(wrong)?, own].concat();
        touched.push((Table::numbered(*table).ok_or_else(wrong)?, key));
        rest = behind;
    }
    if rest.is_empty() { Ok(Row { mark, at, touched }) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::tuple::hex;

    const MARK: FeedMark = FeedMark { position: 7, part: 1, life: 9 };

    #[test]
    fn rows_never_change_and_are_read_back() {
        let touched = vec![
            (Table::Instance, b"acme-1".to_vec()),
            (Table::History, b"acme-1-8".to_vec()),
            (Table::Task, b"b".to_vec()),
        ];
        let (key, row) = (keys::feed(7, 1), written(9, Timestamp::from_millis(-2), &touched));
        assert_eq!(hex(&key), "000000000000000700000001");
        let text =
            "01 0000000000000009 fffffffffffffffe 0000000006 61636d652d31 0100060002 2d38 0a00000001 62";
        assert_eq!(hex(&row), text.replace(' ', ""));
        assert_eq!(read(&key, &row).unwrap(), Row { mark: MARK, at: Timestamp::from_millis(-2), touched });
        for length in 18..row.len() {
            // Between two keys a row could end; anywhere else it cannot.
            assert_eq!(read(&key, &row[..length]).is_ok(), [28, 35].contains(&length), "{length}");
        }
    }

    #[test]
    fn lives_differ() {
        assert_ne!(Feeding::begin(true).life, Feeding::begin(true).life);
        assert_eq!(Feeding::begin(false).life, None);
    }
}
