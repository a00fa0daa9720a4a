//! Dates of HTTP headers.

use jiff::civil::DateTime;
use jiff::fmt::{rfc2822, strtime};
use jiff::tz::TimeZone;

use crate::Timestamp;

/// Formats in UTC (RFC 9110, 5.6.7): IMF-fixdate, RFC 850 and asctime.
const FORMATS: [&str; 3] = [
    "%a, %d %b %Y %H:%M:%S GMT",
    "%A, %d-%b-%y %H:%M:%S GMT",
    "%a %b %e %H:%M:%S %Y",
];

/// Parses a date in each form of RFC 9110: `Sun, 06 Nov 1994 08:49:37 GMT`, and the obsolete
/// `Sunday, 06-Nov-94 08:49:37 GMT` and `Sun Nov  6 08:49:37 1994`. A year of two digits is one of
/// 1969 to 2068. A time after [`Timestamp::MAX_RFC_3339`] becomes that time. Returns `None` for another
/// text.
#[must_use]
pub fn parse_http_date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    if let Ok(date) = rfc2822::parse(text) {
        return Some(Timestamp::from_millis(date.timestamp().as_millisecond()));
    }

    let parsed = FORMATS
        .iter()
        .find_map(|format| strtime::parse(format, text).ok())?;
    let date: DateTime = parsed.to_datetime().ok()?;
    match TimeZone::UTC.to_timestamp(date) {
        Ok(instant) => Some(Timestamp::from_millis(instant.as_millisecond())),
        // The library ends a day before the year 9999.
        Err(_) if date.year() == 9999 => Some(Timestamp::MAX_RFC_3339),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_http_is_a_date() {
        let expected = Timestamp::parse("1994-11-06T08:49:37Z").ok();
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(parse_http_date(text), expected, "{text}");
        }
        assert_eq!(
            parse_http_date("Wed Nov 16 08:49:37 2061"),
            Timestamp::parse("2061-11-16T08:49:37Z").ok()
        );

        assert_eq!(
            parse_http_date("Fri, 31 Dec 9999 23:59:59 GMT"),
            Some(Timestamp::MAX_RFC_3339)
        );

        for text in ["", "soon", "Sun Nov  6 08:49:37", "1994-11-06T08:49:37Z"] {
            assert_eq!(parse_http_date(text), None, "{text}");
        }
    }
}
