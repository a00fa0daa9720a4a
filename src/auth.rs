//! Who calls, what they may do, and for which tenants.
//!
//! A caller is known by a signed token (`token`), by what a trusted gateway says (`gateway`), or not at all. What a route asks
//! for stands in `src/api/permissions.rs`; this knows neither routes nor HTTP.

mod caller;
mod gateway;
mod keys;
mod token;
mod verifier;

use crate::config::{Auth, AuthMode};
pub use caller::{Caller, Denied, NotTheirs, Reach, Role, Shown};
use gateway::Gateway;
use token::Tokens;

/// How it is found out who calls.
pub struct Access(Way);

enum Way {
    Open,
    Tokens(Box<Tokens>),
    Gateway(Box<Gateway>),
}

impl Access {
    /// As the configuration says.
    ///
    /// # Errors
    /// When the configured keys, or the file with them, cannot be used. That a URL does not answer is no error: it is asked again.
    pub async fn new(config: &Auth) -> anyhow::Result<Self> {
        Ok(Self(match config.mode {
            AuthMode::Off => Way::Open,
            AuthMode::Jwt => Way::Tokens(Box::new(Tokens::new(&config.jwt).await?)),
            AuthMode::Gateway => Way::Gateway(Box::new(Gateway::new(&config.gateway)?)),
        }))
    }

    /// Whether callers must say who they are.
    #[must_use]
    pub fn asks(&self) -> bool {
        !matches!(self.0, Way::Open)
    }

    /// Who calls.
    ///
    /// # Errors
    /// When that is not shown, or not believed.
    pub async fn caller(&self, shown: &Shown<'_>) -> Result<Caller, Denied> {
        match &self.0 {
            Way::Open => Ok(Caller::anybody()),
            Way::Tokens(tokens) => tokens.caller(shown).await,
            Way::Gateway(gateway) => gateway.caller(shown),
        }
    }
}
