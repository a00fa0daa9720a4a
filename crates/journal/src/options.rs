//! Options of a journal, chosen when it is opened.

/// Minimum segment size, in bytes: below it, headers would exceed records.
const MIN_SEGMENT_BYTES: u64 = 4096;

/// Options of a journal.
#[derive(Debug, Clone)]
pub struct Options {
    /// Identity of the journal. Each segment stores it; a directory with another identity is
    /// rejected.
    pub identity: [u8; 16],
    /// Size of a segment file in bytes, allocated at once. At least 4096, rounded up to a multiple
    /// of 8. A larger record has its own segment. The size may change from one opening to the next.
    pub segment_bytes: u64,
    /// Number of dropped segments that are kept for reuse. A file with previously written blocks
    /// syncs faster than a newly allocated one, because no metadata changes (ext4, 64 KiB writes:
    /// 220 µs instead of 380 µs).
    pub spare_segments: usize,
    /// Sequence of the first record, if the directory contains no journal yet.
    pub first_sequence: u64,
    /// Sequence that is known to be durable. A journal that ends before it is rejected.
    pub expected_last: u64,
}

/// Identity of a journal, and the sequence of a record that is durable in it. Owners store it
/// elsewhere, to detect a journal that is missing, replaced or shortened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DurablePosition {
    /// Identity of the journal.
    pub identity: [u8; 16],
    /// Sequence of the record.
    pub position: u64,
}

impl Options {
    /// Returns the defaults: segments of 64 MiB, two spares.
    #[must_use]
    pub fn new(identity: [u8; 16]) -> Self {
        Self {
            identity,
            segment_bytes: 64 << 20,
            spare_segments: 2,
            first_sequence: 1,
            expected_last: 0,
        }
    }

    /// Returns the effective segment size.
    pub(crate) fn segment_size(&self) -> u64 {
        self.segment_bytes
            .max(MIN_SEGMENT_BYTES)
            .next_multiple_of(8)
    }
}
