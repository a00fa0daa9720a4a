//! Authentication by the key of an actor or a peer: the request has an HTTP Message Signature (RFC
//! 9421).
//!
//! A signature is accepted once, within its time window, if it is by a known key that is valid now.
//! It authenticates the body by its digest, which the API compares while it reads the body.

use std::sync::Arc;

use http::HeaderMap;
use orlog_bus::nats::Connection;
use orlog_model::Clock;
use orlog_signature::{
    ContentDigest, KeyId, PublicKey, RequestSignature, RequestTarget, TimeWindow, fingerprint,
};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::caller::{AuthError, Caller};
use super::nonces::Nonces;
use super::shared_secret::FailureLog;
use super::signature_rejection::SignatureRejection;
use super::signer_keys::{ConfiguredKeys, Signer, SignerKey, SignerKeys};
use crate::config::Config;

/// Public key of test 1 in RFC 8032, in place of an unknown key: the response takes the same time
/// as for a wrong signature.
pub const UNKNOWN_KEY: [u8; 32] = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
    0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];

/// Caller of a signed request.
pub struct SignedCaller {
    /// Owner of the key, with its rights.
    pub caller: Caller,
    /// Digest that the body must have; `None` if the request has no body.
    pub digest: Option<ContentDigest>,
    /// Signature whose nonce is not accepted yet; `None` for a grant, which was taken.
    pub signature: Option<Box<RequestSignature>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ReasonLabel {
    reason: &'static str,
}

/// Authentication of signed requests.
pub struct SignedRequests {
    window: TimeWindow,
    clock: Arc<dyn Clock>,
    nonces: Nonces,
    configured: Arc<ConfiguredKeys>,
    registry: Arc<dyn SignerKeys>,
    availability: FailureLog,
    rejected: Family<ReasonLabel, Counter>,
}

impl SignedRequests {
    /// Opens the nonces and reads the actors and peers of a configuration, which precede those of
    /// the registry.
    ///
    /// # Errors
    /// If an actor is invalid, or if the nonces are not available.
    pub(crate) async fn open(
        config: &Config,
        connection: Option<&Connection>,
        clock: &Arc<dyn Clock>,
        registry: Arc<dyn SignerKeys>,
    ) -> anyhow::Result<Self> {
        let rejected = Family::<ReasonLabel, Counter>::default();
        for reason in SignatureRejection::REASONS {
            // The counters start at 0.
            drop(rejected.get_or_create(&ReasonLabel { reason }));
        }

        Ok(Self {
            window: config.auth.signatures.time_window(),
            clock: Arc::clone(clock),
            nonces: Nonces::open(config, connection, clock).await?,
            configured: Arc::new(ConfiguredKeys::new(config)?),
            registry,
            availability: FailureLog::default(),
            rejected,
        })
    }

    /// Returns the keys of the configuration, which a reload replaces.
    pub(crate) fn configured(&self) -> &Arc<ConfiguredKeys> {
        &self.configured
    }

    /// Returns the counters of rejected requests by reason.
    pub fn rejected(&self) -> Family<ReasonLabel, Counter> {
        self.rejected.clone()
    }

    /// Counts a rejection and returns its error.
    pub fn reject(&self, rejection: SignatureRejection) -> AuthError {
        let reason = rejection.reason();
        tracing::debug!(reason, detail = %rejection, "signed request rejected");
        self.rejected.get_or_create(&ReasonLabel { reason }).inc();
        AuthError::Signature(rejection)
    }

    /// Verifies the signature of a request; `None` if it has none of this profile. The request is
    /// authenticated when [`SignedRequests::accept`] has accepted the signature.
    ///
    /// # Errors
    /// If the signature is not valid.
    pub fn caller(
        &self,
        target: &RequestTarget<'_>,
        headers: &HeaderMap,
        has_body: bool,
    ) -> Result<Option<SignedCaller>, AuthError> {
        let read = RequestSignature::read(target, headers, has_body);
        let read = read.map_err(|error| self.reject(SignatureRejection::Unreadable(error)))?;
        let Some(signature) = read else {
            return Ok(None);
        };

        let key = self
            .verify(&signature)
            .map_err(|rejection| self.reject(rejection))?;
        Ok(Some(SignedCaller {
            caller: key.into_caller(signature.key_id),
            digest: signature.digest,
            signature: Some(Box::new(signature)),
        }))
    }

    /// Accepts a verified signature once. Each accepted signature stores its nonce, so that the
    /// quota of its caller applies before.
    ///
    /// # Errors
    /// If the signature was accepted before, or cannot be accepted at the moment.
    pub async fn accept(&self, signature: &RequestSignature) -> Result<(), AuthError> {
        // After a crash of the machine nonces may be lost; a signature that was accepted before
        // would be accepted again.
        if signature.created < self.nonces.accepted_from() {
            return Err(self.before_start());
        }
        let claimed = self.nonces.claim(signature).await;
        if !self.availability.check(claimed)? {
            return Err(self.reject(SignatureRejection::Replayed));
        }
        Ok(())
    }

