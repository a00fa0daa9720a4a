//! Parser of durations: `30m`, `1h30m`, `500ms`, `60d`, and ISO 8601 (`PT30M`, `P60D`).

use std::time::Duration;

/// Parses a duration, or returns a message with the valid forms.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let millis = match text.strip_prefix('P') {
        Some(iso) => iso_millis(iso),
        None => short_millis(text),
    };
    let error =
        || format!("`{text}` is not a duration; write 500ms, 90s, 30m, 1h30m, 60d or ISO 8601 such as PT30M");
    millis.map(Duration::from_millis).ok_or_else(error)
}

const SHORT: [(&str, u64); 6] =
    [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 604_800_000)];

/// Parses numbers with units, each unit smaller than the previous one.
fn short_millis(text: &str) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    let mut smallest = u64::MAX;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let unit_end =
            rest[digits..].find(|c: char| c.is_ascii_digit()).map_or(rest.len(), |end| digits + end);
        let unit =
            SHORT.iter().find(|(unit, _)| *unit == &rest[digits..unit_end]).map(|(_, millis)| *millis)?;
        if unit >= smallest {
            return None;
        }
        smallest = unit;
        total = total.checked_add(rest[..digits].parse::<u64>().ok()?.checked_mul(unit)?)?;
        rest = &rest[unit_end..];
    }
    (smallest < u64::MAX).then_some(total)
}

/// Parses the text after the `P`. Rejects years and months, because they have no fixed length.
fn iso_millis(text: &str) -> Option<u64> {
    let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
    let date_millis = iso_part(date, &[('W', 604_800_000), ('D', 86_400_000)])?;
    let Some(time) = time else { return (!date.is_empty()).then_some(date_millis) };
    let time_millis = iso_part(time, &[('H', 3_600_000), ('M', 60_000), ('S', 1000)])?;
    if time.is_empty() { None } else { date_millis.checked_add(time_millis) }
}

fn iso_part(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let mut rest = text;
    let mut total: u64 = 0;
    for (unit, millis) in units {
        if let Some((number, after)) = rest.split_once(*unit) {
            total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*millis)?)?;
            rest = after;
        }
    }
    rest.is_empty().then_some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, seconds: Option<f64>) {
        assert_eq!(parse(text).ok(), seconds.map(Duration::from_secs_f64), "{text}");
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
