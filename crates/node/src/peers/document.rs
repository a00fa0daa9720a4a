//! Document of a node: its name, address and public keys, signed by each of these keys.
//!
//! A node publishes its own at [`DOCUMENT_PATH`], for administrators of other nodes who add it as a
//! peer. During a rotation it contains the next key, too: peers that know the current key accept
//! it.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use orlog_model::{NodeName, Timestamp};
use orlog_signature::{KeyId, PublicKey};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::identity::NodeIdentity;
use crate::config::NodeAddress;

/// Path of the document of a node.
pub const DOCUMENT_PATH: &str = "/.well-known/orlog-node";
/// Maximum size of a document in bytes.
pub(super) const MAX_BYTES: usize = 64 << 10;
/// Maximum number of keys.
const MAX_KEYS: usize = 8;
/// Maximum difference between the clocks of two nodes: the default maximum age of a signature.
const MAX_DIFFERENCE: Duration = Duration::from_mins(5);
/// Start of the signed bytes, so that a signature cannot be one of another kind.
const PURPOSE: &str = "orlog-node-document-1";

/// Document of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeDocument {
    /// Name of the node.
    #[schema(value_type = String)]
    pub name: NodeName,
    /// Address of its API; null if it is not published.
    #[schema(value_type = Option<String>)]
    pub(crate) address: Option<NodeAddress>,
    /// Ed25519 public keys: the current one first, then its successor.
    keys: Vec<String>,
    /// Time of the signatures.
    #[schema(format = "date-time")]
    time: String,
    /// Signature of each key, in base64url.
    signatures: Vec<String>,
}

/// Reason why a document is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// It is no document of a node.
    #[error("no document of a node: {0}; check the address, which must lead to the API of a node")]
    Form(String),
    /// A signature is wrong.
    #[error(
        "the signature of the key {0} is wrong: the document was changed on its way, or is forged"
    )]
    Signature(KeyId),
    /// The clocks differ.
    #[error(
        "its time {stated} differs from the time of this node, {now}, by more than 5m; synchronize \
         the clocks of both nodes"
    )]
    Time {
        /// Time in the document.
        stated: Timestamp,
        /// Time of this node.
        now: Timestamp,
    },
}

impl NodeDocument {
    /// Creates the document of this node.
    pub fn of(identity: &NodeIdentity, now: Timestamp) -> Self {
        let keys = identity
            .public_keys()
            .iter()
            .map(ToString::to_string)
            .collect();
        let name = identity.name.clone();
        let address = identity.address.clone();
        let mut document = Self {
            name,
            address,
            keys,
            time: now.to_string(),
            signatures: Vec::new(),
        };

        let message = document.message();
        let signatures = identity
            .keys()
            .map(|key| URL_SAFE_NO_PAD.encode(key.sign_message(&message)));
        document.signatures = signatures.collect();

        document
    }

    /// Reads a document and verifies its signatures and its time. Returns it with its keys, which
    /// each have signed it.
    ///
    /// # Errors
    /// [`DocumentError`].
    pub(super) fn verified(
        bytes: &[u8],
        now: Timestamp,
    ) -> Result<(Self, Vec<PublicKey>), DocumentError> {
        let form = |reason: String| DocumentError::Form(reason);
        let document: Self =
            serde_json::from_slice(bytes).map_err(|error| form(error.to_string()))?;
        let keys: Result<Vec<PublicKey>, _> = document.keys.iter().map(|key| key.parse()).collect();
        let keys = keys.map_err(|error| form(format!("{error}")))?;

        // Each key signs, so that a node cannot state a key that it does not have.
        if !(1..=MAX_KEYS).contains(&keys.len()) || document.signatures.len() != keys.len() {
            return Err(form(format!(
                "it needs 1 to {MAX_KEYS} keys with one signature each"
            )));
        }

        let stated =
            Timestamp::parse(&document.time).map_err(|error| form(format!("time: {error}")))?;
        let message = document.message();
        for (key, signature) in keys.iter().zip(&document.signatures) {
            // A text that is not base64 becomes an empty signature, which no key verifies.
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap_or_default();
            if !key.verifies(&message, &signature) {
                return Err(DocumentError::Signature(key.key_id()));
            }
        }

        // A recorded document would state keys that have been replaced, and requests between nodes
        // with other clocks are rejected later anyway.
        let difference = Duration::from_millis(stated.as_millis().abs_diff(now.as_millis()));
        if difference > MAX_DIFFERENCE {
            return Err(DocumentError::Time { stated, now });
        }

        Ok((document, keys))
    }

