//! Signatures of actors: HTTP requests, by HTTP Message Signatures (RFC 9421) with Ed25519 and
//! Content-Digest (RFC 9530), and events on the bus. Proofs that an actor holds the private key of
//! a public key.
//!
//! The signature of a request covers the method, the authority, the path, the query, and each
//! header of [`is_signed_header`] that the request has; the digest of the body is one of them. It
//! has a time of creation, an expiry, a nonce and the id of the key. No I/O and no clock: time is
//! an argument, and the caller stores the nonces.

mod base;
mod digest;
mod event;
mod key;
mod possession;
mod read;
mod sign;
mod time;

pub use base::{NODE_HEADER, RequestTarget, fingerprint, is_signed_header};
pub use digest::ContentDigest;
pub use event::{EVENT_SIGNATURE, EventMessage, EventSignature, EventSignatureError};
pub use key::{KeyError, KeyId, PublicKey, SigningKey};
pub use possession::{PossessionProof, ProofError};
pub use read::{ReadError, RequestSignature};
pub use sign::SignError;
pub use time::{TimeError, TimeWindow};

/// Tag of the signatures of this profile. Signatures with another tag are ignored.
pub const TAG: &str = "orlog";
/// Header with the components and the parameters of a signature.
pub const SIGNATURE_INPUT: &str = "signature-input";
/// Header with the signature.
pub const SIGNATURE: &str = "signature";
/// Header with the digest of the body.
pub const CONTENT_DIGEST: &str = "content-digest";
