//! Authentication at an upstream: bearer, basic, `OAuth2` client credentials, signed webhooks.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::Timestamp;
use percent_encoding::utf8_percent_encode;
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::response::{self, ResponseBody};
use super::token_response;
use crate::provider::ProviderError;
use crate::secret::{Secret, SecretRef, SecretScrubber};
use crate::template::RESERVED;
use crate::webhook_signature::{
    WEBHOOK_ID, WEBHOOK_SIGNATURE, WEBHOOK_TIMESTAMP, hmac_sha256, standard_webhooks_key,
};

/// A token is refreshed this long before its expiry, or a tenth of its lifetime before, whichever
/// is shorter.
const REFRESH_MARGIN: Duration = Duration::from_secs(30);

/// Default lifetime of a token if the issuer specifies none.
const DEFAULT_TOKEN_LIFETIME: Duration = Duration::from_mins(5);

/// Maximum size of a token response, in bytes.
const MAX_TOKEN_RESPONSE: usize = 64 * 1024;

/// Authorization of requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum HttpAuthConfig {
    /// Header `Authorization: Bearer …`.
    Bearer(SecretRef),
    /// Header `Authorization: Basic …`.
    Basic(BasicConfig),
    /// Token by `OAuth2` client credentials (RFC 6749, 4.4).
    OAuth2(OAuth2Config),
}

impl HttpAuthConfig {
    /// Checks rules across keys.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::OAuth2(oauth2)
                if !["http://", "https://"]
                    .iter()
                    .any(|scheme| oauth2.token_url.starts_with(scheme)) =>
            {
                Err("auth.oauth2.token_url must start with http:// or https://".to_owned())
            }
            Self::Bearer(_) | Self::Basic(_) | Self::OAuth2(_) => Ok(()),
        }
    }
}

/// User name and password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// User name.
    pub user: String,
    /// Password.
    pub password: SecretRef,
}

/// `OAuth2` client credentials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth2Config {
    /// Token endpoint.
    pub token_url: String,
    /// Client id.
    pub client_id: String,
    /// Client secret.
    pub client_secret: SecretRef,
    /// Requested scopes, separated by spaces.
    pub scope: Option<String>,
    /// Audience, if the issuer requires it.
    pub audience: Option<String>,
    /// Whether id and secret are sent in the body; otherwise by HTTP basic authentication.
    #[serde(default)]
    pub in_body: bool,
}

/// Authorizes the requests of one upstream.
pub(crate) struct HttpAuth {
    config: HttpAuthConfig,
    token: Mutex<Option<Token>>,
}

struct Token {
    secret: Secret,
    until: Timestamp,
}

impl HttpAuth {
    pub(crate) fn new(config: HttpAuthConfig) -> Self {
        Self {
            config,
            token: Mutex::new(None),
        }
    }

    /// Returns the header value. Adds secrets to `scrub`.
    pub(crate) async fn header_value(
        &self,
        client: &Client,
        now: Timestamp,
        scrub: &mut SecretScrubber,
    ) -> Result<Secret, ProviderError> {
        match &self.config {
            HttpAuthConfig::Bearer(reference) => {
                let secret = resolve_secret(reference, scrub)?;
                Ok(Secret::new(format!("Bearer {}", secret.expose())))
            }
            HttpAuthConfig::Basic(basic) => {
                let password = resolve_secret(&basic.password, scrub)?;
                Ok(basic_value(&basic.user, password.expose(), scrub))
            }
            HttpAuthConfig::OAuth2(oauth2) => {
                let secret = self.token(oauth2, client, now, scrub).await?;
                scrub.add(&secret);
                Ok(Secret::new(format!("Bearer {}", secret.expose())))
            }
        }
    }

    /// Deletes the rejected token of this value; returns `true` if another token may succeed.
    pub(crate) async fn invalidate(&self, value: &Secret) -> bool {
        if !matches!(self.config, HttpAuthConfig::OAuth2(_)) {
            return false;
        }

        let mut token = self.token.lock().await;

        // Another attempt may have fetched a new token meanwhile. That one is kept.
        let rejected = value.expose().strip_prefix("Bearer ");
        let is_current = token
            .as_ref()
            .is_some_and(|token| rejected == Some(token.secret.expose()));
        if is_current {
            *token = None;
        }
        true
    }

    /// Returns a token. One caller at a time requests it; the others wait for the result.
    async fn token(
        &self,
        oauth2: &OAuth2Config,
        client: &Client,
        now: Timestamp,
        scrub: &mut SecretScrubber,
    ) -> Result<Secret, ProviderError> {
        // The lock is held during the request, so that an expired token causes one request, not one
        // for each attempt.
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref().filter(|token| now < token.until) {
            return Ok(token.secret.clone());
        }

        let fresh = oauth2.fetch(client, now, scrub).await?;
        let secret = fresh.secret.clone();
        *token = Some(fresh);
        Ok(secret)
    }
}

