//! What a commit writes into the journal: row operations, and where the store stands after them.
//!
//! Layout, little endian: format u8 · heads (sequence u64, outbox depth u64, latest i64) · operations. An operation:
//! kind << 6 | table u8 · key length u16 · key · value length u32 · value (no value where a row is deleted).

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::encoding::keys::MAX_KEY_BYTES;
use crate::error::Error;
use crate::table::Table;

/// The format of records so far.
const FORMAT: u8 = 1;
/// Format and heads.
const HEADER_BYTES: usize = 25;

/// Where the store stands after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Heads {
    /// How many commits there were; the journal's sequence number of the last one.
    pub(crate) position: u64,
    /// The last number given to a work item or a kept input.
    pub(crate) sequence: u64,
    /// Rows in the outbox.
    pub(crate) outbox_depth: u64,
    /// The latest time at which anything was committed, so that a clock set back forgets no applied-marker.
    pub(crate) latest: Timestamp,
    /// Rows in the outbox by kind of work, in the order of its keys. Not in a record: whoever applies it counts its operations.
    #[serde(default)]
    pub(crate) by_kind: [u64; 4],
}

impl Heads {
    /// Before the first commit.
    pub(crate) const NONE: Self = Self {
        position: 0,
        sequence: 0,
        outbox_depth: 0,
        latest: Timestamp::from_millis(i64::MIN),
        by_kind: [0; 4],
    };
}

/// A row operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op<'a> {
    /// A row whose key is known to be new.
    Insert(Table, &'a [u8], &'a [u8]),
    /// A row that may replace one.
    Put(Table, &'a [u8], &'a [u8]),
    /// No such row any more.
    Delete(Table, &'a [u8]),
}

/// Whether a row to be written can replace one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Newness {
    /// Its key is known to be new: if it is deleted soon, no trace need remain.
    New,
    /// It may replace a row.
    Any,
}

/// A record being written. The buffer is kept from one commit to the next.
#[derive(Debug, Default)]
pub(crate) struct Record(Vec<u8>);

impl Record {
    /// Begins a new one.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
        self.0.resize(HEADER_BYTES, 0);
        self.0[0] = FORMAT;
    }

    /// Adds a row whose value is what `value` appends.
    pub(crate) fn put(
        &mut self,
        newness: Newness,
        table: Table,
        key: &[u8],
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        self.key(u8::from(newness == Newness::Any), table, key)?;
        let at = self.0.len();
        self.0.extend_from_slice(&[0; 4]);
        value(&mut self.0);
        let length = u32::try_from(self.0.len() - at - 4).map_err(|_| Error::TooLarge {
            bytes: self.0.len() as u64,
            limit: orlog_journal::MAX_PAYLOAD_BYTES,
        })?;
        self.0[at..at + 4].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }

    /// Adds the deletion of a row.
    pub(crate) fn delete(&mut self, table: Table, key: &[u8]) -> Result<(), Error> {
        self.key(2, table, key)
    }

    fn key(&mut self, kind: u8, table: Table, key: &[u8]) -> Result<(), Error> {
        let too_long = || Error::KeyTooLong { table: table.name(), length: key.len(), limit: MAX_KEY_BYTES };
        let length =
            u16::try_from(key.len()).ok().filter(|_| key.len() <= MAX_KEY_BYTES).ok_or_else(too_long)?;
        self.0.push(kind << 6 | table as u8);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(key);
        Ok(())
    }

    /// What was added so far, behind a head that says nothing yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Ends it; the position is the journal's affair.
    pub(crate) fn seal(&mut self, heads: &Heads) -> &[u8] {
        self.0[1..9].copy_from_slice(&heads.sequence.to_le_bytes());
        self.0[9..17].copy_from_slice(&heads.outbox_depth.to_le_bytes());
        self.0[17..25].copy_from_slice(&heads.latest.millis().to_le_bytes());
        &self.0
    }

    /// Gives back the memory that a rare large group took.
    pub(crate) fn relax(&mut self) {
        if self.0.capacity() > 8 << 20 {
            self.0 = Vec::new();
        }
    }
}

