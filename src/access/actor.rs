//! Actor: an identity with public keys, independent of tenants, and the invitation to enroll one.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use orlog_model::{ActorId, Timestamp};
use orlog_signature::PublicKey;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::change::Change;

/// Maximum number of keys of an actor, including revoked ones.
const MAX_KEYS: usize = 50;
/// Prefix of the text of a public key.
const PREFIX: &str = "ed25519:";

/// Key of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActorKey {
    /// Id: the thumbprint of the key.
    pub id: String,
    /// Public key.
    #[serde(with = "public_key")]
    pub public_key: PublicKey,
    /// Time from which the key is valid.
    pub valid_from: Timestamp,
    /// Time until which the key is valid; `None`: without an end.
    pub valid_until: Option<Timestamp>,
    /// Time at which the key was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// Invitation to enroll a key; it contains only the hash of its token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Invitation {
    /// SHA-256 of the token, in hexadecimal.
    pub token_hash: String,
    /// Time until which the token is valid.
    pub expires_at: Timestamp,
    /// Id of the key that the token enrolled; `None`: it is not used.
    pub used_by: Option<String>,
}

/// One-time token of an invitation.
pub struct InvitationToken(String);

/// Record of an actor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Actor {
    /// Keys, also revoked and expired ones.
    pub keys: Vec<ActorKey>,
    /// Addresses at which the actor receives messages, for example URLs.
    pub addresses: BTreeSet<String>,
    /// The last invitation.
    pub invitation: Option<Invitation>,
    /// Time of the creation.
    pub created_at: Timestamp,
    /// The last changes.
    pub changes: Vec<Change>,
}

/// Reason why a key cannot be added or enrolled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The id or the key exists.
    #[error("the key {0} exists already; a revoked key cannot be added again")]
    Exists(String),
    /// The actor has no such key.
    #[error("the actor {actor} has no key {key:?}")]
    Missing {
        /// Actor.
        actor: ActorId,
        /// Id of the key.
        key: String,
    },
    /// The actor has too many keys.
    #[error("an actor has at most {MAX_KEYS} keys, including revoked ones; create another actor")]
    TooMany,
    /// The token is wrong, expired or used.
    #[error("the invitation is invalid, expired or used; ask an administrator for another one")]
    Invitation,
}

/// Base64 in the URL-safe alphabet, read with or without padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_encode_padding(false)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads a public key as base64, in the standard or the URL-safe alphabet, with or without the prefix `ed25519:`.
///
/// # Errors
/// If the text is not base64 of 32 bytes.
pub(super) fn parse_public_key(text: &str) -> Result<PublicKey, String> {
    let text = text.strip_prefix(PREFIX).unwrap_or(text).replace('+', "-").replace('/', "_");
    let key = BASE64.decode(text).ok().and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    key.map(PublicKey::from)
        .ok_or_else(|| "expected an Ed25519 public key: ed25519: and base64 of 32 bytes".to_owned())
}

/// Public key as a text.
pub(super) mod public_key {
    use super::{Deserialize as _, Deserializer, PublicKey, Serializer, de, parse_public_key};

    pub(in crate::access) fn serialize<S: Serializer>(
        key: &PublicKey,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(key)
    }

    pub(in crate::access) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PublicKey, D::Error> {
        parse_public_key(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl ActorKey {
    /// Returns whether signatures of the key are accepted at a time.
    #[must_use]
    pub fn is_valid(&self, at: Timestamp) -> bool {
        let has_ended = |end: Option<Timestamp>| end.is_some_and(|end| end <= at);
        self.valid_from <= at && !has_ended(self.valid_until) && !has_ended(self.revoked_at)
    }
}

impl InvitationToken {
    /// Creates a random token of 256 bits.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn random() -> anyhow::Result<Self> {
        let mut bytes = [0; 32];
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| anyhow::anyhow!("the system has no random numbers"))?;
        Ok(Self(hex::encode(bytes)))
    }

    /// Returns the token as text.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    fn hash(token: &str) -> String {
        hex::encode(Sha256::digest(token))
    }
}

