//! Signatures of Standard Webhooks, as a receiver computes them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::hmac;

/// Returns the signature of a message with this key.
pub(crate) fn signature(key: &[u8], id: &str, timestamp: &str, body: &[u8]) -> String {
    let signed = [format!("{id}.{timestamp}.").as_bytes(), body].concat();
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), &signed);
    format!("v1,{}", STANDARD.encode(tag.as_ref()))
}
