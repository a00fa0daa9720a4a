//! Schemas of published events. They only describe requests: `orlog_bus` decodes the events.

use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

/// `CloudEvent` 1.0 in structured mode. An attribute with the value null counts as missing. Other
/// members are extensions: a string, a whole number or a boolean.
#[derive(Serialize, ToSchema)]
pub(crate) struct CloudEvent {
    #[schema(example = "1.0", pattern = r"^1\.0$")]
    specversion: String,
    /// Identifier; a repeated event with the same id and source is a duplicate.
    #[schema(max_length = 128)]
    id: String,
    #[serde(rename = "type")]
    #[schema(max_length = 128, example = "OrderPlaced")]
    kind: String,
    #[schema(max_length = 512, example = "urn:shop")]
    source: String,
    /// Default: time of receipt.
    #[schema(format = "date-time")]
    time: Option<String>,
    /// Object of the event.
    subject: Option<String>,
    /// Must equal the tenant of the request. Default: that tenant.
    tenantid: Option<String>,
    /// Identifier that all events of one instance share. Default: the saga reads it from the data.
    correlationid: Option<String>,
    /// Command or event that caused this event.
    causationid: Option<String>,
    /// User who publishes the event. Default: the authenticated user; only an admin can state
    /// another one.
    orloguser: Option<String>,
    /// W3C trace context.
    traceparent: Option<String>,
    /// Schema version of the data. Default: 1.
    #[schema(minimum = 1)]
    dataversion: Option<u32>,
    /// Media type of the data. Default: `application/json`.
    datacontenttype: Option<String>,
    /// URI of the schema of the data.
    #[schema(format = "uri")]
    dataschema: Option<String>,
    /// Data as JSON; a text if `datacontenttype` is not JSON.
    #[serde(skip_serializing_if = "Value::is_null")]
    data: Value,
    /// Data as base64; excludes `data`.
    data_base64: Option<String>,
}

/// Envelope of the Aggregate service.
#[derive(Serialize, ToSchema)]
pub(crate) struct AggregateEnvelope {
    /// Must equal the tenant of the request. Default: that tenant.
    tenant_id: Option<String>,
    #[schema(max_length = 128)]
    event_id: String,
    #[schema(example = "order")]
    aggregate_type: String,
    aggregate_id: String,
    #[schema(max_length = 128, example = "OrderPlaced")]
    event_type: String,
    /// Payload as JSON.
    #[serde(skip_serializing_if = "Value::is_null")]
    payload: Value,
    metadata: Option<AggregateMetadata>,
    /// RFC 3339, or milliseconds since 1970.
    timestamp: Option<EventTime>,
    /// Schema version of the payload. Default: 1.
    #[schema(minimum = 1)]
    version: Option<u32>,
}

/// Metadata of an [`AggregateEnvelope`].
#[derive(Serialize, ToSchema)]
#[expect(clippy::struct_field_names, reason = "names of the envelope")]
pub(crate) struct AggregateMetadata {
    /// Identifier that all events of one instance share. Default: the saga reads it from the
    /// payload.
    correlation_id: Option<String>,
    /// Command or event that caused this event.
    causation_id: Option<String>,
    /// Trace id or complete `traceparent`.
    trace_id: Option<String>,
}

/// Time of an [`AggregateEnvelope`].
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum EventTime {
    /// RFC 3339.
    #[schema(format = "date-time")]
    Text(String),
    /// Milliseconds since 1970.
    Millis(i64),
}

/// One event.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum PublishedEvent {
    /// `CloudEvent`.
    CloudEvent(CloudEvent),
    /// Event of an aggregate.
    Envelope(AggregateEnvelope),
}

/// One event, or a batch.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum PublishedEvents {
    /// One event.
    One(Box<PublishedEvent>),
    /// Batch.
    Batch(Vec<PublishedEvent>),
}
