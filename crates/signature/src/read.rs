//! Reads the signature of a received request.

use http::HeaderMap;
use sfv::{
    BareItem, Dictionary, FieldType as _, InnerList, Item, List, ListEntry, Parameters, Parser,
};

use crate::base::{self, NoValue, RequestTarget, TARGET_COMPONENTS};
use crate::key::shortened;
use crate::{
    CONTENT_DIGEST, ContentDigest, KeyId, PublicKey, SIGNATURE, SIGNATURE_INPUT, TAG,
    is_signed_header,
};

/// Maximum length of a nonce.
const MAX_NONCE: usize = 128;
/// Maximum number of components, so that a signature cannot be expensive.
const MAX_COMPONENTS: usize = 64;

/// Signature of a request, before it is verified: its parameters, and the bytes that it covers.
#[derive(Debug)]
pub struct RequestSignature {
    /// Id of the key.
    pub key_id: KeyId,
    /// Nonce of the request.
    pub nonce: String,
    /// Time of creation, in seconds since 1970.
    pub created: i64,
    /// Expiry, in seconds since 1970.
    pub expires: i64,
    /// Digest of the body; `None` if the request has no body.
    pub digest: Option<ContentDigest>,
    base: Vec<u8>,
    signature: Vec<u8>,
}

/// Reason why a request has no usable signature.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// A header is not a structured field, or has no member for the signature.
    #[error("the header {0} is malformed or has no signature of the same label")]
    Malformed(&'static str),
    /// The request has several signatures of this profile.
    #[error("the request has several signatures with the tag \"{TAG}\"; send one")]
    Several,
    /// A parameter is missing or invalid.
    #[error("the parameter {0} of the signature is missing or invalid")]
    Parameter(&'static str),
    /// The algorithm is not Ed25519.
    #[error("the algorithm {0:?} is not supported; use ed25519")]
    Algorithm(String),
    /// The signature covers a component that this profile does not support.
    #[error(
        "the component {0:?} is not supported, or occurs twice; use @method, @authority, @path, \
        @query and headers"
    )]
    Component(String),
    /// The signature covers a header that the request does not have.
    #[error("the signature covers the header {0:?}, which the request does not have")]
    AbsentHeader(String),
    /// The signature does not cover a component that the effect of the request depends on.
    #[error("the signature does not cover {0}; sign the request with it")]
    NotCovered(String),
    /// The header `content-digest` has no SHA-256.
    #[error("the header {CONTENT_DIGEST} has no valid sha-256 digest of the body")]
    Digest,
}

impl RequestSignature {
    /// Reads the signature of a request; `None` if it has none of this profile. The result is not
    /// verified.
    ///
    /// # Errors
    /// If the signature is malformed, or if it does not cover everything that the effect of the
    /// request depends on.
    pub fn read(
        target: &RequestTarget<'_>,
        headers: &HeaderMap,
        has_body: bool,
    ) -> Result<Option<Self>, ReadError> {
        let Some(input) = combined(headers, SIGNATURE_INPUT) else {
            return Ok(None);
        };
        let Ok(inputs) = Parser::new(&input).parse::<Dictionary>() else {
            return Err(ReadError::Malformed(SIGNATURE_INPUT));
        };

        // A request can have further signatures, for example of a proxy. They have no meaning here.
        let mut tagged = inputs.into_iter().filter_map(|(label, entry)| match entry {
            ListEntry::InnerList(list) if text(&list.params, "tag") == Some(TAG) => {
                Some((label, list))
            }
            ListEntry::InnerList(_) | ListEntry::Item(_) => None,
        });

        let Some((label, list)) = tagged.next() else {
            return Ok(None);
        };

        // A verifier that chose one of several could be made to choose the one that covers less.
        if tagged.next().is_some() {
            return Err(ReadError::Several);
        }

        let signature =
            signature(headers, label.as_str()).ok_or(ReadError::Malformed(SIGNATURE))?;
        Self::of(list, signature, target, headers, has_body).map(Some)
    }

