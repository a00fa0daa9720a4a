//! Actor: an identity with public keys, independent of tenants, and the invitation to enroll one.

use std::collections::BTreeSet;

use orlog_model::Timestamp;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use super::change::Change;
use super::key_ring::{Key, KeyError, KeyRing};
use super::keyed::Keyed;

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
    pub keys: KeyRing,
    /// Addresses at which the actor receives messages, for example URLs.
    pub addresses: BTreeSet<String>,
    /// The last invitation.
    pub invitation: Option<Invitation>,
    /// Time of the creation.
    pub created_at: Timestamp,
    /// The last changes.
    pub changes: Vec<Change>,
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

impl Keyed for Actor {
    const KIND: &'static str = "actor";

    fn keys_and_changes(&mut self) -> (&mut KeyRing, &mut Vec<Change>) {
        (&mut self.keys, &mut self.changes)
    }
}

impl Actor {
    /// Creates an actor without keys.
    #[must_use]
    pub fn new(at: Timestamp) -> Self {
        let (keys, addresses, invitation, changes) = Default::default();
        Self {
            keys,
            addresses,
            invitation,
            created_at: at,
            changes,
        }
    }

    /// Returns the mail addresses: the `mailto:` URLs of exactly one ASCII address. SMTP would
    /// reject others together with all recipients.
    pub fn mail_addresses(&self) -> impl Iterator<Item = &str> {
        let schemes = self
            .addresses
            .iter()
            .filter_map(|address| address.split_once(':'));
        let mail = schemes.filter(|(scheme, _)| scheme.eq_ignore_ascii_case("mailto"));
        mail.map(|(_, address)| address)
            .filter(|address| is_mail_address(address))
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
                one.difference(other)
                    .map(|address| format!("address {address}"))
                    .collect::<Vec<_>>()
            });
        let is_change = !added.is_empty() || !removed.is_empty();
        if is_change {
            Change {
                at,
                by,
                added,
                removed,
            }
            .append_to(&mut self.changes);
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
        self.invitation = Some(Invitation {
            token_hash,
            expires_at,
            used_by: None,
        });

        Change {
            at,
            by,
            added: vec!["invitation".to_owned()],
            removed: Vec::new(),
        }
        .append_to(&mut self.changes);
    }

    /// Removes a key that was added in vain, as [`Keyed::remove_key`]. An invitation that enrolled
    /// it can be used again.
    pub fn withdraw_key(&mut self, id: &str, at: Timestamp) -> bool {
        let used = self
            .invitation
            .as_mut()
            .filter(|invitation| invitation.used_by.as_deref() == Some(id));
        if let Some(invitation) = used {
            invitation.used_by = None;
        }
        self.remove_key(id, at)
    }

    /// Enrolls a key with the token of the invitation. Returns `false` if this token has enrolled
    /// this key already.
    ///
    /// # Errors
    /// [`KeyError::Invitation`] and the errors of [`Keyed::add_key`].
    pub fn enroll(&mut self, token: &str, key: Key, at: Timestamp) -> Result<bool, KeyError> {
        let invitation = self.invitation.as_ref().ok_or(KeyError::Invitation)?;
        let is_same = InvitationToken::hash(token)
            .as_bytes()
            .ct_eq(invitation.token_hash.as_bytes());
        // One error for all reasons, so that it does not reveal which tokens have existed.
        if !bool::from(is_same) || invitation.expires_at <= at {
            return Err(KeyError::Invitation);
        }

        // A client that has lost the response repeats the request with the same key, which must
        // succeed.
        if let Some(used_by) = &invitation.used_by {
            let is_repeated = self
                .keys
                .iter()
                .any(|known| known.id == *used_by && known.public_key == key.public_key);
            return if is_repeated {
                Ok(false)
            } else {
                Err(KeyError::Invitation)
            };
        }

        let id = key.id.clone();
        // Before the invitation is marked: a rejected key must not use it up.
        self.add_key(key, at, None)?;

        if let Some(invitation) = &mut self.invitation {
            invitation.used_by = Some(id);
        }

        Ok(true)
    }
}

