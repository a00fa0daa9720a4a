//! Authentication by the token of a session: a random text that a development node writes to a file of its user.

use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::caller::{AuthError, Caller, RequestCredentials};

/// Size of a token in bytes, before its encoding.
const TOKEN_BYTES: usize = 32;

/// Token of a session.
#[derive(Clone)]
pub struct SessionToken(String);

impl SessionToken {
    /// Creates a random token.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> anyhow::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the token as text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(super) fn caller(&self, credentials: &RequestCredentials<'_>) -> Result<Caller, AuthError> {
        let header = credentials.header("authorization")?;
        let provided = header
            .and_then(|header| header.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
        let Some((_, provided)) = provided else {
            let remedy = "this development node requires its token: open the link that `orlog dev` prints, or set \
                          ORLOG_TOKEN_FILE to the file that it names";
            return Err(AuthError::Missing(remedy.to_owned()));
        };
        if Sha256::digest(provided.trim()).ct_eq(&Sha256::digest(&self.0)).into() {
            return Ok(Caller::unauthenticated());
        }
        Err(AuthError::Invalid(
            "the token belongs to another session; `orlog dev` creates one at each start".to_owned(),
        ))
    }
}
