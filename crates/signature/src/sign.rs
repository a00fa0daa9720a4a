//! Signs a request.

use std::fmt::Write as _;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::{HeaderMap, HeaderName, HeaderValue};
use ring::rand::{SecureRandom as _, SystemRandom};

use crate::base::{self, RequestTarget, TARGET_COMPONENTS};
use crate::{
    CONTENT_DIGEST, ContentDigest, SIGNATURE, SIGNATURE_INPUT, SigningKey, TAG, is_signed_header,
};

/// Length of a nonce in bytes.
const NONCE_BYTES: usize = 16;

/// Error: a request cannot be signed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignError {
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random bytes")]
    NoRandomBytes,
}

impl SigningKey {
    /// Signs a request: adds the headers `signature-input` and `signature`, and `content-digest` if
    /// there is a body. Later changes of the target, the body or a signed header make the signature
    /// invalid. `created` is in seconds since 1970; the signature expires after `lifetime`.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn sign(
        &self,
        target: &RequestTarget<'_>,
        headers: &mut HeaderMap,
        body: &[u8],
        created: i64,
        lifetime: Duration,
    ) -> Result<(), SignError> {
        let mut nonce = [0; NONCE_BYTES];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| SignError::NoRandomBytes)?;

        // The digest is inserted first, because it is one of the signed headers.
        if !body.is_empty() {
            headers.insert(CONTENT_DIGEST, ascii(&ContentDigest::of(body).header()));
        }

        let expires = created.saturating_add(i64::try_from(lifetime.as_secs()).unwrap_or(i64::MAX));
        let params = format!(
            ";created={created};expires={expires};nonce=\"{}\";keyid=\"{}\";alg=\"ed25519\";\
            tag=\"{TAG}\"",
            URL_SAFE_NO_PAD.encode(nonce),
            self.key_id()
        );

        let signed = headers
            .keys()
            .filter(|name| is_signed_header(name))
            .map(HeaderName::as_str);
        let components: Vec<&str> = TARGET_COMPONENTS.into_iter().chain(signed).collect();

        let (input, base) = self::base(&components, &params, target, headers);
        let signature = STANDARD.encode(self.sign_bytes(&base));

        headers.insert(SIGNATURE_INPUT, ascii(&format!("{TAG}={input}")));
        headers.insert(SIGNATURE, ascii(&format!("{TAG}=:{signature}:")));
        Ok(())
    }
}

/// Returns the serialized components with the parameters, and the signature base.
fn base(
    components: &[&str],
    params: &str,
    target: &RequestTarget<'_>,
    headers: &HeaderMap,
) -> (String, Vec<u8>) {
    let mut base = Vec::with_capacity(512);
    let mut input = String::from("(");
    for component in components {
        base::push_component(&mut base, component, target, headers)
            .expect("the request has the component");
        let separator = if input.len() > 1 { " " } else { "" };
        write!(input, "{separator}\"{component}\"").expect("writing to a string does not fail");
    }

    input.push(')');
    input.push_str(params);
    base::push_params(&mut base, &input);
    (input, base)
}

fn ascii(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("base64, digits and names are ASCII")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 9421, appendix B.2.6.
    #[test]
    fn signature_is_that_of_rfc_9421() {
        let key = "-----BEGIN PRIVATE KEY-----\n\
                   MC4CAQAwBQYDK2VwBCIEIJ+DYvh6SEqVTm50DFtMDoQikTmiCqirVv9mWG9qfSnF\n\
                   -----END PRIVATE KEY-----\n";
        let key = SigningKey::from_pem(key).unwrap();
        let headers: HeaderMap = [
            ("host", "example.com"),
            ("date", "Tue, 20 Apr 2021 02:07:55 GMT"),
            ("content-type", "application/json"),
            ("content-length", "18"),
        ]
        .into_iter()
        .map(|(name, value)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            )
        })
        .collect();
        let target = RequestTarget {
            method: "POST",
            authority: "example.com",
            path: "/foo",
            query: Some("param=Value&Pet=dog"),
        };
        let components = [
            "date",
            "@method",
            "@path",
            "@authority",
            "content-type",
            "content-length",
        ];
        let params = ";created=1618884473;keyid=\"test-key-ed25519\"";
        let (input, base) = base(&components, params, &target, &headers);
        assert_eq!(
            String::from_utf8(base.clone()).unwrap(),
            "\"date\": Tue, 20 Apr 2021 02:07:55 GMT\n\"@method\": POST\n\"@path\": /foo\n\
             \"@authority\": example.com\n\"content-type\": application/json\n\"content-length\": 18\n\
             \"@signature-params\": (\"date\" \"@method\" \"@path\" \"@authority\" \"content-type\" \
             \"content-length\");created=1618884473;keyid=\"test-key-ed25519\""
        );
        assert!(input.starts_with("(\"date\" \"@method\""));
        let signature = key.sign_bytes(&base);
        assert_eq!(
            STANDARD.encode(signature),
            "wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw=="
        );
    }
}
