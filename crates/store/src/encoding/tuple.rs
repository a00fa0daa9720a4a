//! Keys as tuples whose byte order is the order of their fields.
//!
//! Text: the bytes, 0x00 as 0x00FF, then 0x0000. Unsigned numbers: big endian. Signed: big endian
//! with the sign bit flipped. If a tuple is a prefix of another one, field by field, its bytes are
//! a prefix too.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::error::Error;

/// Encoded key; most keys need no allocation.
pub(crate) type Key = SmallVec<[u8; 128]>;

/// Key under construction.
#[derive(Debug, Default)]
pub(crate) struct KeyWriter(Key);

impl KeyWriter {
    /// Creates an empty key.
    pub(crate) fn new() -> Self {
        Self(Key::new())
    }

    /// Appends text with its terminator.
    pub(crate) fn text(&mut self, text: &str) -> &mut Self {
        self.bytes(text.as_bytes())
    }

    /// Appends text without its terminator: the prefix of all keys whose text starts with it.
    pub(crate) fn open_text(&mut self, text: &str) -> &mut Self {
        self.escaped(text.as_bytes())
    }

    /// Appends bytes like text, with a terminator.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.escaped(bytes).fixed(&[0, 0])
    }

    fn escaped(&mut self, bytes: &[u8]) -> &mut Self {
        let mut parts = bytes.split(|byte| *byte == 0);
        self.0.extend_from_slice(parts.next().unwrap_or_default());
        for part in parts {
            self.0.extend_from_slice(&[0, 0xff]);
            self.0.extend_from_slice(part);
        }
        self
    }

    /// Appends a fixed number of bytes unchanged.
    pub(crate) fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        self.0.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, number: u8) -> &mut Self {
        self.fixed(&[number])
    }

    pub(crate) fn u16(&mut self, number: u16) -> &mut Self {
        self.fixed(&number.to_be_bytes())
    }

    pub(crate) fn u64(&mut self, number: u64) -> &mut Self {
        self.fixed(&number.to_be_bytes())
    }

    pub(crate) fn i64(&mut self, number: i64) -> &mut Self {
        self.fixed(&(number ^ i64::MIN).to_be_bytes())
    }

    /// Returns the bytes.
    pub(crate) fn finish(&mut self) -> Key {
        std::mem::take(&mut self.0)
    }
}

/// Returns the smallest key after all keys that start with `prefix`; `None` if there is none.
pub(crate) fn successor(prefix: &[u8]) -> Option<Key> {
    // A trailing 0xff has no successor of the same length, so it is cut off.
    let last = prefix.iter().rposition(|byte| *byte != 0xff)?;
    let mut next = Key::from_slice(&prefix[..=last]);
    next[last] += 1;
    Some(next)
}

/// Reader of a key, field by field.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyReader<'a> {
    whole: &'a [u8],
    rest: &'a [u8],
}

impl<'a> KeyReader<'a> {
    /// Creates a reader before the first field.
    pub(crate) fn of(key: &'a [u8]) -> Self {
        Self {
            whole: key,
            rest: key,
        }
    }

    /// Returns the error for an unexpected key.
    pub(crate) fn corrupt(&self, reason: impl Into<String>) -> Error {
        Error::Corrupt {
            location: format!("the key {}", hex::encode(self.whole)),
            reason: reason.into(),
        }
    }

    /// Reads the next `N` bytes.
    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let (bytes, rest) = self
            .rest
            .split_first_chunk()
            .ok_or_else(|| self.corrupt("it is too short"))?;
        self.rest = rest;
        Ok(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.fixed().map(u8::from_be_bytes)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Error> {
        self.fixed().map(u16::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.fixed().map(u64::from_be_bytes)
    }

    pub(crate) fn i64(&mut self) -> Result<i64, Error> {
        self.fixed()
            .map(|bytes| i64::from_be_bytes(bytes) ^ i64::MIN)
    }

    /// Reads the next text.
    pub(crate) fn text(&mut self) -> Result<Cow<'a, str>, Error> {
        let end = self.end_of_text()?;
        let bytes = &self.rest[..end];
        self.rest = &self.rest[end + 2..];

        // Text without a zero byte, the usual case, is borrowed. Invalid text fails below.
        let text = std::str::from_utf8(bytes).map(Cow::Borrowed);
        if let Ok(text) = text
            && !bytes.contains(&0)
        {
            return Ok(text);
        }

        self.unescaped(bytes).map(Cow::Owned)
    }

    /// Skips the next text.
    pub(crate) fn skip_text(&mut self) -> Result<(), Error> {
        self.rest = &self.rest[self.end_of_text()? + 2..];
        Ok(())
    }

    fn end_of_text(&self) -> Result<usize, Error> {
        let mut at = 0;
        loop {
            match self.rest.get(at..) {
                Some([0, 0, ..]) => return Ok(at),
                Some([0, 0xff, ..]) => at += 2,
                Some([1..=0xff, ..]) => at += 1,
                _ => return Err(self.corrupt("a text has no terminator")),
            }
        }
    }

    fn unescaped(&self, bytes: &[u8]) -> Result<String, Error> {
        let mut text = Vec::with_capacity(bytes.len());
        let mut rest = bytes.iter();
        while let Some(byte) = rest.next() {
            text.push(*byte);
            // A zero byte is stored as 0x00FF.
            if *byte == 0 {
                rest.next();
            }
        }

        String::from_utf8(text).map_err(|error| self.corrupt(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(fields: &(String, u64, i64, String)) -> Key {
        KeyWriter::new()
            .text(&fields.0)
            .u64(fields.1)
            .i64(fields.2)
            .text(&fields.3)
            .finish()
    }

    proptest! {
        #[test]
        fn byte_order_matches_field_order(
            a in ("[\0\u{1}ab]{0,4}", any::<u64>(), any::<i64>(), "[\0\u{ff}z]{0,3}"),
            b in ("[\0\u{1}ab]{0,4}", any::<u64>(), any::<i64>(), "[\0\u{ff}z]{0,3}"),
        ) {
            prop_assert_eq!(key(&a).cmp(&key(&b)), a.cmp(&b));
        }

        #[test]
        fn tuple_round_trips(a in (".*", any::<u64>(), any::<i64>(), "[\0a]*")) {
            let bytes = key(&a);
            let mut fields = KeyReader::of(&bytes);
            prop_assert_eq!(fields.text().unwrap(), a.0.as_str());
            prop_assert_eq!(fields.u64().unwrap(), a.1);
            prop_assert_eq!(fields.i64().unwrap(), a.2);
            prop_assert_eq!(fields.text().unwrap(), a.3.as_str());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>) {
            let mut fields = KeyReader::of(&bytes);
            while fields.text().is_ok() {}
            prop_assert!(fields.fixed::<4>().is_ok() || fields.rest.len() < 4);
        }
    }

    #[test]
    fn successor_key_follows_every_extension() {
        assert_eq!(successor(&[1, 0xff, 0xff]), Some(Key::from_slice(&[2])));
        assert_eq!(successor(&[1, 2]), Some(Key::from_slice(&[1, 3])));
        assert_eq!(successor(&[0xff]), None);
        assert_eq!(successor(&[]), None);
    }
}
