//! Headers of all responses that limit what a browser does with them (OWASP Secure Headers).

use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderMap, HeaderName, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};

/// A response that is opened as a page loads nothing and is not shown in a frame.
const POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(HeaderName, &str); 6] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CONTENT_SECURITY_POLICY, POLICY),
    (CACHE_CONTROL, "no-store"),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
];

/// Adds the headers that a response does not have.
pub(crate) fn add(headers: &mut HeaderMap) {
    for (name, value) in HEADERS {
        // Pages and graphs have policies of their own.
        headers
            .entry(name)
            .or_insert(HeaderValue::from_static(value));
    }
}
