//! Signature base (RFC 9421, section 2): the bytes that a signature covers.

use http::{HeaderMap, HeaderName};
use ring::digest::{SHA256, digest};

use crate::CONTENT_DIGEST;

/// Components of the target, which every signature covers.
pub(crate) const TARGET_COMPONENTS: [&str; 4] = ["@method", "@authority", "@path", "@query"];

/// Header with the name of the node for which a request is signed. An IP address and a loopback
/// name can lead to several nodes.
pub const NODE_HEADER: &str = "x-orlog-node";

/// Headers that change the effect of a request, in addition to those of CloudEvents (`ce-…`).
const SIGNED_HEADERS: [&str; 6] = [
    CONTENT_DIGEST,
    "content-type",
    "idempotency-key",
    "if-match",
    NODE_HEADER,
    "x-tenant-id",
];

/// Returns whether a signature must cover a header that the request has: it changes the effect of
/// the request.
#[must_use]
pub fn is_signed_header(name: &HeaderName) -> bool {
    SIGNED_HEADERS.contains(&name.as_str()) || name.as_str().starts_with("ce-")
}

/// Target of a request. The scheme is not part of it, because a proxy can terminate TLS.
#[derive(Clone, Copy, Debug)]
pub struct RequestTarget<'a> {
    /// Method, case-sensitive.
    pub method: &'a str,
    /// Host and port of the node as the client addresses it: the header `host`.
    pub authority: &'a str,
    /// Path, percent-encoded.
    pub path: &'a str,
    /// Query without the question mark.
    pub query: Option<&'a str>,
}

impl RequestTarget<'_> {
    /// Writes the value of a component of the target; `false` if it is none.
    fn write(&self, component: &str, base: &mut Vec<u8>) -> bool {
        match component {
            "@method" => base.extend_from_slice(self.method.as_bytes()),
            "@authority" => base.extend(
                normalized(self.authority)
                    .bytes()
                    .map(|b| b.to_ascii_lowercase()),
            ),
            // RFC 9421 normalizes an empty path.
            "@path" if self.path.is_empty() => base.push(b'/'),
            "@path" => base.extend_from_slice(self.path.as_bytes()),
            // RFC 9421 keeps the `?`, also without a query.
            "@query" => {
                base.push(b'?');
                base.extend_from_slice(self.query.unwrap_or_default().as_bytes());
            }
            _ => return false,
        }
        true
    }
}

/// Returns the authority without a default port. The scheme is unknown behind a proxy, so both
/// default ports are equal to none.
fn normalized(authority: &str) -> &str {
    authority
        .strip_suffix(":443")
        .or_else(|| authority.strip_suffix(":80"))
        .unwrap_or(authority)
}

/// Reason why a component has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoValue {
    /// The request has no such header.
    Absent,
    /// The component is neither part of the target nor a header.
    Unsupported,
}

/// Appends the line of one component.
pub(crate) fn push_component(
    base: &mut Vec<u8>,
    component: &str,
    target: &RequestTarget<'_>,
    headers: &HeaderMap,
) -> Result<(), NoValue> {
    base.push(b'"');
    base.extend_from_slice(component.as_bytes());
    base.extend_from_slice(b"\": ");

    if !target.write(component, base) {
        if component.starts_with('@') || component.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return Err(NoValue::Unsupported);
        }

        // Several headers of one name are one list, as RFC 9421 joins them.
        let mut values = headers.get_all(component).iter();
        base.extend_from_slice(
            values
                .next()
                .ok_or(NoValue::Absent)?
                .as_bytes()
                .trim_ascii(),
        );
        for value in values {
            base.extend_from_slice(b", ");
            base.extend_from_slice(value.as_bytes().trim_ascii());
        }
    }

    base.push(b'\n');
    Ok(())
}

/// Appends the last line: the serialized components and parameters.
pub(crate) fn push_params(base: &mut Vec<u8>, params: &str) {
    base.extend_from_slice(b"\"@signature-params\": ");
    base.extend_from_slice(params.as_bytes());
}

/// Returns the SHA-256 of what a signature of the request covers, except the authority: equal for a
/// request that another node forwards unchanged.
#[must_use]
pub fn fingerprint(target: &RequestTarget<'_>, headers: &HeaderMap) -> [u8; 32] {
    // Sorted, because a proxy can change the order of the headers.
    let mut signed: Vec<&str> = headers
        .keys()
        .filter(|name| is_signed_header(name))
        .map(HeaderName::as_str)
        .collect();

    signed.sort_unstable();

    let mut base = Vec::with_capacity(512);
    for component in ["@method", "@path", "@query"].into_iter().chain(signed) {
        push_component(&mut base, component, target, headers)
            .expect("the request has the component");
    }

    digest(&SHA256, &base)
        .as_ref()
        .try_into()
        .expect("SHA-256 has 32 bytes")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn fingerprint_depends_on_everything_signed_except_the_authority() {
        let target = RequestTarget {
            method: "GET",
            authority: "a",
            path: "/v1/sagas",
            query: Some("q=1"),
        };
        let mut headers = HeaderMap::new();
        headers.insert("x-tenant-id", HeaderValue::from_static("acme"));
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        let own = fingerprint(&target, &headers);
        let mut reordered = HeaderMap::new();
        reordered.insert("content-type", HeaderValue::from_static("application/json"));
        reordered.insert("accept", HeaderValue::from_static("*/*"));
        reordered.insert("x-tenant-id", HeaderValue::from_static("acme"));
        assert_eq!(
            fingerprint(
                &RequestTarget {
                    authority: "b",
                    ..target
                },
                &reordered
            ),
            own
        );
        for other in [
            RequestTarget {
                method: "PUT",
                ..target
            },
            RequestTarget {
                path: "/v1/tasks",
                ..target
            },
            RequestTarget {
                query: None,
                ..target
            },
        ] {
            assert_ne!(fingerprint(&other, &headers), own, "{other:?}");
        }
        headers.insert("x-tenant-id", HeaderValue::from_static("beta"));
        assert_ne!(fingerprint(&target, &headers), own);
    }
}
