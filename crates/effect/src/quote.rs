//! Quotes of texts of other systems in messages.

/// Maximum number of characters of a quote.
pub(crate) const MAX_CHARS: usize = 200;

/// Returns the start of a text without control characters, which could forge a line of a log.
/// Secrets must be removed before: the quote may end in one.
pub(crate) fn quote(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(MAX_CHARS)
        .collect()
}
