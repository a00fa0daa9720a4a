//! Authentication by signed tokens (JSON Web Tokens, RFC 7519 and RFC 8725).

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use orlog_model::Clock as _;
use serde_json::{Map, Value};

use super::caller::{AuthError, Caller, RequestCredentials, TenantScope, is_user_name};
use super::denied::{DeniedFile, TokenIds};
use super::keys::KeySet;
use super::rights::Roles;
use super::{shared_secret, verifier};
use crate::clock::SystemClock;
use crate::config::JwtConfig;

/// Maximum length of a token in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
const SCHEME: &str = "bearer ";
/// Optional prefix of a token type (RFC 7515, 4.1.9).
const TYPE_PREFIX: &str = "application/";

/// Verified token: its caller, and the ids with which it can be denied.
#[derive(Clone)]
pub(super) struct VerifiedToken {
    pub(super) caller: Caller,
    pub(super) jti: Option<String>,
    pub(super) kid: Option<String>,
}

pub(super) struct JwtAuth {
    keys: Arc<KeySet>,
    config: JwtConfig,
    denied: Option<DeniedFile>,
}

impl JwtAuth {
    pub(super) async fn new(config: &JwtConfig) -> anyhow::Result<Self> {
        verifier::install();
        let denied = config
            .denied_file
            .as_deref()
            .map(DeniedFile::open)
            .transpose();
        let denied = denied.context("auth.jwt.denied_file")?;

        Ok(Self {
            keys: KeySet::new(config).await?,
            config: config.clone(),
            denied,
        })
    }

    pub(super) async fn caller(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> Result<Caller, AuthError> {
        let header = credentials.header("authorization")?;
        let header = header
            .ok_or_else(|| AuthError::Missing("the Authorization header is missing".to_owned()))?;
        let token = header
            .get(SCHEME.len()..)
            // The index is a character boundary, because `get` has returned a text: the slice
            // cannot panic.
            .filter(|_| header[..SCHEME.len()].eq_ignore_ascii_case(SCHEME));
        let token = token
            .map(str::trim)
            .ok_or_else(|| invalid_token("the Authorization header contains no bearer token"))?;
        let (claims, kid) = self.claims(token, &self.config.audience).await?;

        Ok(self.verified(&claims, kid)?.caller)
    }

    /// Verifies the ID token of a log-in: its client and its nonce, and everything that applies to
    /// other tokens.
    pub(super) async fn id_token(
        &self,
        token: &str,
        client_id: &str,
        nonce: &str,
    ) -> Result<VerifiedToken, AuthError> {
        // The audience of an ID token is the client, not the API.
        let (claims, kid) = self.claims(token, &[client_id.to_owned()]).await?;
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        if !text("nonce").is_some_and(|found| shared_secret::is_same(found, nonce)) {
            return Err(invalid_token(
                "the ID token belongs to another log-in (nonce)",
            ));
        }

        // A token with several audiences names the client that it was issued to.
        if text("azp").is_some_and(|party| party != client_id) {
            return Err(invalid_token(
                "the ID token belongs to another client (azp)",
            ));
        }

        self.verified(&claims, kid)
    }

    /// Returns the caller of verified claims.
    fn verified(
        &self,
        claims: &Map<String, Value>,
        kid: Option<String>,
    ) -> Result<VerifiedToken, AuthError> {
        self.check_age(claims)?;
        let name = claims
            .get("sub")
            .and_then(Value::as_str)
            .filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| invalid_token("the token has no claim sub"))?;

        // Events, history entries and audit records contain the name.
        if !is_user_name(name) {
            return Err(invalid_token(
                "the claim sub is too long or contains control characters",
            ));
        }

        let groups = texts(claim(claims, &self.config.groups_claim)).into_iter();
        let caller = Caller {
            name: Some(name.to_owned()),
            roles: Roles::of(texts(claim(claims, &self.config.role_claim))),
            tenants: TenantScope::of(texts(claim(claims, &self.config.tenant_claim))),
            task_roles: groups.map(str::to_owned).collect(),
            actor: None,
            peer: None,
            key: None,
            named_user: None,
        };

        let jti = claims.get("jti").and_then(Value::as_str).map(str::to_owned);
        let token = VerifiedToken { caller, jti, kid };

        if self.is_denied(&token) {
            Err(invalid_token("the token is revoked"))
        } else {
            Ok(token)
        }
    }

    /// Returns whether the token is revoked.
    pub(super) fn is_denied(&self, token: &VerifiedToken) -> bool {
        // `verified` has set the name to the subject of the token.
        let sub = token.caller.name.as_deref().unwrap_or_default();
        let ids = TokenIds {
            jti: token.jti.as_deref(),
            kid: token.kid.as_deref(),
            sub,
        };

        self.denied
            .as_ref()
            .is_some_and(|denied| denied.current().contains(&ids))
    }

