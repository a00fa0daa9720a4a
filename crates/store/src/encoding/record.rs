//! Journal record of a commit: row operations, and the state of the store after them.
//!
//! Layout, little endian: format u8 · state (sequence u64, outbox depth u64, latest i64) ·
//! operations. An operation: kind << 6 | table u8 · key length u16 · key · value length u32 · value
//! (no value if the row is deleted).

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

use crate::encoding::keys::MAX_KEY_BYTES;
use crate::error::Error;
use crate::table::Table;

/// Only format of records.
const FORMAT: u8 = 1;
/// Size of format and state, in bytes.
const HEADER_BYTES: usize = 25;

/// State of the store after a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoreState {
    /// Number of commits; the journal sequence of the last one.
    pub(crate) position: u64,
    /// Last number assigned to a work item or a buffered input.
    pub(crate) sequence: u64,
    /// Number of rows in the outbox.
    pub(crate) outbox_depth: u64,
    /// Latest commit time, so that a clock that is set back expires no dedupe key.
    pub(crate) latest: Timestamp,
    /// Outbox rows by kind of work, in key order. Not part of a record: the counts are updated when
    /// its operations are applied.
    pub(crate) by_kind: [u64; 4],
}

impl StoreState {
    /// State before the first commit.
    pub(crate) const NONE: Self = Self {
        position: 0,
        sequence: 0,
        outbox_depth: 0,
        latest: Timestamp::from_millis(i64::MIN),
        by_kind: [0; 4],
    };
}

/// Row operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowOp<'a> {
    /// Writes a row whose key is known to be new.
    Insert(Table, &'a [u8], &'a [u8]),
    /// Writes a row that may replace one.
    Put(Table, &'a [u8], &'a [u8]),
    /// Deletes a row.
    Delete(Table, &'a [u8]),
}

/// Whether a written row can replace another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPresence {
    /// The key is known to be new: a later deletion needs no tombstone.
    Absent,
    /// The row may replace another one.
    Unknown,
}

/// Record under construction. The buffer is reused by the next commit.
#[derive(Debug, Default)]
pub(crate) struct RecordWriter(Vec<u8>);

impl RecordWriter {
    /// Starts a new record.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
        self.0.resize(HEADER_BYTES, 0);
        self.0[0] = FORMAT;
    }

    /// Adds a row whose value is the bytes that `value` appends.
    pub(crate) fn put(
        &mut self,
        newness: KeyPresence,
        table: Table,
        key: &[u8],
        value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), Error> {
        self.key(u8::from(newness == KeyPresence::Unknown), table, key)?;

        // The length precedes the value, but is known only after the value is encoded.
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
        // The tables would reject a longer key only at the flush, when its commit is already
        // durable.
        let length = u16::try_from(key.len())
            .ok()
            .filter(|_| key.len() <= MAX_KEY_BYTES)
            .ok_or_else(|| Error::KeyTooLong {
                table: table.name(),
                length: key.len(),
                limit: MAX_KEY_BYTES,
            })?;

        self.0.push(kind << 6 | table as u8);
        self.0.extend_from_slice(&length.to_le_bytes());
        self.0.extend_from_slice(key);
        Ok(())
    }

    /// Returns the operations so far, after a header that is not filled yet.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Finishes the record. The journal stores the position.
    pub(crate) fn finish(&mut self, store_state: &StoreState) -> &[u8] {
        self.0[1..9].copy_from_slice(&store_state.sequence.to_le_bytes());
        self.0[9..17].copy_from_slice(&store_state.outbox_depth.to_le_bytes());
        self.0[17..25].copy_from_slice(&store_state.latest.as_millis().to_le_bytes());
        &self.0
    }

    /// Releases the memory of a rare large group.
    pub(crate) fn shrink(&mut self) {
        // Usual groups are smaller, so their buffer is kept.
        if self.0.capacity() > 8 << 20 {
            self.0 = Vec::new();
        }
    }
}

/// Decodes the state of the record at `position`, and returns a reader of its operations.
pub(crate) fn read(position: u64, bytes: &[u8]) -> Result<(StoreState, RecordReader<'_>), Error> {
    let mut ops = RecordReader {
        position,
        rest: bytes,
    };

    let [format] = ops.take()?;
    if format != FORMAT {
        let known = format!("unsupported format {format}; this release supports {FORMAT}");
        return Err(Error::Corrupt {
            location: format!("journal record {position}"),
            reason: known,
        });
    }

    let store_state = StoreState {
        position,
        sequence: u64::from_le_bytes(ops.take()?),
        outbox_depth: u64::from_le_bytes(ops.take()?),
        latest: Timestamp::from_millis(i64::from_le_bytes(ops.take()?)),
        by_kind: [0; 4],
    };
    Ok((store_state, ops))
}

