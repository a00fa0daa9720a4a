//! Signatures of received webhooks, by the scheme of the sender.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use orlog_effect::secret::{Secret, SecretUnavailable};
use orlog_effect::webhook_signature::{
    InvalidKey, SVIX_ID, SVIX_SIGNATURE, SVIX_TIMESTAMP, WEBHOOK_ID, WEBHOOK_SIGNATURE,
    WEBHOOK_TIMESTAMP, hmac_sha256, standard_webhooks_key,
};
use orlog_model::Timestamp;
use subtle::ConstantTimeEq as _;

use crate::config::{SignatureEncoding, WebhookConfig, WebhookScheme, WebhookSignatureConfig};

const STRIPE_SIGNATURE: &str = "stripe-signature";
const GITHUB_SIGNATURE: &str = "x-hub-signature-256";
/// Maximum number of signatures of one request that are compared.
const MAX_SIGNATURES: usize = 16;

/// Reason why a request is not authentic. Only the log of the node contains it.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// The request lacks a header of the scheme.
    #[error("the header {0} is missing")]
    Missing(String),
    /// A header is not what the scheme prescribes.
    #[error("the header {header} is malformed: {reason}")]
    Malformed {
        /// Name of the header.
        header: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The request is too old, or from the future.
    #[error(
        "the timestamp is {difference:?} away from the clock of the node, more than replay_window"
    )]
    Expired {
        /// Distance from the clock of the node.
        difference: Duration,
    },
    /// No secret of the webhook signed the request.
    #[error("no secret matches the signature")]
    Mismatch,
    /// The secret cannot be read.
    #[error("{0}")]
    Unavailable(SecretUnavailable),
}

/// Signatures of a request, and what they sign besides the body.
#[derive(Debug, Default)]
struct RequestSignatures {
    /// Signed text before the body.
    prefix: String,
    /// Time of the request in seconds since 1970, if the scheme has one.
    timestamp: Option<i64>,
    /// Decoded signatures; any of them can match.
    signatures: Vec<Vec<u8>>,
}

/// Returns the key of a secret: Standard Webhooks encode it.
pub(crate) fn key(scheme: WebhookScheme, secret: &Secret) -> Result<Vec<u8>, InvalidKey> {
    match scheme {
        WebhookScheme::StandardWebhooks => standard_webhooks_key(secret),
        _ => Ok(secret.expose().as_bytes().to_vec()),
    }
}

/// Verifies that the owner of one of the secrets sent this body within the replay window.
///
/// # Errors
/// If it did not, or if a secret cannot be read and the others do not match.
pub fn verify(
    config: &WebhookConfig,
    headers: &HeaderMap,
    body: &[u8],
    now: Timestamp,
) -> Result<(), SignatureError> {
    let signatures_of_request = match (config.scheme, &config.signature) {
        (WebhookScheme::Stripe, _) => stripe(headers)?,
        (WebhookScheme::Github, _) => github(headers)?,
        (WebhookScheme::StandardWebhooks, _) => standard_webhooks(headers)?,
        (WebhookScheme::HmacSha256, Some(format)) => hmac(format, headers)?,
        (WebhookScheme::Token, Some(format)) => token(format, headers)?,
        // The configuration requires a format; without one, no secret matches.
        (WebhookScheme::HmacSha256 | WebhookScheme::Token, None) => RequestSignatures::default(),
    };

    // Before the signature: the time is cheap to check, and a signed request can be recorded and
    // repeated.
    if let Some(timestamp) = signatures_of_request.timestamp {
        let difference = Duration::from_secs(now.as_millis().div_euclid(1000).abs_diff(timestamp));
        if difference > config.replay_window {
            return Err(SignatureError::Expired { difference });
        }
    }

    // During a rotation one of the secrets may be missing; the request is verified with the others.
    let mut unavailable = None;
    for reference in &config.secrets {
        match reference.resolve() {
            Ok(secret) if signatures_of_request.matches(config.scheme, &secret, body) => {
                return Ok(());
            }
            Ok(_) => {}
            Err(error) => unavailable = Some(error),
        }
    }

    Err(unavailable.map_or(SignatureError::Mismatch, SignatureError::Unavailable))
}

impl RequestSignatures {
    /// Compares in constant time.
    fn matches(&self, scheme: WebhookScheme, secret: &Secret, body: &[u8]) -> bool {
        // An empty key would make a signature that anyone can compute.
        let Some(key) = key(scheme, secret).ok().filter(|key| !key.is_empty()) else {
            return false;
        };
        if scheme == WebhookScheme::Token {
            // The digests have the same length, so the comparison does not disclose that of the
            // secret.
            let digest = |text: &[u8]| hmac_sha256(b"token", &[text]);
            return self
                .signatures
                .iter()
                .any(|token| digest(token).ct_eq(&digest(&key)).into());
        }

        let expected = hmac_sha256(&key, &[self.prefix.as_bytes(), body]);
        self.signatures
            .iter()
            .any(|signature| signature.as_slice().ct_eq(&expected).into())
    }
}