    fn of(
        list: InnerList,
        signature: Vec<u8>,
        target: &RequestTarget<'_>,
        headers: &HeaderMap,
        has_body: bool,
    ) -> Result<Self, ReadError> {
        let (key_id, nonce, created, expires) = parameters(&list.params)?;
        let components = components(&list.items)?;
        let is_covered = |name: &str| components.contains(&name);

        // A header that the signature does not cover could be added or changed on the way, and with
        // it the effect of the request.
        let mut required = TARGET_COMPONENTS
            .into_iter()
            .chain(has_body.then_some(CONTENT_DIGEST))
            .chain(
                headers
                    .keys()
                    .filter(|name| is_signed_header(name))
                    .map(http::HeaderName::as_str),
            );
        if let Some(missing) = required.find(|name| !is_covered(name)) {
            return Err(ReadError::NotCovered(missing.to_owned()));
        }

        // The signature is verified later, by a caller that knows the key: only the bytes are
        // needed.
        let mut base = Vec::with_capacity(512);
        for component in &components {
            base::push_component(&mut base, component, target, headers).map_err(|reason| {
                match reason {
                    NoValue::Absent => ReadError::AbsentHeader(shortened(component)),
                    NoValue::Unsupported => ReadError::Component(shortened(component)),
                }
            })?;
        }

        let digest = if is_covered(CONTENT_DIGEST) {
            let header = combined(headers, CONTENT_DIGEST);
            Some(
                header
                    .as_deref()
                    .and_then(ContentDigest::parse)
                    .ok_or(ReadError::Digest)?,
            )
        } else {
            None
        };

        let list: List = vec![ListEntry::InnerList(list)];
        let params = list
            .serialize()
            .ok_or(ReadError::Malformed(SIGNATURE_INPUT))?;
        base::push_params(&mut base, &params);

        Ok(Self {
            key_id,
            nonce,
            created,
            expires,
            digest,
            base,
            signature,
        })
    }

    /// Returns whether the signature is by the key.
    #[must_use]
    pub fn is_by(&self, key: &PublicKey) -> bool {
        key.verifies(&self.base, &self.signature)
    }
}

fn parameters(params: &Parameters) -> Result<(KeyId, String, i64, i64), ReadError> {
    if let Some(algorithm) = params.get("alg")
        && algorithm.as_string().map(sfv::StringRef::as_str) != Some("ed25519")
    {
        let text = algorithm.as_string().map_or("", sfv::StringRef::as_str);
        return Err(ReadError::Algorithm(shortened(text)));
    }

    let number = |name| {
        let value = params.get(name).and_then(BareItem::as_integer);
        value.map(i64::from).ok_or(ReadError::Parameter(name))
    };

    let key_id = text(params, "keyid").and_then(|id| id.parse().ok());
    let key_id = key_id.ok_or(ReadError::Parameter("keyid"))?;

    let nonce = text(params, "nonce").filter(|nonce| (1..=MAX_NONCE).contains(&nonce.len()));
    let nonce = nonce.ok_or(ReadError::Parameter("nonce"))?.to_owned();

    Ok((key_id, nonce, number("created")?, number("expires")?))
}

/// Returns the names of the components, which occur once and have no parameters.
fn components(items: &[Item]) -> Result<Vec<&str>, ReadError> {
    let mut names: Vec<&str> = Vec::with_capacity(items.len());
    for item in items {
        let name = item
            .bare_item
            .as_string()
            .map_or("", sfv::StringRef::as_str);
        let is_valid = !name.is_empty() && item.params.is_empty() && !names.contains(&name);
        if !is_valid || names.len() == MAX_COMPONENTS {
            return Err(ReadError::Component(shortened(name)));
        }
        names.push(name);
    }
    Ok(names)
}

fn signature(headers: &HeaderMap, label: &str) -> Option<Vec<u8>> {
    let signatures: Dictionary = Parser::new(&combined(headers, SIGNATURE)?).parse().ok()?;
    let ListEntry::Item(item) = signatures.get(label)? else {
        return None;
    };
    item.bare_item.as_byte_sequence().map(<[u8]>::to_vec)
}

fn text<'a>(params: &'a Parameters, name: &str) -> Option<&'a str> {
    params
        .get(name)
        .and_then(BareItem::as_string)
        .map(sfv::StringRef::as_str)
}