/// Returns whether a text is one mail address in ASCII, without quotes.
fn is_mail_address(text: &str) -> bool {
    let Some((user, domain)) = text.split_once('@') else {
        return false;
    };

    // Limits of RFC 5321 (4.5.3.1) and, for a label, RFC 1035 (2.3.4).
    user.len() <= 64
        && user.split('.').all(|part| {
            !part.is_empty()
                && part.bytes().all(|byte| {
                    byte.is_ascii_alphanumeric() || b"!#$&'*+-/=^_`{|}~".contains(&byte)
                })
        })
        && domain.split('.').all(|label| {
            let bytes = label.as_bytes();
            (1..=63).contains(&bytes.len())
                && bytes
                    .iter()
                    .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

#[cfg(test)]
mod tests {
    use orlog_signature::PublicKey;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    fn key(number: u8) -> Key {
        Key::new(PublicKey::from([number; 32]), at(10))
    }

    #[test]
    fn only_plain_mailto_addresses_are_mail_addresses() {
        let mut actor = Actor::new(at(1));
        let long = format!("mailto:{}@x.io", "x".repeat(65));
        let addresses = [
            "mailto:ada@x.io",
            "MAILTO:b.o-b+1@mail.x-y.io",
            "https://x.io/",
            "ada@x.io",
            "mailto:",
            "mailto:ada",
            "mailto:@x.io",
            "mailto:a@b@x.io",
            "mailto:a@x.io,b@x.io",
            "mailto:a@x.io?bcc=b@x.io",
            "mailto:a?bcc=b@x.io",
            "mailto:Ada <a@x.io>",
            "mailto:a..b@x.io",
            "mailto:a@-x.io",
            "mailto:a@x..io",
            "mailto:\"a b\"@x.io",
            "mailto:zoë@x.io",
            "mailto:a%40b@x.io",
            &long,
        ];
        actor.replace_addresses(addresses.map(ToOwned::to_owned).into(), at(2), None);
        let found: Vec<_> = actor.mail_addresses().collect();
        assert_eq!(found, ["b.o-b+1@mail.x-y.io", "ada@x.io"]);
    }

    #[test]
    fn invitation_enrolls_one_key() {
        let (mut actor, token) = (Actor::new(at(1)), InvitationToken::random().unwrap());
        assert_eq!(
            actor.enroll(token.expose(), key(1), at(5)),
            Err(KeyError::Invitation)
        );
        actor.invite(&token, at(100), at(2), Some("ada".to_owned()));
        assert!(
            !serde_json::to_string(&actor)
                .unwrap()
                .contains(token.expose()),
            "only its hash is stored"
        );
        assert_eq!(
            actor.clone().enroll(token.expose(), key(1), at(100)),
            Err(KeyError::Invitation),
            "expired"
        );
        assert_eq!(
            actor.enroll("wrong", key(1), at(5)),
            Err(KeyError::Invitation)
        );
        assert_eq!(actor.enroll(token.expose(), key(1), at(5)), Ok(true));
        assert_eq!(
            actor.enroll(token.expose(), key(1), at(6)),
            Ok(false),
            "its response may be lost"
        );
        assert_eq!(
            actor.enroll(token.expose(), key(2), at(6)),
            Err(KeyError::Invitation)
        );
        let another = InvitationToken::random().unwrap();
        actor.invite(&another, at(100), at(7), None);
        assert_eq!(
            actor.enroll(token.expose(), key(2), at(8)),
            Err(KeyError::Invitation)
        );
        assert_eq!(actor.enroll(another.expose(), key(2), at(8)), Ok(true));
        assert_eq!(actor.keys.len(), 2);
        let id = key(2).id;
        assert!(actor.withdraw_key(&id, at(9)) && !actor.withdraw_key(&id, at(9)));
        assert_eq!(
            actor.enroll(another.expose(), key(2), at(10)),
            Ok(true),
            "it was added in vain"
        );
    }
}