fn stripe(headers: &HeaderMap) -> Result<RequestSignatures, SignatureError> {
    let text = single(headers, STRIPE_SIGNATURE)?;
    let fields = || {
        text.split(',')
            .filter_map(|field| field.trim().split_once('='))
    };
    let (_, timestamp) = fields()
        .find(|(name, _)| *name == "t")
        .ok_or_else(|| malformed(STRIPE_SIGNATURE, "it has no timestamp (t=)"))?;
    let signatures = fields()
        // During the rotation of a secret, Stripe sends one signature for each secret.
        .filter(|(name, _)| *name == "v1")
        .filter_map(|(_, hex)| hex::decode(hex).ok());

    Ok(RequestSignatures {
        prefix: format!("{timestamp}."),
        timestamp: Some(seconds(STRIPE_SIGNATURE, timestamp)?),
        signatures: signatures.take(MAX_SIGNATURES).collect(),
    })
}

fn github(headers: &HeaderMap) -> Result<RequestSignatures, SignatureError> {
    let text = single(headers, GITHUB_SIGNATURE)?;
    let signature = decode(GITHUB_SIGNATURE, text, "sha256=", SignatureEncoding::Hex)?;
    Ok(RequestSignatures {
        signatures: vec![signature],
        ..RequestSignatures::default()
    })
}

fn standard_webhooks(headers: &HeaderMap) -> Result<RequestSignatures, SignatureError> {
    // All of one kind: the delivery id must be the one that is signed.
    let has_svix_names = !headers.contains_key(WEBHOOK_ID) && headers.contains_key(SVIX_ID);
    let [id_name, timestamp_name, signature_name] = if has_svix_names {
        [SVIX_ID, SVIX_TIMESTAMP, SVIX_SIGNATURE]
    } else {
        [WEBHOOK_ID, WEBHOOK_TIMESTAMP, WEBHOOK_SIGNATURE]
    };

    let id = single(headers, id_name)?;
    let timestamp = single(headers, timestamp_name)?;
    let signatures = single(headers, signature_name)?.split(' ');
    let signatures = signatures.filter_map(|one| STANDARD.decode(one.strip_prefix("v1,")?).ok());

    Ok(RequestSignatures {
        prefix: format!("{id}.{timestamp}."),
        timestamp: Some(seconds(timestamp_name, timestamp)?),
        signatures: signatures.take(MAX_SIGNATURES).collect(),
    })
}

fn hmac(
    format: &WebhookSignatureConfig,
    headers: &HeaderMap,
) -> Result<RequestSignatures, SignatureError> {
    let signature = decode(
        &format.header,
        single(headers, &format.header)?,
        &format.prefix,
        format.encoding,
    )?;

    let timestamp = match &format.timestamp_header {
        Some(header) => {
            let text = single(headers, header)?;
            Some((text, seconds(header, text)?))
        }
        None => None,
    };
    let text = timestamp.map_or("", |(text, _)| text);
    // The validation of the configuration rejects such a payload, so that no request causes this
    // error.
    let prefix = format
        .signed_prefix(text)
        .map_err(|_| malformed(&format.header, "invalid payload"))?;

    Ok(RequestSignatures {
        prefix,
        timestamp: timestamp.map(|(_, seconds)| seconds),
        signatures: vec![signature],
    })
}

fn token(
    format: &WebhookSignatureConfig,
    headers: &HeaderMap,
) -> Result<RequestSignatures, SignatureError> {
    let text = single(headers, &format.header)?;
    let token = text.strip_prefix(&format.prefix);
    let token =
        token.ok_or_else(|| malformed(&format.header, "it does not start with the prefix"))?;
    Ok(RequestSignatures {
        signatures: vec![token.as_bytes().to_vec()],
        ..RequestSignatures::default()
    })
}

/// Returns the value of a header that occurs once: a second value could be the one that was not
/// verified.
fn single<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, SignatureError> {
    let mut values = headers.get_all(name).iter();
    let value = values
        .next()
        .ok_or_else(|| SignatureError::Missing(name.to_owned()))?;

    if values.next().is_some() {
        return Err(malformed(name, "it occurs more than once"));
    }

    value
        .to_str()
        .map_err(|_| malformed(name, "it is not ASCII"))
}

fn seconds(header: &str, text: &str) -> Result<i64, SignatureError> {
    text.parse()
        .map_err(|_| malformed(header, "the timestamp is not a number of seconds"))
}

fn decode(
    header: &str,
    text: &str,
    prefix: &str,
    encoding: SignatureEncoding,
) -> Result<Vec<u8>, SignatureError> {
    let text = text.strip_prefix(prefix);
    let text = text.ok_or_else(|| malformed(header, "it does not start with the prefix"))?;

    match encoding {
        SignatureEncoding::Hex => {
            hex::decode(text).map_err(|_| malformed(header, "it is not hexadecimal"))
        }
        SignatureEncoding::Base64 => STANDARD
            .decode(text)
            .map_err(|_| malformed(header, "it is not base64")),
    }
}

fn malformed(header: &str, reason: &'static str) -> SignatureError {
    SignatureError::Malformed {
        header: header.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests;
