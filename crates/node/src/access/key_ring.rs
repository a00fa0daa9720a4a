//! Public keys of an actor or a peer, with their validity.

use std::fmt::Display;
use std::ops::Deref;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use orlog_model::Timestamp;
use orlog_signature::PublicKey;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Maximum number of keys that are valid now or later.
const MAX_KEYS: usize = 50;
/// Maximum number of keys that have ended; the oldest ones are removed. They verify events that the
/// bus stored before their end.
const MAX_ENDED_KEYS: usize = 200;
/// Prefix of the text of a public key.
const PREFIX: &str = "ed25519:";

/// Public key with its validity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key {
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
    /// Replacement that ends the validity; `None`: it has no end, or an end that was chosen for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replacement: Option<Replacement>,
}

/// Replacement of a key that its owner omits, which can be reversed while the key is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Replacement {
    /// End of the validity without the replacement; `None`: without an end.
    valid_until: Option<Timestamp>,
}

/// Keys of one owner, also revoked and expired ones, of which it keeps the last 200.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyRing(Vec<Key>);

/// Reason why keys cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The id or the key exists.
    #[error("the key {0} exists already; a revoked key cannot be added again")]
    Exists(String),
    /// There is no such key.
    #[error("the {owner} has no key {key:?}")]
    Missing {
        /// Owner, for example `actor robo`.
        owner: String,
        /// Id of the key.
        key: String,
    },
    /// There are too many keys.
    #[error(
        "at most {MAX_KEYS} keys that are valid now or later; revoke one, or wait until a replaced \
         one has ended"
    )]
    TooMany,
    /// The token of an invitation is wrong, expired or used.
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

/// Reads a public key as base64, in the standard or the URL-safe alphabet, with or without the
/// prefix `ed25519:`.
///
/// # Errors
/// If the text is not base64 of 32 bytes.
fn parse_public_key(text: &str) -> Result<PublicKey, String> {
    let text = text
        .strip_prefix(PREFIX)
        .unwrap_or(text)
        .replace('+', "-")
        .replace('/', "_");
    let key = BASE64
        .decode(text)
        .ok()
        .and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());

    key.map(PublicKey::from)
        .ok_or_else(|| "expected an Ed25519 public key: ed25519: and base64 of 32 bytes".to_owned())
}

/// Public key as a text.
pub mod public_key {
    use super::{Deserialize as _, Deserializer, PublicKey, Serializer, de, parse_public_key};

    /// Writes `ed25519:` and the key in base64.
    ///
    /// # Errors
    /// If the serializer fails.
    pub fn serialize<S: Serializer>(key: &PublicKey, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(key)
    }

