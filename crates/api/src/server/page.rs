//! Pages of lists: limited by the number of their entries and by their encoded size.
//!
//! A page that ends before the last entry has a cursor. An entry that is larger than the limit is
//! the only one of its page.

use axum::body::Bytes;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use orlog_model::json_length;
use serde::Serialize;

use super::list_tag::ListTag;

/// Limits of a page, and the list that it belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimits {
    /// Maximum number of entries.
    pub(crate) entries: usize,
    /// Maximum size of the entries as JSON, in bytes.
    pub(crate) bytes: usize,
    /// List of the cursors.
    pub(crate) list: ListTag,
}

/// Page in construction.
pub(crate) struct PageBuilder<T> {
    limits: PageLimits,
    entries: Vec<T>,
    bytes: usize,
    /// Cursor after the last entry.
    last: Option<String>,
    /// Whether an entry was left for the next page.
    is_full: bool,
}

/// Entries of a page.
#[derive(Debug)]
pub(crate) struct BuiltPage<T> {
    pub(crate) entries: Vec<T>,
    /// Cursor of the next page; `None` after the last one.
    pub(crate) next: Option<String>,
}

impl<T: Serialize> PageBuilder<T> {
    pub(crate) fn new(limits: PageLimits) -> Self {
        Self {
            limits,
            entries: Vec::new(),
            bytes: 0,
            last: None,
            is_full: false,
        }
    }

    /// Adds an entry, and the cursor after it. Returns false if the page is full: the entry and all
    /// later ones belong to the next page.
    #[must_use]
    pub(crate) fn push(&mut self, entry: T, cursor: String) -> bool {
        // Encoded into a counter only: buffers of entries would need memory in addition to the
        // response.
        let bytes = self.bytes.saturating_add(encoded_bytes(&entry));
        let fits = self.entries.len() < self.limits.entries && bytes <= self.limits.bytes;
        // Without the exception for the first entry, one above the limit could never be read.
        if self.is_full || !(fits || self.entries.is_empty()) {
            self.is_full = true;
            return false;
        }

        self.entries.push(entry);
        self.bytes = bytes;
        self.last = Some(cursor);
        true
    }

    /// Returns whether no further entry fits, as far as is known without one. A reader of entries
    /// in steps stops then.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full || self.entries.len() >= self.limits.entries || self.bytes >= self.limits.bytes
    }

    /// Returns the page. `rest` is the cursor after the last entry that was offered, if more may
    /// follow.
    pub(crate) fn finish(self, rest: Option<String>) -> BuiltPage<T> {
        let next = if self.is_full { self.last } else { rest };
        BuiltPage {
            entries: self.entries,
            next: next.map(|position| self.limits.list.cursor(&position)),
        }
    }
}

/// Returns the size of a value as JSON, with the comma after it.
pub(crate) fn encoded_bytes(value: &impl Serialize) -> usize {
    json_length(value).saturating_add(",".len())
}

/// JSON response that was encoded on a thread that may block.
pub(crate) struct EncodedJson(Bytes);

impl EncodedJson {
    /// Encodes a response.
    pub(crate) fn of(response: &impl Serialize) -> Self {
        let json = serde_json::to_vec(response).expect("a view serializes to JSON");
        Self(json.into())
    }
}

impl IntoResponse for EncodedJson {
    fn into_response(self) -> Response {
        let mut response = self.0.into_response();
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(entries: &[&str]) -> BuiltPage<String> {
        let limits = PageLimits {
            entries: 3,
            bytes: 20,
            list: ListTag::of("/v1/flows"),
        };
        let mut page = PageBuilder::new(limits);
        for (number, entry) in entries.iter().enumerate() {
            if !page.push((*entry).to_owned(), number.to_string()) {
                break;
            }
        }
        page.finish(Some("rest".to_owned()))
    }

    fn cursor(position: &str) -> String {
        ListTag::of("/v1/flows").cursor(position)
    }

    #[test]
    fn page_ends_before_the_entry_that_exceeds_its_size() {
        let page = built(&["aaaaa", "bbbbb", "ccccc"]);
        assert_eq!(page.entries, ["aaaaa", "bbbbb"]);
        assert_eq!(page.next, Some(cursor("1")));
    }

    #[test]
    fn page_ends_at_its_number_of_entries() {
        let page = built(&["a", "b", "c", "d"]);
        assert_eq!(page.entries.len(), 3);
        assert_eq!(page.next, Some(cursor("2")));
    }

    #[test]
    fn entry_that_is_larger_than_the_limit_is_alone() {
        let large = "x".repeat(100);
        let page = built(&[&large, "b"]);
        assert_eq!(page.entries, [large]);
        assert_eq!(page.next, Some(cursor("0")));
    }

    #[test]
    fn page_with_all_entries_has_the_cursor_of_its_source() {
        let page = built(&["a", "b"]);
        assert_eq!(page.next, Some(cursor("rest")));
    }
}
