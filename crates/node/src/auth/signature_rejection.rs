//! Reasons why a signed request is rejected, with their messages to the caller.

use std::fmt;

use orlog_model::Timestamp;
use orlog_signature::{KeyId, ReadError, TimeError};

/// Reason why a signed request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignatureRejection {
    /// The signature cannot be read, or covers too little.
    Unreadable(ReadError),
    /// The node does not know the key, or the key did not sign the request. The caller learns no
    /// difference.
    NotAuthentic(KeyId),
    /// The key is revoked or not valid now.
    InvalidKey(KeyId, String),
    /// The signature is outside its time window.
    Time(TimeError, Timestamp),
    /// The node cannot exclude that it accepted the signature before its start.
    BeforeStart(Timestamp),
    /// The nonce was used before.
    Replayed,
    /// The body is not the signed one.
    Digest,
    /// The request is signed for another node, or for an address that is not that of this node
    /// alone.
    Node(String),
    /// The grant of a forwarded request is unknown, used, or for another request.
    Grant,
}

impl SignatureRejection {
    /// Names of all reasons in metrics.
    pub(super) const REASONS: [&'static str; 8] = [
        "unreadable",
        "not_authentic",
        "invalid_key",
        "time",
        "replayed",
        "digest",
        "node",
        "grant",
    ];

    /// Returns the name of the reason in metrics.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            SignatureRejection::Unreadable(_) => "unreadable",
            SignatureRejection::NotAuthentic(_) => "not_authentic",
            SignatureRejection::InvalidKey(..) => "invalid_key",
            SignatureRejection::Time(..) | SignatureRejection::BeforeStart(_) => "time",
            SignatureRejection::Replayed => "replayed",
            SignatureRejection::Digest => "digest",
            SignatureRejection::Node(_) => "node",
            SignatureRejection::Grant => "grant",
        }
    }
}

impl fmt::Display for SignatureRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SignatureRejection::Unreadable(error) => write!(f, "{error}"),
            SignatureRejection::NotAuthentic(key) => write!(
                f,
                "the signature is not by a known key: the node does not know the key {key}, or \
                 the request was changed after it was signed. Add the key to the actor; a proxy \
                 must keep the host, the path and the signed headers"
            ),
            SignatureRejection::InvalidKey(key, reason) => {
                write!(
                    f,
                    "the key {key} cannot be used: {reason}; sign with another key of the \
                    actor"
                )
            }
            SignatureRejection::Time(error, now) => write!(
                f,
                "the signature is outside its time window: {error}; time of the node: {now}"
            ),
            SignatureRejection::BeforeStart(now) => write!(
                f,
                "the signature is older than the start of the node, which cannot exclude that it \
                 accepted it before; sign the request again, and check the clock of the client; \
                 time of the node: {now}"
            ),
            SignatureRejection::Replayed => f.write_str(
                "the nonce was used before; the node accepts a signature once. Sign the request \
                 again to repeat it",
            ),
            SignatureRejection::Digest => f.write_str(
                "the body does not have the signed digest; it was changed after it was \
                    signed",
            ),
            SignatureRejection::Node(reason) => f.write_str(reason),
            SignatureRejection::Grant => f.write_str(
                "the forwarded request has no valid grant of the pod that received it; send the \
                 request again",
            ),
        }
    }
}
