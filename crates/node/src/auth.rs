//! Authentication of API callers: user, roles and tenants.
//!
//! A caller is authenticated by a signed token (`token`), by the token of the administrator
//! (`admin_token`), by a trusted gateway (`gateway`), or not at all. Requests that an actor or a
//! peer signs (`signed_requests`), the sessions of users who logged in (`oidc`) and the token of
//! the monitoring (`metrics_token`) apply beside them. The permissions of routes are in
//! `crates/api/src/server/permissions.rs`; this module depends on neither routes nor HTTP.

mod admin_token;
mod caller;
mod denied;
mod gateway;
mod keys;
mod metrics_token;
mod nonce_log;
mod nonces;
mod oidc;
mod rights;
mod session;
mod shared_secret;
mod signature_rejection;
mod signed_requests;
mod signer_keys;
mod token;
mod verifier;
mod web_session;

use std::sync::Arc;

use crate::config::{AuthMode, Config};
use admin_token::AdminToken;
pub use admin_token::{admin_token_file, check_admin_token};
pub(crate) use caller::{ActorRights, is_user_name};
pub use caller::{AuthError, Caller, ImpersonationError, RequestCredentials, TenantScope};
use gateway::TrustedGatewayAuth;
use metrics_token::MetricsToken;
pub use oidc::{LOGIN_COOKIE, Login, LoginError, LoginStart, Oidc, SESSION_COOKIE, cookie};
pub use rights::{Right, Role, Roles};
pub use session::SessionToken;
pub use signature_rejection::SignatureRejection;
pub use signed_requests::{SignedCaller, SignedRequests, UNKNOWN_KEY};
pub(crate) use signer_keys::{ConfiguredKeys, Signer, SignerKey, SignerKeys};
use token::JwtAuth;

/// Authenticator of requests.
pub struct Authenticator {
    method: AuthMethod,
    metrics: Option<MetricsToken>,
    oidc: Option<Box<Oidc>>,
    signed: SignedRequests,
}

enum AuthMethod {
    Disabled,
    Tokens(Arc<JwtAuth>),
    Gateway(Box<TrustedGatewayAuth>),
    Session(SessionToken),
    Admin(AdminToken),
}

impl Authenticator {
    /// Creates the authenticator of a configuration. If it requires no authentication, callers need
    /// the token of the session, if there is one; they have all permissions.
    ///
    /// # Errors
    /// If the configured keys, the key file, the token of the administrator or the metrics token
    /// are invalid. An unavailable URL is not an error; it is retried.
    pub(crate) async fn new(
        config: &Config,
        session: Option<SessionToken>,
        signed: SignedRequests,
    ) -> anyhow::Result<Self> {
        let auth = &config.auth;
        let mut oidc = None;
        let method = match auth.mode {
            // `orlog dev` protects a node without authentication by the token of its session.
            AuthMode::Off => session.map_or(AuthMethod::Disabled, AuthMethod::Session),
            AuthMode::Token => AuthMethod::Admin(AdminToken::open(config)?),
            AuthMode::Jwt => {
                let tokens = Arc::new(JwtAuth::new(&auth.jwt).await?);
                if auth.oidc.is_enabled() {
                    oidc = Some(Box::new(Oidc::new(config, Arc::clone(&tokens))?));
                }
                AuthMethod::Tokens(tokens)
            }
            AuthMode::Gateway => {
                AuthMethod::Gateway(Box::new(TrustedGatewayAuth::new(&auth.gateway)?))
            }
        };

        let metrics = auth
            .metrics_token
            .as_ref()
            .map(MetricsToken::open)
            .transpose()?;
        Ok(Self {
            method,
            metrics,
            oidc,
            signed,
        })
    }

    /// Returns whether authentication is required.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        !matches!(self.method, AuthMethod::Disabled)
    }

    /// Returns the log-in of users, if it is configured.
    #[must_use]
    pub fn oidc(&self) -> Option<&Oidc> {
        self.oidc.as_deref()
    }

    /// Returns the authentication of signed requests, which applies with every mode.
    #[must_use]
    pub fn signed(&self) -> &SignedRequests {
        &self.signed
    }

    /// Authenticates the caller of a request without a signature.
    ///
    /// # Errors
    /// If the credentials are missing or invalid.
    pub async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> Result<Caller, AuthError> {
        // The method of the mode comes first: if neither accepts the request, the caller receives
        // its error.
        let found = self.find_caller(credentials).await;
        found.or_else(|error| {
            self.metrics
                .as_ref()
                .and_then(|token| token.caller(credentials))
                .ok_or(error)
        })
    }

    async fn find_caller(&self, credentials: &RequestCredentials<'_>) -> Result<Caller, AuthError> {
        if let Some(oidc) = &self.oidc
            && let Some(user) = oidc.caller(credentials)?
        {
            return Ok(user);
        }

        match &self.method {
            AuthMethod::Disabled => Ok(Caller::unauthenticated()),
            AuthMethod::Tokens(tokens) => tokens.caller(credentials).await,
            AuthMethod::Gateway(gateway) => gateway.caller(credentials),
            AuthMethod::Session(token) => token.caller(credentials),
            AuthMethod::Admin(token) => token.caller(credentials),
        }
    }
}
