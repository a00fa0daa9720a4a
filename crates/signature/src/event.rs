//! Signed events: Ed25519 over the subject, the attributes and the data of a message on the bus.
//!
//! The signature is the attribute [`EVENT_SIGNATURE`] of the event:
//! `v1.<key id>.<created>.<expires>.<signature>`, times in seconds since 1970, the signature in
//! base64url. It covers the key id, the times, the subject, each header of an attribute (`ce-…`),
//! `content-type`, `traceparent`, and the bytes of the data. The id and the source of the event are
//! among the attributes, so an event needs no nonce: a repetition is a duplicate. The attribute
//! [`USER`] is not covered, because the user of a signed event is its signer.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::digest::{Context, SHA256};

use crate::key::shortened;
use crate::{KeyId, PublicKey, SigningKey};

/// Header with the signature of an event.
pub const EVENT_SIGNATURE: &str = "ce-orlogsignature";
/// Header with the user of an event.
const USER: &str = "ce-orloguser";
/// Version of the text of a signature.
const VERSION: &str = "v1";
/// Start of the signed bytes, so that the signature of an event is none of a request.
const DOMAIN: &[u8] = b"orlog.event.v1";

/// Message in binary mode: the attributes of the event are headers, the body is its data.
#[derive(Clone, Copy, Debug)]
pub struct EventMessage<'a, H> {
    /// Subject on the bus.
    pub subject: &'a str,
    /// Names and values of the headers.
    pub headers: H,
    /// Body.
    pub data: &'a [u8],
}

/// Signature of an event, before it is verified: its parameters, and the bytes that it covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventSignature {
    /// Id of the key.
    pub key_id: KeyId,
    /// Time of creation, in seconds since 1970.
    pub created: i64,
    /// Expiry, in seconds since 1970.
    pub expires: i64,
    signed: Vec<u8>,
    signature: Vec<u8>,
}

/// Reason why an event has no usable signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EventSignatureError {
    /// The attribute has another form.
    #[error(
        "the attribute orlogsignature {0:?} is malformed; expected \
        v1.<key id>.<created>.<expires>.<signature>"
    )]
    Malformed(String),
    /// The attribute occurs several times.
    #[error("the event has several signatures; send one")]
    Several,
}

impl EventSignature {
    /// Reads the signature of an event; `None` if it has none. The result is not verified.
    ///
    /// # Errors
    /// If the attribute is malformed or occurs several times.
    pub fn read<'a>(
        message: EventMessage<'a, impl Iterator<Item = (&'a str, &'a str)> + Clone>,
    ) -> Result<Option<Self>, EventSignatureError> {
        let mut found = message
            .headers
            .clone()
            .filter(|(name, _)| name.eq_ignore_ascii_case(EVENT_SIGNATURE));

        let Some((_, text)) = found.next() else {
            return Ok(None);
        };

        // Two signatures could be verified by two readers in different ways.
        if found.next().is_some() {
            return Err(EventSignatureError::Several);
        }

        let read = Self::parse(text.trim(), message);
        read.map(Some)
            .ok_or_else(|| EventSignatureError::Malformed(shortened(text)))
    }

    fn parse<'a>(
        text: &str,
        message: EventMessage<'a, impl Iterator<Item = (&'a str, &'a str)>>,
    ) -> Option<Self> {
        let mut parts = text.split('.');
        let mut next = || parts.next();
        let version = next()?;
        let key = next()?;
        let created = next()?;
        let expires = next()?;
        let signature = next()?;

        if version != VERSION || parts.next().is_some() {
            return None;
        }

        Some(Self {
            key_id: key.parse().ok()?,
            created: created.parse().ok()?,
            expires: expires.parse().ok()?,
            signed: signed_bytes([key, created, expires], message),
            signature: URL_SAFE_NO_PAD.decode(signature).ok()?,
        })
    }

    /// Returns whether the signature is by the key.
    #[must_use]
    pub fn is_by(&self, key: &PublicKey) -> bool {
        key.verifies(&self.signed, &self.signature)
    }
}