/// Reads the heads of the record at `position`, and then its operations one by one.
pub(crate) fn read(position: u64, bytes: &[u8]) -> Result<(Heads, Ops<'_>), Error> {
    let mut ops = Ops { position, rest: bytes };
    let [format] = ops.take()?;
    if format != FORMAT {
        let known = format!("its format is {format}, {FORMAT} is known");
        return Err(Error::Corrupt { place: format!("journal record {position}"), reason: known });
    }
    let heads = Heads {
        position,
        sequence: u64::from_le_bytes(ops.take()?),
        outbox_depth: u64::from_le_bytes(ops.take()?),
        latest: Timestamp::from_millis(i64::from_le_bytes(ops.take()?)),
        by_kind: [0; 4],
    };
    Ok((heads, ops))
}

/// The operations of a record that are still to be read.
#[derive(Debug)]
pub(crate) struct Ops<'a> {
    position: u64,
    rest: &'a [u8],
}

impl<'a> Ops<'a> {
    /// The next operation, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<Op<'a>>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let [kind] = self.take()?;
        let table = Table::numbered(kind & 0x3f).ok_or_else(|| self.wrong())?;
        let length = u16::from_le_bytes(self.take()?);
        let key = self.bytes(usize::from(length))?;
        match kind >> 6 {
            0 => Ok(Some(Op::Insert(table, key, self.value()?))),
            1 => Ok(Some(Op::Put(table, key, self.value()?))),
            2 => Ok(Some(Op::Delete(table, key))),
            _ => Err(self.wrong()),
        }
    }

    fn value(&mut self) -> Result<&'a [u8], Error> {
        let length = u32::from_le_bytes(self.take()?);
        self.bytes(usize::try_from(length).map_err(|_| self.wrong())?)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or_else(|| self.wrong())?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.wrong())?;
        self.rest = rest;
        Ok(bytes)
    }

    fn wrong(&self) -> Error {
        Error::Corrupt {
            place: format!("journal record {}", self.position),
            reason: format!("no operation begins {} bytes before its end", self.rest.len()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let mut record = Record::default();
        record.clear();
        record.put(Newness::New, Table::Outbox, b"k", |b| b.extend_from_slice(b"vv")).unwrap();
        record.put(Newness::Any, Table::Instance, b"i", |_| ()).unwrap();
        record.delete(Table::Timer, b"t").unwrap();
        let heads = Heads { sequence: 2, outbox_depth: 3, latest: Timestamp::from_millis(-4), ..Heads::NONE };
        record.seal(&heads).to_vec()
    }

    #[test]
    fn what_was_written_is_read() {
        let bytes = written();
        let (heads, mut ops) = read(7, &bytes).unwrap();
        let latest = Timestamp::from_millis(-4);
        let expected = Heads { position: 7, sequence: 2, outbox_depth: 3, latest, by_kind: [0; 4] };
        assert_eq!(heads, expected);
        assert_eq!(ops.next().unwrap(), Some(Op::Insert(Table::Outbox, b"k", b"vv")));
        assert_eq!(ops.next().unwrap(), Some(Op::Put(Table::Instance, b"i", b"")));
        assert_eq!(ops.next().unwrap(), Some(Op::Delete(Table::Timer, b"t")));
        assert_eq!(ops.next().unwrap(), None);
    }

    #[test]
    fn records_never_change() {
        let text = crate::encoding::tuple::hex(&written()[HEADER_BYTES..]);
        assert_eq!(text, "0201006b020000007676".to_owned() + "4001006900000000" + "83010074");
    }

    #[test]
    fn a_short_record_is_refused_not_misread() {
        let bytes = written();
        for length in 0..bytes.len() {
            let all = read(1, &bytes[..length]).and_then(|(_, mut ops)| {
                while ops.next()?.is_some() {}
                Ok(())
            });
            // Between two operations a record could end; anywhere else it cannot.
            assert_eq!(all.is_ok(), [25, 35, 43].contains(&length), "{length}");
        }
    }

    #[test]
    fn a_key_beyond_the_limit_is_refused_with_the_limit() {
        let mut record = Record::default();
        record.clear();
        let error = record.delete(Table::Outbox, &[1; MAX_KEY_BYTES + 1]).unwrap_err();
        assert!(matches!(error, Error::KeyTooLong { table: "outbox", length: 2023, limit: 2022 }), "{error}");
    }
}