impl OAuth2Config {
    async fn fetch(
        &self,
        client: &Client,
        now: Timestamp,
        scrub: &mut SecretScrubber,
    ) -> Result<Token, ProviderError> {
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        form.extend(
            self.audience
                .as_deref()
                .map(|audience| ("audience", audience)),
        );

        let secret = resolve_secret(&self.client_secret, scrub)?;
        // Both forms below send it encoded, and the issuer may quote it as it was sent.
        let encoded = utf8_percent_encode(secret.expose(), RESERVED).to_string();
        scrub.add(&Secret::new(encoded.as_str()));
        let mut call = client.post(&self.token_url);

        // RFC 6749 permits the credentials in the header or in the body. Issuers differ.
        if self.in_body {
            form.extend([
                ("client_id", self.client_id.as_str()),
                ("client_secret", secret.expose()),
            ]);
        } else {
            // RFC 6749, 2.3.1: form-encoded, so that an id can contain a colon.
            let user = utf8_percent_encode(&self.client_id, RESERVED);
            let value = basic_value(&user.to_string(), &encoded, scrub);
            call = call.header(AUTHORIZATION, sensitive_header(&value)?);
        }

        let body: Vec<_> = form
            .iter()
            .map(|(key, value)| format!("{key}={}", utf8_percent_encode(value, RESERVED)))
            .collect();
        let call = call.header("content-type", "application/x-www-form-urlencoded");

        // Effects wait until the operator corrects the cause, or until their deadline.
        let failed = |reason: String| {
            ProviderError::unavailable("oauth2", format!("{} {reason}", self.token_url))
        };

        let response = call.body(body.join("&")).send().await;
        let response = response
            .map_err(|error| failed(format!("returned no token: {}", error.without_url())))?;

        let status = response.status();
        let retry_after = response::retry_after(response.headers());
        let body = ResponseBody::read(response, MAX_TOKEN_RESPONSE).await;
        let body = match body {
            Ok(body) => match body.still_encoded {
                Some(reason) if status.is_success() => {
                    return Err(failed(format!("returned no token: {reason}")));
                }
                _ => body.bytes,
            },
            // The status and the delay are known without the body.
            Err(_) if !status.is_success() => Vec::new(),
            Err(error) => {
                let reason = format!("returned no token: {}", error.without_url());
                return Err(failed(reason));
            }
        };

        if !status.is_success() {
            let error = failed(token_response::error(status, &body, scrub));
            return Err(error.with_retry_after(retry_after));
        }
        let issued = token_response::token(&body).map_err(failed)?;

        // A token is renewed before it expires, so that no request arrives with one that has just
        // expired.
        let lifetime = issued.lifetime.unwrap_or(DEFAULT_TOKEN_LIFETIME);
        let until = now.saturating_add(lifetime.saturating_sub(REFRESH_MARGIN.min(lifetime / 10)));

        Ok(Token {
            secret: Secret::new(issued.access_token),
            until,
        })
    }
}

/// Returns the value of `Authorization: Basic …`, and adds it to the secrets.
fn basic_value(user: &str, password: &str, scrub: &mut SecretScrubber) -> Secret {
    let encoded = Secret::new(STANDARD.encode(format!("{user}:{password}")));
    scrub.add(&encoded);
    Secret::new(format!("Basic {}", encoded.expose()))
}

pub(crate) fn resolve_secret(
    reference: &SecretRef,
    scrub: &mut SecretScrubber,
) -> Result<Secret, ProviderError> {
    let secret = reference
        .resolve()
        .map_err(|error| ProviderError::unavailable("secret", error.log()))?;
    scrub.add(&secret);
    Ok(secret)
}

/// Creates a header value that is never logged.
pub(crate) fn sensitive_header(secret: &Secret) -> Result<HeaderValue, ProviderError> {
    let mut value = HeaderValue::try_from(secret.expose()).map_err(|_| {
        ProviderError::unavailable(
            "secret",
            "a secret with a line break is not allowed in a header",
        )
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the Standard Webhooks headers of a message: its id, the time of the attempt, and a
/// signature (HMAC-SHA256) by each key, so that a receiver can replace its key.
///
/// A key is `whsec_` and base64, or any text.
pub(crate) fn webhook_signature(
    keys: &[SecretRef],
    id: &str,
    now: Timestamp,
    body: &[u8],
    scrub: &mut SecretScrubber,
) -> Result<HeaderMap, ProviderError> {
    let seconds = now.as_millis() / 1000;
    let signatures = keys.iter().map(|reference| {
        let secret = resolve_secret(reference, scrub)?;
        let key = standard_webhooks_key(&secret).map_err(|error| {
            ProviderError::unavailable("secret", format!("invalid secret {reference}: {error}"))
        })?;
        let signature = hmac_sha256(&key, &[format!("{id}.{seconds}.").as_bytes(), body]);
        Ok(format!("v1,{}", STANDARD.encode(signature)))
    });

    let signatures = signatures
        .collect::<Result<Vec<_>, ProviderError>>()?
        .join(" ");

    let value =
        |text: String| HeaderValue::try_from(text).expect("ids, numbers and base64 are ASCII");
    let name = HeaderName::from_static;
    Ok(HeaderMap::from_iter([
        (name(WEBHOOK_ID), value(id.to_owned())),
        (name(WEBHOOK_TIMESTAMP), value(seconds.to_string())),
        (name(WEBHOOK_SIGNATURE), value(signatures)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Test vector of the Standard Webhooks libraries.
    #[test]
    fn signature_follows_standard_webhooks() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        std::fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let keys = [format!("file:{}", path.display()).parse().unwrap()];
        let now = Timestamp::from_millis(1_614_265_330_000);
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let headers = webhook_signature(
            &keys,
            id,
            now,
            br#"{"test": 2432232314}"#,
            &mut SecretScrubber::default(),
        )
        .unwrap();
        assert_eq!(
            headers["webhook-signature"],
            "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
        );
        assert_eq!(headers["webhook-timestamp"], "1614265330");
    }
}
