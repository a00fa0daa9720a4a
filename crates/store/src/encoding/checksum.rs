//! Checksum of a row of the tables: CRC-32 of table, key and value, appended to the value.
//!
//! The layer of the tables adds it to every row and verifies it in every read, so no table can
//! bypass it. The journal has checksums of its own, so the memtable has none.

use crate::table::Table;

/// Size of the checksum, in bytes.
const BYTES: usize = 4;

/// Replaces the content of `buffer` with the value and its checksum.
pub(crate) fn seal(buffer: &mut Vec<u8>, table: Table, key: &[u8], value: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(value);
    buffer.extend_from_slice(&checksum(table, key, value));
}

/// Returns the value of a row; `None` if the row is damaged.
pub(crate) fn verify<'a>(table: Table, key: &[u8], row: &'a [u8]) -> Option<&'a [u8]> {
    let (value, stored) = row.split_last_chunk::<BYTES>()?;
    (*stored == checksum(table, key, value)).then_some(value)
}

/// Returns the value of a row without verification, for callers that need only the key.
pub(crate) fn unverified(row: &[u8]) -> &[u8] {
    row.split_last_chunk::<BYTES>()
        .map_or(row, |(value, _)| value)
}

fn checksum(table: Table, key: &[u8], value: &[u8]) -> [u8; BYTES] {
    // The table is the start value, so the row of another table does not match.
    let mut hasher = crc32fast::Hasher::new_with_initial(table as u32 + 1);
    hasher.update(key);
    hasher.update(value);
    hasher.finalize().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_flipped_bit_is_detected(
            table in 0..Table::ALL.len(),
            key in proptest::collection::vec(any::<u8>(), 1..40),
            value in proptest::collection::vec(any::<u8>(), 0..300),
            bit in any::<proptest::sample::Index>(),
        ) {
            let table = Table::ALL[table];
            let mut row = Vec::new();
            seal(&mut row, table, &key, &value);
            prop_assert_eq!(verify(table, &key, &row), Some(&*value));
            prop_assert_eq!(unverified(&row), &*value);
            let mut bytes = [&*key, &*row].concat();
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            let (key, row) = bytes.split_at(key.len());
            prop_assert_eq!(verify(table, key, row), None);
        }
    }

    #[test]
    fn row_of_another_table_is_damaged() {
        let mut row = Vec::new();
        seal(&mut row, Table::Outbox, b"k", b"v");
        assert_eq!(verify(Table::Timer, b"k", &row), None);
        assert_eq!(verify(Table::Outbox, b"k", b"v"), None);
    }
}
