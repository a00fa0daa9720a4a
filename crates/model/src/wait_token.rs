//! Wait tokens: identities of the waits of an instance.

use std::fmt;
use std::str::FromStr;

use compact_str::{CompactString, format_compact};
use serde::{Deserialize, Serialize};

use crate::ids::digest;

/// Identity of one wait of an instance: a hash of what began it. A request with the token of an
/// earlier wait is stale.
///
/// It is displayed as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "CompactString", into = "CompactString")]
pub struct WaitToken(u64);

/// Error for a text that is no wait token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a wait token has 16 hexadecimal digits, such as 0f3a91c2b4d5e678; copy it from the waits of \
    the instance"
)]
pub struct WaitTokenError;

impl WaitToken {
    /// Returns the token of a wait with these parts.
    pub(crate) fn of(parts: &[&[u8]]) -> Self {
        let digest = digest(parts.iter().copied());
        Self(u64::from_be_bytes(
            *digest
                .first_chunk()
                .expect("a digest is longer than a token"),
        ))
    }
}

impl fmt::Display for WaitToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for WaitToken {
    type Err = WaitTokenError;

    fn from_str(text: &str) -> Result<Self, WaitTokenError> {
        // The digits are checked first, because the parser below also accepts a sign.
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let value = is_hex.then(|| u64::from_str_radix(text, 16).ok()).flatten();
        value.map(Self).ok_or(WaitTokenError)
    }
}

impl TryFrom<CompactString> for WaitToken {
    type Error = WaitTokenError;

    fn try_from(text: CompactString) -> Result<Self, WaitTokenError> {
        text.parse()
    }
}

impl From<WaitToken> for CompactString {
    fn from(token: WaitToken) -> Self {
        format_compact!("{token}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_is_displayed_as_16_digits_and_parsed() {
        let token = WaitToken(0x1f);
        assert_eq!(token.to_string(), "000000000000001f");
        assert_eq!("000000000000001F".parse(), Ok(token));
        for invalid in [
            "",
            "1f",
            "00000000000000zz",
            "+00000000000001f",
            "0000000000000001f",
        ] {
            assert_eq!(
                invalid.parse::<WaitToken>(),
                Err(WaitTokenError),
                "{invalid}"
            );
        }
    }
}
