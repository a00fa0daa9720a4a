//! Durations as text: `500ms`, `1h30m`, `60d`, or ISO 8601 (`PT30M`).

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Parses a duration with units up to weeks. A day has 24 hours.
///
/// # Errors
/// If the text is not a duration, is negative, or has months or years, which have no fixed length.
pub fn parse_duration(text: &str) -> Result<Duration, jiff::Error> {
    text.parse::<Span>()?.to_duration(SpanRelativeTo::days_are_24_hours())?.try_into()
}

/// Formats a duration as text that [`parse_duration`] reads.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    let signed = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    format!("{signed:#}")
}
