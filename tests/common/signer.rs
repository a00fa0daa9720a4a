//! Client that signs its requests with the key of an actor.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use orlog::config::{ActorConfig, ActorKeyConfig, Config};
use orlog_model::{ActorId, Clock as _};
use orlog_signature::{RequestTarget, SigningKey};
use serde_json::{Value, json};

/// Host of requests without a socket.
pub(crate) const HOST: &str = "localhost:7070";
const LIFETIME: Duration = Duration::from_mins(5);

/// Key of an actor.
pub(crate) struct Signer {
    pub(crate) key: SigningKey,
}

/// Request before it is signed.
#[derive(Clone)]
pub(crate) struct Draft {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
    /// Time of the signature relative to the clock, in seconds.
    pub(crate) offset: i64,
}

impl Draft {
    pub(crate) fn new(method: Method, tenant: &str, path: &str, body: impl Into<String>) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert("host", HeaderValue::from_static(HOST));
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        if !tenant.is_empty() {
            headers.insert("x-tenant-id", HeaderValue::from_str(tenant).unwrap());
        }
        Self {
            method,
            path: path.to_owned(),
            headers,
            body: body.into(),
            offset: 0,
        }
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        );
        self
    }

    /// Returns the request as it is now, also without a signature.
    pub(crate) fn request(&self) -> Request<Body> {
        let mut request = Request::new(Body::from(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.parse().unwrap();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

impl Signer {
    pub(crate) fn new() -> Self {
        Self {
            key: SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap(),
        }
    }

    /// Returns the actor with this key.
    pub(crate) fn actor(&self, role: &str, tenant: &str) -> ActorConfig {
        let public = self.key.public_key();
        let key = ActorKeyConfig {
            public,
            not_before: None,
            not_after: None,
            revoked: false,
        };
        let [roles, tenants] = [role, tenant].map(|name| vec![name.to_owned()]);
        ActorConfig {
            keys: vec![key],
            roles,
            tenants,
            groups: Vec::new(),
        }
    }

    /// Returns the body of a request that adds this key to an actor of the registry, with the proof of its holder.
    pub(crate) fn key_of(&self, actor: &str) -> Value {
        let created = orlog::SystemClock.now().as_millis() / 1000;
        let proof = self.key.prove_possession(actor, created).to_string();
        json!({ "public_key": self.key.public_key().to_string(), "proof": proof })
    }

    /// Adds the actor with this key to a configuration.
    pub(crate) fn join(&self, config: &mut Config, id: &str, role: &str, tenant: &str) {
        config
            .auth
            .actors
            .insert(ActorId::new(id).unwrap(), self.actor(role, tenant));
    }

    /// Signs a request.
    pub(crate) fn sign(&self, mut draft: Draft) -> Draft {
        let (path, query) = draft
            .path
            .split_once('?')
            .map_or((&*draft.path, None), |(p, q)| (p, Some(q)));
        let authority = draft.headers["host"].to_str().unwrap().to_owned();
        let method = draft.method.as_str();
        let target = RequestTarget {
            method,
            authority: &authority,
            path,
            query,
        };
        let created = orlog::SystemClock.now().as_millis() / 1000 + draft.offset;
        self.key
            .sign(
                &target,
                &mut draft.headers,
                draft.body.as_bytes(),
                created,
                LIFETIME,
            )
            .unwrap();
        draft
    }
}
