//! Headers of commands and results: CloudEvents in binary mode.

use compact_str::{ToCompactString, format_compact};
use orlog_model::{Timestamp, WorkItem, trace};
use uuid::Uuid;

use crate::Headers;
use crate::codec::header_value;

/// Returns the headers of a message about a work item.
pub(super) fn headers(item: &WorkItem, kind: &str, time: Timestamp) -> Headers {
    let mut headers = Headers::with_capacity(11);
    let mut put = |name: &str, value: &str| headers.push((name.into(), header_value(value)));
    put("ce-specversion", "1.0");
    put("ce-id", item.id.hyphenated().encode_lower(&mut Uuid::encode_buffer()));
    put("ce-type", kind);
    put("ce-source", &format_compact!("orlog:{}", item.instance.saga));
    put("ce-time", &time.to_compact_string());
    put("ce-correlationid", item.instance.correlation.as_str());
    put("ce-causationid", item.causation.as_str());
    if !item.instance.tenant.as_str().is_empty() {
        put("ce-tenantid", item.instance.tenant.as_str());
    }
    if let Some(trace) = &item.trace {
        put("traceparent", trace.as_str());
    }
    put("content-type", "application/json");
    if let Some(baggage) = trace::tenant_baggage(&item.instance) {
        // Baggage is already escaped by its own rules.
        headers.push(("baggage".into(), baggage.into()));
    }
    headers
}
