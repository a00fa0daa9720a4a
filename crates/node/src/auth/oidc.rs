//! Log-in of users by OpenID Connect: the authorization code flow with PKCE (RFC 6749, RFC 7636).
//!
//! The browser keeps the values of a log-in in a cookie until the provider sends it back, so that
//! unfinished log-ins use no memory of the node. The node exchanges the code, verifies the ID
//! token, and starts a session.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use super::caller::{AuthError, Caller, RequestCredentials};
use super::keys::{FETCH_TIMEOUT, MAX_BYTES};
use super::session::SessionToken;
use super::shared_secret;
use super::token::{JwtAuth, VerifiedToken};
use super::web_session::WebSessions;
use crate::config::{Config, OidcConfig, is_protected};
use crate::http_client::bounded_body;

/// Cookie with the id of a session. The prefix binds it to the host, and requires `Secure`.
pub const SESSION_COOKIE: &str = "__Host-orlog-session";
/// Cookie with the values of a log-in in progress.
pub const LOGIN_COOKIE: &str = "__Host-orlog-login";

/// Client of the OpenID provider, and the sessions of its users.
pub struct Oidc {
    tokens: Arc<JwtAuth>,
    config: OidcConfig,
    issuer: String,
    client: reqwest::Client,
    endpoints: Mutex<Option<Endpoints>>,
    sessions: WebSessions,
}

/// Endpoints of the provider (OpenID Connect Discovery).
#[derive(Clone, Deserialize)]
struct Endpoints {
    issuer: String,
    authorization_endpoint: String,
    token_endpoint: String,
}

/// Start of a log-in.
pub struct LoginStart {
    /// URL of the provider for the browser.
    pub url: String,
    /// Value of [`LOGIN_COOKIE`].
    pub cookie: String,
}

/// Completed log-in.
pub struct Login {
    /// Authenticated user.
    pub caller: Caller,
    /// Value of [`SESSION_COOKIE`].
    pub session: String,
}

/// Reason why a log-in failed; for the log only.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The provider is unavailable.
    #[error("{0:#}")]
    Unavailable(anyhow::Error),
    /// The values of the browser or of the provider are invalid.
    #[error("{0:#}")]
    Rejected(anyhow::Error),
}

/// Values of a log-in in progress.
struct PendingLogin<'a> {
    state: &'a str,
    nonce: &'a str,
    verifier: &'a str,
}

impl<'a> PendingLogin<'a> {
    fn of(cookie: &'a str) -> Option<Self> {
        let mut parts = cookie.split('.').filter(|part| !part.is_empty());
        let pending = Self {
            state: parts.next()?,
            nonce: parts.next()?,
            verifier: parts.next()?,
        };
        parts.next().is_none().then_some(pending)
    }
}

impl Oidc {
    /// Creates the client.
    ///
    /// # Errors
    /// If the client secret cannot be read.
    pub(super) fn new(config: &Config, tokens: Arc<JwtAuth>) -> anyhow::Result<Self> {
        let oidc = config.auth.oidc.clone();
        if let Some(secret) = &oidc.client_secret {
            // Read once, so that a missing secret prevents the start instead of each log-in.
            secret.resolve().context("auth.oidc.client_secret")?;
        }

        Ok(Self {
            tokens,
            config: oidc,
            issuer: config.auth.jwt.issuer.clone(),
            client: orlog_effect::http::client()
                .timeout(FETCH_TIMEOUT)
                .build()?,
            endpoints: Mutex::default(),
            sessions: WebSessions::default(),
        })
    }

