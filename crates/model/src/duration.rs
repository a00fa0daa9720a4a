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

/// Returns the duration in whole seconds, rounded up. For a receiver that counts seconds: it must
/// not end before the sender, which counts the exact duration.
#[must_use]
pub fn whole_seconds(duration: Duration) -> u64 {
    let fraction = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_seconds_never_end_earlier() {
        for (millis, seconds) in [(0, 0), (1, 1), (1000, 1), (1001, 2), (1900, 2)] {
            assert_eq!(whole_seconds(Duration::from_millis(millis)), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), u64::MAX);
    }

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
