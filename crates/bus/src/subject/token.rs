//! One token of a subject: any text, percent-encoded so that it has no meaning to a bus.
//!
//! ASCII letters, digits, `_` and `-` stay as they are; every other byte of the UTF-8 text becomes `%XX`. The empty text
//! becomes a lone `%`, which no other text encodes to. Encoding is injective, and decoding is its inverse.

use std::borrow::Cow;

const EMPTY: &str = "%";
const DIGITS: &[u8; 16] = b"0123456789ABCDEF";

/// The token for a text.
#[must_use]
pub fn encode_token(text: &str) -> Cow<'_, str> {
    if text.is_empty() {
        return Cow::Borrowed(EMPTY);
    }
    if text.bytes().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut token = String::with_capacity(text.len() + 16);
    for byte in text.bytes() {
        if is_plain(byte) {
            token.push(char::from(byte));
        } else {
            push_escape(&mut token, byte);
        }
    }
    Cow::Owned(token)
}

/// The text of a token. A token from elsewhere that holds other characters unencoded stands for itself.
///
/// # Errors
/// When a `%` is not followed by two hexadecimal digits, or the bytes are no UTF-8; the text says where.
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
            let place = token.len() - rest.len();
            let byte = escape(after).ok_or_else(|| {
                format!("the % at byte {place} of token {token:?} is not followed by two hexadecimal digits")
            })?;
            bytes.push(byte);
            rest = &after[2..];
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| format!("token {token:?} does not encode UTF-8"))
}

/// Appends `%XX`.
pub(crate) fn push_escape(text: &mut String, byte: u8) {
    text.push('%');
    text.push(char::from(DIGITS[usize::from(byte >> 4)]));
    text.push(char::from(DIGITS[usize::from(byte & 15)]));
}

/// The byte that the two hexadecimal digits at the beginning stand for.
pub(crate) fn escape(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| {
        let digit = char::from(*digits.get(at)?).to_digit(16)?;
        u8::try_from(digit).ok()
    };
    Some(digit(0)? << 4 | digit(1)?)
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn encodes_what_could_change_a_route() {
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
    fn tokens_of_others_stand_for_themselves_or_are_refused() {
        assert_eq!(decode_token("urn:a/b%2e").unwrap(), "urn:a/b.");
        for bad in ["%2", "a%", "%zz", "%ff", "%é"] {
            assert!(decode_token(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn decoding_is_the_inverse_of_encoding(text in any::<String>()) {
            let token = encode_token(&text).into_owned();
            prop_assert!(!token.is_empty());
            prop_assert!(token.bytes().all(|b| is_plain(b) || b == b'%'));
            prop_assert_eq!(decode_token(&token).unwrap(), text);
        }
    }
}
