//! Groups of rows: what a scan copies with one lock.

use std::ops::ControlFlow;

/// Number of rows that are copied with one lock. A longer scan lets commits proceed in between.
pub(crate) const ROWS_PER_LOCK: usize = 256;
/// Size of the rows that a scan copies with one lock, in bytes: commits wait for it.
const BYTES_PER_LOCK: usize = 64 * 1024;

/// Copies of consecutive rows. A row is read and decoded after the lock of the tables is released:
/// decoding takes longer than copying, and the scheduler can stop a thread at any time.
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
    /// Creates a group of at most `rows` rows, and at most `bytes` bytes and one row. What one lock
    /// permits is the maximum.
    pub(crate) fn new(rows: usize, bytes: usize) -> Self {
        Self {
            rows_left: rows.min(ROWS_PER_LOCK),
            bytes_left: bytes.min(BYTES_PER_LOCK),
            data: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// Creates a group of at most `rows` rows.
    pub(crate) fn of_rows(rows: usize) -> Self {
        Self::new(rows, BYTES_PER_LOCK)
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
