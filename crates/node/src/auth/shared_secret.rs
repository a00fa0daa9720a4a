//! Secrets that a node shares with its callers: compared in constant time, never part of a message.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::ensure;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::caller::{AuthError, RequestCredentials};

/// Minimum length of a token in bytes.
pub(super) const MIN_TOKEN_BYTES: usize = 32;

/// Checks that a text can be a token.
pub(super) fn check_token(text: &str) -> anyhow::Result<()> {
    ensure!(
        text.len() >= MIN_TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic()),
        "no token of at least {MIN_TOKEN_BYTES} printable ASCII characters; create one with \
         `openssl rand -hex 32`"
    );
    Ok(())
}

/// Compares in constant time.
pub(super) fn is_same(one: &str, other: &str) -> bool {
    // Digests, because texts of different lengths would be compared in a shorter time.
    Sha256::digest(one).ct_eq(&Sha256::digest(other)).into()
}

/// Returns the bearer token of a request; `None` if it has none.
pub(super) fn bearer<'a>(
    credentials: &'a RequestCredentials<'_>,
) -> Result<Option<&'a str>, AuthError> {
    let header = credentials.header("authorization")?;
    let bearer = header
        .and_then(|header| header.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    Ok(bearer.map(|(_, token)| token.trim()))
}

/// Failures of what authentication depends on: a secret, or the stored nonces. Callers receive a
/// neutral message; the log has the reason of the first failure in sequence.
#[derive(Default)]
pub(super) struct FailureLog {
    are_failing: AtomicBool,
}

impl FailureLog {
    pub(super) fn check<T>(&self, result: Result<T, impl Display>) -> Result<T, AuthError> {
        let was_failing = self.are_failing.swap(result.is_err(), Ordering::Relaxed);
        result.map_err(|error| {
            if !was_failing {
                tracing::error!(error = %format_args!("{error:#}"), "callers cannot be \
                    authenticated");
            }
            AuthError::Unavailable(UNAVAILABLE.to_owned())
        })
    }
}

/// Message to callers if their credentials cannot be verified. It names no file and no URL.
pub(super) const UNAVAILABLE: &str =
    "the node cannot verify credentials at the moment; its log has the reason";
