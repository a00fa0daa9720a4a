//! Peers of this node: those of the configuration, which precede those of the registry.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{NodeName, Timestamp};
use orlog_signature::PublicKey;
use parking_lot::RwLock;

use super::identity::{Identity, NoIdentity, NodeIdentity};
use crate::access::AccessRegistry;
use crate::auth::{Signer, SignerKey, SignerKeys};
use crate::config::{NodeAddress, PeerConfig};

/// Identity and peers of a node.
pub struct Peers {
    identity: Identity,
    configured: RwLock<BTreeMap<NodeName, PeerConfig>>,
    access: Arc<AccessRegistry>,
}

impl Peers {
    pub(crate) fn new(
        identity: Identity,
        configured: BTreeMap<NodeName, PeerConfig>,
        access: Arc<AccessRegistry>,
    ) -> Self {
        Self {
            identity,
            configured: RwLock::new(configured),
            access,
        }
    }

    /// Returns the identity of this node.
    ///
    /// # Errors
    /// If it has none.
    pub fn identity(&self) -> Result<&NodeIdentity, NoIdentity> {
        self.identity.as_ref().map_err(Clone::clone)
    }

    /// Returns the address of a peer; `None` if it is no peer.
    pub fn address(&self, name: &NodeName) -> Option<NodeAddress> {
        if let Some(peer) = self.configured(name) {
            return Some(peer.address);
        }
        let directory = self.access.directory();
        Some(directory.peers.get(name)?.value.as_ref()?.address.clone())
    }

    /// Returns the keys of a peer that are valid now.
    pub(super) fn valid_keys(&self, name: &NodeName, now: Timestamp) -> Vec<PublicKey> {
        // A configured peer replaces a stored one of the same name completely, also its keys.
        if let Some(peer) = self.configured(name) {
            return peer
                .keys
                .iter()
                .filter(|key| key.is_valid(now))
                .map(|key| key.public)
                .collect();
        }

        let directory = self.access.directory();
        let keys = directory
            .peers
            .get(name)
            .and_then(|stored| stored.value.as_ref())
            .map(|peer| &peer.keys);

        keys.into_iter()
            .flat_map(|keys| keys.iter())
            .filter(|key| key.is_valid(now))
            .map(|key| key.public_key)
            .collect()
    }

    /// Returns a peer of the configuration.
    pub fn configured(&self, name: &NodeName) -> Option<PeerConfig> {
        self.configured.read().get(name).cloned()
    }

    /// Returns all peers of the configuration.
    pub fn all_configured(&self) -> BTreeMap<NodeName, PeerConfig> {
        self.configured.read().clone()
    }

    /// Replaces the peers of the configuration.
    pub fn replace(&self, configured: BTreeMap<NodeName, PeerConfig>) {
        *self.configured.write() = configured;
    }
}

/// Keys of the actors and peers of the registry, and of this node: its pods send each other
/// requests in its name.
impl SignerKeys for Peers {
    fn find(&self, key_id: &str) -> Option<SignerKey> {
        let identity = self.identity.as_ref().ok();
        // The own keys come first, and are valid as long as the node reads them from its files.
        let own = identity.and_then(|identity| {
            let key = identity
                .public_keys()
                .into_iter()
                .find(|key| key.key_id().to_string() == key_id)?;
            Some(SignerKey {
                signer: Signer::Peer(identity.name.clone()),
                public_key: *key.as_bytes(),
                not_before: None,
                not_after: None,
                revoked_at: None,
            })
        });
        // A restored registry may contain a peer with the name of this node, which has the rights
        // of this node.

        own.or_else(|| {
            self.access.find(key_id).filter(|found| {
                identity.is_none_or(|own| found.signer != Signer::Peer(own.name.clone()))
            })
        })
    }
}
