//! Keys that sign tokens: those of the configuration, of a file, and of the issuer, which may
//! rotate them at any time.
//!
//! Fetched keys stay valid while the issuer does not respond. A token with an unknown key triggers
//! a fetch, at most once per `min_refresh_interval`, because any client can send such a token.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use orlog_bus::RetryLog;
use parking_lot::RwLock;
use serde_json::Value;
use tokio::time::Instant;

use super::caller::AuthError;
use super::shared_secret::UNAVAILABLE;
use crate::config::JwtConfig;
use crate::http_client::bounded_body;

/// Timeout of a fetch. Default: 5s.
pub(super) const FETCH_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response of the issuer in bytes.
pub(super) const MAX_BYTES: usize = 1 << 20;
/// Maximum length of a key id in a response, in characters.
const MAX_KEY_ID_CHARS: usize = 64;

/// Key with its permitted algorithm.
#[derive(Clone)]
pub(super) struct VerificationKey {
    id: Option<String>,
    algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

pub(super) struct KeySet {
    fixed: Vec<VerificationKey>,
    file: Option<PathBuf>,
    url: Option<String>,
    client: reqwest::Client,
    refresh: Duration,
    pause: Duration,
    found: RwLock<FetchedKeys>,
    /// Lock that serializes fetches.
    turn: tokio::sync::Mutex<()>,
}

/// Keys from the file and from the URL.
#[derive(Default)]
struct FetchedKeys {
    from_file: Vec<VerificationKey>,
    from_url: Vec<VerificationKey>,
    /// Start of the last fetch attempt.
    attempted_at: Option<Instant>,
    /// Time of the last complete fetch.
    read: Option<Instant>,
    last_error: Option<String>,
    retries: RetryLog,
}

impl KeySet {
    /// Loads the keys of the configuration. An invalid file is an error, an issuer that does not
    /// respond is not.
    pub(super) async fn new(config: &JwtConfig) -> anyhow::Result<Arc<Self>> {
        let fixed = config.keys.iter().enumerate().map(|(index, key)| {
            let key = serde_json::to_value(key).ok().and_then(usable);
            key.with_context(|| {
                format!(
                    "auth.jwt.keys: key {} is not a public key: {EXPECTED_KEY}",
                    index + 1
                )
            })
        });

        let keys = Arc::new(Self {
            fixed: fixed.collect::<Result<_, _>>()?,
            file: config.jwks_file.clone(),
            url: Some(config.jwks_url.clone()).filter(|url| !url.is_empty()),
            client: orlog_effect::http::client()
                .timeout(FETCH_TIMEOUT)
                .build()?,
            refresh: config.refresh_interval,
            pause: config.min_refresh_interval,
            found: RwLock::default(),
            turn: tokio::sync::Mutex::default(),
        });
        if let Some(file) = &keys.file {
            keys.found_mut(|found| read_file(file).map(|read| found.from_file = read))
                .with_context(|| format!("auth.jwt.jwks_file: {}", file.display()))?;
        }

        // A failure is only logged: an issuer that is down must not prevent the start, and later
        // tokens cause another fetch.
        keys.fetch().await;
        Ok(keys)
    }

