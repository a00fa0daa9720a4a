//! Text formats of the metrics.

use std::fmt::Write as _;

use axum::http::{HeaderMap, header};

const OPENMETRICS: &str = "application/openmetrics-text";
const OPENMETRICS_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PROMETHEUS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Returns the content type and the metrics in the requested format. The input is `OpenMetrics`
/// without its end marker.
pub(super) fn render(headers: &HeaderMap, mut text: String) -> (&'static str, String) {
    let accepted = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok());
    if accepted
        .flat_map(|value| value.split(','))
        .any(|kind| kind.trim().starts_with(OPENMETRICS))
    {
        text.push_str("# EOF\n");
        return (OPENMETRICS_TYPE, text);
    }

    (PROMETHEUS_TYPE, prometheus(&text))
}

/// Converts to the Prometheus text format: a counter has the name of its series, and units are
/// omitted.
fn prometheus(openmetrics: &str) -> String {
    let mut text = String::with_capacity(openmetrics.len());
    let mut help = None;
    for line in openmetrics.lines() {
        if let Some(about) = line.strip_prefix("# HELP ") {
            // The help line precedes the type line, which decides about the suffix of its name.
            help = about.split_once(' ');
        } else if let Some((name, kind)) = line
            .strip_prefix("# TYPE ")
            .and_then(|about| about.split_once(' '))
        {
            // OpenMetrics names a counter without the suffix of its series; the older format needs
            // it in both.
            let total = if kind == "counter" { "_total" } else { "" };
            let description = help.take().map_or("", |(_, description)| description);
            writeln!(
                text,
                "# HELP {name}{total} {description}\n# TYPE {name}{total} {kind}"
            )
            .expect("writing to a string does not fail");
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
    fn counter_names_match_in_both_formats() {
        let openmetrics = "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total 1.5\n# HELP b B.\n# TYPE b gauge\nb{x=\"# UNIT \"} 2\n";
        let expected = "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\na_seconds_total 1.5\n# HELP b B.\n# TYPE b gauge\nb{x=\"# UNIT \"} 2\n";
        assert_eq!(prometheus(openmetrics), expected);
    }

    #[test]
    fn openmetrics_requires_the_accept_header() {
        let check = |accept: &str, expected: &str| {
            let headers = HeaderMap::from_iter([(header::ACCEPT, accept.parse().unwrap())]);
            assert_eq!(render(&headers, String::new()).0, expected, "{accept}");
        };
        check(
            "application/openmetrics-text;version=1.0.0,text/plain;q=0.5",
            OPENMETRICS_TYPE,
        );
        check(
            "text/plain;version=0.0.4;q=0.5, application/openmetrics-text",
            OPENMETRICS_TYPE,
        );
        check("text/plain;version=0.0.4;q=1,*/*;q=0.1", PROMETHEUS_TYPE);
        check("*/*", PROMETHEUS_TYPE);
    }
}