impl SigningKey {
    /// Returns the value of the header [`EVENT_SIGNATURE`] for a message. Later changes of the
    /// subject, of a signed header or of the data make it invalid. `created` is in seconds since
    /// 1970; the signature expires after `lifetime`.
    ///
    /// # Examples
    /// ```
    /// use orlog_signature::{EVENT_SIGNATURE, EventMessage, SigningKey};
    ///
    /// let key = SigningKey::from_pem(&SigningKey::generate_pem()?)?;
    /// let mut headers = vec![
    ///     ("ce-specversion", "1.0"),
    ///     ("ce-id", "e-1"),
    ///     ("ce-type", "OrderPlaced"),
    ///     ("ce-source", "urn:shop"),
    ///     ("content-type", "application/json"),
    /// ];
    /// let (subject, data) = ("tenant.acme.workflow_event.event.o-1", br#"{"orderId":"o-1"}"#);
    /// let created = std::time::UNIX_EPOCH.elapsed()?.as_secs().cast_signed();
    /// let message = EventMessage { subject, headers: headers.iter().copied(), data };
    /// let signature = key.sign_event(message, created, std::time::Duration::from_mins(1));
    /// headers.push((EVENT_SIGNATURE, &signature));
    /// // Publish the data with these headers under the subject.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn sign_event<'a>(
        &self,
        message: EventMessage<'a, impl Iterator<Item = (&'a str, &'a str)>>,
        created: i64,
        lifetime: Duration,
    ) -> String {
        let expires = created.saturating_add(i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX));
        let key = self.key_id().to_string();
        let created = created.to_string();
        let expires = expires.to_string();

        // The text of the times is signed, not their value: a verifier hashes what it has received.
        let signature = self.sign_bytes(&signed_bytes([&key, &created, &expires], message));
        format!(
            "{VERSION}.{key}.{created}.{expires}.{}",
            URL_SAFE_NO_PAD.encode(signature)
        )
    }
}

/// Returns the signed bytes: the SHA-256 of all parts, each preceded by its length, so that no part
/// can be shifted into another one.
fn signed_bytes<'a>(
    parameters: [&str; 3],
    message: EventMessage<'a, impl Iterator<Item = (&'a str, &'a str)>>,
) -> Vec<u8> {
    let mut hash = Context::new(&SHA256);
    let mut put = |part: &[u8]| {
        hash.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hash.update(part);
    };

    for parameter in parameters {
        put(parameter.as_bytes());
    }
    put(message.subject.as_bytes());

    // A bus can change the order and the case of the headers, and the space around their values.
    let mut signed: Vec<_> = message
        .headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim()))
        .filter(|(name, _)| is_covered(name))
        .collect();
    signed.sort_unstable();

    // The number of headers separates them from the data: no header can be taken for it.
    put(signed.len().to_string().as_bytes());
    for (name, value) in &signed {
        put(name.as_bytes());
        put(value.as_bytes());
    }
    put(message.data);

    [DOMAIN, hash.finish().as_ref()].concat()
}

