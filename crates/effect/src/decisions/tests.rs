//! Tests of the tables: each status has one row, and the documentation has the same rows.

use std::collections::BTreeSet;
use std::path::Path;

use super::*;

fn line<K: fmt::Display>(row: &Row<K>) -> String {
    format!("| {} | {} | {} |", row.key, row.decision, row.reason)
}

fn lines<K: fmt::Display>(table: &[Row<K>]) -> Vec<String> {
    table.iter().map(line).collect()
}

/// Returns the tables of the documentation by heading.
fn tables() -> Vec<(&'static str, Vec<String>)> {
    let of_http = GRPC_OF_HTTP.iter().map(|row| {
        let decision = decide_grpc(row.grpc);
        format!("| {} | `{}` | {decision} |", row.http, row.grpc)
    });
    let grpc = GRPC.iter().map(|row| {
        let Row {
            key,
            decision,
            reason,
        } = row;
        format!("| `{key}` | {decision} | {reason} |")
    });
    vec![
        ("Calls without an answer", lines(CONNECTION)),
        ("HTTP", lines(HTTP)),
        ("gRPC", grpc.collect()),
        ("HTTP statuses of proxies for gRPC", of_http.collect()),
        ("SMTP", lines(SMTP)),
        ("SMTP after the message", lines(SMTP_AFTER_MESSAGE)),
        ("SQLSTATE", lines(SQL_STATES)),
        ("MySQL and MariaDB", lines(MYSQL_NUMBERS)),
        ("SQLite", lines(SQLITE_CODES)),
    ]
}

#[test]
fn documentation_has_each_row_and_no_other() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers/decisions.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut rows = 0;
    for (heading, expected) in tables() {
        let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
        let section = section.split("\n## ").next().unwrap();
        // The header and its separator come first.
        let documented: Vec<_> = section
            .lines()
            .filter(|line| line.starts_with('|'))
            .skip(2)
            .collect();
        assert_eq!(documented, expected, "{heading}");
        rows += expected.len();
    }
    let counted = format!("{rows} rows, {} answers", answers());
    assert!(page.contains(&counted), "{counted}");
}

/// Returns the number of answers that the tables decide: statuses × providers.
fn answers() -> usize {
    let statuses = |table: &[Row<Statuses>]| -> usize {
        let sizes = table.iter().map(|row| row.key.last - row.key.first + 1);
        sizes.map(usize::from).sum()
    };
    // The kinds `http` and `webhook`, and the gateway over HTTP and over NATS.
    let http = 4 * statuses(HTTP);
    let of_http: usize = GRPC_OF_HTTP
        .iter()
        .map(|row| usize::from(row.http.last - row.http.first + 1))
        .sum();
    http + GRPC.len()
        + of_http
        + statuses(SMTP)
        + statuses(SMTP_AFTER_MESSAGE)
        + SQL_STATES.len()
        + MYSQL_NUMBERS.len()
        + statuses(SQLITE_CODES)
        + CONNECTION.len()
}

#[track_caller]
fn check_contiguous(ranges: impl Iterator<Item = Statuses>, expected: Statuses) {
    let mut next = expected.first;
    for range in ranges {
        assert_eq!(range.first, next, "{range}");
        next = range.last + 1;
    }
    assert_eq!(next - 1, expected.last);
}

#[test]
fn each_status_has_exactly_one_row() {
    check_contiguous(HTTP.iter().map(|row| row.key), from(100, 999));
    check_contiguous(GRPC_OF_HTTP.iter().map(|row| row.http), from(100, 999));
    check_contiguous(SMTP.iter().map(|row| row.key), from(400, 599));
    check_contiguous(SQLITE_CODES.iter().map(|row| row.key), from(1, 255));

    let names: BTreeSet<_> = GRPC.iter().map(|row| row.key).collect();
    assert_eq!(names.len(), 17);
    assert!(GRPC_OF_HTTP.iter().all(|row| names.contains(row.grpc)));
}

/// A proxy that has forwarded the call sends one of these: none of them may count as a proof that
/// nothing was executed.
#[test]
fn answers_of_proxies_after_the_execution_are_in_doubt() {
    for status in [408, 499, 500, 502, 503, 504, 520, 524, 598, 999] {
        assert!(
            !matches!(decide_http(status), Failed | Throttled | Unavailable),
            "{status}"
        );
        let grpc = decide_grpc(grpc_of_http(status));
        assert!(
            !matches!(grpc, Failed | Throttled | Unavailable),
            "{status}"
        );
    }
    for code in [
        "CANCELLED",
        "UNAVAILABLE",
        "DEADLINE_EXCEEDED",
        "RESOURCE_EXHAUSTED",
    ] {
        let decision = decide_grpc(code);
        assert!(
            !matches!(decision, Failed | Throttled | Unavailable),
            "{code}"
        );
    }
    assert_eq!(
        decide_connection(Connection::RefusedStream),
        ReportedUnavailable
    );
    assert_eq!(decide_smtp(451, true), ReportedThrottled);
    assert_eq!(decide_smtp(451, false), Throttled);
    assert_eq!(decide_smtp(421, true), ReportedUnavailable);
    assert_eq!(decide_smtp(421, false), Unavailable);
}
