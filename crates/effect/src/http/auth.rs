//! How an upstream is told who asks: bearer, basic, `OAuth2` client credentials, signed webhooks.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use orlog_model::Timestamp;
use percent_encoding::{PercentEncode, utf8_percent_encode};
use reqwest::Client;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use sha2::Sha256;
use tokio::sync::Mutex;

use super::response::Body;
use super::template::RESERVED;
use crate::provider::Refusal;
use crate::secret::{Scrub, Secret, SecretRef};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// A token counts as expired this long before it does, or a tenth of its life before, whichever is shorter.
const EARLY: Duration = Duration::from_secs(30);

/// The life of a token whose issuer does not say.
const LIFE: Duration = Duration::from_mins(5);

/// The most that is read of a token endpoint's answer, in bytes.
const MAX_TOKEN_ANSWER: usize = 64 * 1024;

/// How requests are authorized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum AuthConfig {
    /// `Authorization: Bearer …`.
    Bearer(SecretRef),
    /// `Authorization: Basic …`.
    Basic(BasicConfig),
    /// A token by `OAuth2` client credentials (RFC 6749, 4.4).
    OAuth2(OAuth2Config),
}

impl AuthConfig {
    /// Checks what no single key shows.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::OAuth2(oauth2)
                if !["http://", "https://"].iter().any(|scheme| oauth2.token_url.starts_with(scheme)) =>
            {
                Err("auth.oauth2.token_url begins with neither http:// nor https://".to_owned())
            }
            Self::Bearer(_) | Self::Basic(_) | Self::OAuth2(_) => Ok(()),
        }
    }
}

/// A name and a password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// The name.
    pub user: String,
    /// The password.
    pub password: SecretRef,
}

/// Where tokens come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OAuth2Config {
    /// The token endpoint.
    pub token_url: String,
    /// Who asks.
    pub client_id: String,
    /// The proof.
    pub client_secret: SecretRef,
    /// For what; separated by spaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// For whom, where the issuer wants to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Whether id and secret are sent in the body; by HTTP basic authentication where not.
    #[serde(default)]
    pub in_body: bool,
}

/// How requests are signed: Standard Webhooks, HMAC-SHA256.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureConfig {
    /// The key: `whsec_` and base64, or any text.
    pub secret: SecretRef,
}

/// Authorizes the requests of one upstream.
pub(crate) struct Auth {
    config: AuthConfig,
    token: Mutex<Option<Token>>,
}

struct Token {
    secret: Secret,
    until: Timestamp,
}

impl Auth {
    pub(crate) fn new(config: AuthConfig) -> Self {
        Self { config, token: Mutex::new(None) }
    }

    /// The header's value. Secrets are added to `scrub`.
    pub(crate) async fn value(
        &self,
        client: &Client,
        now: Timestamp,
        scrub: &mut Scrub,
    ) -> Result<Secret, Refusal> {
        match &self.config {
            AuthConfig::Bearer(reference) => {
                let secret = read(reference, scrub)?;
                Ok(Secret::new(format!("Bearer {}", secret.expose())))
            }
            AuthConfig::Basic(basic) => Ok(basic_value(&basic.user, &basic.password, scrub)?),
            AuthConfig::OAuth2(oauth2) => {
                let secret = self.token(oauth2, client, now, scrub).await?;
                scrub.add(&secret);
                Ok(Secret::new(format!("Bearer {}", secret.expose())))
            }
        }
    }

    /// Forgets the token behind this value, which was refused; `true` when another one may do better.
    pub(crate) async fn refused(&self, value: &Secret) -> bool {
        if !matches!(self.config, AuthConfig::OAuth2(_)) {
            return false;
        }
        let mut token = self.token.lock().await;
        let is_current =
            |token: &Token| value.expose().strip_prefix("Bearer ") == Some(token.secret.expose());
        if token.as_ref().is_some_and(is_current) {
            *token = None;
        }
        true
    }

