//! Events: facts that happened elsewhere, in the shape of CloudEvents 1.0.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{CorrelationId, EventId, EventType, TenantId, Timestamp};

/// A fact, as it travels. Field names follow CloudEvents 1.0 with the extensions `tenantid`, `correlationid`,
/// `causationid` and `traceparent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Unique per source; the key of deduplication.
    pub id: EventId,
    /// Whose event it is.
    pub tenant: TenantId,
    /// What happened, for example `OrderPlaced`.
    pub kind: EventType,
    /// Who says so (`source` of CloudEvents), for example `urn:shop`.
    pub source: String,
    /// What it is about (`subject` of CloudEvents), for example the aggregate's id.
    pub subject: Option<String>,
    /// When it happened.
    pub time: Timestamp,
    /// What the events of one saga instance share, where the publisher names it.
    pub correlation: Option<CorrelationId>,
    /// The id of the command or event that led to this one.
    pub causation: Option<String>,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
    /// Version of the payload's schema; 1 where nothing is said.
    pub schema_version: u32,
    /// The payload.
    pub data: Value,
}

/// A W3C `traceparent` header, kept as text: `00-<trace id>-<parent id>-<flags>`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TraceParent(String);

impl TraceParent {
    /// Takes a well-formed header of version 00; anything else is `None`, as the W3C recommendation asks.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let lengths = text.split('-').map(str::len);
        let hex = text.bytes().all(|b| b == b'-' || b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        (hex && text.starts_with("00-") && lengths.eq([2, 32, 16, 2])).then(|| Self(text.to_owned()))
    }

    /// The trace id: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> &str {
        &self.0[3..35]
    }

    /// The header's text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_well_formed_trace_parents_only() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(TraceParent::new(text).unwrap().trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736");
        for bad in ["", "00-short-00f067aa0ba902b7-01", &text.to_uppercase(), &text.replace("00-4", "01-4")] {
            assert_eq!(TraceParent::new(bad), None, "{bad}");
        }
    }
}
