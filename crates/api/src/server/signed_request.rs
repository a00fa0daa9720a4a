//! Signed requests: the caller by the key of an actor, and a body that must have the signed digest.
//!
//! The handler receives the end of the body only if the digest matches. A forwarded request has the
//! grant of the pod that verified the signature instead of the signature.

use axum::body::{Body, HttpBody as _};
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use futures::{StreamExt as _, stream};
use orlog_signature::{
    CONTENT_DIGEST, ContentDigest, KeyId, RequestSignature, RequestTarget, SIGNATURE,
    SIGNATURE_INPUT,
};

use super::context::{ApiState, RequestContext};
use super::problem::Problem;
use super::request_info::{GRANT, is_granted};
use super::signed_node;
use orlog_node::auth::{AuthError, Authenticator, Caller, SignatureRejection, SignedCaller};

/// Error at the end of a body that is not the signed one.
#[derive(Debug, thiserror::Error)]
#[error("the body does not have the signed digest")]
struct DigestMismatch;

/// Returns whether a request may have a signature of an actor, or a grant for it.
pub(super) fn is_signed(headers: &HeaderMap) -> bool {
    headers.contains_key(SIGNATURE_INPUT) || is_granted(headers)
}

/// Caller of a signed request, and its signature if it is not accepted yet.
pub(super) struct VerifiedCaller {
    pub(super) caller: Caller,
    pub(super) signature: Option<Box<RequestSignature>>,
}

/// Verifies a signed request; `None` if it has no signature of an actor.
pub(super) async fn verify(
    api: &ApiState,
    request: &mut Request,
) -> Result<Option<VerifiedCaller>, Problem> {
    let has_body = !request.body().is_end_stream();
    let headers = request.headers();
    let target = target(request.method(), request.uri(), headers);
    let signed = api.shared.app.authenticator.signed();
    let found = if is_granted(headers) {
        let secret = headers[GRANT].to_str().unwrap_or_default();
        let digest = headers
            .get(CONTENT_DIGEST)
            .and_then(|value| ContentDigest::parse(value.as_bytes()));
        // A grant covers the digest, and only the digest covers the body.
        if has_body && digest.is_none() {
            return Err(signed.reject(SignatureRejection::Grant).into());
        }

        let caller = signed.forwarded_caller(secret, &target, headers).await?;
        Some(SignedCaller {
            caller,
            digest,
            signature: None,
        })
    } else {
        signed.caller(&target, headers, has_body)?
    };
    let Some(SignedCaller {
        caller,
        digest,
        signature,
    }) = found
    else {
        return Ok(None);
    };
    // The pod that issued a grant has made this check for the address of its own connection.
    if !is_granted(headers)
        && let Err(reason) = signed_node::check(api, request)
    {
        return Err(signed.reject(SignatureRejection::Node(reason)).into());
    }

    if let Some(digest) = digest {
        let body = std::mem::take(request.body_mut());
        *request.body_mut() = checked(body, digest);
    }
    Ok(Some(VerifiedCaller { caller, signature }))
}

/// Replaces the signature of a request by a grant for the request that this pod forwards.
pub(super) async fn grant(
    authenticator: &Authenticator,
    key: KeyId,
    method: &Method,
    uri: &str,
    headers: &mut HeaderMap,
    body: &[u8],
) -> Result<(), AuthError> {
    // The signature covers the authority of this pod, and its nonce is used; another pod could only
    // reject it.
    for name in [SIGNATURE, SIGNATURE_INPUT, CONTENT_DIGEST] {
        headers.remove(name);
    }
    let ascii = |text: &str| HeaderValue::from_str(text).expect("base64 is ASCII");

    if !body.is_empty() {
        headers.insert(CONTENT_DIGEST, ascii(&ContentDigest::of(body).header()));
    }
    let (path, query) = match uri.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (uri, None),
    };
    // Without an authority, which the fingerprint of a grant does not cover: it differs at each
    // pod.
    let target = RequestTarget {
        method: method.as_str(),
        authority: "",
        path,
        query,
    };

    let secret = authenticator.signed().grant(key, &target, headers).await?;
    headers.insert(GRANT, ascii(&secret));

    Ok(())
}

/// Returns the problem of a body that is not the signed one; `None` for another error of a body.
pub(super) fn digest_problem(api: &RequestContext, error: &axum::Error) -> Option<Problem> {
    let mut cause: Option<&dyn std::error::Error> = Some(error);
    while let Some(error) = cause {
        if error.is::<DigestMismatch>() {
            return Some(
                api.shared
                    .app
                    .authenticator
                    .signed()
                    .reject(SignatureRejection::Digest)
                    .into(),
            );
        }
        cause = error.source();
    }

    None
}

/// Returns the target of a request. Its authority is the one that `origin.rs` has checked.
fn target<'a>(method: &'a Method, uri: &'a Uri, headers: &'a HeaderMap) -> RequestTarget<'a> {
    let host = || {
        headers
            .get(header::HOST)
            .and_then(|host| host.to_str().ok())
            .unwrap_or_default()
    };
    let authority = uri.authority().map_or_else(host, Authority::as_str);

    RequestTarget {
        method: method.as_str(),
        authority,
        path: uri.path(),
        query: uri.query(),
    }
}

/// Returns the body with an error at its end unless it has the digest.
fn checked(body: Body, expected: ContentDigest) -> Body {
    let state = Some((body.into_data_stream(), ContentDigest::hasher()));
    Body::from_stream(stream::unfold(state, move |state| async move {
        let (mut pieces, mut hasher) = state?;
        match pieces.next().await {
            Some(Ok(piece)) => {
                hasher.update(&piece);
                Some((Ok(piece), Some((pieces, hasher))))
            }
            Some(Err(error)) => Some((Err(error), None)),
            None if hasher.finish() == expected => None,
            // In place of the end: a handler that waits for the whole body never acts on another
            // one.
            None => Some((Err(axum::Error::new(DigestMismatch)), None)),
        }
    }))
}

#[cfg(test)]
mod tests {
    use axum::body::Bytes;
    use futures::TryStreamExt as _;

    use super::*;

    async fn read(body: &'static [u8], expected: &[u8]) -> Result<Vec<u8>, bool> {
        let pieces = body
            .chunks(3)
            .map(|piece| Ok::<_, axum::Error>(Bytes::from_static(piece)));
        let body = checked(
            Body::from_stream(stream::iter(pieces)),
            ContentDigest::of(expected),
        );
        let read = body
            .into_data_stream()
            .try_fold(Vec::new(), async |mut all, piece| {
                all.extend_from_slice(&piece);
                Ok(all)
            });
        read.await.map_err(|error| {
            std::iter::successors(Some(&error as &dyn std::error::Error), |error| {
                error.source()
            })
            .any(<dyn std::error::Error>::is::<DigestMismatch>)
        })
    }

    #[tokio::test]
    async fn body_ends_only_with_the_signed_digest() {
        assert_eq!(
            read(b"0123456789", b"0123456789").await,
            Ok(b"0123456789".to_vec())
        );
        assert_eq!(read(b"", b"").await, Ok(Vec::new()));
        for (body, signed) in [
            (&b"0123456789"[..], &b"0123456788"[..]),
            (b"01", b"012"),
            (b"x", b""),
            (b"", b"x"),
        ] {
            assert_eq!(read(body, signed).await, Err(true), "{body:?}");
        }
    }
}
