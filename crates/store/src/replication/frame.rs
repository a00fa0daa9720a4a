//! Format of a log entry: a header, and a part of a commit record or the claim of a new writer.
//!
//! Layout, little endian: format u8 · kind u8 · part u16 · parts u16 · epoch u64 · writer u64 ·
//! position u64 · body. The body of a claim is the dedupe window in milliseconds, u64, which was
//! fixed when the store was created.

use std::time::Duration;

use bytes::Bytes;

const FORMAT: u8 = 1;
/// Size of an entry without its body, in bytes.
pub(crate) const HEADER_BYTES: usize = 30;
const PART: u8 = 0;
const CLAIM: u8 = 1;

/// Position in a claim whose writer does not have it.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Writer of the log. The epoch distinguishes leases; the number distinguishes the runs of a writer
/// within one lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogOwner {
    pub(crate) epoch: u64,
    pub(crate) writer: u64,
}

/// Header of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryHeader {
    pub(crate) kind: EntryKind,
    pub(crate) owner: LogOwner,
    /// For a part: the commit that contains it. For a claim: the last commit before it.
    pub(crate) position: u64,
}

/// Kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// Part of a record: index from 0, and number of parts.
    Part(u16, u16),
    /// Claim: from here on its owner writes, and no owner with an older epoch or an earlier run.
    Claim,
}

impl EntryHeader {
    /// Returns the entry with this body.
    pub(crate) fn encode(&self, body: &[u8]) -> Bytes {
        let (kind, part, parts) = match self.kind {
            EntryKind::Part(part, parts) => (PART, part, parts),
            EntryKind::Claim => (CLAIM, 0, 0),
        };

        let mut entry = Vec::with_capacity(HEADER_BYTES + body.len());
        entry.extend_from_slice(&[FORMAT, kind]);
        entry.extend_from_slice(&part.to_le_bytes());
        entry.extend_from_slice(&parts.to_le_bytes());
        for number in [self.owner.epoch, self.owner.writer, self.position] {
            entry.extend_from_slice(&number.to_le_bytes());
        }
        entry.extend_from_slice(body);
        entry.into()
    }

    /// Returns the claim of an owner at this position.
    pub(crate) fn claim(owner: LogOwner, position: u64, window: Duration) -> Bytes {
        let millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        Self {
            kind: EntryKind::Claim,
            owner,
            position,
        }
        .encode(&millis.to_le_bytes())
    }
}

/// Decodes an entry into header and body. The error describes the mismatch.
pub(crate) fn read(entry: &Bytes) -> Result<(EntryHeader, Bytes), String> {
    let header: &[u8; HEADER_BYTES] = entry.first_chunk().ok_or_else(|| {
        format!(
            "it has {} bytes, but the header alone has {HEADER_BYTES}",
            entry.len()
        )
    })?;
    let short = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| header[at + index]));

    if header[0] != FORMAT {
        return Err(format!(
            "its format is {}, this release supports {FORMAT}; upgrade orlog",
            header[0]
        ));
    }

    let kind = match header[1] {
        PART => EntryKind::Part(short(2), short(4)),
        CLAIM => EntryKind::Claim,
        other => return Err(format!("unknown kind {other}")),
    };
    let owner = LogOwner {
        epoch: long(6),
        writer: long(14),
    };

    Ok((
        EntryHeader {
            kind,
            owner,
            position: long(22),
        },
        entry.slice(HEADER_BYTES..),
    ))
}

/// Returns the dedupe window in a claim.
pub(crate) fn claim_dedupe_window(body: &[u8]) -> Option<Duration> {
    Some(Duration::from_millis(u64::from_le_bytes(
        *body.first_chunk()?,
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: LogOwner = LogOwner {
        epoch: 3,
        writer: 0x0102,
    };

    #[test]
    fn frame_round_trips_with_a_stable_format() {
        let header = EntryHeader {
            kind: EntryKind::Part(1, 2),
            owner: OWNER,
            position: 7,
        };
        let entry = header.encode(b"body");
        assert_eq!(read(&entry).unwrap(), (header, Bytes::from_static(b"body")));
        let text =
            "01000100020003000000000000000201000000000000070000000000000".to_owned() + "0626f6479";
        assert_eq!(hex::encode(&entry), text);
        let claim = EntryHeader::claim(OWNER, 9, Duration::from_secs(10));
        let (header, body) = read(&claim).unwrap();
        assert_eq!(
            (header.kind, header.position, claim_dedupe_window(&body)),
            (EntryKind::Claim, 9, Some(Duration::from_secs(10)))
        );
    }

    #[test]
    fn invalid_frame_is_rejected_with_a_reason() {
        let check = |bytes: &[u8], part: &str| {
            let error = read(&Bytes::copy_from_slice(bytes)).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check(b"short", "it has 5 bytes");
        check(&[9; HEADER_BYTES], "format is 9");
        let mut kind = [0; HEADER_BYTES];
        (kind[0], kind[1]) = (1, 7);
        check(&kind, "unknown kind 7");
    }
}
