//! The keys that sign tokens: those of the configuration, of a file, and of the issuer, which may change them at any time.
//!
//! Keys that were fetched are kept while the issuer does not answer. A token signed with a key that is not known makes them be
//! fetched again, but never more often than `refetch_pause` allows: anybody can write such a token.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context as _, bail};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde_json::Value;
use tokio::time::Instant;

use super::caller::Denied;
use crate::config::Jwt;

/// The time that fetching may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest set of keys, in bytes.
const MAX_BYTES: usize = 1 << 20;
/// The longest id of a key that is repeated in an answer, in characters.
const SHOWN: usize = 64;

/// A key, and what it is good for.
#[derive(Clone)]
pub(super) struct Key {
    id: Option<String>,
    algorithm: Algorithm,
    pub(super) decoding: DecodingKey,
}

pub(super) struct Keys {
    fixed: Vec<Key>,
    file: Option<PathBuf>,
    url: Option<String>,
    client: reqwest::Client,
    refresh: Duration,
    pause: Duration,
    found: RwLock<Found>,
    /// Held by whoever fetches.
    turn: tokio::sync::Mutex<()>,
}

/// What was found in the file and at the URL.
#[derive(Default)]
struct Found {
    from_file: Vec<Key>,
    from_url: Vec<Key>,
    /// When a try was begun last.
    tried: Option<Instant>,
    /// When all of it was read last.
    read: Option<Instant>,
    trouble: Option<String>,
}

impl Keys {
    /// The keys of the configuration. A file that cannot be used is an error, an issuer that does not answer is not.
    pub(super) async fn new(config: &Jwt) -> anyhow::Result<Arc<Self>> {
        let fixed = config.keys.iter().enumerate().map(|(index, key)| {
            let key = serde_json::to_value(key).ok().and_then(usable);
            key.with_context(|| format!("auth.jwt.keys: number {} is no public key: {WANTED}", index + 1))
        });
        let keys = Arc::new(Self {
            fixed: fixed.collect::<Result<_, _>>()?,
            file: config.jwks_file.clone(),
            url: Some(config.jwks_url.clone()).filter(|url| !url.is_empty()),
            client: orlog_effect::http::client().timeout(PATIENCE).build()?,
            refresh: config.refresh,
            pause: config.refetch_pause,
            found: RwLock::default(),
            turn: tokio::sync::Mutex::default(),
        });
        if let Some(file) = &keys.file {
            keys.found_mut(|found| read_file(file).map(|read| found.from_file = read))
                .with_context(|| format!("auth.jwt.jwks_file: {}", file.display()))?;
        }
        keys.fetch().await;
        Ok(keys)
    }

    /// The keys with which a token may be signed that names this one, or none.
    pub(super) async fn fitting(
        self: &Arc<Self>,
        id: Option<&str>,
        algorithm: Algorithm,
    ) -> Result<Vec<Key>, Denied> {
        let known = self.known(id, algorithm);
        if !known.is_empty() {
            if self.is_stale() {
                let keys = Arc::clone(self);
                tokio::spawn(async move { keys.fetch().await });
            }
            return Ok(known);
        }
        self.fetch().await;
        let known = self.known(id, algorithm);
        if known.is_empty() { Err(self.unknown(id)) } else { Ok(known) }
    }

    fn known(&self, id: Option<&str>, algorithm: Algorithm) -> Vec<Key> {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        let fits = |key: &&Key| {
            key.algorithm == algorithm && (id.is_none() || key.id.is_none() || key.id.as_deref() == id)
        };
        self.fixed.iter().chain(&found.from_file).chain(&found.from_url).filter(fits).cloned().collect()
    }

    fn is_stale(&self) -> bool {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        let is_old = found.read.is_none_or(|read| read.elapsed() >= self.refresh);
        is_old && self.may_try(&found)
    }

    fn may_try(&self, found: &Found) -> bool {
        let changes = self.url.is_some() || self.file.is_some();
        changes && found.tried.is_none_or(|tried| tried.elapsed() >= self.pause)
    }

