//! Encoder of Protocol Buffers messages: the subset of the format that OTLP needs.
//!
//! Writes directly into the send buffer (docs/adr/0012-otlp-written-by-hand.md). Tests decode the
//! output with the types of opentelemetry-proto.

/// Message that is being encoded.
pub(super) struct MessageWriter<'a>(pub(super) &'a mut Vec<u8>);

/// Value of an attribute.
#[derive(Clone, Copy)]
pub(super) enum Value<'a> {
    Text(&'a str),
    Number(i64),
    Float(f64),
    Bool(bool),
}

/// Wire type of a field.
enum WireType {
    Varint = 0,
    Fixed64 = 1,
    Length = 2,
    Fixed32 = 5,
}

impl MessageWriter<'_> {
    pub(super) fn number(&mut self, field: u32, value: u64) {
        self.tag(field, WireType::Varint);
        varint(self.0, value);
    }

    pub(super) fn fixed64(&mut self, field: u32, value: u64) {
        self.tag(field, WireType::Fixed64);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn fixed32(&mut self, field: u32, value: u32) {
        self.tag(field, WireType::Fixed32);
        self.0.extend_from_slice(&value.to_le_bytes());
    }

    pub(super) fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, WireType::Length);
        varint(self.0, bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    /// Writes a string, in parts.
    pub(super) fn parts(&mut self, field: u32, parts: &[&str]) {
        self.tag(field, WireType::Length);
        varint(self.0, parts.iter().map(|part| part.len() as u64).sum());
        for part in parts {
            self.0.extend_from_slice(part.as_bytes());
        }
    }

    /// Writes a nested message. Its length precedes it but is known only afterwards; one byte is reserved,
    /// which is usually enough.
    pub(super) fn nested(&mut self, field: u32, write: impl FnOnce(&mut MessageWriter<'_>)) {
        self.tag(field, WireType::Length);
        let start = self.0.len();
        self.0.push(0);
        write(&mut MessageWriter(self.0));
        let length = self.0.len() - start - 1;
        match u8::try_from(length) {
            Ok(short) if short < 0x80 => self.0[start] = short,
            _ => {
                let end = self.0.len();
                varint(self.0, length as u64);
                let more = self.0.len() - end;
                // The length was written after the message and replaces the byte before it.
                self.0[start + 1..].rotate_right(more);
                self.0.remove(start);
            }
        }
    }

    /// Writes a `KeyValue`.
    pub(super) fn attribute(&mut self, field: u32, name: &str, value: Value<'_>) {
        if let Value::Text(text) = value
            && self.short(field, name, text)
        {
            return;
        }
        self.nested(field, |pair| {
            pair.text(1, name);
            pair.any(2, value);
        });
    }

    /// Writes a `KeyValue` in one pass if all lengths fit in a byte, as most do. Returns `false` if they do
    /// not.
    fn short(&mut self, field: u32, name: &str, text: &str) -> bool {
        let bytes = |length: usize| u8::try_from(length).ok().filter(|length| *length < 0x80);
        let (tag, whole) = (u8::try_from(field << 3), bytes(name.len() + text.len() + 6));
        let (Ok(tag), Some(whole), Some(of_name), Some(of_text)) =
            (tag, whole, bytes(name.len()), bytes(text.len()))
        else {
            return false;
        };
        if tag >= 0x80 {
            return false;
        }
        self.0.reserve(usize::from(whole) + 2);
        self.0.extend_from_slice(&[tag | WireType::Length as u8, whole, 0x0a, of_name]);
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(&[0x12, of_text + 2, 0x0a, of_text]);
        self.0.extend_from_slice(text.as_bytes());
        true
    }

    /// Writes an `AnyValue`.
    pub(super) fn any(&mut self, field: u32, value: Value<'_>) {
        self.nested(field, |any| match value {
            Value::Text(text) => any.text(1, text),
            Value::Bool(truth) => any.number(2, truth.into()),
            // Negative numbers are written as unsigned, as `int64` requires.
            Value::Number(number) => any.number(3, number.cast_unsigned()),
            Value::Float(float) => any.fixed64(4, float.to_bits()),
        });
    }

    fn tag(&mut self, field: u32, kind: WireType) {
        varint(self.0, u64::from(field) << 3 | kind as u64);
    }
}

/// Writes seven bits per byte, lowest first; all bytes but the last have the highest bit set.
pub(super) fn varint(to: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        to.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    to.push(value.to_le_bytes()[0]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut MessageWriter<'_>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        write(&mut MessageWriter(&mut bytes));
        bytes
    }

    /// Uses the examples of the format documentation.
    #[test]
    fn fields_use_protobuf_encoding() {
        assert_eq!(written(|m| m.number(1, 150)), [0x08, 0x96, 0x01]);
        assert_eq!(written(|m| m.text(2, "testing")), *b"\x12\x07testing");
        assert_eq!(written(|m| m.parts(2, &["te", "", "sting"])), *b"\x12\x07testing");
        assert_eq!(written(|m| m.nested(3, |n| n.number(1, 150))), [0x1a, 0x03, 0x08, 0x96, 0x01]);
        assert_eq!(written(|m| m.fixed32(16, 1)), [0x85, 0x01, 1, 0, 0, 0]);
        assert_eq!(written(|m| m.fixed64(7, 1)), [0x39, 1, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn attribute_encoding_is_composable() {
        let by_parts = |field, name: &str, text: &str| {
            written(|m| {
                m.nested(field, |pair| {
                    pair.text(1, name);
                    pair.any(2, Value::Text(text));
                });
            })
        };
        for field in [1, 9, 15, 16, 40] {
            for length in [0, 1, 100, 116, 117, 118, 130, 20_000] {
                let text = "x".repeat(length);
                let at_once = written(|m| m.attribute(field, "name", Value::Text(&text)));
                assert_eq!(at_once, by_parts(field, "name", &text), "{field} {length}");
            }
        }
    }

    #[test]
    fn long_messages_use_multi_byte_lengths() {
        for length in [0, 125, 126, 127, 128, 20_000] {
            let text = "x".repeat(length);
            let inner = written(|m| m.text(1, &text));
            let mut expected = vec![0x0a];
            varint(&mut expected, inner.len() as u64);
            expected.extend(inner);
            assert_eq!(written(|m| m.nested(1, |n| n.text(1, &text))), expected, "{length}");
        }
    }
}
