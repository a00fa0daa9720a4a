//! Encoding of a group of messages as one journal record.
//!
//! Little-endian: format version u8 (1), flags u8 (bit 0: written without waiting for the disk),
//! number of messages u32, sequence of the first u64, publish time i64 (ms since 1970). Each
//! message follows: subject, id, number of headers, their names and values, body. A text is its
//! length as LEB128 and its bytes. The length of an id is stored plus one; 0 means no id. The
//! checksum of the journal protects the record.

use bytes::Bytes;
use orlog_model::Timestamp;

use crate::Message;

const VERSION: u8 = 1;
const HEADER_BYTES: usize = 22;
const UNSYNCED: u8 = 1;

/// Error for a record with an invalid format.
#[derive(Debug, thiserror::Error)]
#[error("log record has an unsupported format (expected {VERSION}): {0}")]
pub(super) struct InvalidRecord(&'static str);

type Result<T> = std::result::Result<T, InvalidRecord>;

/// Header of a message group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MessageGroup {
    /// Sequence of the first message, or of the next message if the group is empty.
    pub(super) first: u64,
    /// Number of messages.
    pub(super) count: u32,
    /// Publish time.
    pub(super) published_at: Timestamp,
    /// Whether it was written without waiting for the disk, so that later records may be lost.
    pub(super) unsynced: bool,
}

impl MessageGroup {
    /// Returns the sequence after the last message.
    pub(super) fn end(&self) -> u64 {
        self.first + u64::from(self.count)
    }
}

/// Builder of records that reuses one buffer.
#[derive(Debug, Default)]
pub(super) struct RecordBuilder {
    buffer: Vec<u8>,
    count: u32,
}

impl RecordBuilder {
    /// Starts a record.
    pub(super) fn start(&mut self, first: u64, published_at: Timestamp, unsynced: bool) {
        self.buffer.clear();
        self.count = 0;
        self.buffer.extend([VERSION, u8::from(unsynced)]);
        self.buffer.extend(0u32.to_le_bytes());
        self.buffer.extend(first.to_le_bytes());
        self.buffer.extend(published_at.as_millis().to_le_bytes());
    }

    /// Adds a message.
    pub(super) fn push(&mut self, message: &Message) {
        self.count += 1;

        self.text(message.subject.as_bytes());
        match &message.id {
            None => self.number(0),
            Some(id) => {
                self.number(id.len() + 1);
                self.buffer.extend_from_slice(id.as_bytes());
            }
        }

        self.number(message.headers.len());
        for (name, value) in &message.headers {
            self.text(name.as_bytes());
            self.text(value.as_bytes());
        }

        self.text(&message.payload);
    }

    /// Returns the finished record.
    pub(super) fn finish(&mut self) -> &[u8] {
        // The number is known only now: the writer leaves duplicates out while it builds the
        // record.
        self.buffer[2..6].copy_from_slice(&self.count.to_le_bytes());
        &self.buffer
    }

    fn text(&mut self, bytes: &[u8]) {
        self.number(bytes.len());
        self.buffer.extend_from_slice(bytes);
    }

    fn number(&mut self, mut number: usize) {
        while number > 0x7f {
            self.buffer
                .push(0x80 | u8::try_from(number & 0x7f).expect("seven bits fit"));
            number >>= 7;
        }
        self.buffer
            .push(u8::try_from(number).expect("seven bits fit"));
    }
}

/// Parses the header of a record.
pub(super) fn group(record: &[u8]) -> Result<MessageGroup> {
    let (header, _) = record
        .split_at_checked(HEADER_BYTES)
        .ok_or(InvalidRecord("it is too short"))?;

    if header[0] != VERSION {
        return Err(InvalidRecord(
            "unknown version; written by another version of Orlog",
        ));
    }

    let eight = |at: usize| {
        <[u8; 8]>::try_from(&header[at..at + 8]).expect("the header has eight bytes here")
    };
    let four = <[u8; 4]>::try_from(&header[2..6]).expect("the header has four bytes here");
    Ok(MessageGroup {
        first: u64::from_le_bytes(eight(6)),
        count: u32::from_le_bytes(four),
        published_at: Timestamp::from_millis(i64::from_le_bytes(eight(14))),
        unsynced: header[1] & UNSYNCED != 0,
    })
}

/// Returns the messages of a record with their sequences.
pub(super) fn messages(record: &[u8]) -> Result<Messages<'_>> {
    let MessageGroup { first, count, .. } = group(record)?;
    Ok(Messages {
        rest: &record[HEADER_BYTES..],
        next: first,
        remaining: count,
    })
}