    /// Starts a log-in.
    ///
    /// # Errors
    /// If the provider is unavailable.
    pub async fn start(&self) -> Result<LoginStart, LoginError> {
        let endpoints = self.endpoints().await.map_err(LoginError::Unavailable)?;
        // Three independent values: against forged callbacks, repeated ID tokens and intercepted
        // codes.
        let random = || SessionToken::random().map_err(LoginError::Unavailable);
        let [state, nonce, verifier] = [random()?, random()?, random()?];

        // PKCE: a code that is intercepted at the redirect is worthless without the verifier, which
        // stays in the cookie.
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.expose()));
        let url = Url::parse(&endpoints.authorization_endpoint);
        let mut url = url.map_err(|error| LoginError::Unavailable(error.into()))?;

        url.query_pairs_mut().extend_pairs([
            ("response_type", "code"),
            ("client_id", &self.config.client_id),
            ("redirect_uri", &self.config.redirect_url),
            ("scope", &self.config.scopes.join(" ")),
            ("state", state.expose()),
            ("nonce", nonce.expose()),
            ("code_challenge", &challenge),
            ("code_challenge_method", "S256"),
        ]);

        let cookie = format!(
            "{}.{}.{}",
            state.expose(),
            nonce.expose(),
            verifier.expose()
        );
        Ok(LoginStart {
            url: url.into(),
            cookie,
        })
    }

    /// Completes a log-in: verifies that this browser started it, exchanges the code, and verifies
    /// the ID token.
    ///
    /// # Errors
    /// If one of the values is invalid, or if the provider is unavailable.
    pub async fn complete(
        &self,
        state: &str,
        code: &str,
        cookie: &str,
    ) -> Result<Login, LoginError> {
        let rejected = |reason: &'static str| LoginError::Rejected(anyhow::Error::msg(reason));
        let pending = PendingLogin::of(cookie)
            .ok_or_else(|| rejected("no log-in of this browser is in progress"))?;

        // Otherwise an attacker could log the browser in as another user, with a code of his own.
        if !shared_secret::is_same(state, pending.state) {
            return Err(rejected("the state belongs to another log-in"));
        }

        let id_token = self.exchange(code, pending.verifier).await?;
        let verified = self
            .tokens
            .id_token(&id_token, &self.config.client_id, pending.nonce)
            .await;
        let token = verified.map_err(|error| match error {
            AuthError::Unavailable(_) => LoginError::Unavailable(error.into()),
            AuthError::Missing(_) | AuthError::Invalid(_) | AuthError::Signature(_) => {
                LoginError::Rejected(error.into())
            }
        })?;
        let caller = token.caller.clone();

        let session = self.sessions.create(token, self.config.session_max_age);
        Ok(Login {
            caller,
            session: session.map_err(LoginError::Unavailable)?,
        })
    }

    /// Exchanges a code for an ID token.
    async fn exchange(&self, code: &str, verifier: &str) -> Result<String, LoginError> {
        let endpoints = self.endpoints().await.map_err(LoginError::Unavailable)?;

        let mut form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &self.config.redirect_url),
            ("code_verifier", verifier),
        ];

        let mut request = self.client.post(&endpoints.token_endpoint);
        if let Some(secret) = &self.config.client_secret {
            let secret = secret
                .resolve()
                .map_err(|error| LoginError::Unavailable(error.into()))?;

            // RFC 6749 (2.3.1) encodes both parts as a form, before the basic authentication.
            let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
            request = request.basic_auth(
                encoded(&self.config.client_id),
                Some(encoded(secret.expose())),
            );
        } else {
            form.push(("client_id", &self.config.client_id));
        }

        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .header("accept", "application/json")
            .body(encode_form(&form));
        let response = request
            .send()
            .await
            .map_err(|error| LoginError::Unavailable(error.without_url().into()))?;
        let status = response.status();
        let body = bounded_body(response, MAX_BYTES)
            .await
            .map_err(LoginError::Unavailable)?;

        // No statement about the code: the user can try again later.
        if status.is_server_error() {
            return Err(LoginError::Unavailable(anyhow::anyhow!(
                "the provider returned status {status}"
            )));
        }

        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id_token = answer["id_token"].as_str().filter(|_| status.is_success());

        id_token.map(str::to_owned).ok_or_else(|| {
            // Shortened: the text comes from the provider and is logged.
            let error: String = answer["error"]
                .as_str()
                .unwrap_or("no ID token")
                .chars()
                .take(100)
                .collect();
            LoginError::Rejected(anyhow::anyhow!(
                "the provider rejected the code: status {status}, {error}"
            ))
        })
    }

    /// Returns the endpoints of the provider; the first call reads them.
    async fn endpoints(&self) -> anyhow::Result<Endpoints> {
        // Held during the request: log-ins that start at the same time wait for one response.
        let mut known = self.endpoints.lock().await;
        if let Some(known) = known.as_ref() {
            return Ok(known.clone());
        }

        let url = format!(
            "{}/.well-known/openid-configuration",
            self.issuer.trim_end_matches('/')
        );
        let response = self.client.get(&url).send().await?.error_for_status()?;
        let found: Endpoints = serde_json::from_slice(&bounded_body(response, MAX_BYTES).await?)
            .with_context(|| format!("{url} is no configuration of a provider"))?;

        ensure!(
            // Required by Discovery (4.3): the document of another issuer must not select the
            // endpoints.
            found.issuer == self.issuer,
            "{url} belongs to another issuer"
        );

        // The secret of the client and the tokens are sent there.
        for endpoint in [&found.authorization_endpoint, &found.token_endpoint] {
            ensure!(
                is_protected(endpoint),
                "{url} contains an endpoint without https"
            );
        }

        *known = Some(found.clone());
        Ok(found)
    }

    /// Returns the caller of a request with a session; `None` if it has no session cookie, or other
    /// credentials.
    pub(super) fn caller(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> Result<Option<Caller>, AuthError> {
        // An explicit header has priority: a browser sends cookies without being asked.
        if credentials.header("authorization")?.is_some() {
            return Ok(None);
        }
        let Some(id) = session_id(credentials)? else {
            return Ok(None);
        };

        let ended = || AuthError::Invalid("the session has ended; log in again".to_owned());
        let token: VerifiedToken = self.sessions.find(id).ok_or_else(ended)?;

        // A session outlives its token; a revocation ends both.
        if self.tokens.is_denied(&token) {
            self.sessions.end(id);
            return Err(ended());
        }

        Ok(Some(token.caller))
    }

    /// Ends a session.
    pub fn end(&self, session: &str) {
        self.sessions.end(session);
    }
}