    /// Checks the time at which the token was issued.
    fn check_age(&self, claims: &Map<String, Value>) -> Result<(), AuthError> {
        // The library does not verify this claim.
        let issued = claims.get("iat").and_then(Value::as_f64);
        let Some(issued) = issued.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        else {
            return match self.config.max_age {
                Some(_) => Err(invalid_token("the token has no claim iat")),
                None => Ok(()),
            };
        };

        let now =
            Duration::from_millis(SystemClock.now().as_millis().try_into().unwrap_or_default());
        if issued > now + self.config.leeway {
            return Err(invalid_token("the token is not valid yet"));
        }

        match self.config.max_age {
            Some(limit) if now > issued + limit + self.config.leeway => {
                Err(invalid_token("the token is older than this node permits"))
            }
            _ => Ok(()),
        }
    }

    /// Checks the type of the token: a token for another purpose (logout, proof of possession) is
    /// not accepted.
    fn check_type(&self, kind: Option<&str>) -> Result<(), AuthError> {
        let Some(kind) = kind else { return Ok(()) };
        let short = kind
            .get(..TYPE_PREFIX.len())
            .filter(|prefix| prefix.eq_ignore_ascii_case(TYPE_PREFIX));
        let short = short.map_or(kind, |_| &kind[TYPE_PREFIX.len()..]);
        if self
            .config
            .types
            .iter()
            .any(|known| known.eq_ignore_ascii_case(short))
        {
            return Ok(());
        }

        Err(invalid_token("the token has another type (typ)"))
    }

    /// Returns the verified claims of a token, and the id of its key.
    async fn claims(
        &self,
        token: &str,
        audience: &[String],
    ) -> Result<(Map<String, Value>, Option<String>), AuthError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(invalid_token("the token is too long"));
        }

        let header = jsonwebtoken::decode_header(token)
            .map_err(|_| invalid_token("the token is not a signed JWT"))?;
        // RFC 7515 (4.1.11): a recipient rejects extensions that it does not support.
        if header.crit.is_some() {
            return Err(invalid_token(
                "the token requires unknown extensions (crit)",
            ));
        }

        self.check_type(header.typ.as_deref())?;
        // The sender chooses the algorithm, but `matching` returns only keys for which it is
        // permitted.
        let validation = self.validation(header.alg, audience);
        let mut last = invalid_token("no key matches the token");
        for key in self
            .keys
            .matching(header.kid.as_deref(), header.alg)
            .await?
        {
            match jsonwebtoken::decode(token, &key.decoding, &validation) {
                Ok(read) => return Ok((read.claims, header.kid)),
                Err(error) => last = invalid_token(explained(error.kind())),
            }
        }

        Err(last)
    }

    fn validation(&self, algorithm: Algorithm, audience: &[String]) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.leeway = self.config.leeway.as_secs();
        validation.validate_nbf = true;
        validation.set_issuer(&[&self.config.issuer]);
        validation.set_audience(audience);
        // The library skips the check of a claim that is neither present nor required.
        validation.required_spec_claims = HashSet::from(["exp", "iss", "aud"].map(str::to_owned));
        validation
    }
}

fn invalid_token(reason: impl Into<String>) -> AuthError {
    AuthError::Invalid(reason.into())
}

/// Returns a claim by its name, or by a dotted path if it is nested.
fn claim<'a>(claims: &'a Map<String, Value>, name: &str) -> Option<&'a Value> {
    claims.get(name).or_else(|| {
        let (first, rest) = name.split_once('.')?;
        claim(claims.get(first)?.as_object()?, rest)
    })
}

/// Returns one text, or the texts of a list.
fn texts(value: Option<&Value>) -> Vec<&str> {
    match value {
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

fn explained(kind: &ErrorKind) -> String {
    match kind {
        ErrorKind::ExpiredSignature => "the token has expired".to_owned(),
        ErrorKind::ImmatureSignature => "the token is not valid yet".to_owned(),
        ErrorKind::InvalidIssuer => "the token has another issuer (iss)".to_owned(),
        ErrorKind::InvalidAudience => "the token has another audience (aud)".to_owned(),
        ErrorKind::MissingRequiredClaim(claim) => format!("the token has no claim {claim}"),
        ErrorKind::InvalidSignature => "the signature of the token is invalid".to_owned(),
        _ => "the token is invalid".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn claims_are_found_by_name_or_path() {
        let claims = json!({ "a.b": "x", "a": { "b": "y", "c": { "d": ["z", 1, "w"] } } });
        let claims = claims.as_object().unwrap();
        assert_eq!(texts(claim(claims, "a.b")), ["x"]);
        assert_eq!(texts(claim(claims, "a.c.d")), ["z", "w"]);
        assert_eq!(claim(claims, "a.x"), None);
        assert_eq!(claim(claims, "a.b.c"), None);
        assert!(texts(Some(&json!(7))).is_empty());
    }
}