    /// Reads what [`serialize`] writes.
    ///
    /// # Errors
    /// If the text is not such a key.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PublicKey, D::Error> {
        parse_public_key(&String::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Key {
    /// Creates a key that is valid from a time on.
    #[must_use]
    pub fn new(public_key: PublicKey, valid_from: Timestamp) -> Self {
        let id = public_key.key_id().to_string();
        Self {
            id,
            public_key,
            valid_from,
            valid_until: None,
            revoked_at: None,
            replacement: None,
        }
    }

    /// Returns whether signatures of the key are accepted at a time.
    #[must_use]
    pub fn is_valid(&self, at: Timestamp) -> bool {
        self.valid_from <= at && !self.has_ended(at)
    }

    fn has_ended(&self, at: Timestamp) -> bool {
        self.end().is_some_and(|end| end <= at)
    }

    /// Ends the validity at a time, unless it ends earlier.
    fn end_at(&mut self, end: Timestamp) {
        self.valid_until = Some(self.valid_until.map_or(end, |known| known.min(end)));
    }

    /// Returns the time of its expiry or revocation, whichever is earlier.
    fn end(&self) -> Option<Timestamp> {
        self.valid_until.into_iter().chain(self.revoked_at).min()
    }
}

impl Deref for KeyRing {
    type Target = [Key];

    fn deref(&self) -> &[Key] {
        &self.0
    }
}

impl KeyRing {
    /// Adds a key at a time.
    ///
    /// # Errors
    /// [`KeyError::Exists`], [`KeyError::TooMany`].
    pub fn add(&mut self, key: Key, at: Timestamp) -> Result<(), KeyError> {
        if self
            .0
            .iter()
            // Also keys that have ended: another copy without an end would make them valid again.
            .any(|known| known.id == key.id || known.public_key == key.public_key)
        {
            return Err(KeyError::Exists(key.id));
        }

        let mut ended: Vec<_> = self
            .0
            .iter()
            .filter(|key| key.has_ended(at))
            .map(Key::end)
            .collect();
        if self.0.len() - ended.len() >= MAX_KEYS {
            return Err(KeyError::TooMany);
        }

        self.0.push(key);

        // Ended keys stay for a while: events that were stored before their end are verified with
        // them. Their number is limited, because all nodes read the record.
        if ended.len() > MAX_ENDED_KEYS {
            ended.sort_unstable();
            let oldest = ended[ended.len() - MAX_ENDED_KEYS];
            self.0
                .retain(|key| key.end().is_none() || key.end() >= oldest);
        }

        Ok(())
    }

    /// Removes a key, as if it had not been added. Returns `false` if there is none.
    pub fn remove(&mut self, id: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|key| key.id != id);
        self.0.len() < before
    }

    /// Ends the validity of a key at a time that was chosen for it. A key that ends earlier is not
    /// extended.
    ///
    /// # Errors
    /// [`KeyError::Missing`].
    pub fn retire(
        &mut self,
        owner: impl Display,
        id: &str,
        end: Timestamp,
    ) -> Result<(), KeyError> {
        let key = self.get_mut(owner, id)?;
        key.end_at(end);
        // Otherwise the owner of the key could extend it.
        key.replacement = None;
        Ok(())
    }

    /// Ends the validity of a key that its owner omits, until [`Self::restore`]. A key that ends
    /// earlier is not extended.
    ///
    /// # Errors
    /// [`KeyError::Missing`].
    pub fn replace(
        &mut self,
        owner: impl Display,
        id: &str,
        end: Timestamp,
    ) -> Result<(), KeyError> {
        let key = self.get_mut(owner, id)?;
        let valid_until = key.valid_until;
        key.replacement.get_or_insert(Replacement { valid_until });
        key.end_at(end);
        Ok(())
    }

    /// Reverses [`Self::replace`] for a key that is still valid: its owner uses it again. Returns
    /// `false` if the key is not replaced or has ended. An end of [`Self::retire`] stays.
    pub fn restore(&mut self, id: &str, at: Timestamp) -> bool {
        let mut keys = self.0.iter_mut();
        let Some(key) = keys.find(|key| key.id == id && key.is_valid(at)) else {
            return false;
        };
        let Some(replacement) = key.replacement.take() else {
            return false;
        };

        key.valid_until = replacement.valid_until;
        true
    }

    /// Revokes a key at once. Returns `false` if it is revoked already.
    ///
    /// # Errors
    /// [`KeyError::Missing`].
    pub fn revoke(
        &mut self,
        owner: impl Display,
        id: &str,
        at: Timestamp,
    ) -> Result<bool, KeyError> {
        let key = self.get_mut(owner, id)?;
        let is_change = key.revoked_at.is_none();

        // The first time stays: signatures between both were rejected already.
        key.revoked_at.get_or_insert(at);
        Ok(is_change)
    }

    fn get_mut(&mut self, owner: impl Display, id: &str) -> Result<&mut Key, KeyError> {
        self.0
            .iter_mut()
            .find(|key| key.id == id)
            .ok_or_else(|| KeyError::Missing {
                owner: owner.to_string(),
                key: id.to_owned(),
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn public_key_is_base64_of_32_bytes() {
        let key = PublicKey::from([0xfb; 32]);
        let text = key.to_string();
        assert_eq!(parse_public_key(&text).unwrap(), key);
        for other in [
            text.replace('-', "+").replace('_', "/") + "=",
            text.replace("ed25519:", ""),
        ] {
            assert_eq!(parse_public_key(&other).unwrap(), key, "{other}");
        }
        // The example of RFC 8037.
        let example = parse_public_key("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
        assert_eq!(
            example.key_id().to_string(),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
        for invalid in ["", "AAAA", "not base64", "rsa:AAAA", &"A".repeat(60)] {
            assert!(
                parse_public_key(invalid)
                    .unwrap_err()
                    .contains("base64 of 32 bytes"),
                "{invalid}"
            );
        }
    }

    #[test]
    fn key_is_valid_from_its_start_to_its_end_or_revocation() {
        let mut ring = KeyRing::default();
        let key = Key::new(PublicKey::from([1; 32]), at(10));
        let id = key.id.clone();
        ring.add(key.clone(), at(10)).unwrap();
        let valid = |ring: &KeyRing| {
            [9, 10, 19, 20, 30]
                .map(at)
                .into_iter()
                .filter(|at| ring[0].is_valid(*at))
                .count()
        };
        assert_eq!(valid(&ring), 4);
        ring.retire("actor robo", &id, at(30)).unwrap();
        assert_eq!(valid(&ring), 3);
        ring.retire("actor robo", &id, at(40)).unwrap();
        assert_eq!(valid(&ring), 3, "a rotation extends no key");
        assert!(ring.revoke("actor robo", &id, at(20)).unwrap());
        assert!(!ring.revoke("actor robo", &id, at(30)).unwrap());
        assert_eq!(valid(&ring), 2);
        assert_eq!(
            ring.add(key, at(30)),
            Err(KeyError::Exists(id)),
            "a revoked key stays revoked"
        );
        let missing = ring
            .revoke("actor robo", "none", at(30))
            .unwrap_err()
            .to_string();
        assert_eq!(missing, "the actor robo has no key \"none\"");
    }

    #[test]
    fn restored_key_has_the_end_that_it_had_before_its_replacement() {
        let mut ring = KeyRing::default();
        let key = Key {
            valid_until: Some(at(90)),
            ..Key::new(PublicKey::from([1; 32]), at(10))
        };
        let id = key.id.clone();
        ring.add(key, at(10)).unwrap();
        assert!(!ring.restore(&id, at(10)), "it is not replaced");

        ring.replace("peer", &id, at(30)).unwrap();
        ring.replace("peer", &id, at(20)).unwrap();
        assert!(!ring.restore(&id, at(20)), "it has ended");
        assert!(ring.restore(&id, at(19)));
        assert_eq!(ring[0].valid_until, Some(at(90)));

        ring.replace("peer", &id, at(60)).unwrap();
        ring.retire("peer", &id, at(40)).unwrap();
        assert!(!ring.restore(&id, at(19)), "an administrator chose the end");
        assert_eq!(ring[0].valid_until, Some(at(40)));

        ring.replace("peer", &id, at(30)).unwrap();
        ring.revoke("peer", &id, at(20)).unwrap();
        assert!(!ring.restore(&id, at(25)), "it is revoked");
    }

    #[test]
    fn only_keys_in_use_are_limited_and_the_oldest_ended_keys_are_removed() {
        let mut ring = KeyRing::default();
        let key = |number: u16| {
            let mut bytes = [0; 32];
            bytes[..2].copy_from_slice(&number.to_be_bytes());
            Key::new(PublicKey::from(bytes), at(1))
        };
        let last = u16::try_from(MAX_KEYS).unwrap();
        for number in 1..=last {
            ring.add(key(number), at(1)).unwrap();
        }
        assert_eq!(ring.add(key(0), at(2)), Err(KeyError::TooMany));
        ring.retire("actor robo", &key(1).id, at(5)).unwrap();
        assert_eq!(
            ring.add(key(0), at(4)),
            Err(KeyError::TooMany),
            "it is valid until 5"
        );
        // A key takes the place of another one every 10 ms.
        for number in last..1000 {
            let now = at(i64::from(number) * 10);
            ring.retire("actor robo", &key(number + 1 - last).id, now)
                .unwrap();
            ring.add(key(number + 1), now).unwrap();
        }
        let in_use = ring
            .iter()
            .filter(|key| key.revoked_at.is_none() && key.valid_until.is_none())
            .count();
        assert_eq!((in_use, ring.len()), (MAX_KEYS, MAX_KEYS + MAX_ENDED_KEYS));
        assert_eq!(
            ring.first().map(|oldest| oldest.id.clone()),
            Some(key(1000 + 1 - last - 200).id)
        );
        assert!(ring.remove(&key(1000).id) && !ring.remove(&key(1000).id));
    }
}