    /// Returns the address of the node for one who read the document at `from`: the stated one of
    /// its API. An address over NATS stays, because it depends on the account of the reader.
    #[must_use]
    pub fn address_from(&self, from: &NodeAddress) -> NodeAddress {
        let is_of_api = |address: &&NodeAddress| address.subject().is_none();
        let stated = self
            .address
            .as_ref()
            .filter(is_of_api)
            .filter(|_| is_of_api(&from));
        stated.unwrap_or(from).clone()
    }

    fn message(&self) -> Vec<u8> {
        let Self {
            name,
            address,
            keys,
            time,
            signatures: _,
        } = self;
        serde_json::to_vec(&(PURPOSE, name, address, time, keys)).expect("texts serialize to JSON")
    }
}

#[cfg(test)]
mod tests {
    use orlog_signature::SigningKey;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + seconds * 1000)
    }

    fn identity() -> NodeIdentity {
        let key = || SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap();
        NodeIdentity {
            name: NodeName::new("b.example").unwrap(),
            address: Some("https://b.example".parse().unwrap()),
            key: key(),
            next: Some(key()),
        }
    }

    #[test]
    fn document_states_the_keys_that_signed_it() {
        let identity = identity();
        let document = NodeDocument::of(&identity, at(0));
        let bytes = serde_json::to_vec(&document).unwrap();
        let (read, keys) = NodeDocument::verified(&bytes, at(299)).unwrap();
        assert_eq!((read, keys), (document, identity.public_keys()));
        for offset in [-600, 600] {
            let error = NodeDocument::verified(&bytes, at(offset)).unwrap_err();
            assert!(matches!(error, DocumentError::Time { .. }), "{error}");
        }
    }

    #[test]
    fn stated_address_replaces_that_of_an_api_only() {
        let address = |text: &str| text.parse::<NodeAddress>().unwrap();
        let (https, nats) = (
            address("https://moved.example"),
            address("nats:orlog.node.b"),
        );
        let mut document = NodeDocument::of(&identity(), at(0));
        assert_eq!(document.address_from(&https), address("https://b.example"));
        assert_eq!(document.address_from(&nats), nats);
        for stated in [None, Some(address("nats:orlog.node.other"))] {
            document.address = stated;
            assert_eq!(document.address_from(&https), https);
            assert_eq!(document.address_from(&nats), nats);
        }
    }

    #[test]
    fn changed_document_is_rejected() {
        let document = NodeDocument::of(&identity(), at(0));
        let other = NodeDocument::of(&identity(), at(0));
        let verify = |change: &dyn Fn(&mut NodeDocument)| {
            let mut changed = document.clone();
            change(&mut changed);
            NodeDocument::verified(&serde_json::to_vec(&changed).unwrap(), at(0)).err()
        };
        assert_eq!(verify(&|_| {}), None);
        let changes: [&dyn Fn(&mut NodeDocument); 6] = [
            &|it| it.name = NodeName::new("c.example").unwrap(),
            &|it| it.address = None,
            &|it| it.time = at(1).to_string(),
            &|it| it.keys.swap(0, 1),
            &|it| it.keys[1].clone_from(&other.keys[1]),
            &|it| it.signatures[1].clone_from(&other.signatures[1]),
        ];
        for change in changes {
            let error = verify(change).unwrap();
            assert!(matches!(error, DocumentError::Signature(_)), "{error}");
        }
        let changes: [&dyn Fn(&mut NodeDocument); 4] = [
            &|it| it.keys.clear(),
            &|it| drop(it.signatures.pop()),
            &|it| it.keys[0] = "x".to_owned(),
            &|it| it.time = "now".to_owned(),
        ];
        for change in changes {
            let error = verify(change).unwrap();
            assert!(matches!(error, DocumentError::Form(_)), "{error}");
        }
        for garbage in ["", "<html>", "{}", "[]"] {
            let error = NodeDocument::verified(garbage.as_bytes(), at(0)).unwrap_err();
            assert!(matches!(error, DocumentError::Form(_)), "{error}");
        }
    }
}
