//! Headers of requests: those that Orlog sets, and the configured ones.

use std::collections::BTreeMap;

use orlog_model::WorkItem;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

use crate::secret::{SecretRef, SecretScrubber};
use crate::template::{FillError, PlaceholderScope, TextTemplate};

/// Encoding of CloudEvents for HTTP header values.
const UNFIT_FOR_HEADERS: &AsciiSet = &CONTROLS.add(b' ').add(b'"').add(b'%');

pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TENANT: HeaderName = HeaderName::from_static("x-tenant-id");
const CORRELATION: HeaderName = HeaderName::from_static("x-correlation-id");
const TRACE: HeaderName = HeaderName::from_static("traceparent");
const BAGGAGE: HeaderName = HeaderName::from_static("baggage");
/// Schema version of a payload, as in CloudEvents; absent if it is 1.
pub(crate) const DATA_VERSION: HeaderName = HeaderName::from_static("ce-dataversion");

/// Returns the headers that identify the tenant, instance and work item of a request.
pub(crate) fn context_headers(item: &WorkItem, key_header: HeaderName) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(6);
    headers.insert(key_header, header(&item.id.to_string()));

    if !item.instance.tenant.as_str().is_empty() {
        headers.insert(TENANT, header(item.instance.tenant.as_str()));
    }

    headers.insert(CORRELATION, header(item.instance.correlation.as_str()));
    if let Some(trace) = &item.trace {
        headers.insert(TRACE, header(trace.as_str()));
    }

    // Version 1 has no header: a service that does not use versions receives none.
    if let Some(version) = item
        .work
        .effect()
        .map(|effect| effect.schema_version)
        .filter(|version| *version != 1)
    {
        headers.insert(DATA_VERSION, HeaderValue::from(version));
    }

    // Already escaped by its own rules; valid in a header.
    let baggage = orlog_model::trace::tenant_baggage(&item.instance);
    if let Some(value) = baggage.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(BAGGAGE, value);
    }

    headers
}

/// Returns whether a header is set on every request or belongs to the protocol.
pub(crate) fn is_reserved(name: &HeaderName) -> bool {
    [TENANT, CORRELATION, TRACE, DATA_VERSION].contains(name)
        || matches!(
            name.as_str(),
            "idempotency-key" | "host" | "content-length" | "transfer-encoding" | "connection"
        )
}

fn header(text: &str) -> HeaderValue {
    let encoded = utf8_percent_encode(text, UNFIT_FOR_HEADERS).to_string();
    HeaderValue::try_from(encoded).expect("percent-encoded text is printable ASCII")
}

pub(crate) fn parse_headers(
    headers: &BTreeMap<String, String>,
) -> Result<Vec<(HeaderName, TextTemplate)>, String> {
    headers
        .iter()
        .map(|(name, value)| parse_header(name, value))
        .collect()
}

/// Parses a header. Errors never contain the value: it may be a secret.
fn parse_header(name: &str, value: &str) -> Result<(HeaderName, TextTemplate), String> {
    let parsed =
        HeaderName::try_from(name).map_err(|_| format!("{name:?} is not a valid header name"))?;

    if is_reserved(&parsed) {
        return Err(format!("the header {name:?} is reserved for Orlog"));
    }

    if value.parse::<SecretRef>().is_ok() {
        return Err(format!(
            "the header {name:?} would send the reference itself; use {{env:…}} for the secret"
        ));
    }

    if value.chars().any(char::is_control) {
        return Err(format!("the value of {name:?} is not a valid header value"));
    }

    Ok((
        parsed,
        TextTemplate::parse(value)
            .map_err(|reason| format!("invalid header {name:?}: {reason}"))?,
    ))
}

pub(crate) fn fill_headers(
    texts: &[(HeaderName, TextTemplate)],
    scope: PlaceholderScope<'_>,
    scrub: &mut SecretScrubber,
) -> Result<HeaderMap, FillError> {
    let mut headers = HeaderMap::with_capacity(texts.len());
    for (name, text) in texts {
        let value = text.fill(scope, scrub, |_, text| text)?;
        let mut value = HeaderValue::try_from(value).map_err(|_| {
            FillError::Payload(format!("the value of {name} contains a line break"))
        })?;
        // A sensitive value is omitted from debug output.
        value.set_sensitive(text.has_secrets());
        headers.insert(name.clone(), value);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_percent_encoded() {
        assert_eq!(header("o 1 ü%").to_str().unwrap(), "o%201%20%C3%BC%25");
    }
}
