//! Attributes of an event that Orlog does not interpret.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Attributes of an event that Orlog does not interpret, but keeps: those of CloudEvents 1.0, and
/// extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventAttributes {
    /// Content type of the data (`datacontenttype`), if it is not `application/json`.
    #[serde(default)]
    pub content_type: Option<String>,
    /// URI of the schema of the data (`dataschema`).
    #[serde(default)]
    pub data_schema: Option<String>,
    /// Extensions by name. Each value is a text in the canonical form of CloudEvents: in binary
    /// mode it has no type.
    #[serde(default)]
    pub extensions: BTreeMap<String, String>,
}

impl EventAttributes {
    /// Returns the attributes, boxed; `None` if there are none.
    #[must_use]
    pub fn boxed(self) -> Option<Box<Self>> {
        (self != Self::default()).then(|| Box::new(self))
    }
}