/// Returns the values of a header as one list; `None` without the header.
fn combined(headers: &HeaderMap, name: &str) -> Option<Vec<u8>> {
    let mut values = headers.get_all(name).iter();
    let mut all = values.next()?.as_bytes().to_vec();
    for value in values {
        all.extend_from_slice(b", ");
        all.extend_from_slice(value.as_bytes());
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;
    use crate::SigningKey;

    const BODY: &[u8] = br#"{"amount":5}"#;
    const TARGET: RequestTarget<'static> = RequestTarget {
        method: "POST",
        authority: "Orlog.example:443",
        path: "/v1/events",
        query: Some("a=b"),
    };

    fn key() -> SigningKey {
        SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
    }

    fn header(name: &'static str, value: &str) -> (HeaderName, HeaderValue) {
        (
            HeaderName::from_static(name),
            HeaderValue::from_str(value).unwrap(),
        )
    }

    fn signed(key: &SigningKey) -> HeaderMap {
        let headers = [
            header("content-type", "application/json"),
            header("x-tenant-id", "acme"),
            header("idempotency-key", "k-1"),
            header("ce-subject", "s"),
            header("accept", "*/*"),
        ];
        let mut headers = HeaderMap::from_iter(headers);
        key.sign(&TARGET, &mut headers, BODY, 1000, Duration::from_mins(5))
            .unwrap();
        headers
    }

    fn is_valid(key: &SigningKey, target: &RequestTarget<'_>, headers: &HeaderMap) -> bool {
        let read = RequestSignature::read(target, headers, true);
        read.is_ok_and(|read| read.is_some_and(|signature| signature.is_by(&key.public_key())))
    }

    #[test]
    fn signed_request_verifies_with_its_key_only() {
        let key = key();
        let headers = signed(&key);
        let read = RequestSignature::read(&TARGET, &headers, true)
            .unwrap()
            .unwrap();
        assert!(read.is_by(&key.public_key()) && !read.is_by(&self::key().public_key()));
        assert_eq!(
            (read.key_id, read.created, read.expires),
            (key.key_id(), 1000, 1300)
        );
        assert_eq!(read.digest, Some(ContentDigest::of(BODY)));
        let again = RequestSignature::read(&TARGET, &signed(&key), true)
            .unwrap()
            .unwrap();
        assert_ne!(again.nonce, read.nonce);
        // The default port and the case of a host have no meaning.
        assert!(is_valid(
            &key,
            &RequestTarget {
                authority: "orlog.example",
                ..TARGET
            },
            &headers
        ));
    }

    #[test]
    fn change_of_any_covered_part_makes_the_signature_invalid() {
        let key = key();
        let headers = signed(&key);
        assert!(is_valid(&key, &TARGET, &headers));
        for target in [
            RequestTarget {
                method: "PUT",
                ..TARGET
            },
            RequestTarget {
                method: "post",
                ..TARGET
            },
            RequestTarget {
                authority: "other.example",
                ..TARGET
            },
            RequestTarget {
                authority: "orlog.example:8443",
                ..TARGET
            },
            RequestTarget {
                path: "/v1/event",
                ..TARGET
            },
            RequestTarget {
                path: "/v1/Events",
                ..TARGET
            },
            RequestTarget {
                query: Some("a=c"),
                ..TARGET
            },
            RequestTarget {
                query: None,
                ..TARGET
            },
        ] {
            assert!(!is_valid(&key, &target, &headers), "{target:?}");
        }
        for name in [
            "content-type",
            "x-tenant-id",
            "idempotency-key",
            "ce-subject",
            "content-digest",
        ] {
            let mut changed = headers.clone();
            let value = if name == CONTENT_DIGEST {
                ContentDigest::of(b"x").header()
            } else {
                "x".to_owned()
            };
            changed.insert(name, HeaderValue::from_str(&value).unwrap());
            assert!(!is_valid(&key, &TARGET, &changed), "changed {name}");
            changed.remove(name);
            assert!(!is_valid(&key, &TARGET, &changed), "removed {name}");
            let mut repeated = headers.clone();
            repeated.append(name, headers[name].clone());
            assert!(!is_valid(&key, &TARGET, &repeated), "repeated {name}");
        }
        let mut unsigned = headers.clone();
        unsigned.insert("accept", HeaderValue::from_static("text/html"));
        assert!(
            is_valid(&key, &TARGET, &unsigned),
            "the header has no effect on the request"
        );
    }

    #[test]
    fn change_of_any_parameter_makes_the_signature_invalid() {
        let key = key();
        let headers = signed(&key);
        let input = headers[SIGNATURE_INPUT].to_str().unwrap().to_owned();
        let changed = |from: &str, to: &str| {
            assert!(input.contains(from), "{input}");
            let mut headers = headers.clone();
            headers.insert(
                SIGNATURE_INPUT,
                HeaderValue::from_str(&input.replace(from, to)).unwrap(),
            );
            RequestSignature::read(&TARGET, &headers, true)
        };
        for (from, to) in [
            ("created=1000", "created=1001"),
            ("expires=1300", "expires=1299"),
        ] {
            assert!(
                !changed(from, to).unwrap().unwrap().is_by(&key.public_key()),
                "{to}"
            );
        }
        let nonce = RequestSignature::read(&TARGET, &headers, true)
            .unwrap()
            .unwrap()
            .nonce;
        assert!(
            !changed(&nonce, "other")
                .unwrap()
                .unwrap()
                .is_by(&key.public_key())
        );
        let id = key.key_id().to_string();
        let other = self::key().key_id().to_string();
        assert!(
            !changed(&id, &other)
                .unwrap()
                .unwrap()
                .is_by(&key.public_key())
        );
        assert!(!changed("\"@method\" ", "").is_ok_and(|read| read.is_some()));
        for (from, to, expected) in [
            (";created=1000", "", ReadError::Parameter("created")),
            (
                ";expires=1300",
                ";expires=1.5",
                ReadError::Parameter("expires"),
            ),
            (id.as_str(), "short", ReadError::Parameter("keyid")),
            (nonce.as_str(), "", ReadError::Parameter("nonce")),
            (
                "ed25519",
                "hmac-sha256",
                ReadError::Algorithm("hmac-sha256".to_owned()),
            ),
            (
                " \"@query\"",
                "",
                ReadError::NotCovered("@query".to_owned()),
            ),
            (
                " \"x-tenant-id\"",
                "",
                ReadError::NotCovered("x-tenant-id".to_owned()),
            ),
            (
                " \"ce-subject\"",
                "",
                ReadError::NotCovered("ce-subject".to_owned()),
            ),
            (
                " \"content-digest\"",
                "",
                ReadError::NotCovered("content-digest".to_owned()),
            ),
            (
                "\"@method\"",
                "\"@method\" \"@method\"",
                ReadError::Component("@method".to_owned()),
            ),
            (
                "\"@method\"",
                "\"@method\" \"@status\"",
                ReadError::Component("@status".to_owned()),
            ),
            (
                "\"@method\"",
                "\"@method\" \"cookie\";key=\"a\"",
                ReadError::Component("cookie".to_owned()),
            ),
            (
                "\"@method\"",
                "\"@method\" \"date\"",
                ReadError::AbsentHeader("date".to_owned()),
            ),
            ("orlog=", "other=", ReadError::Malformed(SIGNATURE)),
            (")", "", ReadError::Malformed(SIGNATURE_INPUT)),
        ] {
            assert_eq!(changed(from, to).unwrap_err(), expected, "{to}");
        }
    }

    #[test]
    fn signatures_of_other_profiles_are_ignored_and_two_of_this_one_are_rejected() {
        let key = key();
        let headers = signed(&key);
        let input = headers[SIGNATURE_INPUT].to_str().unwrap().to_owned();
        let with = |input: &str, signature: &'static str| {
            let mut headers = headers.clone();
            headers.append(SIGNATURE_INPUT, HeaderValue::from_str(input).unwrap());
            headers.append(SIGNATURE, HeaderValue::from_static(signature));
            headers
        };
        let proxy = with("proxy=(\"@method\");created=1;keyid=\"p\"", "proxy=:AAAA:");
        assert!(is_valid(&key, &TARGET, &proxy));
        let twice = with(&input.replace("orlog=", "again="), "again=:AAAA:");
        assert_eq!(
            RequestSignature::read(&TARGET, &twice, true).unwrap_err(),
            ReadError::Several
        );
        let mut foreign = headers.clone();
        foreign.insert(
            SIGNATURE_INPUT,
            HeaderValue::from_static("a=(\"@method\");tag=\"web-bot-auth\""),
        );
        assert!(
            RequestSignature::read(&TARGET, &foreign, true)
                .unwrap()
                .is_none()
        );
        assert!(
            RequestSignature::read(&TARGET, &HeaderMap::new(), true)
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn body_requires_a_digest() {
        let key = key();
        let mut headers = HeaderMap::new();
        key.sign(&TARGET, &mut headers, b"", 1000, Duration::from_mins(5))
            .unwrap();
        let read = RequestSignature::read(&TARGET, &headers, false)
            .unwrap()
            .unwrap();
        assert!(read.is_by(&key.public_key()) && read.digest.is_none());
        let missing = RequestSignature::read(&TARGET, &headers, true).unwrap_err();
        assert_eq!(missing, ReadError::NotCovered(CONTENT_DIGEST.to_owned()));
        let mut headers = signed(&key);
        headers.insert(CONTENT_DIGEST, HeaderValue::from_static("sha-512=:AAAA:"));
        assert_eq!(
            RequestSignature::read(&TARGET, &headers, true).unwrap_err(),
            ReadError::Digest
        );
    }

    proptest! {
        #[test]
        fn no_header_panics(input in "\\PC{0,80}", label in "[a-z]{1,3}", params in "[ -~]{0,60}") {
            let mut headers = HeaderMap::new();
            for text in [&input, &format!("{label}=(\"@method\" {params});tag=\"orlog\"")] {
                if let Ok(value) = HeaderValue::from_bytes(text.as_bytes()) {
                    headers.append(SIGNATURE_INPUT, value.clone());
                    headers.append(SIGNATURE, value);
                }
            }
            let read = RequestSignature::read(&TARGET, &headers, true);
            let is_valid = read.is_ok_and(|read| read.is_some_and(|read| read.is_by(&key().public_key())));
            prop_assert!(!is_valid);
        }
    }
}