/// Iterator over the messages of a record.
#[derive(Debug)]
pub(super) struct Messages<'a> {
    rest: &'a [u8],
    next: u64,
    remaining: u32,
}

/// Borrowed parts of a message in a record.
#[derive(Debug)]
pub(super) struct MessageParts<'a> {
    pub(super) sequence: u64,
    pub(super) subject: &'a str,
    pub(super) id: Option<&'a str>,
    headers: Messages<'a>,
    payload: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = Result<MessageParts<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.remaining = self.remaining.checked_sub(1)?;
        self.next += 1;
        let parts = self.parts(self.next - 1);
        if parts.is_err() {
            // Stop early: the count of an invalid record is not reliable.
            self.remaining = 0;
        }
        Some(parts)
    }
}

impl<'a> Messages<'a> {
    fn parts(&mut self, sequence: u64) -> Result<MessageParts<'a>> {
        let subject = self.text()?;
        let id = match self.number()?.checked_sub(1) {
            None => None,
            Some(length) => Some(utf8(self.bytes(length)?)?),
        };
        let count = u32::try_from(self.number()?).map_err(|_| InvalidRecord("too many headers"))?;

        let headers = Messages {
            rest: self.rest,
            next: 0,
            remaining: count,
        };
        // Skipped, not parsed: most readers need only the subject.
        for _ in 0..u64::from(count) * 2 {
            let length = self.number()?;
            self.bytes(length)?;
        }

        let length = self.number()?;
        Ok(MessageParts {
            sequence,
            subject,
            id,
            headers,
            payload: self.bytes(length)?,
        })
    }

    fn text(&mut self) -> Result<&'a str> {
        let length = self.number()?;
        utf8(self.bytes(length)?)
    }

    fn bytes(&mut self, length: usize) -> Result<&'a [u8]> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(length)
            .ok_or(InvalidRecord("it ends too early"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn number(&mut self) -> Result<usize> {
        let mut number = 0;
        // Nine bytes contain 63 bits; the shift of a tenth byte would lose bits.
        for shift in (0..63).step_by(7) {
            let byte = self.bytes(1)?[0];
            number |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(InvalidRecord("a number is too long"))
    }
}

impl MessageParts<'_> {
    /// Copies the message out of the record.
    pub(super) fn to_message(&self) -> Result<Message> {
        let mut rest = Messages {
            rest: self.headers.rest,
            next: 0,
            remaining: 0,
        };
        // The count comes from the record, so it must not decide alone how much memory is reserved.
        let mut headers = Vec::with_capacity(self.headers.remaining.min(64) as usize);
        for _ in 0..self.headers.remaining {
            headers.push((rest.text()?.into(), rest.text()?.into()));
        }
        Ok(Message {
            subject: self.subject.to_owned(),
            id: self.id.map(str::to_owned),
            headers,
            payload: Bytes::copy_from_slice(self.payload),
        })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| InvalidRecord("a text is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    prop_compose! {
        fn message()(
            subject in any::<String>(), id in proptest::option::of(any::<String>()),
            headers in proptest::collection::vec(any::<(String, String)>(), 0..4),
            payload in proptest::collection::vec(any::<u8>(), 0..300),
        ) -> Message {
            let headers = headers.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
            Message { subject, id, headers, payload: Bytes::from(payload) }
        }
    }

    proptest! {
        #[test]
        fn record_encoding_round_trips(all in proptest::collection::vec(message(), 0..5), first in 0..u64::MAX / 2) {
            let mut builder = RecordBuilder::default();
            let at = Timestamp::from_millis(-7);
            builder.start(first, at, true);
            for message in &all {
                builder.push(message);
            }
            let record = builder.finish();
            let count = u32::try_from(all.len()).unwrap();
            prop_assert_eq!(group(record).unwrap(), MessageGroup { first, count, published_at: at, unsynced: true });
            let read: Vec<_> = messages(record).unwrap().map(|parts| parts.unwrap()).collect();
            for (at, parts) in (first..).zip(&read) {
                prop_assert_eq!(parts.sequence, at);
            }
            let read: Vec<_> = read.iter().map(|parts| parts.to_message().unwrap()).collect();
            prop_assert_eq!(read, all);
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut record in any::<Vec<u8>>(), sane in any::<bool>()) {
            if sane && record.len() > HEADER_BYTES {
                record[..HEADER_BYTES].fill(0);
                record[0] = VERSION;
                record[2] = 3;
            }
            for parts in messages(&record).into_iter().flatten().flatten() {
                prop_assert!(parts.to_message().is_ok() || !record.is_empty());
            }
        }
    }
}
