//! Ed25519 keys: their text forms and their ids.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

/// Prefix of the text of a public key.
const PREFIX: &str = "ed25519:";
const PEM_BEGIN: &str = "-----BEGIN PRIVATE KEY-----";
const PEM_END: &str = "-----END PRIVATE KEY-----";
/// Start of an Ed25519 key in PKCS#8 without its public key (RFC 8410), which every library reads.
/// The seed follows.
const PKCS8_PREFIX: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// Error of a text that is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The text of a public key has another form.
    #[error(
        "{0:?} is not a public key; expected ed25519: and 32 bytes in base64url, as `orlog key \
        show` prints it"
    )]
    Public(String),
    /// The text of a key id has another form.
    #[error("{0:?} is not a key id; expected 32 bytes in base64url without padding")]
    Id(String),
    /// The text is no Ed25519 key in PEM. The message never contains the text.
    #[error("not an Ed25519 private key in PKCS#8 PEM; `orlog key new` creates one")]
    Private,
    /// The operating system provides no random bytes.
    #[error("the operating system provides no random bytes")]
    NoRandomBytes,
}

/// Id of a key: the SHA-256 thumbprint of its JSON Web Key (RFC 7638, RFC 8037), in base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 32]);

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 43];
        let length = URL_SAFE_NO_PAD
            .encode_slice(self.0, &mut text)
            .map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text[..length]).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for KeyId {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        bytes_32(text)
            .map(Self)
            .ok_or_else(|| KeyError::Id(shortened(text)))
    }
}

/// Public key of an actor. Its text is `ed25519:` and the key in base64url.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

impl PublicKey {
    /// Returns the 32 bytes of the key.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the id of the key.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        let x = URL_SAFE_NO_PAD.encode(self.0);
        let key = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
        let hash = digest(&SHA256, key.as_bytes());
        KeyId(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Returns whether a signature of a message is by this key.
    #[must_use]
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, &self.0)
            .verify(message, signature)
            .is_ok()
    }
}

impl From<[u8; 32]> for PublicKey {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", URL_SAFE_NO_PAD.encode(self.0))
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for PublicKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let bytes = text.strip_prefix(PREFIX).and_then(bytes_32);
        bytes
            .map(Self)
            .ok_or_else(|| KeyError::Public(shortened(text)))
    }
}

/// Private key of an actor. It is never part of a message.
pub struct SigningKey {
    pair: Ed25519KeyPair,
    public: PublicKey,
    id: KeyId,
}

impl SigningKey {
    /// Creates a random key, as PKCS#8 in PEM.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn generate_pem() -> Result<String, KeyError> {
        let mut der = PKCS8_PREFIX.to_vec();
        let mut seed = [0; 32];
        SystemRandom::new()
            .fill(&mut seed)
            .map_err(|_| KeyError::NoRandomBytes)?;
        der.extend_from_slice(&seed);

        let mut pem = format!("{PEM_BEGIN}\n{}\n", STANDARD.encode(der));
        pem.push_str(PEM_END);
        pem.push('\n');
        Ok(pem)
    }

    /// Reads a key in PKCS#8 PEM, also without its public key
    /// (`openssl genpkey -algorithm ed25519`).
    ///
    /// # Errors
    /// If the text is no such key.
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let (_, rest) = pem.split_once(PEM_BEGIN).ok_or(KeyError::Private)?;
        let (body, _) = rest.split_once(PEM_END).ok_or(KeyError::Private)?;
        let body: String = body.split_ascii_whitespace().collect();

        let der = STANDARD.decode(body).map_err(|_| KeyError::Private)?;
        let pair =
            Ed25519KeyPair::from_pkcs8_maybe_unchecked(&der).map_err(|_| KeyError::Private)?;

        let public = pair
            .public_key()
            .as_ref()
            .try_into()
            .map(PublicKey)
            .map_err(|_| KeyError::Private)?;

        Ok(Self {
            pair,
            public,
            id: public.key_id(),
        })
    }

    /// Returns the public key.
    #[must_use]
    pub fn public_key(&self) -> PublicKey {
        self.public
    }

    /// Returns the id of the key.
    #[must_use]
    pub fn key_id(&self) -> KeyId {
        self.id
    }

    /// Returns the signature of a message, which [`PublicKey::verifies`] accepts. A message of
    /// another kind than a request starts with its purpose, so that its signature is none of a
    /// request.
    #[must_use]
    pub fn sign_message(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }

    pub(crate) fn sign_bytes(&self, message: &[u8]) -> ring::signature::Signature {
        self.pair.sign(message)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("public", &self.public)
            .finish_non_exhaustive()
    }
}

fn bytes_32(text: &str) -> Option<[u8; 32]> {
    URL_SAFE_NO_PAD.decode(text).ok()?.try_into().ok()
}

/// Returns the start of an invalid text, for a message.
pub(crate) fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(64)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Key of RFC 8037, appendix A.
    const RFC_8037: &str = "ed25519:11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

    #[test]
    fn key_id_is_the_thumbprint_of_rfc_8037() {
        let key: PublicKey = RFC_8037.parse().unwrap();
        assert_eq!(
            key.key_id().to_string(),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
        assert_eq!(key.to_string(), RFC_8037);
        assert_eq!(key.key_id().to_string().parse(), Ok(key.key_id()));
    }

    #[test]
    fn created_key_is_read_again_and_signs() {
        let pem = SigningKey::generate_pem().unwrap();
        let key = SigningKey::from_pem(&pem).unwrap();
        let signature = key.sign_bytes(b"text");
        assert!(key.public_key().verifies(b"text", signature.as_ref()));
        assert!(!key.public_key().verifies(b"Text", signature.as_ref()));
        assert_ne!(SigningKey::generate_pem().unwrap(), pem);
        assert_eq!(
            pem.lines().map(str::len).collect::<Vec<_>>(),
            [PEM_BEGIN.len(), 64, PEM_END.len()]
        );
    }

    #[test]
    fn invalid_keys_are_rejected_without_the_private_one_in_the_message() {
        for text in [
            "",
            "ed25519:",
            "ed25519:AAAA",
            "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
        ] {
            assert!(text.parse::<PublicKey>().is_err(), "{text}");
        }
        let rsa = format!("{PEM_BEGIN}\nMIIEvQIBADANsecret\n{PEM_END}\n");
        for pem in ["", "secret", &rsa, &rsa.replace("PRIVATE", "PUBLIC")] {
            let error = SigningKey::from_pem(pem).unwrap_err();
            assert!(
                !error.to_string().contains("secret") && !format!("{error:?}").contains("secret")
            );
        }
        let key = SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap();
        assert!(format!("{key:?}").contains(&key.public_key().to_string()));
    }
}
