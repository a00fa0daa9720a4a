//! Token of a subject: any text, percent-encoded so that it has no special meaning for a bus.
//!
//! ASCII letters, digits, `_` and `-` are unchanged; every other byte of the UTF-8 text becomes `%XX`.
//! The empty text becomes a single `%`, which is not the encoding of any other text. Encoding is
//! injective; decoding is its inverse.

use std::borrow::Cow;

const EMPTY: &str = "%";
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// Returns the token of a text.
#[must_use]
pub fn encode_token(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return Cow::Borrowed(EMPTY);
    }
    if text.bytes().all(is_unreserved) {
        return Cow::Borrowed(text);
    }
    let mut token = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if is_unreserved(byte) {
            token.push(char::from(byte));
        } else {
            push_escape(&mut token, byte);
        }
    }
    Cow::Owned(token)
}

/// Returns the text of a token. A foreign token with other unencoded characters is literal.
///
/// # Errors
/// If a `%` is not followed by two hexadecimal digits, or if the bytes are not UTF-8; the text gives
/// the position.
pub fn decode_token(token: &str) -> Result<Cow<'_, str>, String> {
    if token == EMPTY {
        return Ok(Cow::Borrowed(""));
    }
    if !token.contains('%') {
        return Ok(Cow::Borrowed(token));
    }
    let mut bytes = Vec::with_capacity(token.len());
    let mut rest = token.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let offset = token.len() - rest.len();
            let byte = escape(after).ok_or_else(|| {
                format!("the % at byte {offset} of token {token:?} is not followed by two hexadecimal digits")
            })?;
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes)
        .map(Cow::Owned)
        .map_err(|_| format!("token {token:?} is not valid UTF-8 after decoding"))
}

/// Appends `%XX`.
pub(crate) fn push_escape(text: &mut String, byte: u8) {
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// Returns the byte that the two leading hexadecimal digits encode.
pub(crate) fn escape(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| {
        let digit = char::from(*digits.get(at)?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    Some(digit(0)? << 4 | digit(1)?)
}

fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
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
            prop_assert!(token.bytes().all(|b| is_unreserved(b) || b == b'%'));
            prop_assert_eq!(decode_token(&token).unwrap(), text);
        }
    }
}
