//! Signs requests of an HTTP client, and reads responses up to a limit.

use std::time::Duration;

use anyhow::bail;
use orlog_model::Timestamp;
use orlog_signature::{RequestTarget, SignError, SigningKey};
use reqwest::{Request, Response};

/// Time for which the signature of a request is valid: at most `auth.signatures.window` of a node.
pub const SIGNATURE_LIFETIME: Duration = Duration::from_mins(1);

/// Signs a complete request as it is sent. Its body is in memory.
///
/// # Errors
/// If the operating system provides no random bytes.
pub fn sign(key: &SigningKey, request: &mut Request, now: Timestamp) -> Result<(), SignError> {
    let method = request.method().clone();
    let url = request.url().clone();
    let host = url.host_str().unwrap_or_default();
    let authority = url
        .port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));

    // The authority as HTTP sends it in `Host`: without the default port.
    let target = RequestTarget {
        method: method.as_str(),
        authority: &authority,
        path: url.path(),
        query: url.query(),
    };

    let body = request
        .body()
        .and_then(|body| body.as_bytes())
        .unwrap_or_default()
        .to_vec();
    key.sign(
        &target,
        request.headers_mut(),
        &body,
        created(now),
        SIGNATURE_LIFETIME,
    )
}

/// Returns the time of a signature, in seconds since 1970.
pub(crate) fn created(now: Timestamp) -> i64 {
    now.as_millis().div_euclid(1000)
}

/// Returns the body of a response.
///
/// # Errors
/// If it is incomplete, or larger than the limit in bytes.
pub async fn bounded_body(mut response: Response, limit: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    // The length that the sender states is not trusted: the limit applies to the received bytes.
    while let Some(chunk) = response.chunk().await? {
        bytes.extend_from_slice(&chunk);
        if bytes.len() > limit {
            bail!("the response has more than {limit} bytes");
        }
    }
    Ok(bytes)
}
