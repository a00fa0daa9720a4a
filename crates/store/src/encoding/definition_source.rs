//! Definition sources in stored values: bytes.
//!
//! They were strings before WebAssembly modules were supported; values of both kinds can be read.

use std::fmt;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Source to write.
pub(crate) struct DefinitionSourceRef<'a>(pub(crate) &'a [u8]);

/// Source that was read.
pub(crate) struct DefinitionSourceBytes(pub(crate) Vec<u8>);

impl Serialize for DefinitionSourceRef<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(self.0)
    }
}

impl<'de> Deserialize<'de> for DefinitionSourceBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextOrBytes)
    }
}

struct TextOrBytes;

impl Visitor<'_> for TextOrBytes {
    type Value = DefinitionSourceBytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or bytes")
    }

    fn visit_str<E>(self, text: &str) -> Result<DefinitionSourceBytes, E> {
        Ok(DefinitionSourceBytes(text.as_bytes().to_vec()))
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<DefinitionSourceBytes, E> {
        Ok(DefinitionSourceBytes(bytes.to_vec()))
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
        let DefinitionSourceBytes(source) = decode(Table::Definition, &buffer).unwrap();
        assert_eq!(source, read);
    }

    #[test]
    fn source_bytes_and_legacy_text_are_decoded() {
        check(&"saga: order", b"saga: order");
        check(&DefinitionSourceRef(b"saga: order"), b"saga: order");
        check(&DefinitionSourceRef(b"\0asm\xff"), b"\0asm\xff");
    }
}
