//! Events: facts that happened elsewhere, in the shape of CloudEvents 1.0.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{CorrelationId, EventId, EventType, TenantId, Timestamp, TraceParent};

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