    fn unknown(&self, id: Option<&str>) -> Denied {
        let found = self.found.read().unwrap_or_else(PoisonError::into_inner);
        match &found.trouble {
            // Whether the token is good cannot be said: its key may be among those that were never seen.
            Some(trouble) if found.from_url.is_empty() => {
                Denied::Unknowable(format!("the keys of the issuer cannot be had: {trouble}"))
            }
            _ => {
                let id = id.map(|id| format!(" {:?}", id.chars().take(SHOWN).collect::<String>()));
                Denied::Disbelieved(format!(
                    "the token is signed with a key that is not known{}",
                    id.unwrap_or_default()
                ))
            }
        }
    }

    /// Reads the file and asks the issuer, unless that was done just now.
    async fn fetch(&self) {
        let _alone = self.turn.lock().await;
        let mut may = false;
        self.found_mut(|found| {
            may = self.may_try(found);
            if may {
                found.tried = Some(Instant::now());
            }
        });
        if !may {
            return;
        }
        let from_file = self.file.as_deref().map(read_file).transpose();
        let from_url = match &self.url {
            Some(url) => self.ask(url).await.map(Some),
            None => Ok(None),
        };
        self.found_mut(|found| {
            let trouble = [from_file.as_ref().err(), from_url.as_ref().err()].into_iter().flatten().next();
            let trouble = trouble.map(|error| format!("{error:#}"));
            if let Some(trouble) = &trouble {
                tracing::warn!(
                    trouble,
                    "the keys of tokens could not be read anew; those that are known stay"
                );
            } else {
                found.read = Some(Instant::now());
            }
            found.trouble = trouble;
            found.from_file = from_file.ok().flatten().unwrap_or(std::mem::take(&mut found.from_file));
            found.from_url = from_url.ok().flatten().unwrap_or(std::mem::take(&mut found.from_url));
        });
    }

    async fn ask(&self, url: &str) -> anyhow::Result<Vec<Key>> {
        let mut answer = self.client.get(url).send().await?.error_for_status()?;
        let mut bytes = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MAX_BYTES {
                bail!("{url} answers with more than {MAX_BYTES} bytes");
            }
        }
        set(&bytes).with_context(|| format!("{url} answers with no set of keys"))
    }

    fn found_mut<T>(&self, change: impl FnOnce(&mut Found) -> T) -> T {
        change(&mut self.found.write().unwrap_or_else(PoisonError::into_inner))
    }
}

/// What a key must be.
const WANTED: &str = "a JSON Web Key of the type OKP (Ed25519), EC (P-256) or RSA, for signatures";

fn read_file(path: &Path) -> anyhow::Result<Vec<Key>> {
    set(&std::fs::read(path)?)
}

/// The keys of a JSON Web Key Set that can be used here; there must be one.
fn set(bytes: &[u8]) -> anyhow::Result<Vec<Key>> {
    let mut value: Value = serde_json::from_slice(bytes).context("it is no JSON")?;
    let Value::Array(keys) = value["keys"].take() else { bail!("it has no list `keys`") };
    let keys: Vec<Key> = keys.into_iter().filter_map(usable).collect();
    if keys.is_empty() {
        bail!("none of its keys is {WANTED}");
    }
    Ok(keys)
}

fn usable(value: Value) -> Option<Key> {
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
    let signs = jwk.common.public_key_use.as_ref().is_none_or(|of| *of == PublicKeyUse::Signature);
    let is_named = jwk.common.key_algorithm.is_none_or(|of| of == named);
    let key = DecodingKey::from_jwk(&jwk).ok().filter(|_| signs && is_named)?;
    Some(Key { id: jwk.common.key_id, algorithm, decoding: key })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ED: &str =
        r#"{"kty":"OKP","crv":"Ed25519","kid":"a","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;

    #[test]
    fn keys_for_other_uses_are_left_out() {
        let encrypts = ED.replace(r#""kid":"a""#, r#""use":"enc""#);
        let shared = r#"{"kty":"oct","k":"AAAA"}"#;
        let keys =
            set(format!(r#"{{"keys":[{ED},{encrypts},{shared},{{"kty":"new"}}]}}"#).as_bytes()).unwrap();
        assert_eq!(keys.iter().map(|key| key.id.as_deref()).collect::<Vec<_>>(), [Some("a")]);
    }

    #[test]
    fn what_holds_no_key_is_refused() {
        for wrong in ["", "{}", r#"{"keys":[]}"#, r#"{"keys":[{"kty":"oct","k":"AAAA"}]}"#] {
            assert!(set(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
