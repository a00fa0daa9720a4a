//! JSON of other systems, as it comes: a byte-order mark and halves of surrogate pairs do not make
//! it unreadable.
//!
//! | input | read as |
//! |---|---|
//! | UTF-8 byte-order mark at the start | skipped (RFC 8259, 8.1) |
//! | `\ud83d` without its second half, in a text that was cut within an emoji | U+FFFD |
//! | bytes that are not UTF-8, within a text | U+FFFD |
//! | anything else that is not JSON | the error of the parser |

use std::borrow::Cow;

use serde::de::DeserializeOwned;

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";
/// Escape of U+FFFD, the replacement character.
const REPLACEMENT: &[u8] = br"\ufffd";
/// Length of `\uXXXX`.
const ESCAPE_BYTES: usize = 6;

/// Value that was read from foreign JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct ForeignJson<T> {
    /// The value.
    pub value: T,
    /// Whether text that is not valid Unicode was replaced.
    pub is_repaired: bool,
}

/// Reads JSON of another system.
///
/// # Errors
/// That of the parser for the original bytes, if they are not JSON with the exceptions above.
pub fn parse_foreign_json<T: DeserializeOwned>(
    bytes: &[u8],
) -> Result<ForeignJson<T>, serde_json::Error> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);

    // Almost all JSON is valid, so nothing is searched before the parser has failed.
    let error = match serde_json::from_slice(bytes) {
        Ok(value) => {
            return Ok(ForeignJson {
                value,
                is_repaired: false,
            });
        }
        Err(error) => error,
    };

    let Some(repaired) = repair(bytes) else {
        return Err(error);
    };
    serde_json::from_slice(&repaired)
        .map(|value| ForeignJson {
            value,
            is_repaired: true,
        })
        .map_err(|_| error)
}

/// Replaces what is not Unicode; `None` if nothing is.
fn repair(bytes: &[u8]) -> Option<Vec<u8>> {
    let text = String::from_utf8_lossy(bytes);
    let mut is_repaired = matches!(text, Cow::Owned(_));
    let mut rest = text.as_bytes();
    let mut repaired = Vec::with_capacity(rest.len());

    while let Some(start) = rest.iter().position(|byte| *byte == b'\\') {
        repaired.extend_from_slice(&rest[..start]);
        rest = &rest[start..];

        let length = match surrogate(rest) {
            // A pair is one character.
            Some(Half::First) if surrogate(&rest[ESCAPE_BYTES..]) == Some(Half::Second) => {
                2 * ESCAPE_BYTES
            }
            Some(Half::First | Half::Second) => {
                is_repaired = true;
                repaired.extend_from_slice(REPLACEMENT);
                rest = &rest[ESCAPE_BYTES..];
                continue;
            }
            // The escaped character can be a backslash, which does not start another escape.
            None => 2.min(rest.len()),
        };
        repaired.extend_from_slice(&rest[..length]);
        rest = &rest[length..];
    }

    repaired.extend_from_slice(rest);
    is_repaired.then_some(repaired)
}

/// Half of a surrogate pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    First,
    Second,
}

/// Returns the half whose escape is at the start of the text; `None` if there is another character.
fn surrogate(text: &[u8]) -> Option<Half> {
    let digits = text.strip_prefix(br"\u")?.get(..4)?;
    let digits = std::str::from_utf8(digits).ok()?;
    match u16::from_str_radix(digits, 16).ok()? {
        0xd800..=0xdbff => Some(Half::First),
        0xdc00..=0xdfff => Some(Half::Second),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[track_caller]
    fn check(text: &[u8], expected: Value, is_repaired: bool) {
        let found = parse_foreign_json::<Value>(text).unwrap();
        assert_eq!((found.value, found.is_repaired), (expected, is_repaired));
    }

    #[test]
    fn half_of_a_surrogate_pair_is_replaced() {
        check(
            br#"{"a":"fix \ud83d"}"#,
            json!({ "a": "fix \u{fffd}" }),
            true,
        );
        check(br#"["\udE00!"]"#, json!(["\u{fffd}!"]), true);
        check(br#"["\ud83d\ud83d\ude00"]"#, json!(["\u{fffd}😀"]), true);
        check(br#"{"\ud83d":1}"#, json!({ "\u{fffd}": 1 }), true);
    }

    #[test]
    fn valid_json_is_not_changed() {
        check(br#"["\ud83d\ude00"]"#, json!(["😀"]), false);
        check(br#"["\\ud83d"]"#, json!([r"\ud83d"]), false);
        check(b"\xef\xbb\xbf{}", json!({}), false);
    }

    #[test]
    fn escaped_backslash_before_a_repaired_text_stays() {
        check(br#"["\\ud83d \ud83d"]"#, json!(["\\ud83d \u{fffd}"]), true);
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        check(b"[\"\xff\"]", json!(["\u{fffd}"]), true);
    }

    #[test]
    fn other_errors_are_those_of_the_parser() {
        for text in [&b"{"[..], b"", b"[\"\\u12\"]", b"[\"\\ud83d\""] {
            let expected = serde_json::from_slice::<Value>(text).unwrap_err();
            let found = parse_foreign_json::<Value>(text).unwrap_err();
            assert_eq!(found.to_string(), expected.to_string());
        }
    }

    proptest! {
        #[test]
        fn reader_accepts_what_the_parser_accepts(
            bytes in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let strict = serde_json::from_slice::<Value>(&bytes);
            if let (Ok(expected), Ok(found)) = (&strict, parse_foreign_json::<Value>(&bytes)) {
                prop_assert_eq!(&found.value, expected);
                prop_assert!(!found.is_repaired);
            }
        }

        #[test]
        fn cut_text_is_readable(text in ".{0,20}", cut in 0_usize..60) {
            // A sender that cuts the escapes of a text can leave half of a pair, but no half of an
            // escape.
            let units = text.encode_utf16();
            let escapes: Vec<_> = units.map(|unit| format!("\\u{unit:04x}")).collect();
            let kept = escapes[..cut.min(escapes.len())].concat();
            let found = parse_foreign_json::<String>(format!("\"{kept}\"").as_bytes());
            prop_assert!(found.is_ok());
        }
    }
}
