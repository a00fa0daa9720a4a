//! Token issuer: has keys, publishes them at a URL, and signs tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// Issuer claim.
pub(crate) const ISSUER: &str = "https://id.test/";
/// Audience claim.
pub(crate) const AUDIENCE: &str = "orlog";

enum Pair {
    Ed(Ed25519KeyPair),
    P256(EcdsaKeyPair),
}

/// Signing key with its id.
pub(crate) struct Key {
    id: String,
    pair: Pair,
}

impl Key {
    pub(crate) fn ed(id: &str) -> Self {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Pair::Ed(Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap());
        Self {
            id: id.to_owned(),
            pair,
        }
    }

    pub(crate) fn p256(id: &str) -> Self {
        let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        let pair =
            Pair::P256(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap());
        Self {
            id: id.to_owned(),
            pair,
        }
    }

    /// Returns the public key as a JSON Web Key.
    pub(crate) fn public(&self) -> Value {
        match &self.pair {
            Pair::Ed(pair) => json!({
                "kty": "OKP", "crv": "Ed25519", "kid": self.id, "use": "sig",
                "x": URL_SAFE_NO_PAD.encode(pair.public_key().as_ref()),
            }),
            Pair::P256(pair) => {
                let point = pair.public_key().as_ref();
                json!({
                    "kty": "EC", "crv": "P-256", "kid": self.id, "alg": "ES256",
                    "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..]),
                })
            }
        }
    }

    /// Returns a token with these claims.
    pub(crate) fn sign(&self, claims: &Value) -> String {
        let algorithm = match &self.pair {
            Pair::Ed(_) => "EdDSA",
            Pair::P256(_) => "ES256",
        };
        self.sign_under(
            &json!({ "alg": algorithm, "typ": "JWT", "kid": self.id }),
            claims,
        )
    }

    /// Returns a token with this header.
    pub(crate) fn sign_under(&self, header: &Value, claims: &Value) -> String {
        let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", encoded(header), encoded(claims));
        let signature = match &self.pair {
            Pair::Ed(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
            Pair::P256(pair) => pair
                .sign(&SystemRandom::new(), message.as_bytes())
                .unwrap()
                .as_ref()
                .to_vec(),
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }

    /// Returns a token of a user.
    pub(crate) fn token(&self, user: &str, role: &str, tenants: &Value) -> String {
        self.sign(&claims(user, role, tenants))
    }
}

/// Returns claims that are valid for ten minutes.
pub(crate) fn claims(user: &str, role: &str, tenants: &Value) -> Value {
    let now = seconds();
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "sub": user, "role": role, "tenant": tenants, "iat": now, "nbf": now - 5,
        "exp": now + 600,
    })
}

/// Returns the seconds since 1970.
pub(crate) fn seconds() -> u64 {
    u64::try_from(orlog_model::Clock::now(&orlog::SystemClock).as_millis()).unwrap() / 1000
}

/// Server of public keys at a URL.
pub(crate) struct Jwks {
    pub(crate) url: String,
    pub(crate) requests: Arc<AtomicU64>,
    pub(crate) away: Arc<AtomicBool>,
    keys: Arc<Mutex<Vec<Value>>>,
}

impl Jwks {
    pub(crate) async fn open(keys: &[&Key]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks.json", listener.local_addr().unwrap());
        let jwks = Self {
            url,
            requests: Arc::default(),
            away: Arc::default(),
            keys: Arc::default(),
        };
        jwks.publish(keys);
        let (requests, away, keys) = (
            Arc::clone(&jwks.requests),
            Arc::clone(&jwks.away),
            Arc::clone(&jwks.keys),
        );
        let handler = move || {
            requests.fetch_add(1, Ordering::SeqCst);
            let keys = json!({ "keys": *keys.lock() }).to_string();
            let status = if away.load(Ordering::SeqCst) {
                StatusCode::BAD_GATEWAY
            } else {
                StatusCode::OK
            };
            async move { (status, keys) }
        };
        let router = Router::new().route("/jwks.json", get(handler));
        tokio::spawn(async move { axum::serve(listener, router).await });
        jwks
    }

    pub(crate) fn publish(&self, keys: &[&Key]) {
        *self.keys.lock() = keys.iter().map(|key| key.public()).collect();
    }

    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::SeqCst)
    }
}