impl Actor {
    /// Creates an actor without keys.
    #[must_use]
    pub fn new(at: Timestamp) -> Self {
        let (keys, addresses, invitation, changes) = Default::default();
        Self { keys, addresses, invitation, created_at: at, changes }
    }

    /// Adds a key.
    ///
    /// # Errors
    /// [`KeyError::Exists`], [`KeyError::TooMany`].
    pub fn add_key(&mut self, key: ActorKey, at: Timestamp, by: Option<String>) -> Result<(), KeyError> {
        if self.keys.iter().any(|known| known.id == key.id || known.public_key == key.public_key) {
            return Err(KeyError::Exists(key.id));
        }
        if self.keys.len() >= MAX_KEYS {
            return Err(KeyError::TooMany);
        }
        let added = vec![format!("key {}", key.id)];
        Change { at, by, added, removed: Vec::new() }.append_to(&mut self.changes);
        self.keys.push(key);
        Ok(())
    }

    /// Ends the validity of a key that another one replaces. A key that ends earlier is not extended.
    ///
    /// # Errors
    /// [`KeyError::Missing`].
    pub fn retire_key(&mut self, actor: &ActorId, id: &str, end: Timestamp) -> Result<(), KeyError> {
        let key = self.key_mut(actor, id)?;
        key.valid_until = Some(key.valid_until.map_or(end, |known| known.min(end)));
        Ok(())
    }

    /// Revokes a key at once. Returns `false` if it is revoked already.
    ///
    /// # Errors
    /// [`KeyError::Missing`].
    pub fn revoke_key(
        &mut self,
        actor: &ActorId,
        id: &str,
        at: Timestamp,
        by: Option<String>,
    ) -> Result<bool, KeyError> {
        let key = self.key_mut(actor, id)?;
        if key.revoked_at.is_some() {
            return Ok(false);
        }
        key.revoked_at = Some(at);
        Change { at, by, added: Vec::new(), removed: vec![format!("key {id}")] }.append_to(&mut self.changes);
        Ok(true)
    }

    /// Replaces the addresses. Returns `false` if nothing changes.
    pub fn replace_addresses(
        &mut self,
        addresses: BTreeSet<String>,
        at: Timestamp,
        by: Option<String>,
    ) -> bool {
        let [added, removed] =
            [(&addresses, &self.addresses), (&self.addresses, &addresses)].map(|(one, other)| {
                one.difference(other).map(|address| format!("address {address}")).collect::<Vec<_>>()
            });
        let is_change = !added.is_empty() || !removed.is_empty();
        if is_change {
            Change { at, by, added, removed }.append_to(&mut self.changes);
            self.addresses = addresses;
        }
        is_change
    }

    /// Invites the actor to enroll one key. An earlier invitation becomes invalid.
    pub fn invite(
        &mut self,
        token: &InvitationToken,
        expires_at: Timestamp,
        at: Timestamp,
        by: Option<String>,
    ) {
        let token_hash = InvitationToken::hash(token.expose());
        self.invitation = Some(Invitation { token_hash, expires_at, used_by: None });
        Change { at, by, added: vec!["invitation".to_owned()], removed: Vec::new() }
            .append_to(&mut self.changes);
    }

    /// Enrolls a key with the token of the invitation. Returns `false` if this token has enrolled this key already.
    ///
    /// # Errors
    /// [`KeyError::Invitation`] and the errors of [`Self::add_key`].
    pub fn enroll(&mut self, token: &str, key: ActorKey, at: Timestamp) -> Result<bool, KeyError> {
        let invitation = self.invitation.as_ref().ok_or(KeyError::Invitation)?;
        let is_same = InvitationToken::hash(token).as_bytes().ct_eq(invitation.token_hash.as_bytes());
        if !bool::from(is_same) || invitation.expires_at <= at {
            return Err(KeyError::Invitation);
        }
        if let Some(used_by) = &invitation.used_by {
            let is_repeated =
                self.keys.iter().any(|known| known.id == *used_by && known.public_key == key.public_key);
            return if is_repeated { Ok(false) } else { Err(KeyError::Invitation) };
        }
        let id = key.id.clone();
        self.add_key(key, at, None)?;
        if let Some(invitation) = &mut self.invitation {
            invitation.used_by = Some(id);
        }
        Ok(true)
    }

