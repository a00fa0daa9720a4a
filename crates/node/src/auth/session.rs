//! Authentication by the token of a session: a random text that a development node writes to a file
//! of its user.

use ring::rand::{SecureRandom as _, SystemRandom};

use super::caller::{AuthError, Caller, RequestCredentials};
use super::shared_secret;

/// Token of a session: 32 random bytes in hexadecimal.
#[derive(Clone)]
pub struct SessionToken(String);

impl SessionToken {
    /// Creates a random token.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> anyhow::Result<Self> {
        let random = || {
            let mut bytes = [0; 16];
            let filled = SystemRandom::new().fill(&mut bytes);
            filled.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
            anyhow::Ok(u128::from_be_bytes(bytes))
        };
        Ok(Self(format!("{:032x}{:032x}", random()?, random()?)))
    }

    /// Returns the token as text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    pub(super) fn caller(&self, credentials: &RequestCredentials<'_>) -> Result<Caller, AuthError> {
        let Some(provided) = shared_secret::bearer(credentials)? else {
            let remedy = "this development node requires its token: open the link that `orlog \
                dev` prints, or set ORLOG_TOKEN_FILE to the file that it names";
            return Err(AuthError::Missing(remedy.to_owned()));
        };

        if shared_secret::is_same(provided, &self.0) {
            return Ok(Caller::unauthenticated());
        }

        Err(AuthError::Invalid(
            "the token belongs to another session; `orlog dev` creates one at each start"
                .to_owned(),
        ))
    }
}
