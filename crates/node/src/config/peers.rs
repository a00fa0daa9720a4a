//! Configuration of `[identity]` and `[peers.<name>]`: the identity of the node, and other nodes
//! that it trusts.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use orlog_model::NodeName;
use orlog_signature::KeyId;
use serde::{Deserialize, Serialize};

use super::actors::ActorKeyConfig;
use super::node_address::{NATS_REQUIRED, NodeAddress};
use super::units;
use super::violations::Violations;

/// Configuration of `[identity]`: how other nodes know this one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IdentityConfig {
    /// Name of the node, unique among its peers; `node_name` if empty.
    #[serde(with = "units::optional")]
    pub name: Option<NodeName>,
    /// Address at which other nodes reach the API; not published if empty.
    #[serde(with = "units::optional")]
    pub address: Option<NodeAddress>,
    /// File with the private key; created in the data directory if empty.
    #[serde(with = "units::optional")]
    pub key_file: Option<PathBuf>,
    /// File with the CA certificates of peers; those of the system if empty.
    #[serde(with = "units::optional")]
    pub ca_file: Option<PathBuf>,
}

/// Configuration of one peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PeerConfig {
    /// Address of its API, or over NATS.
    pub address: NodeAddress,
    /// Public keys.
    pub keys: Vec<ActorKeyConfig>,
}

impl IdentityConfig {
    /// Validates the identity. `is_shared`: several pods have it.
    pub(super) fn validate(&self, is_shared: bool, found: &mut Violations) {
        found.require(
            !is_shared || self.key_file.is_none() || self.name.is_some(),
            "identity.name",
            "the pods of a cluster are one node for its peers; set one name for all of them",
        );

        let is_published = self
            .address
            .as_ref()
            .is_none_or(|address| address.subject().is_none());
        let message = "the subject of a node depends on the NATS account of its peer; peers state \
            it (orlog peer add)";

        found.require(is_published, "identity.address", message);
    }
}

/// Validates the peers. `known` contains the keys of the actors.
pub(super) fn validate(
    peers: &BTreeMap<NodeName, PeerConfig>,
    own: Option<&NodeName>,
    on_nats: bool,
    known: &mut BTreeSet<KeyId>,
    found: &mut Violations,
) {
    for (name, peer) in peers {
        let key = format!("peers.{name}.keys");
        let message =
            "this is the name of this node (identity.name, node_name); a peer has another one";
        found.require(own != Some(name), format_args!("peers.{name}"), message);

        let is_reachable = on_nats || peer.address.subject().is_none();
        found.require(
            is_reachable,
            format_args!("peers.{name}.address"),
            NATS_REQUIRED,
        );

        found.require(
            !peer.keys.is_empty(),
            &key,
            "no key; add the one that `orlog peer show` prints there",
        );

        for peer_key in &peer.keys {
            peer_key.validate(&key, known, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    fn check(peers: &str) -> Vec<String> {
        check_on(peers, false)
    }

    fn check_on(peers: &str, on_nats: bool) -> Vec<String> {
        let peers: BTreeMap<NodeName, PeerConfig> = toml::from_str(peers).unwrap();
        let own = NodeName::new("a.example").unwrap();
        Violations::keys(|found| {
            validate(&peers, Some(&own), on_nats, &mut BTreeSet::new(), found);
        })
    }

    #[test]
    fn peers_have_distinct_keys_and_another_name() {
        let peer = |name: &str, keys: &str| {
            format!("[\"{name}\"]\naddress = \"https://{name}\"\nkeys = [{keys}]\n")
        };
        let key = format!("\"{KEY}\"");
        assert_eq!(check(&peer("b.example", &key)), [""; 0]);
        assert_eq!(check(&peer("b.example", "")), ["peers.b.example.keys"]);
        assert_eq!(check(&peer("a.example", &key)), ["peers.a.example"]);
        let two = peer("b.example", &key) + &peer("c.example", &key);
        assert_eq!(check(&two), ["peers.c.example.keys"]);
        let over_nats = peer("b.example", &key).replace("https://", "nats:orlog.node.");
        assert_eq!(check_on(&over_nats, true), [""; 0]);
        assert_eq!(check_on(&over_nats, false), ["peers.b.example.address"]);
        for (invalid, expected) in [
            (
                peer("b.example", &key).replace("https://", "http://"),
                "is no address of a node",
            ),
            (peer("b example", &key), "is no name of a node"),
            (
                peer("b.example", "\"ssh-ed25519 A\""),
                "is not a public key",
            ),
        ] {
            let error = toml::from_str::<BTreeMap<NodeName, PeerConfig>>(&invalid)
                .unwrap_err()
                .to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn pods_with_an_identity_share_its_name() {
        let check = |text: &str, is_shared| {
            let empty = "name = \"\"\naddress = \"\"\nkey_file = \"\"\nca_file = \"\"\n";
            let mut table: toml::Table = empty.parse().unwrap();
            table.extend(text.parse::<toml::Table>().unwrap());
            let identity: IdentityConfig = table.try_into().map_err(|error| error.to_string())?;
            Ok::<_, String>(Violations::keys(|found| {
                identity.validate(is_shared, found);
            }))
        };
        assert_eq!(
            check("", true).unwrap(),
            [""; 0],
            "a cluster without an identity"
        );
        assert_eq!(check("key_file = \"key\"", false).unwrap(), [""; 0]);
        assert_eq!(
            check("key_file = \"key\"", true).unwrap(),
            ["identity.name"]
        );
        assert_eq!(
            check("key_file = \"key\"\nname = \"a.example\"", true).unwrap(),
            [""; 0]
        );
        assert_eq!(
            check("address = \"nats:orlog.node.a\"", false).unwrap(),
            ["identity.address"]
        );
        assert!(
            check("name = \"a b\"", false)
                .unwrap_err()
                .contains("is no name of a node")
        );
        assert!(
            check("address = \"a.example\"", false)
                .unwrap_err()
                .contains("is no address of a node")
        );
    }
}
