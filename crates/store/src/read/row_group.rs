//! Groups of rows: how much a scan reads with one lock.

use std::ops::ControlFlow;

/// Number of rows that are read under one lock. A longer scan lets commits proceed in between.
pub(crate) const ROWS_PER_LOCK: usize = 256;
/// Size of the rows that a scan reads with one lock, in bytes. Commits wait for the lock, and a row
/// is decoded within it: 256 instances of 200 KB took 40 ms.
const BYTES_PER_LOCK: usize = 64 * 1024;

/// Rows that are read together: what is left of their number and of their size in bytes.
pub(crate) struct RowGroup {
    rows: usize,
    bytes: usize,
}

impl RowGroup {
    pub(crate) fn new(rows: usize, bytes: usize) -> Self {
        Self { rows, bytes }
    }

    /// Returns the rows that a scan reads with one lock.
    pub(crate) fn of_one_lock() -> Self {
        Self::new(ROWS_PER_LOCK, BYTES_PER_LOCK)
    }

    /// Adds a row; breaks if the group is full. It has at least one row, whatever its size.
    pub(crate) fn add(&mut self, bytes: usize) -> ControlFlow<()> {
        self.rows = self.rows.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);

        if self.rows == 0 || self.bytes == 0 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }
}