/// Returns whether a header, in lower case, is part of the event and therefore signed.
fn is_covered(name: &str) -> bool {
    let is_attribute = name.starts_with("ce-") && !matches!(name, EVENT_SIGNATURE | USER);
    is_attribute || matches!(name, "content-type" | "traceparent")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Headers = Vec<(String, String)>;

    #[derive(Clone, Debug)]
    struct Sent {
        subject: String,
        headers: Headers,
        data: Vec<u8>,
    }

    impl Sent {
        fn message(&self) -> EventMessage<'_, impl Iterator<Item = (&str, &str)> + Clone> {
            let headers = self
                .headers
                .iter()
                .map(|(name, value)| (name.as_str(), value.as_str()));
            EventMessage {
                subject: &self.subject,
                headers,
                data: &self.data,
            }
        }

        fn signed(key: &SigningKey) -> Self {
            let headers = [
                ("ce-specversion", "1.0"),
                ("ce-id", "e-1"),
                ("ce-type", "OrderPlaced"),
                ("ce-source", "urn:shop"),
                ("ce-region", "eu"),
                ("Content-Type", "application/json"),
                (
                    "traceparent",
                    "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                ),
            ];
            let headers = headers
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .to_vec();
            let subject = "tenant.acme.workflow_event.event.o-1".to_owned();
            let mut sent = Self {
                subject,
                headers,
                data: br#"{"orderId":"o-1","total":5}"#.to_vec(),
            };
            let signature = key.sign_event(sent.message(), 1000, Duration::from_mins(5));
            sent.headers.push((EVENT_SIGNATURE.to_owned(), signature));
            sent
        }

        fn is_valid(&self, key: &SigningKey) -> bool {
            let read = EventSignature::read(self.message());
            read.is_ok_and(|read| read.is_some_and(|read| read.is_by(&key.public_key())))
        }
    }

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    #[test]
    fn signed_event_is_verified_with_its_parameters() {
        let key = key();
        let mut sent = Sent::signed(&key);
        let read = EventSignature::read(sent.message()).unwrap().unwrap();
        assert_eq!(
            (read.key_id, read.created, read.expires),
            (key.key_id(), 1000, 1300)
        );
        assert!(read.is_by(&key.public_key()) && !read.is_by(&self::key().public_key()));
        // Order, case of names, and headers that are not part of the event.
        sent.headers.reverse();
        sent.headers
            .iter_mut()
            .for_each(|(name, _)| name.make_ascii_uppercase());
        for name in ["Nats-Msg-Id", USER] {
            sent.headers.push((name.to_owned(), "7".to_owned()));
        }
        assert!(sent.is_valid(&key));
    }

    #[test]
    fn added_removed_and_moved_headers_make_the_signature_invalid() {
        let key = key();
        let sent = Sent::signed(&key);
        for index in 0..sent.headers.len() {
            let mut changed = sent.clone();
            let removed = changed.headers.remove(index);
            assert!(!changed.is_valid(&key), "without {removed:?}");
            let mut twice = sent.clone();
            twice.headers.push(removed.clone());
            assert!(!twice.is_valid(&key), "twice {removed:?}");
        }
        for name in ["ce-dataschema", "ce-tenantid", "CE-Subject"] {
            let mut changed = sent.clone();
            changed.headers.push((name.to_owned(), "x".to_owned()));
            assert!(!changed.is_valid(&key), "{name}");
        }
        let mut shifted = sent.clone();
        (shifted.headers[4].1, shifted.data) = ("eu{".to_owned(), sent.data[1..].to_vec());
        assert!(!shifted.is_valid(&key));
    }

    #[test]
    fn event_without_a_signature_has_none_and_a_malformed_one_is_an_error() {
        let mut sent = Sent::signed(&key());
        let text = sent.headers.last().unwrap().1.clone();
        for malformed in [
            "",
            "v1",
            "v1....",
            &text.replace("v1.", "v2."),
            &format!("{text}.x"),
            &format!("{text}="),
            "é",
        ] {
            malformed.clone_into(&mut sent.headers.last_mut().unwrap().1);
            let read = EventSignature::read(sent.message());
            assert!(
                matches!(read, Err(EventSignatureError::Malformed(_))),
                "{malformed}: {read:?}"
            );
        }
        sent.headers.pop();
        assert_eq!(EventSignature::read(sent.message()), Ok(None));
        sent.headers.extend([
            (EVENT_SIGNATURE.to_owned(), text.clone()),
            (EVENT_SIGNATURE.to_owned(), text),
        ]);
        assert_eq!(
            EventSignature::read(sent.message()),
            Err(EventSignatureError::Several)
        );
    }

    /// The calculation of the examples in other languages.
    #[test]
    fn signed_bytes_are_the_documented_ones() {
        let headers = [
            ("ce-id", " 1 "),
            ("Content-Type", "text/plain"),
            ("x", "y"),
            (EVENT_SIGNATURE, "z"),
        ];
        let message = EventMessage {
            subject: "s",
            headers: headers.into_iter(),
            data: b"d",
        };
        let parts = [
            "k",
            "1",
            "2",
            "s",
            "2",
            "ce-id",
            "1",
            "content-type",
            "text/plain",
            "d",
        ];
        let text: Vec<u8> = parts
            .iter()
            .flat_map(|part| [&(part.len() as u64).to_be_bytes(), part.as_bytes()].concat())
            .collect();
        let hash = ring::digest::digest(&SHA256, &text);
        assert_eq!(
            signed_bytes(["k", "1", "2"], message),
            [b"orlog.event.v1", hash.as_ref()].concat()
        );
    }

    proptest! {
        /// Requirements: F1.
        #[test]
        fn any_changed_byte_is_rejected(part in 0_usize..10, at in any::<prop::sample::Index>(), bit in 0_u8..7) {
            let key = key();
            let mut sent = Sent::signed(&key);
            let flip = |bytes: &mut [u8]| {
                let index = at.index(bytes.len());
                bytes[index] ^= 1 << bit;
                bytes[index]
            };
            let flipped = |text: &mut String| {
                let mut bytes = std::mem::take(text).into_bytes();
                let byte = flip(&mut bytes);
                *text = String::from_utf8(bytes).unwrap();
                byte
            };
            match part {
                0 => drop(flip(&mut sent.data)),
                1 => drop(flipped(&mut sent.subject)),
                part => {
                    let value = &mut sent.headers[part - 2].1;
                    let before = value.clone();
                    // Spaces around a value are no part of it.
                    flipped(value);
                    prop_assume!(value.trim() != before);
                }
            }
            prop_assert!(!sent.is_valid(&key), "{sent:?}");
        }
    }
}
