//! Request to another node and its response, independent of how they are carried.

use bytes::Bytes;
use http::Method;
use orlog_model::{NodeName, Timestamp};
use orlog_signature::{PublicKey, SigningKey};

/// Request to another node.
pub(super) struct NodeRequest<'a> {
    pub(super) method: Method,
    /// Path, which starts with `/`.
    pub(super) path: &'a str,
    /// Body in JSON; empty if there is none.
    pub(super) body: Vec<u8>,
    /// Signature; `None`: the request needs none.
    pub(super) signature: Option<RequestSignature<'a>>,
}

/// What a request is signed with, and who answers it.
pub(super) struct RequestSignature<'a> {
    pub(super) key: &'a SigningKey,
    /// Node that receives the request.
    pub(super) receiver: &'a NodeName,
    /// Its valid keys. They prove the response if the connection does not.
    pub(super) receiver_keys: Vec<PublicKey>,
    pub(super) now: Timestamp,
}

/// Response of another node.
pub(super) struct NodeResponse {
    /// HTTP status.
    pub(super) status: u16,
    pub(super) body: Bytes,
}

/// Reason why a request has no response.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum SendError {
    /// Nothing was sent.
    NotSent(String),
    /// It is unknown whether the node has executed the request.
    NoResponse(String),
    /// The response is not one of the node.
    Invalid(String),
}

/// Returns the reason of a response that exceeds a limit in bytes.
pub(super) fn too_large(limit: usize) -> String {
    format!("the response has more than {limit} bytes")
}
