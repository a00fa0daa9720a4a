//! Hash chain of records: each line contains a sequence number and the SHA-256 of the line before
//! it.
//!
//! A line that a crash has truncated is no record and has no sequence number. The record after it
//! contains its hash, so the chain continues.

use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// SHA-256 of a line without its line feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineHash([u8; 32]);

/// Position after the last line of a trail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainHead {
    /// Sequence number of the last record; 0 if there is none.
    pub(super) sequence: u64,
    /// Hash of the last line.
    pub(super) hash: LineHash,
}

/// Chain fields of a record.
#[derive(Debug, Deserialize)]
pub(super) struct Link {
    pub(super) sequence: u64,
    pub(super) previous: String,
}

/// Returns the lines without their line feeds. The last one may lack it.
pub(super) fn lines(bytes: &[u8]) -> impl DoubleEndedIterator<Item = &[u8]> {
    let complete = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    complete
        .split(|byte| *byte == b'\n')
        // `split` returns one empty line for a file without content.
        .filter(|_| !bytes.is_empty())
}

impl LineHash {
    /// Hash before the first line.
    pub(super) const START: Self = Self([0; 32]);

    pub(super) fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }

    pub(super) fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Parses the text of [`Self::to_hex`].
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut hash = [0; 32];
        hex::decode_to_slice(text, &mut hash).ok()?;
        Some(Self(hash))
    }
}

impl Default for ChainHead {
    fn default() -> Self {
        Self {
            sequence: 0,
            hash: LineHash::START,
        }
    }
}

impl ChainHead {
    /// Returns the line of the next record: the fields of the chain, then those of the record.
    pub(super) fn next_line(&self, record: &str) -> String {
        let fields = record.strip_prefix('{').expect("a record is a JSON object");
        format!(
            "{{\"sequence\":{},\"previous\":\"{}\",{fields}",
            self.sequence + 1,
            self.hash.to_hex()
        )
    }

    /// Continues after a record.
    pub(super) fn advance(&mut self, line: &str) {
        *self = Self {
            sequence: self.sequence + 1,
            hash: LineHash::of(line.as_bytes()),
        };
    }

    /// Returns the head of the lines in these bytes: the hash of the last line, and the last
    /// sequence number, if any.
    pub(super) fn of(bytes: &[u8]) -> (Option<LineHash>, Option<u64>) {
        let mut newest = lines(bytes).rev();
        let Some(last) = newest.next() else {
            return (None, None);
        };
        // A crash can truncate the last line: the next record contains its hash, but continues the
        // sequence of a line before it.
        let link = Link::of(last).or_else(|| newest.find_map(Link::of));
        (Some(LineHash::of(last)), link.map(|link| link.sequence))
    }
}

impl Link {
    /// Returns the chain fields of a line; `None` if it is no record of a chain.
    pub(super) fn of(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}
