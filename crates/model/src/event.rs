//! Events in the form of CloudEvents 1.0.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{CorrelationId, EventId, EventType, TenantId, Timestamp, TraceParent};

/// Event, as transmitted. Field names follow CloudEvents 1.0 with the extensions `tenantid`,
/// `correlationid`, `causationid`, `orloguser` and `traceparent`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Id, unique per source. It is used for deduplication.
    pub id: EventId,
    /// Tenant of the event.
    pub tenant: TenantId,
    /// Event type, for example `OrderPlaced`.
    pub kind: EventType,
    /// Source of the event (`source` of CloudEvents), for example `urn:shop`.
    pub source: String,
    /// Subject of the event (`subject` of CloudEvents), for example the aggregate id.
    pub subject: Option<String>,
    /// Time of the event.
    pub time: Timestamp,
    /// Correlation id, if the publisher provides it.
    pub correlation: Option<CorrelationId>,
    /// Id of the command or event that caused this event.
    pub causation: Option<String>,
    /// W3C trace context.
    pub trace: Option<TraceParent>,
    /// Version of the payload schema. Default: 1.
    pub schema_version: u32,
    /// Payload.
    pub data: Value,
    /// Authenticated user who published the event, if known. The API sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
}
