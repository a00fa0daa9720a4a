//! Peer: another node, its address and its public keys.

use std::time::Duration;

use orlog_model::Timestamp;
use orlog_signature::PublicKey;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::key_ring::{Key, KeyError, KeyRing};
use super::keyed::Keyed;
use crate::config::NodeAddress;

/// Time for which a replaced key stays valid.
pub const KEY_OVERLAP: Duration = Duration::from_hours(1);

/// Record of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// Address of its API.
    pub address: NodeAddress,
    /// Keys, also revoked and expired ones.
    pub keys: KeyRing,
    /// Time of the creation.
    pub created_at: Timestamp,
    /// The last changes.
    pub changes: Vec<Change>,
}

impl Keyed for Peer {
    const KIND: &'static str = "peer";

    fn keys_and_changes(&mut self) -> (&mut KeyRing, &mut Vec<Change>) {
        (&mut self.keys, &mut self.changes)
    }
}

impl Peer {
    /// Creates a peer without keys.
    #[must_use]
    pub fn new(address: NodeAddress, at: Timestamp) -> Self {
        Self {
            address,
            keys: KeyRing::default(),
            created_at: at,
            changes: Vec::new(),
        }
    }

    /// Replaces the address. Returns `false` if nothing changes.
    pub fn replace_address(
        &mut self,
        address: NodeAddress,
        at: Timestamp,
        by: Option<String>,
    ) -> bool {
        if self.address == address {
            return false;
        }

        let removed = vec![format!("address {}", self.address)];
        Change {
            at,
            by,
            added: vec![format!("address {address}")],
            removed,
        }
        .append_to(&mut self.changes);

        self.address = address;
        true
    }

    /// Replaces the valid keys by those that the peer states. A missing key ends after
    /// `KEY_OVERLAP`, because the peer may still sign with it. If the peer states it again before
    /// that, it does not end: the peer has reversed a rotation. An end that an administrator chose
    /// stays. Returns `false` if nothing changes.
    ///
    /// # Errors
    /// [`KeyError::Exists`] if a stated key is revoked or has ended, [`KeyError::TooMany`].
    pub fn replace_keys(
        &mut self,
        stated: &[PublicKey],
        at: Timestamp,
        by: Option<String>,
    ) -> Result<bool, KeyError> {
        let mut added = Vec::new();
        let mut removed = Vec::new();

        for public_key in stated {
            let key = Key::new(*public_key, at);
            let mut valid = self.keys.iter().filter(|known| known.is_valid(at));
            if !valid.any(|known| known.id == key.id) {
                added.push(format!("key {}", key.id));
                self.keys.add(key, at)?;
            } else if self.keys.restore(&key.id, at) {
                added.push(format!("key {} without its replacement", key.id));
            }
        }

        let end = at.saturating_add(KEY_OVERLAP);
        // A key that ends within the overlap is not retired again: each exchange with the peer
        // would write another change.
        let missing = self
            .keys
            .iter()
            .filter(|key| key.is_valid(at) && key.valid_until.is_none_or(|until| until > end))
            .filter(|key| !stated.contains(&key.public_key));
        let missing: Vec<_> = missing.map(|key| key.id.clone()).collect();
        for id in missing {
            self.keys.replace("peer", &id, end)?;
            removed.push(format!("key {id} from {end}"));
        }

        let is_change = !added.is_empty() || !removed.is_empty();
        if is_change {
            Change {
                at,
                by,
                added,
                removed,
            }
            .append_to(&mut self.changes);
        }

        Ok(is_change)
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::NodeName;

    use super::*;

    #[test]
    fn missing_key_ends_after_the_overlap_and_a_revoked_key_is_rejected() {
        let [first, second, third] = [1, 2, 3].map(|number| PublicKey::from([number; 32]));
        let [start, later] = [1_000, 2_000].map(Timestamp::from_millis);
        let end = later.saturating_add(KEY_OVERLAP);
        let mut peer = Peer::new("https://b.example".parse().unwrap(), start);
        peer.add_key(Key::new(first, start), start, None).unwrap();
        assert_eq!(peer.replace_keys(&[first], later, None), Ok(false));
        assert_eq!(
            peer.replace_keys(&[first, second], later, Some("ada".to_owned())),
            Ok(true)
        );
        assert_eq!(peer.replace_keys(&[second], later, None), Ok(true));
        assert_eq!(
            peer.replace_keys(&[second], later, None),
            Ok(false),
            "a repetition extends nothing"
        );
        let valid = |peer: &Peer, at| peer.keys.iter().filter(|key| key.is_valid(at)).count();
        assert_eq!((valid(&peer, later), valid(&peer, end)), (2, 1));

        let mut reversed = peer.clone();
        assert_eq!(reversed.replace_keys(&[first], later, None), Ok(true));
        assert_eq!(reversed.replace_keys(&[first], later, None), Ok(false));
        let is_valid = |key: PublicKey| {
            let mut keys = reversed.keys.iter();
            keys.any(|known| known.public_key == key && known.is_valid(end))
        };
        assert!(is_valid(first) && !is_valid(second), "{reversed:?}");

        let mut retired = peer.clone();
        let id = second.key_id().to_string();
        retired.keys.retire("peer", &id, end).unwrap();
        assert_eq!(retired.replace_keys(&[second], later, None), Ok(false));
        assert_eq!(valid(&retired, end), 0, "an administrator chose the end");

        let name = NodeName::new("b.example").unwrap();
        assert_eq!(peer.revoke_key(&name, &id, later, None), Ok(true));
        let before = peer.clone();
        assert_eq!(
            peer.clone().replace_keys(&[third, second], later, None),
            Err(KeyError::Exists(id))
        );
        assert_eq!(before.changes.last().unwrap().removed.len(), 1);
        assert!(peer.replace_address("https://c.example".parse().unwrap(), later, None));
        assert!(!peer.replace_address("https://c.example".parse().unwrap(), later, None));
    }
}
