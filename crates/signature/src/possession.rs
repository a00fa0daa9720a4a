//! Proof of possession: shows that an actor who states a public key holds its private key.
//!
//! The text is `v1.<created>.<signature>`: the time in seconds since 1970, the signature in
//! base64url. It covers the id of the actor, the id of the key and the time, so it proves nothing
//! for another actor or another key.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{Context, SHA256};

use crate::key::shortened;
use crate::{PublicKey, SigningKey};

/// Version of the text.
const VERSION: &str = "v1";
/// Start of the signed bytes, so that a proof is no signature of a request or an event.
const DOMAIN: &[u8] = b"orlog.key.v1";

/// Error of a text that is no proof.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a proof of possession; expected v1.<created>.<signature>, as `orlog key prove` \
    prints it"
)]
pub struct ProofError(String);

/// Proof that its creator holds a private key, before it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PossessionProof {
    created: i64,
    signature: Vec<u8>,
}

impl PossessionProof {
    /// Returns the time of its creation, in seconds since 1970.
    #[must_use]
    pub fn created(&self) -> i64 {
        self.created
    }

    /// Returns whether the holder of a key made it to become this actor.
    #[must_use]
    pub fn proves(&self, actor: &str, key: &PublicKey) -> bool {
        key.verifies(&signed_bytes(actor, key, self.created), &self.signature)
    }
}

impl fmt::Display for PossessionProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{VERSION}.{}.{}",
            self.created,
            URL_SAFE_NO_PAD.encode(&self.signature)
        )
    }
}

impl FromStr for PossessionProof {
    type Err = ProofError;

    fn from_str(text: &str) -> Result<Self, ProofError> {
        Self::parse(text).ok_or_else(|| ProofError(shortened(text)))
    }
}

impl PossessionProof {
    fn parse(text: &str) -> Option<Self> {
        let (created, signature) = text
            .strip_prefix(VERSION)?
            .strip_prefix('.')?
            .split_once('.')?;
        Some(Self {
            created: created.parse().ok()?,
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }
}

impl SigningKey {
    /// Returns the proof that an actor holds this key. `created` is in seconds since 1970.
    ///
    /// # Examples
    /// ```
    /// use orlog_signature::{PossessionProof, SigningKey};
    ///
    /// let key = SigningKey::from_pem(&SigningKey::generate_pem()?)?;
    /// let text = key.prove_possession("robo", 1764151200).to_string();
    /// let proof: PossessionProof = text.parse()?;
    /// assert!(proof.proves("robo", &key.public_key()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn prove_possession(&self, actor: &str, created: i64) -> PossessionProof {
        let signature = self.sign_message(&signed_bytes(actor, &self.public_key(), created));
        PossessionProof { created, signature }
    }
}

/// Returns the signed bytes: the SHA-256 of all parts, each preceded by its length.
fn signed_bytes(actor: &str, key: &PublicKey, created: i64) -> Vec<u8> {
    let mut hash = Context::new(&SHA256);

    // The lengths keep the boundaries of the parts.
    for part in [actor, &key.key_id().to_string(), &created.to_string()] {
        hash.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part.as_bytes());
    }
    [DOMAIN, hash.finish().as_ref()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    /// Requirements: F1.
    #[test]
    fn proof_is_valid_for_its_actor_its_key_and_its_time_only() {
        let (key, other) = (key(), key());
        let proof = key.prove_possession("robo", 1000);
        let public = key.public_key();
        assert!(proof.proves("robo", &public));
        assert!(!proof.proves("rob", &public) && !proof.proves("robo", &other.public_key()));
        let later = proof
            .to_string()
            .replace("v1.1000.", "v1.1001.")
            .parse::<PossessionProof>()
            .unwrap();
        assert!(!later.proves("robo", &public));
        // The statement of another holder for this key.
        let forged = PossessionProof {
            signature: other.sign_message(&signed_bytes("robo", &public, 1000)),
            ..proof
        };
        assert!(!forged.proves("robo", &public));
    }

    #[test]
    fn text_of_a_proof_is_read_again_and_others_are_rejected() {
        let proof = key().prove_possession("robo", -1);
        let text = proof.to_string();
        assert_eq!(text.parse(), Ok(proof));
        for invalid in [
            "",
            "v1",
            "v1.",
            "v1.1",
            "v1.x.AAAA",
            "v1.1.not base64",
            &text.replace("v1", "v2"),
        ] {
            assert!(invalid.parse::<PossessionProof>().is_err(), "{invalid}");
        }
    }

    /// The calculation of programs in other languages.
    #[test]
    fn signed_bytes_are_the_documented_ones() {
        let key = PublicKey::from([1; 32]);
        let id = key.key_id().to_string();
        let parts: Vec<u8> = ["robo", &id, "1764151200"]
            .iter()
            .flat_map(|part| [&(part.len() as u64).to_be_bytes(), part.as_bytes()].concat())
            .collect();
        let hash = ring::digest::digest(&SHA256, &parts);
        assert_eq!(
            signed_bytes("robo", &key, 1_764_151_200),
            [b"orlog.key.v1", hash.as_ref()].concat()
        );
    }
}
