//! Durations as text: `500ms`, `1h30m`, `60d`, or ISO 8601 (`PT30M`).

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// Parses a duration with units up to weeks. A day has 24 hours.
///
/// # Errors
/// If the text is not a duration, is negative, or has months or years, which have no fixed length.
pub fn parse_duration(text: &str) -> Result<Duration, jiff::Error> {
    text.parse::<Span>()?
        .to_duration(SpanRelativeTo::days_are_24_hours())?
        .try_into()
}

/// Formats a duration as text that [`parse_duration`] reads: `30d` for whole days, from two on.
#[must_use]
pub fn format_duration(duration: Duration) -> String {
    const DAY: u64 = 24 * 60 * 60;
    let days = duration.as_secs() / DAY;
    if days >= 2 && duration == Duration::from_secs(days * DAY) {
        return format!("{days}d");
    }
    let signed = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    format!("{signed:#}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_formatted_in_the_largest_units() {
        for (text, expected) in [
            ("2592000s", "30d"),
            ("24h", "24h"),
            ("90m", "1h 30m"),
            ("49h", "49h"),
            ("1500ms", "1s 500ms"),
        ] {
            let duration = parse_duration(text).unwrap();
            assert_eq!(format_duration(duration), expected);
            assert_eq!(parse_duration(expected).unwrap(), duration);
        }
    }
}
