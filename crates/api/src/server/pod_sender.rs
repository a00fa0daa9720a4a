//! Sender of a forwarded request: only another pod may name itself in it.

use axum::extract::Request;
use axum::http::HeaderValue;
use subtle::ConstantTimeEq as _;

use super::problem::{Code, Problem};
use super::request_info::is_granted;
use orlog_node::app::App;
use orlog_node::cluster::pod_client::{FORWARDED_BY, POD_TOKEN};
use orlog_node::tls::pods::PodCertificate;

/// Checks that a pod sent a forwarded request. With TLS, a request of a client that is not the pod
/// that it names is rejected. Without TLS, the header is removed unless the sender knows the token
/// of this pod: the request is that of a client.
pub(crate) fn check_sender(app: &App, request: &mut Request) -> Result<(), Problem> {
    // Removed in any case, so that neither handlers nor logs nor further pods receive it.
    let token = request.headers_mut().remove(POD_TOKEN);
    let Some(name) = request.headers().get(FORWARDED_BY) else {
        return Ok(());
    };

    let Some(trust) = app.services.keys.tls.as_ref().and_then(|tls| tls.pods()) else {
        // A request with a grant keeps the header: the grant is verified before its caller has any
        // right.
        if !knows_token(app, token.as_ref()) && !is_granted(request.headers()) {
            request.headers_mut().remove(FORWARDED_BY);
        }
        return Ok(());
    };
    let certificate = request.extensions().get::<PodCertificate>();
    let name = name.to_str().unwrap_or_default();
    if certificate.is_some_and(|certificate| trust.is_pod(certificate, name)) {
        return Ok(());
    }

    let detail = format!(
        "{FORWARDED_BY} requires the client certificate of a pod; only pods send this header"
    );
    Err(Problem::new(Code::UnverifiedPod, detail))
}

/// Returns whether the sender of a request has read the record of this pod in the lease bucket.
fn knows_token(app: &App, token: Option<&HeaderValue>) -> bool {
    let (Some(cluster), Some(token)) = (&app.cluster, token) else {
        return false;
    };
    let own = cluster.incarnation().to_string();
    // In constant time, so that the duration of the comparison reveals no part of the token.
    token.as_bytes().ct_eq(own.as_bytes()).into()
}