    fn key_mut(&mut self, actor: &ActorId, id: &str) -> Result<&mut ActorKey, KeyError> {
        let missing = || KeyError::Missing { actor: actor.clone(), key: id.to_owned() };
        self.keys.iter_mut().find(|key| key.id == id).ok_or_else(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn key(number: u8) -> ActorKey {
        let public_key = PublicKey::from([number; 32]);
        ActorKey {
            id: public_key.key_id().to_string(),
            public_key,
            valid_from: at(10),
            valid_until: None,
            revoked_at: None,
        }
    }

    #[test]
    fn public_key_is_base64_of_32_bytes() {
        let key = PublicKey::from([0xfb; 32]);
        let text = key.to_string();
        assert_eq!(parse_public_key(&text).unwrap(), key);
        for other in [text.replace('-', "+").replace('_', "/") + "=", text.replace("ed25519:", "")] {
            assert_eq!(parse_public_key(&other).unwrap(), key, "{other}");
        }
        // The example of RFC 8037.
        let example = parse_public_key("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
        assert_eq!(example.key_id().to_string(), "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        for invalid in ["", "AAAA", "not base64", "rsa:AAAA", &"A".repeat(60)] {
            assert!(parse_public_key(invalid).unwrap_err().contains("base64 of 32 bytes"), "{invalid}");
        }
    }

    #[test]
    fn key_is_valid_from_its_start_to_its_end_or_revocation() {
        let mut actor = Actor::new(at(1));
        let (id, robo) = (key(1).id, ActorId::new("robo").unwrap());
        actor.add_key(key(1), at(5), None).unwrap();
        let valid = |actor: &Actor| {
            [9, 10, 19, 20, 30].map(at).into_iter().filter(|at| actor.keys[0].is_valid(*at)).count()
        };
        assert_eq!(valid(&actor), 4);
        actor.retire_key(&robo, &id, at(30)).unwrap();
        assert_eq!(valid(&actor), 3);
        actor.retire_key(&robo, &id, at(40)).unwrap();
        assert_eq!(valid(&actor), 3, "a rotation extends no key");
        assert!(actor.revoke_key(&robo, &id, at(20), None).unwrap());
        assert!(!actor.revoke_key(&robo, &id, at(30), None).unwrap());
        assert_eq!(valid(&actor), 2);
        assert!(
            matches!(actor.add_key(key(1), at(50), None), Err(KeyError::Exists(_))),
            "a revoked key stays revoked"
        );
        let missing = actor.revoke_key(&robo, "none", at(30), None).unwrap_err().to_string();
        assert!(missing.contains("robo") && missing.contains("none"), "{missing}");
    }

    #[test]
    fn invitation_enrolls_one_key() {
        let (mut actor, token) = (Actor::new(at(1)), InvitationToken::random().unwrap());
        assert_eq!(actor.enroll(token.expose(), key(1), at(5)), Err(KeyError::Invitation));
        actor.invite(&token, at(100), at(2), Some("ada".to_owned()));
        assert!(!serde_json::to_string(&actor).unwrap().contains(token.expose()), "only its hash is stored");
        assert_eq!(
            actor.clone().enroll(token.expose(), key(1), at(100)),
            Err(KeyError::Invitation),
            "expired"
        );
        assert_eq!(actor.enroll("wrong", key(1), at(5)), Err(KeyError::Invitation));
        assert_eq!(actor.enroll(token.expose(), key(1), at(5)), Ok(true));
        assert_eq!(actor.enroll(token.expose(), key(1), at(6)), Ok(false), "its response may be lost");
        assert_eq!(actor.enroll(token.expose(), key(2), at(6)), Err(KeyError::Invitation));
        let another = InvitationToken::random().unwrap();
        actor.invite(&another, at(100), at(7), None);
        assert_eq!(actor.enroll(token.expose(), key(2), at(8)), Err(KeyError::Invitation));
        assert_eq!(actor.enroll(another.expose(), key(2), at(8)), Ok(true));
        assert_eq!(actor.keys.len(), 2);
    }
}
