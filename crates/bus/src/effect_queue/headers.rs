//! Headers of commands and results: CloudEvents in binary mode.

use compact_str::{CompactString, ToCompactString, format_compact};
use orlog_model::{InstanceKey, Timestamp, TraceParent, trace};

use crate::Headers;
use crate::codec::header_value;

/// Returns the headers of a message about a work item.
pub(super) fn headers(
    instance: &InstanceKey,
    id: &str,
    causation: &str,
    trace: Option<&TraceParent>,
    kind: &str,
    time: Timestamp,
) -> Headers {
    let mut headers = event_headers(instance, id, trace, kind);
    headers.push(("ce-time".into(), time.to_compact_string()));
    headers.push(("ce-causationid".into(), header_value(causation)));
    if let Some(baggage) = trace::tenant_baggage(instance) {
        // Baggage is already escaped by its own rules.
        headers.push(("baggage".into(), baggage.into()));
    }
    headers
}

/// Returns the headers that every message about an instance has.
pub(super) fn event_headers(
    instance: &InstanceKey,
    id: &str,
    trace: Option<&TraceParent>,
    kind: &str,
) -> Headers {
    let mut headers = Headers::with_capacity(12);
    let mut put = |name: &'static str, value: CompactString| {
        headers.push((CompactString::const_new(name), value));
    };

    put("ce-specversion", CompactString::const_new("1.0"));
    put("ce-id", id.into());
    put("ce-type", kind.into());
    put(
        "ce-source",
        header_value(&format_compact!("orlog:{}", instance.saga)),
    );
    put(
        "ce-correlationid",
        header_value(instance.correlation.as_str()),
    );
    if !instance.tenant.as_str().is_empty() {
        put("ce-tenantid", header_value(instance.tenant.as_str()));
    }
    if let Some(trace) = trace {
        put("traceparent", trace.as_str().into());
    }
    put("content-type", CompactString::const_new("application/json"));
    headers
}

/// Adds the schema version of a payload, unless it is 1.
pub(super) fn push_version(headers: &mut Headers, version: u32) {
    if version != 1 {
        headers.push(("ce-dataversion".into(), version.to_compact_string()));
    }
}