/// Returns the value of the session cookie.
fn session_id<'a>(credentials: &'a RequestCredentials<'_>) -> Result<Option<&'a str>, AuthError> {
    Ok(credentials
        .header("cookie")?
        .and_then(|cookies| cookie(cookies, SESSION_COOKIE)))
}

/// Returns the value of a cookie in the header of a request.
#[must_use]
pub fn cookie<'a>(cookies: &'a str, name: &str) -> Option<&'a str> {
    cookies
        .split(';')
        .find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('='))
}

fn encode_form(pairs: &[(&str, &str)]) -> String {
    let mut url = Url::parse("form:x").expect("the URL is valid");
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_are_found_by_their_whole_name() {
        let header = "a=1; __Host-orlog-session2=x;__Host-orlog-session=y=z; b";
        assert_eq!(cookie(header, SESSION_COOKIE), Some("y=z"));
        assert_eq!(cookie("x__Host-orlog-session=y", SESSION_COOKIE), None);
    }

    #[test]
    fn pending_login_has_three_parts() {
        assert!(
            PendingLogin::of("a.b.c")
                .is_some_and(|found| (found.state, found.verifier) == ("a", "c"))
        );
        for invalid in ["", "a.b", "a.b.c.d", "a..c"] {
            assert!(PendingLogin::of(invalid).is_none(), "{invalid}");
        }
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(
            encode_form(&[("code", "a&b=c d"), ("x", "ü")]),
            "code=a%26b%3Dc+d&x=%C3%BC"
        );
    }
}
