//! Token of a subject: any text, percent-encoded so that it has no special meaning for a bus.
//!
//! ASCII letters, digits, `_` and `-` are unchanged; every other byte of the UTF-8 text becomes
//! `%XX`. The empty text becomes a single `%`, which is not the encoding of any other text.
//! Encoding is injective; decoding is its inverse.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

const EMPTY: &str = "%";
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'_').remove(b'-');

/// Returns the token of a text.
#[must_use]
pub fn encode_token(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        Cow::Borrowed(EMPTY)
    } else {
        utf8_percent_encode(text, ENCODED).into()
    }
}

/// Appends the token of a text.
pub(crate) fn push_token(target: &mut String, text: &str) {
    if text.is_empty() {
        target.push_str(EMPTY);
    } else {
        target.extend(utf8_percent_encode(text, ENCODED));
    }
}

/// Returns the length of the token of a text, in bytes.
pub(crate) fn token_length(text: &str) -> usize {
    if text.is_empty() {
        return EMPTY.len();
    }
    let mut length = 0;
    for byte in text.bytes() {
        let is_unchanged = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        length += if is_unchanged { 1 } else { 3 };
    }
    length
}

/// Returns the text of a token. A foreign token with other unencoded characters is literal.
///
/// # Errors
/// If a `%` is not followed by two hexadecimal digits, or if the bytes are not UTF-8; the text
/// gives the position.
pub fn decode_token(token: &str) -> Result<Cow<'_, str>, String> {
    if token == EMPTY {
        return Ok(Cow::Borrowed(""));
    }

    // The decoder keeps an invalid escape as text. Two tokens would then decode to one name.
    for (offset, _) in token.match_indices('%') {
        let digits = token.as_bytes().get(offset + 1..offset + 3);
        if !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit)) {
            return Err(format!(
                "the % at byte {offset} of token {token:?} is not followed by two hexadecimal \
                 digits"
            ));
        }
    }

    let decoded = percent_decode_str(token).decode_utf8();
    decoded.map_err(|_| format!("token {token:?} is not valid UTF-8 after decoding"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encodes_characters_that_affect_routing() {
        for (text, token) in [
            ("order-1_A", "order-1_A"),
            ("", "%"),
            ("%", "%25"),
            ("a.b", "a%2Eb"),
            ("*", "%2A"),
            (">", "%3E"),
            (" ", "%20"),
            ("\0\r\n", "%00%0D%0A"),
            ("é", "%C3%A9"),
        ] {
            assert_eq!(encode_token(text), token);
            assert_eq!(decode_token(token).unwrap(), text);
        }
    }

    #[test]
    fn foreign_tokens_decode_verbatim_or_are_rejected() {
        assert_eq!(decode_token("urn:a/b%2e").unwrap(), "urn:a/b.");
        for invalid in ["%2", "a%", "%zz", "%ff", "%é"] {
            assert!(decode_token(invalid).is_err(), "{invalid}");
        }
    }

    proptest! {
        #[test]
        fn decoding_is_the_inverse_of_encoding(text in any::<String>()) {
            let token = encode_token(&text).into_owned();
            prop_assert!(!token.is_empty());
            let mut pushed = String::new();
            push_token(&mut pushed, &text);
            prop_assert_eq!((&pushed, pushed.len()), (&token, token_length(&text)));
            prop_assert!(token.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-%".contains(&b)));
            prop_assert_eq!(decode_token(&token).unwrap(), text);
        }
    }
}
