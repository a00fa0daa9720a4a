//! Bodies of requests about peers, and views of peers.

use orlog_model::{NodeName, Timestamp};
use orlog_signature::PublicKey;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resources::access::keys::KeyBody;
use crate::resources::access::{ChangeView, change_views};
use orlog_node::access::{Key, Peer};
use orlog_node::config::{ActorKeyConfig, NodeAddress, PeerConfig};
use orlog_node::peers::document::NodeDocument;

/// Peer with its keys.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PeerView {
    pub(super) name: String,
    address: String,
    keys: Vec<PeerKeyView>,
    /// Whether it is in the configuration, which only a reload changes.
    configured: bool,
    /// Null for a peer of the configuration.
    #[schema(format = "date-time")]
    created_at: Option<String>,
    /// The last changes, newest first.
    changes: Vec<ChangeView>,
}

/// Key of a peer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PeerKeyView {
    id: String,
    /// Ed25519 public key.
    public_key: String,
    /// Null: no limit.
    #[schema(format = "date-time")]
    valid_from: Option<String>,
    /// Null: no limit.
    #[schema(format = "date-time")]
    valid_until: Option<String>,
    revoked: bool,
    /// Whether signatures of the key are accepted now.
    valid: bool,
}

/// Page of peers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PeerPage {
    pub(super) items: Vec<PeerView>,
    pub(super) next_cursor: Option<String>,
}

/// Peer to add.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PeerBody {
    /// Name of the node.
    #[schema(value_type = String)]
    pub(super) name: NodeName,
    /// Address of its API: https, or http on this machine. Or `nats:` and its subject on the NATS
    /// servers of this node.
    #[schema(value_type = String)]
    pub(super) address: NodeAddress,
    /// Its keys; at least one.
    pub(super) keys: Vec<KeyBody>,
}

/// Address of a peer.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AddressBody {
    /// Address of its API: https, or http on this machine. Or `nats:` and its subject on the NATS
    /// servers of this node.
    #[schema(value_type = String)]
    pub(super) address: NodeAddress,
}

/// Verified document of a node.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentView {
    name: String,
    /// Address that the node states; without one, and over NATS, the address of the document.
    address: String,
    /// Keys, which each have signed the document: the current one first.
    keys: Vec<DocumentKeyView>,
}

/// Key in a document.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DocumentKeyView {
    /// Fingerprint: the id of the key.
    id: String,
    /// Ed25519 public key.
    public_key: String,
}

impl PeerView {
    pub(super) fn of(name: &NodeName, peer: &Peer, now: Timestamp) -> Self {
        let keys = peer.keys.iter().map(|key| PeerKeyView::of(key, now));
        Self {
            name: name.to_string(),
            address: peer.address.to_string(),
            keys: keys.collect(),
            configured: false,
            created_at: Some(peer.created_at.to_string()),
            changes: change_views(&peer.changes),
        }
    }

    pub(super) fn configured(name: &NodeName, peer: &PeerConfig, now: Timestamp) -> Self {
        let keys = peer
            .keys
            .iter()
            .map(|key| PeerKeyView::configured(key, now));
        Self {
            name: name.to_string(),
            address: peer.address.to_string(),
            keys: keys.collect(),
            configured: true,
            created_at: None,
            changes: Vec::new(),
        }
    }
}

impl PeerKeyView {
    fn of(key: &Key, now: Timestamp) -> Self {
        Self {
            id: key.id.clone(),
            public_key: key.public_key.to_string(),
            valid_from: Some(key.valid_from.to_string()),
            valid_until: key.valid_until.map(|until| until.to_string()),
            revoked: key.revoked_at.is_some(),
            valid: key.is_valid(now),
        }
    }

    fn configured(key: &ActorKeyConfig, now: Timestamp) -> Self {
        Self {
            id: key.public.key_id().to_string(),
            public_key: key.public.to_string(),
            valid_from: key.not_before.map(|from| from.to_string()),
            valid_until: key.not_after.map(|to| to.to_string()),
            revoked: key.revoked,
            valid: key.is_valid(now),
        }
    }
}

impl DocumentView {
    pub(super) fn of(document: &NodeDocument, keys: &[PublicKey], from: &NodeAddress) -> Self {
        Self {
            name: document.name.to_string(),
            address: document.address_from(from).to_string(),
            keys: keys.iter().map(DocumentKeyView::of).collect(),
        }
    }
}

impl DocumentKeyView {
    fn of(key: &PublicKey) -> Self {
        Self {
            id: key.key_id().to_string(),
            public_key: key.to_string(),
        }
    }
}
