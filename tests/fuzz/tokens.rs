//! Signed tokens: only the unchanged token of the issuer is accepted.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orlog::config::{AuthMode, Config};
use orlog_testkit::fuzz::{Random, mutate};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use super::http::{FuzzRequest, Node};

/// Time after all tests (2100-01-01), in seconds.
const EXPIRY: i64 = 4_102_444_800;

/// Issuer with a key, and a valid token of it.
pub(super) struct Issuer {
    pair: Ed25519KeyPair,
    token: String,
}

impl Issuer {
    pub(super) fn new() -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let header = json!({ "alg": "EdDSA", "typ": "JWT", "kid": "a" });
        let claims = json!({
            "iss": "https://id.test/", "aud": "orlog", "sub": "ada", "exp": EXPIRY,
            "role": "admin", "tenant": "*",
        });
        let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(signed.as_bytes()));
        Self {
            pair,
            token: format!("{signed}.{signature}"),
        }
    }

    pub(super) fn configure(&self, config: &mut Config) {
        config.auth.mode = AuthMode::Jwt;
        "https://id.test/".clone_into(&mut config.auth.jwt.issuer);
        config.auth.jwt.audience = vec!["orlog".to_owned()];
        let key = json!({
            "kty": "OKP", "crv": "Ed25519", "kid": "a", "use": "sig",
            "x": URL_SAFE_NO_PAD.encode(self.pair.public_key().as_ref()),
        });
        config.auth.jwt.keys = vec![serde_json::from_value(key).unwrap()];
    }

    /// Returns the header `Authorization`: mostly a changed token, whose parts can have been decoded and encoded again.
    pub(super) fn make(&self, random: &mut Random) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> = self
            .token
            .split('.')
            .map(|part| part.as_bytes().to_vec())
            .collect();
        let at = random.below(parts.len());
        parts[at] = match URL_SAFE_NO_PAD.decode(&parts[at]) {
            Ok(plain) if random.once_in(2) => URL_SAFE_NO_PAD
                .encode(mutate(random, &plain, br#"{"alg":"none"}"#))
                .into_bytes(),
            _ => mutate(random, &parts[at].clone(), b"eyJhbGciOiJub25lIn0"),
        };
        let token = [b"Bearer ".as_slice(), &parts.join(&b'.')].concat();
        if random.once_in(8) {
            mutate(random, &token, b"Bearer ,")
        } else {
            token
        }
    }

    /// Returns whether the token is accepted, which only the unchanged one is.
    pub(super) fn run(&self, node: &Node, header: &[u8]) -> bool {
        let request = FuzzRequest {
            method: "GET",
            target: "/v1/sagas".to_owned(),
            headers: vec![("authorization", header.to_vec())],
            body: Vec::new(),
        };
        let Some((status, text)) = node.send(&request) else {
            return false;
        };
        let text_of_header = String::from_utf8_lossy(header);
        let sent = text_of_header.split_whitespace().nth(1).unwrap_or_default();
        if sent != self.token {
            assert_eq!(status, 401, "{text}");
        }
        status == 200
    }
}