    /// Creates a grant for a request that another pod executes.
    ///
    /// # Errors
    /// If the grant cannot be stored at the moment.
    pub async fn grant(
        &self,
        key: KeyId,
        target: &RequestTarget<'_>,
        headers: &HeaderMap,
    ) -> Result<String, AuthError> {
        self.availability
            .check(self.nonces.grant(key, fingerprint(target, headers)).await)
    }

    /// Authenticates a request that another pod forwards, by its grant.
    ///
    /// # Errors
    /// If the grant or the key is not accepted, or cannot be verified at the moment.
    pub async fn forwarded_caller(
        &self,
        secret: &str,
        target: &RequestTarget<'_>,
        headers: &HeaderMap,
    ) -> Result<Caller, AuthError> {
        let taken = self
            .nonces
            .take_grant(secret, fingerprint(target, headers))
            .await;
        let key_id = self
            .availability
            .check(taken)?
            .ok_or_else(|| self.reject(SignatureRejection::Grant))?;
        // The other pod verified the signature, but the key may have been revoked since.
        let key = self
            .find(key_id)
            .ok_or(SignatureRejection::NotAuthentic(key_id));
        let valid = key.and_then(|key| self.check_validity(key_id, key));

        Ok(valid
            .map_err(|rejection| self.reject(rejection))?
            .into_caller(key_id))
    }

    /// Checks whether signatures of a key are still accepted, for a response that lasts.
    ///
    /// # Errors
    /// If the key is unknown or not valid now.
    pub fn recheck(&self, key_id: KeyId) -> Result<(), AuthError> {
        let key = self
            .find(key_id)
            .ok_or(SignatureRejection::NotAuthentic(key_id));
        let valid = key.and_then(|key| self.check_validity(key_id, key));
        // Not counted: the request itself was accepted, only its response ends.
        valid.map(drop).map_err(AuthError::Signature)
    }

    /// Makes the nonces durable before the node stops.
    pub(crate) fn close(&self) {
        if let Err(error) = self.nonces.close() {
            tracing::warn!(%error, "nonces of signed requests not synced; after a reboot, older \
                signatures are rejected");
        }
    }

    pub(crate) fn verify(
        &self,
        signature: &RequestSignature,
    ) -> Result<SignerKey, SignatureRejection> {
        let key_id = signature.key_id;
        let found = self.find(key_id);

        // An unknown key costs as much as a wrong signature, so that the time of the response does
        // not reveal the known keys.
        let public_key = found.as_ref().map_or(UNKNOWN_KEY, |key| key.public_key);
        let is_valid = signature.is_by(&PublicKey::from(public_key));
        let key = found
            .filter(|_| is_valid)
            .ok_or(SignatureRejection::NotAuthentic(key_id))?;

        // Only a caller with the private key learns that the key is expired or revoked.
        let key = self.check_validity(key_id, key)?;
        let now = self.clock.now();
        let times = self.window.check(
            signature.created,
            signature.expires,
            now.as_millis().div_euclid(1000),
        );

        times.map_err(|error| SignatureRejection::Time(error, now))?;
        Ok(key)
    }

    fn check_validity(&self, id: KeyId, key: SignerKey) -> Result<SignerKey, SignatureRejection> {
        match key.invalidity(self.clock.now()) {
            Some(reason) => Err(SignatureRejection::InvalidKey(id, reason)),
            None => Ok(key),
        }
    }

    fn before_start(&self) -> AuthError {
        let now = self.clock.now();
        let wait = self
            .nonces
            .accepted_from()
            .saturating_sub(now.as_millis().div_euclid(1000));
        // Each new signature would be rejected, too: the client must wait, not only sign again.
        if wait > 0 {
            let detail = format!(
                "the machine of the node has crashed, and the node cannot exclude that it \
                 accepted the signature before; sign the request again in {wait}s"
            );
            return AuthError::Unavailable(detail);
        }

        self.reject(SignatureRejection::BeforeStart(now))
    }

    /// Returns the owner of a key, which may have ended.
    pub fn owner(&self, key_id: &str) -> Option<Signer> {
        let found = self
            .configured
            .find(key_id)
            .or_else(|| self.registry.find(key_id));
        found.map(|key| key.signer)
    }

    /// Returns the key with this id, from the configuration or the registry.
    fn find(&self, key_id: KeyId) -> Option<SignerKey> {
        let id = key_id.to_string();
        self.configured
            .find(&id)
            .or_else(|| self.registry.find(&id))
    }
}
