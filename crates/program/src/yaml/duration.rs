//! Parser of durations: `30m`, `1h30m`, `500ms`, `60d`, and ISO 8601 (`PT30M`, `P60D`).

use std::time::Duration;

/// Parses a duration, or returns a message with the valid forms.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    // Fewer forms than those of the model are valid: the schema of definitions has a pattern for
    // them.
    let is_valid = match text.strip_prefix('P') {
        Some(iso) => iso
            .chars()
            .all(|c| c.is_ascii_digit() || "WDTHMS".contains(c)),
        None => text
            .split(|c: char| c.is_ascii_digit())
            .all(|unit| UNITS.contains(&unit)),
    };
    let parsed = orlog_model::parse_duration(text).ok().filter(|_| is_valid);
    parsed.ok_or_else(|| {
        format!(
            "`{text}` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as \
                 PT30M"
        )
    })
}

/// Units, and the text between two digits.
const UNITS: [&str; 7] = ["", "ms", "s", "m", "h", "d", "w"];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, seconds: Option<f64>) {
        assert_eq!(
            parse(text).ok(),
            seconds.map(Duration::from_secs_f64),
            "{text}"
        );
    }

    #[test]
    fn parses_both_notations() {
        check("500ms", Some(0.5));
        check("30m", Some(1800.0));
        check("1h30m", Some(5400.0));
        check("60d", Some(60.0 * 86_400.0));
        check("PT30M", Some(1800.0));
        check("P60D", Some(60.0 * 86_400.0));
        check("P1DT2H3M4S", Some(93_784.0));
    }

    #[test]
    fn rejects_invalid_durations() {
        for text in [
            "",
            "30",
            "m",
            "30 m",
            "1m1h",
            "1h1h",
            "-5s",
            "P",
            "PT",
            "P1M",
            "PT5",
            "5x",
            "99999999999999999999d",
        ] {
            check(text, None);
        }
    }
}
