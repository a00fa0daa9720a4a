//! Disk format: segment header and records.
//!
//! All numbers are little-endian. A segment file starts with a header of 64 bytes:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | `ORLOGSEG` |
//! | 8..10 | format version |
//! | 16..24 | sequence of the first record, also the name of the file |
//! | 24..40 | identity of the journal |
//! | 40..44 | CRC-32 of bytes 0..40, called the seed |
//!
//! Records follow, each aligned to 8 bytes:
//!
//! | bytes | content |
//! |---|---|
//! | 0..4 | length: header and payload, without padding; never 0 |
//! | 4..8 | CRC-32 of the rest of header and payload, starting from the seed |
//! | 8..16 | sequence |
//! | 16..24 | durable: the last sequence known to be synced when this record was written |
//! | 24.. | payload, padded with zeros to a multiple of 8 |
//!
//! The last record is followed by 8 zero bytes, the terminator, which the next record overwrites.
//! Any bytes may follow it: a recycled file still contains its previous records. They cannot be
//! confused with new records, because their sequences are lower and their checksums start from
//! another seed.

use crc32fast::Hasher;

/// Format version that this code writes, and the newest that it reads.
pub(crate) const VERSION: u16 = 1;
/// Size of a segment header, in bytes.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
/// Size of a record header, in bytes.
pub(crate) const RECORD_HEADER_BYTES: usize = 24;
/// Number of zero bytes after the last record.
pub(crate) const TERMINATOR_BYTES: usize = 8;
/// Alignment of records, in bytes.
pub(crate) const ALIGNMENT: usize = 8;

/// Maximum payload of one record, in bytes.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"ORLOGSEG";
const CRC_AT: usize = 40;

/// Decoded segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) first: u64,
    pub(crate) identity: [u8; 16],
    /// Checksum of the header, from which the checksums of the records start.
    pub(crate) seed: u32,
}

/// Reason why bytes are not a segment header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderError {
    NewerFormat(u16),
    Damaged(&'static str),
}

/// Returns the first bytes of a segment that starts with `first` (header and terminator), and the
/// seed.
pub(crate) fn encode_segment_header(first: u64, identity: &[u8; 16]) -> ([u8; 72], u32) {
    let mut bytes = [0; 72];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[16..24].copy_from_slice(&first.to_le_bytes());
    bytes[24..40].copy_from_slice(identity);
    let seed = crc32fast::hash(&bytes[..CRC_AT]);
    bytes[CRC_AT..44].copy_from_slice(&seed.to_le_bytes());
    (bytes, seed)
}

/// Decodes a segment header.
pub(crate) fn decode_segment_header(bytes: &[u8; 64]) -> Result<SegmentHeader, HeaderError> {
    if bytes[..8] != MAGIC {
        return Err(HeaderError::Damaged("it does not start like a segment"));
    }

    // Before the checksum, which a newer format may store elsewhere.
    let version = u16::from_le_bytes(array(bytes, 8));
    if version > VERSION {
        return Err(HeaderError::NewerFormat(version));
    }

    let seed = u32::from_le_bytes(array(bytes, CRC_AT));
    if version == 0 || seed != crc32fast::hash(&bytes[..CRC_AT]) {
        return Err(HeaderError::Damaged(
            "the checksum of the segment header does not match",
        ));
    }

    Ok(SegmentHeader {
        first: u64::from_le_bytes(array(bytes, 16)),
        identity: array(bytes, 24),
        seed,
    })
}

/// Record header, decoded but not verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Length of header and payload, in bytes.
    pub(crate) length: usize,
    pub(crate) crc: u32,
    pub(crate) sequence: u64,
    pub(crate) durable: u64,
}

impl RecordHeader {
    /// Decodes a record header. Only the first word is valid if it is a terminator.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        Self {
            length: u32::from_le_bytes(array(bytes, 0)) as usize,
            crc: u32::from_le_bytes(array(bytes, 4)),
            sequence: u64::from_le_bytes(array(bytes, 8)),
            durable: u64::from_le_bytes(array(bytes, 16)),
        }
    }

    /// Returns the size of the record with padding, in bytes.
    pub(crate) fn footprint(&self) -> u64 {
        self.length.next_multiple_of(ALIGNMENT) as u64
    }
}

/// Returns the size of a record with this payload, with padding and terminator, in bytes.
pub(crate) fn encoded_len(payload_bytes: u64) -> u64 {
    payload_bytes.next_multiple_of(ALIGNMENT as u64)
        + (RECORD_HEADER_BYTES + TERMINATOR_BYTES) as u64
}

/// Replaces the content of `buffer` with a record, its padding and a terminator. `parts` have at
/// most [`MAX_PAYLOAD_BYTES`] together.
pub(crate) fn encode_record(
    buffer: &mut Vec<u8>,
    seed: u32,
    sequence: u64,
    durable: u64,
    parts: &[&[u8]],
) {
    buffer.clear();
    buffer.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    for part in parts {
        buffer.extend_from_slice(part);
    }

    let length = u32::try_from(buffer.len()).expect("the payload was checked against the limit");
    buffer[..4].copy_from_slice(&length.to_le_bytes());
    buffer[8..16].copy_from_slice(&sequence.to_le_bytes());
    buffer[16..24].copy_from_slice(&durable.to_le_bytes());

    // Last: it covers the other fields.
    let crc = checksum(seed, buffer);
    buffer[4..8].copy_from_slice(&crc.to_le_bytes());
    buffer.resize(
        buffer.len().next_multiple_of(ALIGNMENT) + TERMINATOR_BYTES,
        0,
    );
}

/// Returns the checksum of a record without its padding.
pub(crate) fn checksum(seed: u32, record: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(seed);
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

/// Returns the `N` bytes at `offset`, which must exist.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N]
        .try_into()
        .expect("the slice has the length of the array")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segment_header_round_trips_and_detects_bit_flips() {
        let (bytes, seed) = encode_segment_header(42, b"0123456789abcdef");
        let bytes: [u8; 64] = array(&bytes, 0);
        let header = SegmentHeader {
            first: 42,
            identity: *b"0123456789abcdef",
            seed,
        };
        assert_eq!(decode_segment_header(&bytes), Ok(header));
        for bit in 0..44 * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode_segment_header(&flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn a_record_is_padded_terminated_and_bound_to_its_segment() {
        let mut buffer = Vec::new();
        encode_record(&mut buffer, 7, 3, 2, &[b"ab", b"", b"cde"]);
        assert_eq!(buffer.len() as u64, encoded_len(5));
        assert_eq!(&buffer[24..29], b"abcde");
        assert_eq!(&buffer[29..], [0; 11]);
        let header = RecordHeader::decode(&array(&buffer, 0));
        assert_eq!((header.length, header.sequence, header.durable), (29, 3, 2));
        assert_eq!(header.footprint(), 32);
        assert_eq!(header.crc, checksum(7, &buffer[..29]));
        assert_ne!(header.crc, checksum(8, &buffer[..29]));
    }
}
