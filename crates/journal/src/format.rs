//! The bytes on disk: what a segment's header and a record look like.
//!
//! All numbers are little-endian. A segment file begins with a header of 64 bytes:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | `ORLOGSEG` |
//! | 8..10 | format version |
//! | 16..24 | sequence of the first record, also the file's name |
//! | 24..40 | identity of the journal |
//! | 40..44 | CRC-32 of bytes 0..40, called the seed |
//!
//! Records follow, each on a multiple of 8:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | length: header and payload, without padding; never 0 |
//! | 4..8 | CRC-32 of the rest of header and payload, begun from the seed |
//! | 8..16 | sequence |
//! | 16..24 | durable: the last sequence known to be synced when this record was written |
//! | 24.. | payload, padded with zeros to a multiple of 8 |
//!
//! Behind the last record stand 8 zero bytes, the terminator, which the next record overwrites. Behind it anything may
//! follow: a recycled file still holds the records of its former life. They cannot be taken for new ones because their
//! sequences are lower and because their checksums begin from another seed.

use crc32fast::Hasher;

/// The newest format that this code reads, and the one that it writes.
pub(crate) const VERSION: u16 = 1;
/// The size of a segment's header.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
/// The size of a record's header.
pub(crate) const RECORD_HEADER_BYTES: usize = 24;
/// The zeros behind the last record.
pub(crate) const TERMINATOR_BYTES: usize = 8;
/// Records begin on multiples of this.
pub(crate) const ALIGNMENT: usize = 8;

/// The largest payload of one record, in bytes.
pub const MAX_PAYLOAD_BYTES: u64 = 1 << 30;

const MAGIC: [u8; 8] = *b"ORLOGSEG";
const CRC_AT: usize = 40;

/// A segment's header, decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    pub(crate) first: u64,
    pub(crate) identity: [u8; 16],
    /// The header's own checksum, from which those of the records begin.
    pub(crate) seed: u32,
}

/// Why bytes are not a segment's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeaderFault {
    Newer(u16),
    Damaged(&'static str),
}

/// The first bytes of a segment that begins with `first`: the header and a terminator. The second value is the seed.
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

/// Reads a segment's header. The version is judged before the checksum, which a newer format may keep elsewhere.
pub(crate) fn decode_segment_header(bytes: &[u8; 64]) -> Result<SegmentHeader, HeaderFault> {
    if bytes[..8] != MAGIC {
        return Err(HeaderFault::Damaged("it does not begin like a segment"));
    }
    let version = u16::from_le_bytes(array(bytes, 8));
    if version > VERSION {
        return Err(HeaderFault::Newer(version));
    }
    let seed = u32::from_le_bytes(array(bytes, CRC_AT));
    if version == 0 || seed != crc32fast::hash(&bytes[..CRC_AT]) {
        return Err(HeaderFault::Damaged("the checksum of the segment's header does not match"));
    }
    Ok(SegmentHeader { first: u64::from_le_bytes(array(bytes, 16)), identity: array(bytes, 24), seed })
}

/// A record's header, decoded but not yet believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordHeader {
    /// Header and payload.
    pub(crate) length: usize,
    pub(crate) crc: u32,
    pub(crate) sequence: u64,
    pub(crate) durable: u64,
}

impl RecordHeader {
    /// Reads the header of a record; the first word may be all there is of a terminator.
    pub(crate) fn decode(bytes: &[u8; RECORD_HEADER_BYTES]) -> Self {
        Self {
            length: u32::from_le_bytes(array(bytes, 0)) as usize,
            crc: u32::from_le_bytes(array(bytes, 4)),
            sequence: u64::from_le_bytes(array(bytes, 8)),
            durable: u64::from_le_bytes(array(bytes, 16)),
        }
    }

    /// The bytes that the record takes up, padding included.
    pub(crate) fn footprint(&self) -> u64 {
        self.length.next_multiple_of(ALIGNMENT) as u64
    }
}

/// The bytes that a record with such a payload needs, padding and terminator included.
pub(crate) fn room(payload_bytes: u64) -> u64 {
    payload_bytes.next_multiple_of(ALIGNMENT as u64) + (RECORD_HEADER_BYTES + TERMINATOR_BYTES) as u64
}

/// Writes a record, its padding and a terminator into `buffer`, in place of what it held. `parts` are at most
/// [`MAX_PAYLOAD_BYTES`] together.
pub(crate) fn encode_record(buffer: &mut Vec<u8>, seed: u32, sequence: u64, durable: u64, parts: &[&[u8]]) {
    buffer.clear();
    buffer.extend_from_slice(&[0; RECORD_HEADER_BYTES]);
    for part in parts {
        buffer.extend_from_slice(part);
    }
    let length = u32::try_from(buffer.len()).expect("the payload was checked against the limit");
    buffer[..4].copy_from_slice(&length.to_le_bytes());
    buffer[8..16].copy_from_slice(&sequence.to_le_bytes());
    buffer[16..24].copy_from_slice(&durable.to_le_bytes());
    let crc = checksum(seed, buffer);
    buffer[4..8].copy_from_slice(&crc.to_le_bytes());
    buffer.resize(buffer.len().next_multiple_of(ALIGNMENT) + TERMINATOR_BYTES, 0);
}

/// The checksum of a record's bytes, padding excluded.
pub(crate) fn checksum(seed: u32, record: &[u8]) -> u32 {
    let mut hasher = Hasher::new_with_initial(seed);
    hasher.update(&record[..4]);
    hasher.update(&record[8..]);
    hasher.finalize()
}

/// The `N` bytes at `offset`, which the caller knows to be there.
pub(crate) fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes[offset..offset + N].try_into().expect("the slice has the array's length")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_header_reads_back_and_any_flipped_bit_is_noticed() {
        let (bytes, seed) = encode_segment_header(42, b"0123456789abcdef");
        let bytes: [u8; 64] = array(&bytes, 0);
        let header = SegmentHeader { first: 42, identity: *b"0123456789abcdef", seed };
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
        assert_eq!(buffer.len() as u64, room(5));
        assert_eq!(&buffer[24..29], b"abcde");
        assert_eq!(&buffer[29..], [0; 11]);
        let header = RecordHeader::decode(&array(&buffer, 0));
        assert_eq!((header.length, header.sequence, header.durable), (29, 3, 2));
        assert_eq!(header.footprint(), 32);
        assert_eq!(header.crc, checksum(7, &buffer[..29]));
        assert_ne!(header.crc, checksum(8, &buffer[..29]));
    }
}
