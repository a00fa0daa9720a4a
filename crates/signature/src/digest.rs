//! Content-Digest (RFC 9530): the SHA-256 of a body in a header.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{Context, SHA256, digest};
use sfv::{BareItem, Dictionary, Item, ListEntry, Parser};

/// SHA-256 of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentDigest([u8; 32]);

impl ContentDigest {
    /// Computes the digest of a body.
    #[must_use]
    pub fn of(body: &[u8]) -> Self {
        Self::from_hash(digest(&SHA256, body))
    }

    /// Reads the value of the header; `None` if it has no valid `sha-256`. Other algorithms are
    /// ignored.
    #[must_use]
    pub fn parse(header: &[u8]) -> Option<Self> {
        let digests: Dictionary = Parser::new(header).parse().ok()?;
        let ListEntry::Item(Item {
            bare_item: BareItem::ByteSequence(hash),
            ..
        }) = digests.get("sha-256")?
        else {
            return None;
        };
        hash.as_slice().try_into().ok().map(Self)
    }

    /// Returns the value of the header.
    #[must_use]
    pub fn header(&self) -> String {
        format!("sha-256=:{}:", STANDARD.encode(self.0))
    }

    /// Starts a digest of a body that arrives in pieces.
    #[must_use]
    pub fn hasher() -> ContentHasher {
        ContentHasher(Context::new(&SHA256))
    }

    fn from_hash(hash: ring::digest::Digest) -> Self {
        Self(hash.as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }
}

/// Digest of a body that arrives in pieces.
pub struct ContentHasher(Context);

impl ContentHasher {
    /// Adds a piece.
    pub fn update(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// Returns the digest of all pieces.
    #[must_use]
    pub fn finish(self) -> ContentDigest {
        ContentDigest::from_hash(self.0.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_rfc_9530() {
        for (body, header) in [
            (
                "{\"hello\": \"world\"}\n",
                "sha-256=:RK/0qy18MlBSVnWgjwz6lZEWjP/lF5HF9bvEF8FabDg=:",
            ),
            (
                "{\"hello\": \"world\"}",
                "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:",
            ),
        ] {
            let digest = ContentDigest::of(body.as_bytes());
            assert_eq!(digest.header(), header);
            let several = format!("sha-512=:AAAA:, {header}");
            assert_eq!(ContentDigest::parse(several.as_bytes()), Some(digest));
            let mut hasher = ContentDigest::hasher();
            body.as_bytes()
                .chunks(5)
                .for_each(|piece| hasher.update(piece));
            assert_eq!(hasher.finish(), digest);
        }
    }

    #[test]
    fn header_without_a_valid_sha_256_has_no_digest() {
        for header in [
            "",
            "sha-512=:AAAA:",
            "sha-256=:AAAA:",
            "sha-256=1",
            "sha-256=(1)",
            "sha-256",
            "=",
        ] {
            assert_eq!(ContentDigest::parse(header.as_bytes()), None, "{header}");
        }
    }
}
