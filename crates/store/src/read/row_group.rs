//! Groups of rows: what a scan copies at a time.

use std::ops::ControlFlow;

/// Maximum number of rows of a group: commits wait while its entries of the memtables are found.
pub(crate) const MAX_GROUP_ROWS: usize = 256;
/// Maximum size of a group in bytes, and one row.
const MAX_GROUP_BYTES: usize = 64 * 1024;

/// Copies of consecutive rows, which are read and decoded without a lock.
pub(crate) struct RowGroup {
    rows_left: usize,
    bytes_left: usize,
    data: Vec<u8>,
    rows: Vec<RowEnd>,
}

/// Where the key and the value of a row end in the data of the group. A row starts at the end of
/// the one before.
struct RowEnd {
    key: usize,
    value: usize,
}

impl RowGroup {
    /// Creates a group of at most `rows` rows, and at most `bytes` bytes and one row.
    pub(crate) fn new(rows: usize, bytes: usize) -> Self {
        Self {
            rows_left: rows.min(MAX_GROUP_ROWS),
            bytes_left: bytes.min(MAX_GROUP_BYTES),
            data: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Creates a group of at most `rows` rows.
    pub(crate) fn of_rows(rows: usize) -> Self {
        Self::new(rows, MAX_GROUP_BYTES)
    }

    /// Empties the group; it takes as many rows as a group can have. Its memory is used again.
    pub(crate) fn clear(&mut self) {
        self.data.clear();
        self.rows.clear();
        self.rows_left = MAX_GROUP_ROWS;
        self.bytes_left = MAX_GROUP_BYTES;
    }

    /// Returns the number of rows that the group still takes.
    pub(crate) fn rows_left(&self) -> usize {
        self.rows_left
    }

    /// Copies a row; breaks if the group is full. It has at least one row, whatever its size.
    pub(crate) fn push(&mut self, key: &[u8], value: &[u8]) -> ControlFlow<()> {
        self.data.extend_from_slice(key);
        let key_end = self.data.len();
        self.data.extend_from_slice(value);
        self.rows.push(RowEnd {
            key: key_end,
            value: self.data.len(),
        });

        self.rows_left = self.rows_left.saturating_sub(1);
        self.bytes_left = self.bytes_left.saturating_sub(key.len() + value.len());
        if self.rows_left == 0 || self.bytes_left == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Returns the keys and values, in the order of the copies.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut start = 0;
        self.rows.iter().map(move |end| {
            let key = &self.data[start..end.key];
            let value = &self.data[end.key..end.value];
            start = end.value;
            (key, value)
        })
    }
}
