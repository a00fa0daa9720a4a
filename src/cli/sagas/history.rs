//! History of an instance on the command line: a table, or each transition with its payloads and
//! attempts.

use serde_json::Value;

use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;

/// Prints one row for each transition.
pub(super) fn table(records: &[Value], console: &Console) -> Result<(), CommandError> {
    let rows: Vec<_> = records.iter().map(row).collect();
    console.table(
        &["VERSION", "TIME", "INPUT", "NOTE", "STATUS", "WORK"],
        &rows,
        "no history",
    )
}

fn row(record: &Value) -> Vec<String> {
    let work = items(record, "work")
        .iter()
        .map(|work| text(work, "label"))
        .collect::<Vec<_>>()
        .join(", ");
    let mut row: Vec<_> = ["version", "at", "input_label", "note", "status"]
        .map(|field| text(record, field))
        .into();
    let failure = text(&record["failure"], "message");

    // Some notes already contain the message.
    if !failure.is_empty() && !row[3].contains(&failure) {
        row[3] = format!("{}; {failure}", row[3]);
    }
    row.push(work);
    row
}

/// Prints each transition: its input, the changed variables, the requested work, and why it failed.
pub(super) fn full(records: &[Value], console: &Console) -> Result<(), CommandError> {
    if records.is_empty() {
        return console.line("no history");
    }

    for (index, record) in records.iter().enumerate() {
        let head = ["at", "input_label", "status", "note"]
            .map(|field| text(record, field))
            .join("  ");
        if index > 0 {
            console.line("")?;
        }

        console.field(&format!("version {}", text(record, "version")), 12, &head)?;
        for (name, value) in details(record) {
            console.field(&format!("  {name}"), 12, &value)?;
        }
    }

    Ok(())
}

fn details(record: &Value) -> Vec<(String, String)> {
    let mut lines = Vec::new();
    let mut add = |name: &str, value: String| {
        if !value.is_empty() {
            lines.push((name.to_owned(), value));
        }
    };
    add("input", payload(&record["data"]));

    if !record["attributes"].is_null() {
        add("attributes", record["attributes"].to_string());
    }
    // Without single changes, only the start of their text is stored, because they exceed the
    // limit.
    match record["variables"]["value"].as_object() {
        Some(changes) => changes
            .iter()
            .for_each(|(name, change)| add("variable", changed(name, change))),
        None => add("variables", payload(&record["variables"])),
    }

    for work in items(record, "work") {
        add(
            "work",
            format!(
                "{} {} {}",
                text(work, "label"),
                text(work, "id"),
                payload(&work["data"])
            ),
        );
    }

    let failure = &record["failure"];
    if !failure.is_null() {
        add(
            "failure",
            format!("{} ({})", text(failure, "message"), text(failure, "code")),
        );
    }

    let attempts = &record["attempts"];
    for (index, attempt) in items(attempts, "items").iter().enumerate() {
        add("attempt", self::attempt(attempt));
        // The first attempt is always stored; the omitted ones are those after it.
        if index == 0 && attempts["omitted"].as_u64().unwrap_or_default() > 0 {
            add("", format!("{} attempts omitted", attempts["omitted"]));
        }
    }
    lines
}

fn changed(name: &str, change: &Value) -> String {
    match change.as_array().map(Vec::as_slice) {
        Some([before, after]) => format!("{name}: {before} -> {after}"),
        // A redacted variable.
        _ => format!("{name}: {}", change.as_str().unwrap_or_default()),
    }
}

/// Returns a payload as JSON, or its beginning with its size.
fn payload(payload: &Value) -> String {
    if payload.is_null() {
        return String::new();
    }
    match payload["beginning"].as_str() {
        Some(beginning) => format!("{beginning}… ({} bytes)", payload["size"]),
        None => payload["value"].to_string(),
    }
}

/// Returns the description of an attempt: `3  2026-11-22T17:37:18.190Z  unavailable after 12 ms: no
/// rooms (http_503)`.
pub(super) fn attempt(attempt: &Value) -> String {
    let field = |name: &str| text(attempt, name);
    let mut line = format!(
        "{}  {}  {} after {} ms",
        field("number"),
        field("at"),
        field("outcome"),
        field("duration_ms")
    );

    if !field("code").is_empty() {
        line = format!("{line}: {} ({})", field("message"), field("code"));
    }
    if !field("response").is_empty() {
        line = format!("{line}; response: {}", field("response"));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn details_show_input_variables_work_failure_and_attempts() {
        let record = json!({
            "data": { "value": { "total": 125 }, "size": 13 },
            "variables": { "value": { "total": [null, 125], "card": "[redacted]" }, "size": 40 },
            "work": [{ "label": "hotel.book", "id": "w-1", "data": { "value": null, "beginning": "{\"a\":", "size": 9000 } }],
            "failure": { "code": "http_503", "message": "hotel: timed out after 7 attempts; last: no rooms" },
            "attempts": {
                "items": [
                    { "number": 1, "at": "T", "outcome": "response_lost", "duration_ms": 3, "code": "http_503", "message": "no rooms", "response": "full" },
                    { "number": 7, "at": "T", "outcome": "succeeded", "duration_ms": 4, "code": "", "message": "", "response": null },
                ],
                "omitted": 5,
            },
        });
        let lines: Vec<_> = details(&record)
            .into_iter()
            .map(|(name, value)| format!("{name}|{value}"))
            .collect();
        let expected = [
            "input|{\"total\":125}",
            "variable|card: [redacted]",
            "variable|total: null -> 125",
            "work|hotel.book w-1 {\"a\":… (9000 bytes)",
            "failure|hotel: timed out after 7 attempts; last: no rooms (http_503)",
            "attempt|1  T  response_lost after 3 ms: no rooms (http_503); response: full",
            "|5 attempts omitted",
            "attempt|7  T  succeeded after 4 ms",
        ];
        let mut sorted = lines.clone();
        sorted[1..3].sort();
        assert_eq!(sorted, expected);
    }
}
