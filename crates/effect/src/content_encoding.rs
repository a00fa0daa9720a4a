//! Content encodings of HTTP bodies (RFC 9110, 8.4): gzip and deflate.
//!
//! A small body can expand to more than a thousand times its size. The decoders are readers, so
//! that their users stop at a limit.

use std::fmt;
use std::io::Read;

use flate2::read::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};
use http::header::{CONTENT_ENCODING, HeaderMap};

/// Value of `accept-encoding` with all encodings that can be decoded.
pub const SUPPORTED: &str = "gzip, deflate";

/// Maximum length of the name of an encoding in an error, in characters.
const MAX_NAME_CHARS: usize = 64;

/// Encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentEncoding {
    /// gzip (RFC 1952).
    Gzip,
    /// zlib (RFC 1950), and the bare deflate (RFC 1951) that some systems send instead.
    Deflate,
}

/// Encoding that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the content encoding {0:?} is not supported; supported: {SUPPORTED}")]
pub struct UnsupportedEncoding(String);

impl ContentEncoding {
    /// Returns the encoding of a body; `None` if it has none.
    ///
    /// # Errors
    /// If it has another encoding, or several in sequence.
    pub fn of(headers: &HeaderMap) -> Result<Option<Self>, UnsupportedEncoding> {
        let mut names = Vec::new();
        for value in headers.get_all(CONTENT_ENCODING) {
            let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            let parts = text.split(',').map(str::trim);
            names.extend(
                parts
                    .filter(|name| !matches!(*name, "" | "identity"))
                    .map(str::to_owned),
            );
        }

        match names.as_slice() {
            [] => Ok(None),
            [name] if matches!(name.as_str(), "gzip" | "x-gzip") => Ok(Some(Self::Gzip)),
            [name] if name == "deflate" => Ok(Some(Self::Deflate)),
            names => {
                let names = names.join(", ");
                Err(UnsupportedEncoding(
                    names.chars().take(MAX_NAME_CHARS).collect(),
                ))
            }
        }
    }

    /// Returns the decoded content of a body. The end of a truncated body is an error.
    #[must_use]
    pub fn decoder(self, body: &[u8]) -> Box<dyn Read + '_> {
        match self {
            Self::Gzip => Box::new(MultiGzDecoder::new(body)),
            Self::Deflate if has_zlib_header(body) => Box::new(ZlibDecoder::new(body)),
            Self::Deflate => Box::new(DeflateDecoder::new(body)),
        }
    }
}

impl fmt::Display for ContentEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        })
    }
}

/// Returns whether the body starts with the two bytes of RFC 1950: the method 8, and a multiple of
/// 31.
fn has_zlib_header(body: &[u8]) -> bool {
    let [method, flags, ..] = *body else {
        return false;
    };
    method & 0x0f == 8 && u16::from_be_bytes([method, flags]).is_multiple_of(31)
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::read::{DeflateEncoder, GzEncoder, ZlibEncoder};

    use super::*;

    fn of(values: &[&str]) -> Result<Option<ContentEncoding>, String> {
        let values = values
            .iter()
            .map(|value| (CONTENT_ENCODING, value.parse().unwrap()));
        ContentEncoding::of(&values.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn header_names_the_encoding() {
        assert_eq!(of(&[]), Ok(None));
        assert_eq!(of(&["identity"]), Ok(None));
        assert_eq!(of(&["GZip"]), Ok(Some(ContentEncoding::Gzip)));
        assert_eq!(of(&["identity, x-gzip"]), Ok(Some(ContentEncoding::Gzip)));
        assert_eq!(of(&["deflate"]), Ok(Some(ContentEncoding::Deflate)));
        for (values, name) in [
            (&["br"][..], "br"),
            (&["gzip, gzip"], "gzip, gzip"),
            (&["gzip", "br"], "gzip, br"),
        ] {
            assert_eq!(
                of(values),
                Err(format!(
                    "the content encoding {name:?} is not supported; supported: gzip, deflate"
                ))
            );
        }
    }

    #[test]
    fn encoded_bodies_are_decoded() {
        let text = b"{\"a\":1}";
        let read = |mut reader: Box<dyn Read + '_>| {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).map(|_| bytes)
        };
        let level = Compression::default();
        let gzip = read(Box::new(GzEncoder::new(&text[..], level))).unwrap();
        let zlib = read(Box::new(ZlibEncoder::new(&text[..], level))).unwrap();
        let bare = read(Box::new(DeflateEncoder::new(&text[..], level))).unwrap();

        for (encoding, body) in [
            (ContentEncoding::Gzip, &gzip),
            (ContentEncoding::Deflate, &zlib),
            (ContentEncoding::Deflate, &bare),
        ] {
            assert_eq!(read(encoding.decoder(body)).unwrap(), text);
            assert!(read(encoding.decoder(&body[..body.len() - 2])).is_err());
        }
        assert!(read(ContentEncoding::Gzip.decoder(text)).is_err());
    }
}
