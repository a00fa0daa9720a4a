//! Paths of URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// Characters of a path segment that need no escape.
const PATH_SEGMENT: AsciiSet = NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'_')
    .remove(b'.')
    .remove(b'~');

/// Joins path segments and escapes each one.
#[must_use]
pub fn path(parts: &[&str]) -> String {
    parts
        .iter()
        .flat_map(|part| std::iter::once("/").chain(utf8_percent_encode(part, &PATH_SEGMENT)))
        .collect()
}
