//! Nonces of signed requests: each is accepted once, in files of the node, or in a stream that the
//! pods share.
//!
//! In a cluster, a pod forwards requests to the owner of a shard. The signature does not cover the
//! forwarded request, whose target can differ, and its nonce is used. The pod that verified the
//! signature therefore creates a grant: a secret that names the key and the forwarded request, and
//! that the owner takes once.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orlog_bus::nats::{Connection, NonceStream};
use orlog_model::Clock;
use orlog_signature::{KeyId, RequestSignature};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};

use super::nonce_log::NonceLog;
use crate::config::Config;

/// Directory of the files in the data directory.
const DIR: &str = "nonces";

/// Nonces of accepted requests.
pub(super) enum Nonces {
    /// Of this node.
    Local(Box<NonceLog>),
    /// Of all nodes on the NATS servers.
    Shared(Box<NonceStream>),
}

/// Record of a grant.
#[derive(serde::Serialize, serde::Deserialize)]
struct Grant {
    /// Id of the key that signed the request.
    key: String,
    /// Fingerprint of the forwarded request.
    request: String,
}

impl Nonces {
    /// Opens the nonces.
    ///
    /// # Errors
    /// If the files or the stream are not available.
    pub(super) async fn open(
        config: &Config,
        connection: Option<&Connection>,
        clock: &Arc<dyn Clock>,
    ) -> anyhow::Result<Self> {
        // Pods share the stream: a request that one has accepted must not be accepted by another.
        if let Some(connection) = connection {
            return Ok(Self::Shared(Box::new(NonceStream::open(connection).await?)));
        }
        let dir = config.data_dir.join(DIR);
        let window = config.auth.signatures.time_window();
        let clock = Arc::clone(clock);
        let open = tokio::task::spawn_blocking(move || NonceLog::open(&dir, window, clock));
        Ok(Self::Local(Box::new(open.await??)))
    }

    /// Accepts the nonce of a verified signature; `false` if it was accepted before.
    pub(super) async fn claim(&self, signature: &RequestSignature) -> anyhow::Result<bool> {
        // With the key: two signers may choose the same nonce.
        let hash = hash(&[&signature.key_id.to_string(), &signature.nonce]);
        match self {
            Nonces::Local(log) => Ok(log.claim(*hash.first_chunk().expect("32 bytes"))?),
            Nonces::Shared(stream) => Ok(stream.create(&hex::encode(hash), Vec::new()).await?),
        }
    }

    /// Returns the time before which the nonces of accepted signatures may be lost, in seconds
    /// since 1970.
    pub(super) fn accepted_from(&self) -> i64 {
        match self {
            Nonces::Local(log) => log.accepted_from(),
            Nonces::Shared(_) => i64::MIN,
        }
    }

    /// Creates a grant for a request that another pod executes, and returns its secret.
    pub(super) async fn grant(&self, key: KeyId, request: [u8; 32]) -> anyhow::Result<String> {
        let Nonces::Shared(stream) = self else {
            anyhow::bail!("the node has no other pods")
        };

        let mut secret = [0; 32];
        SystemRandom::new()
            .fill(&mut secret)
            .map_err(|_| anyhow::anyhow!("no random bytes"))?;

        let secret = URL_SAFE_NO_PAD.encode(secret);

        // The stream stores only a hash of the secret as the name, so that a reader of the stream
        // cannot use the grant.
        let grant = Grant {
            key: key.to_string(),
            request: hex::encode(request),
        };
        let created = stream
            .create(&grant_name(&secret), serde_json::to_vec(&grant)?)
            .await?;

        anyhow::ensure!(created, "the name of a random grant exists");
        Ok(secret)
    }

    /// Takes a grant, and returns the key if the grant is for the request. A grant is valid once.
    pub(super) async fn take_grant(
        &self,
        secret: &str,
        request: [u8; 32],
    ) -> anyhow::Result<Option<KeyId>> {
        let Nonces::Shared(stream) = self else {
            return Ok(None);
        };
        // Taken before the comparison: an attempt with another request uses up the grant, too.
        let Some(body) = stream.take(&grant_name(secret)).await? else {
            return Ok(None);
        };

        let grant: Grant = serde_json::from_slice(&body)?;

        // The grant is for one request: the pod that received it could otherwise send another one
        // in the name of the caller.
        let is_same = grant.request == hex::encode(request);
        Ok(grant.key.parse().ok().filter(|_| is_same))
    }

    /// Makes the nonces durable before the node stops.
    pub(super) fn close(&self) -> std::io::Result<()> {
        match self {
            Nonces::Local(log) => log.close(),
            Nonces::Shared(_) => Ok(()),
        }
    }
}

fn grant_name(secret: &str) -> String {
    hex::encode(hash(&["grant", secret]))
}

fn hash(parts: &[&str]) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for part in parts {
        // With the length: otherwise other parts with the same concatenation would have the same
        // hash.
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hasher.finalize().into()
}