    /// One request at a time asks for a token; the others wait for it.
    async fn token(
        &self,
        oauth2: &OAuth2Config,
        client: &Client,
        now: Timestamp,
        scrub: &mut Scrub,
    ) -> Result<Secret, Refusal> {
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
    async fn fetch(&self, client: &Client, now: Timestamp, scrub: &mut Scrub) -> Result<Token, Refusal> {
        let mut form = vec![("grant_type", "client_credentials")];
        form.extend(self.scope.as_deref().map(|scope| ("scope", scope)));
        form.extend(self.audience.as_deref().map(|audience| ("audience", audience)));
        let secret = read(&self.client_secret, scrub)?;
        let mut call = client.post(&self.token_url);
        if self.in_body {
            form.extend([("client_id", self.client_id.as_str()), ("client_secret", secret.expose())]);
        } else {
            let value = basic_value(&self.client_id, &self.client_secret, scrub)?;
            call = call.header(AUTHORIZATION, sensitive(&value)?);
        }
        let body: Vec<_> = form.iter().map(|(key, value)| format!("{key}={}", encoded(value))).collect();
        let call = call.header("content-type", "application/x-www-form-urlencoded");
        // The operator mends what is wrong here; effects wait for it until their deadline.
        let failed = |what: String| Refusal::retry("oauth2", format!("{} {what}", self.token_url));
        let response = call.body(body.join("&")).send().await;
        let response = response.map_err(|error| failed(format!("gave no token: {}", error.without_url())))?;
        let status = response.status();
        if !status.is_success() {
            return Err(failed(format!("answered {}", status.as_u16())));
        }
        let body = Body::read(response, MAX_TOKEN_ANSWER).await;
        let body = body.map_err(|error| failed(format!("gave no token: {}", error.without_url())))?;
        let answer: TokenAnswer = serde_json::from_slice(&body.bytes)
            .map_err(|_| failed("answered without an access_token".to_owned()))?;
        let life = answer.expires_in.map_or(LIFE, Duration::from_secs);
        let until = now.after(life.saturating_sub(EARLY.min(life / 10)));
        Ok(Token { secret: Secret::new(answer.access_token), until })
    }
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    #[serde(default)]
    expires_in: Option<u64>,
}

fn encoded(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, RESERVED)
}

fn basic_value(user: &str, password: &SecretRef, scrub: &mut Scrub) -> Result<Secret, Refusal> {
    let password = read(password, scrub)?;
    let encoded = Secret::new(STANDARD.encode(format!("{user}:{}", password.expose())));
    scrub.add(&encoded);
    Ok(Secret::new(format!("Basic {}", encoded.expose())))
}

pub(crate) fn read(reference: &SecretRef, scrub: &mut Scrub) -> Result<Secret, Refusal> {
    let secret = reference.resolve().map_err(|error| Refusal::retry("secret", error.to_string()))?;
    scrub.add(&secret);
    Ok(secret)
}

/// A header value that no log shows.
pub(crate) fn sensitive(secret: &Secret) -> Result<HeaderValue, Refusal> {
    let mut value = HeaderValue::try_from(secret.expose())
        .map_err(|_| Refusal::retry("secret", "a secret cannot stand in a header: it holds a line break"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// The headers of Standard Webhooks for a message.
pub(crate) fn signature(
    config: &SignatureConfig,
    id: &str,
    now: Timestamp,
    body: &[u8],
    scrub: &mut Scrub,
) -> Result<HeaderMap, Refusal> {
    let secret = read(&config.secret, scrub)?;
    let key = match secret.expose().strip_prefix("whsec_") {
        Some(text) => STANDARD.decode(text).map_err(|_| {
            Refusal::retry("secret", format!("the secret {} is no base64 after whsec_", config.secret))
        })?,
        None => secret.expose().as_bytes().to_vec(),
    };
    let seconds = now.millis() / 1000;
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes keys of any length");
    mac.update(format!("{id}.{seconds}.").as_bytes());
    mac.update(body);
    let signed = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    let value = |text: String| HeaderValue::try_from(text).expect("ids, numbers and base64 are ASCII");
    Ok(HeaderMap::from_iter([
        (WEBHOOK_ID, value(id.to_owned())),
        (WEBHOOK_TIMESTAMP, value(seconds.to_string())),
        (WEBHOOK_SIGNATURE, value(signed)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vector of the Standard Webhooks libraries.
    #[test]
    fn a_signature_is_that_of_standard_webhooks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        std::fs::write(&path, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let config = SignatureConfig { secret: format!("file:{}", path.display()).parse().unwrap() };
        let now = Timestamp::from_millis(1_614_265_330_000);
        let id = "msg_p5jXN8AQM9LWM0D4loKWxJek";
        let headers = signature(&config, id, now, br#"{"test": 2432232314}"#, &mut Scrub::default()).unwrap();
        assert_eq!(headers["webhook-signature"], "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!(headers["webhook-timestamp"], "1614265330");
    }
}
