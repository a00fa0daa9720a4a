//! Address of a node, as other nodes reach it: of its API, or over NATS.

use std::fmt;
use std::str::FromStr;

use orlog_bus::subject::{check_subject, encode_token};
use orlog_model::NodeName;
use reqwest::Url;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::loopback::is_protected;

/// Scheme of an address over NATS.
const NATS: &str = "nats:";
/// Start of the subjects of nodes. An address has no other subject: a request to it is sent with
/// the permissions of the node.
const NODE_SUBJECTS: &str = "orlog.node.";
/// Reason why a node without NATS cannot have a peer with such an address.
pub const NATS_REQUIRED: &str = "an address over NATS requires bus.kind = \"nats\"; set it, or use \
    the https address of the node";
/// Maximum length of an address.
const MAX_BYTES: usize = 512;

/// Origin of a URL: https, or http on this machine. It has no path, because signatures cover the
/// path that the node receives. Or `nats:` and the subject of the node on the NATS servers of this
/// one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeAddress(String);

/// Error of a text that is no address of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no address of a node; write https://<host>[:<port>], http://… for this machine, or \
     nats:{NODE_SUBJECTS}<name>"
)]
pub struct NodeAddressError(String);

impl NodeAddress {
    /// Returns the URL of a path, which starts with `/`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.0)
    }

    /// Returns whether requests have TLS.
    #[must_use]
    pub fn is_https(&self) -> bool {
        self.0.starts_with("https:")
    }

    /// Returns the subject of an address over NATS; `None` if it is the address of an API.
    #[must_use]
    pub fn subject(&self) -> Option<&str> {
        self.0.strip_prefix(NATS)
    }
}

/// Returns the subject on which a node receives requests.
#[must_use]
pub fn node_subject(name: &NodeName) -> String {
    format!("{NODE_SUBJECTS}{}", encode_token(name.as_str()))
}

impl FromStr for NodeAddress {
    type Err = NodeAddressError;

    fn from_str(text: &str) -> Result<Self, NodeAddressError> {
        let invalid = || NodeAddressError(text.chars().take(255).collect());
        if text.len() > MAX_BYTES {
            return Err(invalid());
        }
        if let Some(subject) = text.strip_prefix(NATS) {
            // A request is published with the permissions of the node: another subject could be
            // that of an administrative request.
            let is_valid = subject.starts_with(NODE_SUBJECTS) && check_subject(subject).is_ok();
            return if is_valid {
                Ok(Self(text.to_owned()))
            } else {
                Err(invalid())
            };
        }

        let url = Url::parse(text).map_err(|_| invalid())?;

        // A signature covers the path that the node receives, so that an address cannot add one.
        let is_origin = url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none()
            && url.username().is_empty()
            && url.password().is_none();

        if is_origin && is_protected(text) {
            Ok(Self(url.origin().ascii_serialization()))
        } else {
            Err(invalid())
        }
    }
}

impl fmt::Display for NodeAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Serialize for NodeAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for NodeAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_an_origin_with_tls_or_on_this_machine() {
        for (text, expected) in [
            ("https://B.example", "https://b.example"),
            ("https://b.example:443/", "https://b.example"),
            ("https://b.example:8443", "https://b.example:8443"),
            ("http://127.0.0.1:7070", "http://127.0.0.1:7070"),
        ] {
            let address: NodeAddress = text.parse().unwrap();
            assert_eq!(address.to_string(), expected);
            assert_eq!(
                address.url("/v1/peer/check"),
                format!("{expected}/v1/peer/check")
            );
        }
        for text in [
            "b.example",
            "http://b.example",
            "ftp://127.0.0.1",
            "https://u:p@b.example",
            "https://b.example/orlog",
            "https://b.example/?x",
            "https://",
            &format!("https://{}", "b".repeat(600)),
        ] {
            let error = text.parse::<NodeAddress>().unwrap_err().to_string();
            assert!(error.contains("write https://"), "{error}");
        }
    }

    #[test]
    fn address_over_nats_is_a_subject_of_nodes() {
        let name = NodeName::new("b.example").unwrap();
        let text = format!("nats:{}", node_subject(&name));
        let address: NodeAddress = text.parse().unwrap();
        assert_eq!(
            (address.subject(), address.to_string()),
            (Some("orlog.node.b%2Eexample"), text)
        );
        assert_eq!(
            "https://b.example"
                .parse::<NodeAddress>()
                .unwrap()
                .subject(),
            None
        );
        assert!(
            "nats:orlog.node.acme.b".parse::<NodeAddress>().is_ok(),
            "an import can have any name"
        );
        for text in [
            "nats:",
            "nats:orlog.node.",
            "nats:orlog.node",
            "nats:orlog.node.*",
            "nats:orlog.node.>",
            "nats:orlog.node.a b",
            "nats:orlog.node.a..b",
            "nats:orlog.node.a\r\nPUB",
            "nats:$JS.API.STREAM.DELETE.ORLOG_LOG",
            "nats:tenant.acme.workflow_event.order.o-1",
            "nats://nats.example:4222",
            &format!("nats:orlog.node.{}", "b".repeat(600)),
        ] {
            let error = text.parse::<NodeAddress>().unwrap_err().to_string();
            assert!(error.contains("nats:orlog.node.<name>"), "{error}");
        }
    }
}
