//! What an entry of a log looks like: a head, and a part of a commit's record or the claim of a new writer.
//!
//! Layout, little endian: format u8 · kind u8 · part u16 · parts u16 · epoch u64 · writer u64 · position u64 · body. The body of
//! a claim is the window of deduplication in milliseconds, u64: it was fixed when the store was made.

use std::time::Duration;

use bytes::Bytes;

const FORMAT: u8 = 1;
/// What an entry holds besides its body.
pub(crate) const HEAD_BYTES: usize = 30;
const PART: u8 = 0;
const CLAIM: u8 = 1;

/// The position in a claim whose writer could not know it.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Who writes. Epochs tell leases apart, the number tells the lives of a writer within one lease apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) epoch: u64,
    pub(crate) writer: u64,
}

/// The beginning of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) owner: Owner,
    /// Of a part: the commit it belongs to. Of a claim: the last commit before it.
    pub(crate) position: u64,
}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A part of a record, counted from 0, of so many.
    Part(u16, u16),
    /// From here on its owner writes, and nobody of an older epoch or an earlier life.
    Claim,
}

impl Head {
    /// The entry with this body.
    pub(crate) fn with(&self, body: &[u8]) -> Bytes {
        let (kind, part, parts) = match self.kind {
            Kind::Part(part, parts) => (PART, part, parts),
            Kind::Claim => (CLAIM, 0, 0),
        };
        let mut entry = Vec::with_capacity(HEAD_BYTES + body.len());
        entry.extend_from_slice(&[FORMAT, kind]);
        entry.extend_from_slice(&part.to_le_bytes());
        entry.extend_from_slice(&parts.to_le_bytes());
        for number in [self.owner.epoch, self.owner.writer, self.position] {
            entry.extend_from_slice(&number.to_le_bytes());
        }
        entry.extend_from_slice(body);
        entry.into()
    }

    /// The claim of an owner, who found this position.
    pub(crate) fn claim(owner: Owner, position: u64, window: Duration) -> Bytes {
        let millis = u64::try_from(window.as_millis()).unwrap_or(u64::MAX);
        Self { kind: Kind::Claim, owner, position }.with(&millis.to_le_bytes())
    }
}

/// Reads an entry: its head and its body. The error says what does not fit.
pub(crate) fn read(entry: &Bytes) -> Result<(Head, Bytes), String> {
    let wrong = || format!("it is {} bytes long, its head alone has {HEAD_BYTES}", entry.len());
    let head: &[u8; HEAD_BYTES] = entry.first_chunk().ok_or_else(wrong)?;
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| head[at + index]));
    if head[0] != FORMAT {
        return Err(format!("its format is {}, this release knows {FORMAT}: use the newer release", head[0]));
    }
    let kind = match head[1] {
        PART => Kind::Part(short(2), short(4)),
        CLAIM => Kind::Claim,
        other => return Err(format!("there is no kind {other}")),
    };
    let owner = Owner { epoch: long(6), writer: long(14) };
    Ok((Head { kind, owner, position: long(22) }, entry.slice(HEAD_BYTES..)))
}

/// The window that a claim states.
pub(crate) fn window(body: &[u8]) -> Option<Duration> {
    Some(Duration::from_millis(u64::from_le_bytes(*body.first_chunk()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { epoch: 3, writer: 0x0102 };

    #[test]
    fn what_was_written_is_read_and_never_changes() {
        let head = Head { kind: Kind::Part(1, 2), owner: OWNER, position: 7 };
        let entry = head.with(b"body");
        assert_eq!(read(&entry).unwrap(), (head, Bytes::from_static(b"body")));
        let text = "01000100020003000000000000000201000000000000070000000000000".to_owned() + "0626f6479";
        assert_eq!(crate::encoding::tuple::hex(&entry), text);
        let claim = Head::claim(OWNER, 9, Duration::from_secs(10));
        let (head, body) = read(&claim).unwrap();
        assert_eq!(
            (head.kind, head.position, window(&body)),
            (Kind::Claim, 9, Some(Duration::from_secs(10)))
        );
    }

    #[test]
    fn what_is_no_entry_is_refused_with_the_reason() {
        let check = |bytes: &[u8], part: &str| {
            let error = read(&Bytes::copy_from_slice(bytes)).unwrap_err();
            assert!(error.contains(part), "{error}");
        };
        check(b"short", "5 bytes long");
        check(&[9; HEAD_BYTES], "format is 9");
        let mut kind = [0; HEAD_BYTES];
        (kind[0], kind[1]) = (1, 7);
        check(&kind, "no kind 7");
    }
}
