//! The two formats of metrics as text.

use std::fmt::Write as _;

use axum::http::{HeaderMap, header};

const OPENMETRICS: &str = "application/openmetrics-text";
const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The metrics, given as `OpenMetrics` without its end, as whoever asks wants them, and what that is called.
pub(super) fn in_the_format_asked_for(headers: &HeaderMap, mut text: String) -> (&'static str, String) {
    let accepted = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    if accepted.flat_map(|value| value.split(',')).any(|kind| kind.trim().starts_with(OPENMETRICS)) {
        text.push_str("# EOF\n");
        return (OPENMETRICS_TYPE, text);
    }
    (PROMETHEUS_TYPE, prometheus(&text))
}

/// The older format: the name of a counter is that of its series, and units are nobody's business.
fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            help = about.split_once(' ');
        } else if let Some((name, kind)) =
            line.strip_prefix("# TYPE ").and_then(|about| about.split_once(' '))
        {
            let total = if kind == "counter" { "_total" } else { "" };
            let words = help.take().map_or("", |(_, words)| words);
            writeln!(text, "# HELP {name}{total} {words}\n# TYPE {name}{total} {kind}")
                .expect("a string takes everything");
        } else if !line.starts_with("# UNIT ") {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_called_like_its_series_in_the_older_format() {
        let openmetrics = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n# HELP b B.\n# TYPE b gauge\nb{x=\"# UNIT \"} 2\n";
        let expected = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n# HELP b B.\n# TYPE b gauge\nb{x=\"# UNIT \"} 2\n";
        assert_eq!(prometheus(openmetrics), expected);
    }

    #[test]
    fn openmetrics_is_for_whoever_asks_for_it() {
        let check = |accept: &str, expected: &str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(in_the_format_asked_for(&headers, String::new()).0, expected, "{accept}");
        };
        check("application/openmetrics-text;version=1.0.0,text/plain;q=0.5", OPENMETRICS_TYPE);
        check("text/plain;version=0.0.4;q=0.5, application/openmetrics-text", OPENMETRICS_TYPE);
        check("text/plain;version=0.0.4;q=1,*/*;q=0.1", PROMETHEUS_TYPE);
        check("*/*", PROMETHEUS_TYPE);
    }
}
