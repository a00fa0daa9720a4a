//! Names of nodes, and addresses of contexts on them.

use std::fmt;
use std::str::FromStr;

use compact_str::CompactString;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{IdError, TenantId};

/// Name of a node, for example `orders.example.com`. All pods of a cluster are one node.
///
/// Letters, digits, `.`, `-` and `_`, at most 128; it starts with a letter or a digit.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(CompactString);

/// Address of a context: `<context>@<node>`. A context has the name of its tenant.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContextAddress {
    /// Context on the node.
    pub context: TenantId,
    /// Node.
    pub node: NodeName,
}

/// Error of a text that is no name of a node, or no address of a context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The name of the node has another form.
    #[error(
        "{0:?} is no name of a node; use letters, digits, \".\", \"-\" and \"_\", at most 128, and \
        start with a letter or a digit"
    )]
    Node(String),
    /// The address has no `@`.
    #[error("{0:?} is no address of a context; write <context>@<node>")]
    Form(String),
    /// The context is invalid.
    #[error(transparent)]
    Context(#[from] IdError),
}

impl NodeName {
    /// Maximum length, in bytes.
    pub const MAX_BYTES: usize = 128;

    /// Validates the text and creates the name.
    ///
    /// # Errors
    /// [`AddressError::Node`].
    pub fn new(text: impl Into<CompactString>) -> Result<Self, AddressError> {
        let text = text.into();
        let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let starts = text
            .bytes()
            .next()
            .is_some_and(|byte| byte.is_ascii_alphanumeric());

        if starts && text.len() <= Self::MAX_BYTES && text.bytes().all(is_valid) {
            Ok(Self(text))
        } else {
            Err(AddressError::Node(shortened(&text)))
        }
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the start of an invalid text, for a message.
fn shortened(text: &str) -> String {
    text.chars().take(NodeName::MAX_BYTES).collect()
}

impl FromStr for NodeName {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::new(text)
    }
}

impl FromStr for ContextAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        // A tenant id can contain an @, the name of a node cannot.
        let (context, node) = text
            .rsplit_once('@')
            .ok_or_else(|| AddressError::Form(shortened(text)))?;

        Ok(Self {
            context: TenantId::for_input(context)?,
            node: NodeName::new(node)?,
        })
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Display for ContextAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.context, self.node)
    }
}

impl fmt::Debug for ContextAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

impl Serialize for NodeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for NodeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(CompactString::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Serialize for ContextAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ContextAddress {
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
    fn address_is_read_back_and_splits_at_the_last_at_sign() {
        for (text, context) in [
            ("acme@b.example", "acme"),
            ("ada@mail@node-1", "ada@mail"),
            ("@localhost", ""),
        ] {
            let address: ContextAddress = text.parse().unwrap();
            assert_eq!(
                (address.context.as_str(), address.to_string().as_str()),
                (context, text)
            );
            let json = serde_json::to_string(&address).unwrap();
            assert_eq!(
                serde_json::from_str::<ContextAddress>(&json).unwrap(),
                address
            );
        }
    }

    #[test]
    fn invalid_addresses_name_the_expected_form() {
        for (text, expected) in [
            ("acme", "write <context>@<node>"),
            ("acme@", "is no name of a node"),
            ("acme@.b", "is no name of a node"),
            ("acme@b c", "is no name of a node"),
            ("acme@b/c", "is no name of a node"),
            ("a\nb@c", "control character"),
        ] {
            let error = text.parse::<ContextAddress>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let limit = NodeName::MAX_BYTES;
        assert!(
            NodeName::new("a".repeat(limit)).is_ok()
                && NodeName::new("a".repeat(limit + 1)).is_err()
        );
        assert!(serde_json::from_str::<NodeName>("\"..\"").is_err());
    }
}
