//! Properties of a request for metrics, logs and the audit trail: the address of its connection,
//! and bounded labels.

use std::net::SocketAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

use orlog_node::cluster::pod_client::FORWARDED_BY;

/// Header of a forwarded request: the grant of the pod that verified the signature.
pub(crate) const GRANT: HeaderName = HeaderName::from_static("x-orlog-grant");
/// Label of an unknown route.
pub(crate) const NO_ROUTE: &str = "none";

/// Route of received webhooks. Their signature authenticates them, and the handler checks it.
pub(crate) const WEBHOOK_ROUTE: &str = "/v1/webhooks/{name}";
/// Route on which an invited actor enrolls its key. The token in the body authenticates it, and the
/// handler checks it.
pub(crate) const ENROLL_ROUTE: &str = "/v1/actors/{actor}/enroll";

/// Id of a request (`x-request-id`).
#[derive(Clone, Debug)]
pub(crate) struct RequestId(pub(crate) HeaderValue);

/// Address of the connected client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// Address of this node to which the client is connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LocalAddress(pub(crate) SocketAddr);

/// Mark of a request that another node sent over NATS: no browser can send it, and it has no
/// connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OverNats;

/// Returns whether a request has a grant, which is verified before its caller has any right.
pub(crate) fn is_granted(headers: &HeaderMap) -> bool {
    headers.contains_key(GRANT) && headers.contains_key(FORWARDED_BY)
}

/// Returns whether another node sent a request over NATS.
pub(crate) fn is_over_nats(request: &Request) -> bool {
    request.extensions().get::<OverNats>().is_some()
}

/// Returns the address of the connection.
pub(crate) fn peer(request: &Request) -> Option<SocketAddr> {
    request.extensions().get::<PeerAddress>().map(|peer| peer.0)
}

/// Maps unknown methods to one name, because callers can send any method and labels must be
/// bounded.
pub(crate) fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN
        .into_iter()
        .find(|known| *known == method)
        .unwrap_or("OTHER")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_share_one_label() {
        assert_eq!(
            (known_method("GET"), known_method("BREW")),
            ("GET", "OTHER")
        );
    }
}