/// Operations of a record that are not read yet.
#[derive(Debug)]
pub(crate) struct RecordReader<'a> {
    position: u64,
    rest: &'a [u8],
}

impl<'a> RecordReader<'a> {
    /// Returns the next operation, `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<RowOp<'a>>, Error> {
        if self.rest.is_empty() {
            return Ok(None);
        }

        let [kind] = self.take()?;
        let table = Table::from_number(kind & 0x3f).ok_or_else(|| self.corrupt())?;
        let length = u16::from_le_bytes(self.take()?);
        let key = self.bytes(usize::from(length))?;

        match kind >> 6 {
            0 => Ok(Some(RowOp::Insert(table, key, self.value()?))),
            1 => Ok(Some(RowOp::Put(table, key, self.value()?))),
            2 => Ok(Some(RowOp::Delete(table, key))),
            _ => Err(self.corrupt()),
        }
    }

    fn value(&mut self) -> Result<&'a [u8], Error> {
        let length = u32::from_le_bytes(self.take()?);
        self.bytes(usize::try_from(length).map_err(|_| self.corrupt())?)
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.corrupt())?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8], Error> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or_else(|| self.corrupt())?;
        self.rest = rest;
        Ok(bytes)
    }

    fn corrupt(&self) -> Error {
        Error::Corrupt {
            location: format!("journal record {}", self.position),
            reason: format!(
                "no operation starts {} bytes before its end",
                self.rest.len()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written() -> Vec<u8> {
        let mut record = RecordWriter::default();
        record.clear();
        record
            .put(KeyPresence::Absent, Table::Outbox, b"k", |b| {
                b.extend_from_slice(b"vv");
            })
            .unwrap();
        record
            .put(KeyPresence::Unknown, Table::Instance, b"i", |_| ())
            .unwrap();
        record.delete(Table::Timer, b"t").unwrap();
        let store_state = StoreState {
            sequence: 2,
            outbox_depth: 3,
            latest: Timestamp::from_millis(-4),
            ..StoreState::NONE
        };
        record.finish(&store_state).to_vec()
    }

    #[test]
    fn record_round_trips() {
        let bytes = written();
        let (store_state, mut ops) = read(7, &bytes).unwrap();
        let latest = Timestamp::from_millis(-4);
        let expected = StoreState {
            position: 7,
            sequence: 2,
            outbox_depth: 3,
            latest,
            by_kind: [0; 4],
        };
        assert_eq!(store_state, expected);
        assert_eq!(
            ops.next().unwrap(),
            Some(RowOp::Insert(Table::Outbox, b"k", b"vv"))
        );
        assert_eq!(
            ops.next().unwrap(),
            Some(RowOp::Put(Table::Instance, b"i", b""))
        );
        assert_eq!(ops.next().unwrap(), Some(RowOp::Delete(Table::Timer, b"t")));
        assert_eq!(ops.next().unwrap(), None);
    }

    #[test]
    fn record_format_is_stable() {
        let text = hex::encode(&written()[HEADER_BYTES..]);
        assert_eq!(
            text,
            "0201006b020000007676".to_owned() + "4001006900000000" + "83010074"
        );
    }

    #[test]
    fn truncated_record_is_rejected() {
        let bytes = written();
        for length in 0..bytes.len() {
            let all = read(1, &bytes[..length]).and_then(|(_, mut ops)| {
                while ops.next()?.is_some() {}
                Ok(())
            });
            // A record is valid if it ends between two operations, and only there.
            assert_eq!(all.is_ok(), [25, 35, 43].contains(&length), "{length}");
        }
    }

    #[test]
    fn oversized_key_is_rejected_with_the_limit() {
        let mut record = RecordWriter::default();
        record.clear();
        let error = record
            .delete(Table::Outbox, &[1; MAX_KEY_BYTES + 1])
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::KeyTooLong {
                    table: "outbox",
                    length: 2023,
                    limit: 2022
                }
            ),
            "{error}"
        );
    }
}