    /// Returns the keys that may have signed a token with this key id, or without one.
    pub(super) async fn matching(
        self: &Arc<Self>,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<VerificationKey>, AuthError> {
        let known = self.known(id, algorithm);
        if !known.is_empty() {
            // In the background: a request does not wait for the issuer while a known key matches.
            if self.is_stale() {
                let keys = Arc::clone(self);
                tokio::spawn(async move { keys.fetch().await });
            }
            return Ok(known);
        }

        self.fetch().await;
        let known = self.known(id, algorithm);

        if known.is_empty() {
            Err(self.unknown(id))
        } else {
            Ok(known)
        }
    }

    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<VerificationKey> {
        let found = self.found.read();

        self.fixed
            .iter()
            .chain(&found.from_file)
            .chain(&found.from_url)
            .filter(|key| {
                // A missing id on either side excludes no key: then the signature decides.
                key.algorithm == algorithm
                    && (id.is_none() || key.id.is_none() || key.id.as_deref() == id)
            })
            .cloned()
            .collect()
    }

    fn is_stale(&self) -> bool {
        let found = self.found.read();
        let is_old = found.read.is_none_or(|read| read.elapsed() >= self.refresh);
        is_old && self.may_try(&found)
    }

    fn may_try(&self, found: &FetchedKeys) -> bool {
        let changes = self.url.is_some() || self.file.is_some();
        changes
            && found
                .attempted_at
                .is_none_or(|tried| tried.elapsed() >= self.pause)
    }

    fn unknown(&self, id: Option<&str>) -> AuthError {
        let found = self.found.read();
        match &found.last_error {
            // The token cannot be verified: its key can be among those that were never fetched.
            Some(_) if found.from_url.is_empty() => AuthError::Unavailable(UNAVAILABLE.to_owned()),
            _ => {
                // Shortened: the sender of the token chooses the id, and the response contains it.
                let id = id.map(|id| {
                    format!(
                        " {:?}",
                        id.chars().take(MAX_KEY_ID_CHARS).collect::<String>()
                    )
                });
                AuthError::Invalid(format!(
                    "the token is signed with an unknown key{}",
                    id.unwrap_or_default()
                ))
            }
        }
    }

    /// Reads the file and fetches the keys of the issuer, unless a fetch happened just before.
    async fn fetch(&self) {
        // Requests that wait here find the keys of the fetch before them: `may_try` then rejects a
        // second fetch.
        let _guard = self.turn.lock().await;
        let mut may = false;
        self.found_mut(|found| {
            may = self.may_try(found);

            // Set before the fetch: requests with unknown keys must not cause more than one fetch
            // per pause.
            if may {
                found.attempted_at = Some(Instant::now());
            }
        });

        if !may {
            return;
        }

        let from_file = self.file.as_deref().map(read_file).transpose();
        let from_url = match &self.url {
            Some(url) => self.fetch_url(url).await.map(Some),
            None => Ok(None),
        };
        self.found_mut(|found| {
            // A failed source keeps its keys: an issuer that is away must not end the access of its
            // users.
            let failure = [from_file.as_ref().err(), from_url.as_ref().err()]
                .into_iter()
                .flatten()
                .next();
            let failure = failure.map(|error| format!("{error:#}"));
            if let Some(error) = &failure {
                found.retries.failed(|failures| {
                    tracing::warn!(error, failures, "JWKS refresh failed; using cached keys");
                });
            } else {
                found.retries.succeeded(|failures| {
                    tracing::info!(failures, "JWKS refresh works again");
                });
                found.read = Some(Instant::now());
            }

            found.last_error = failure;
            found.from_file = from_file
                .ok()
                .flatten()
                .unwrap_or(std::mem::take(&mut found.from_file));
            found.from_url = from_url
                .ok()
                .flatten()
                .unwrap_or(std::mem::take(&mut found.from_url));
        });
    }

    async fn fetch_url(&self, url: &str) -> anyhow::Result<Vec<VerificationKey>> {
        let response = self.client.get(url).send().await?.error_for_status()?;
        let bytes = bounded_body(response, MAX_BYTES)
            .await
            .context(url.to_owned())?;
        set(&bytes).with_context(|| format!("{url} returned no key set"))
    }

    fn found_mut<T>(&self, change: impl FnOnce(&mut FetchedKeys) -> T) -> T {
        change(&mut self.found.write())
    }
}

/// Requirements of a key.
const EXPECTED_KEY: &str =
    "a JSON Web Key of type OKP (Ed25519), EC (P-256) or RSA, for signatures";

fn read_file(path: &Path) -> anyhow::Result<Vec<VerificationKey>> {
    set(&std::fs::read(path)?)
}

/// Returns the supported keys of a JSON Web Key Set; at least one is required.
fn set(bytes: &[u8]) -> anyhow::Result<Vec<VerificationKey>> {
    let mut value: Value = serde_json::from_slice(bytes).context("invalid JSON")?;
    let Value::Array(keys) = value["keys"].take() else {
        bail!("the list `keys` is missing")
    };

    // Other keys are skipped: an issuer can publish keys for encryption or of other types in the
    // same set.
    let keys: Vec<VerificationKey> = keys.into_iter().filter_map(usable).collect();
    if keys.is_empty() {
        bail!("no key is {EXPECTED_KEY}");
    }

    Ok(keys)
}

fn usable(value: Value) -> Option<VerificationKey> {
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let (algorithm, named) = match &jwk.algorithm {
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            (Algorithm::EdDSA, KeyAlgorithm::EdDSA)
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            (Algorithm::ES256, KeyAlgorithm::ES256)
        }
        AlgorithmParameters::RSA(_) => (Algorithm::RS256, KeyAlgorithm::RS256),
        _ => return None,
    };

    let signs = jwk
        .common
        .public_key_use
        .as_ref()
        .is_none_or(|of| *of == PublicKeyUse::Signature);
    let is_named = jwk.common.key_algorithm.is_none_or(|of| of == named);
    // A key for encryption, or for another algorithm, must not verify tokens.
    let key = DecodingKey::from_jwk(&jwk)
        .ok()
        .filter(|_| signs && is_named)?;

    Some(VerificationKey {
        id: jwk.common.key_id,
        algorithm,
        decoding: key,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str = r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

    #[test]
    fn non_signing_keys_are_skipped() {
        let encrypts = ED.replace(r#""kid":"a""#, r#""use":"enc""#);
        let shared = r#"{"kty":"oct","k":"AAAA"}"#;
        let keys =
            set(format!(r#"{{"keys":[{ED},{encrypts},{shared},{{"kty":"new"}}]}}"#).as_bytes())
                .unwrap();
        assert_eq!(
            keys.iter().map(|key| key.id.as_deref()).collect::<Vec<_>>(),
            [Some("a")]
        );
    }

    #[test]
    fn key_set_without_keys_is_rejected() {
        for invalid in [
            "",
            "{}",
            r#"{"keys":[]}"#,
            r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#,
        ] {
            assert!(set(invalid.as_bytes()).is_err(), "{invalid}");
        }
    }
}
