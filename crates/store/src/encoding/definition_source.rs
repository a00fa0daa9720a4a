//! Sources of definitions, as values keep them: bytes.
//!
//! They were texts before there were WebAssembly modules; values of both kinds are read.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A source to be written.
pub(crate) struct SourceRef<'a>(pub(crate) &'a [u8]);

/// A source that was read.
pub(crate) struct SourceBytes(pub(crate) Vec<u8>);

impl Serialize for SourceRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for SourceBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrBytes)
    }
}

struct TextOrBytes;

impl Visitor<'_> for TextOrBytes {
    type Value = SourceBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text or bytes")
    }

    fn visit_str<E>(self, text: &str) -> Result<SourceBytes, E> {
        Ok(SourceBytes(text.as_bytes().to_vec()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<SourceBytes, E> {
        Ok(SourceBytes(bytes.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encoding::value::{decode, encode};
    use crate::table::Table;

    #[track_caller]
    fn check<T: Serialize>(written: &T, read: &[u8]) {
        let mut buffer = Vec::new();
        encode(&mut buffer, written);
        let SourceBytes(source) = decode(Table::Definition, &buffer).unwrap();
        assert_eq!(source, read);
    }

    #[test]
    fn bytes_and_the_texts_of_older_stores_are_read() {
        check(&"saga: order", b"saga: order");
        check(&SourceRef(b"saga: order"), b"saga: order");
        check(&SourceRef(b"\0asm\xff"), b"\0asm\xff");
    }
}
