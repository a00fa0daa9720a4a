//! Signatures of webhooks: HMAC-SHA256, and the headers and keys of Standard Webhooks. Sent and
//! received webhooks share them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::secret::Secret;

/// Header with the id of a message.
pub const WEBHOOK_ID: &str = "webhook-id";
/// Header with the time of an attempt, in seconds since 1970.
pub const WEBHOOK_TIMESTAMP: &str = "webhook-timestamp";
/// Header with the signatures: `v1,` and base64, separated by spaces.
pub const WEBHOOK_SIGNATURE: &str = "webhook-signature";
/// [`WEBHOOK_ID`] of senders that use the service from which Standard Webhooks come.
pub const SVIX_ID: &str = "svix-id";
/// [`WEBHOOK_TIMESTAMP`] of these senders.
pub const SVIX_TIMESTAMP: &str = "svix-timestamp";
/// [`WEBHOOK_SIGNATURE`] of these senders.
pub const SVIX_SIGNATURE: &str = "svix-signature";

/// Error for a key whose text after `whsec_` is not base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not valid base64 after whsec_")]
pub struct InvalidKey;

/// Returns the key of a Standard Webhooks secret: `whsec_` and base64, or any text.
///
/// # Errors
/// If the text after `whsec_` is not base64.
pub fn standard_webhooks_key(secret: &Secret) -> Result<Vec<u8>, InvalidKey> {
    match secret.expose().strip_prefix("whsec_") {
        Some(text) => STANDARD.decode(text).map_err(|_| InvalidKey),
        None => Ok(secret.expose().as_bytes().to_vec()),
    }
}

/// Returns the HMAC-SHA256 of the concatenated parts.
#[must_use]
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC accepts keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}
