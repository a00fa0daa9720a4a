//! Response of the export: lines and the next cursor; or the error that stops the export.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::cli::exit::{CommandError, CommandExit};

/// Error that stops an export.
pub(crate) enum ExportError {
    /// A retry can succeed.
    Transient(CommandError),
    /// A retry cannot succeed.
    Permanent(CommandError),
}

impl From<CommandError> for ExportError {
    fn from(failure: CommandError) -> Self {
        ExportError::Permanent(failure)
    }
}

/// One response.
pub(crate) struct ExportPage {
    /// All lines as received, including the last one.
    pub(crate) text: String,
    /// Lines with data.
    pub(crate) lines: Vec<Value>,
    /// Cursor of the next request.
    pub(crate) cursor: String,
    /// More lines are available immediately.
    pub(crate) more: bool,
    /// The snapshot is not complete yet.
    pub(crate) snapshotting: bool,
}

impl ExportPage {
    /// Parses a response; without its last line it is truncated.
    pub(crate) fn read(text: &str) -> Result<Self, ExportError> {
        // Transient: nothing of a truncated response is applied, so that the request can be
        // repeated.
        let cut = |reason: String| {
            ExportError::Transient(CommandError::new(CommandExit::Unavailable, reason))
        };
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        let mut lines = lines.map_err(|error| {
            cut(format!(
                "the response of the node is not JSON lines: {error}"
            ))
        })?;

        let last = lines.pop().filter(|last| last["kind"] == "cursor");
        let cursor = last
            .as_ref()
            .and_then(|last| last["cursor"].as_str())
            .map(str::to_owned);
        let (Some(last), Some(cursor)) = (last, cursor) else {
            return Err(cut("the response of the node is truncated".to_owned()));
        };

        let is = |field: &str| last[field] == json!(true);
        Ok(Self {
            text: text.to_owned(),
            lines,
            cursor,
            more: is("has_more"),
            snapshotting: is("snapshotting"),
        })
    }

    /// Returns the latest lines of a kind: existing entities and deleted entities.
    pub(crate) fn of(&self, kind: &str) -> (Vec<&Value>, Vec<&Value>) {
        let of_kind = self.lines.iter().filter(|line| line["kind"] == kind);
        // PostgreSQL rejects a statement that updates one row twice. A later line replaces an
        // earlier one, because positions increase.
        let last: BTreeMap<String, &Value> = of_kind
            .map(|line| (format!("{} {}", line["tenant"], line["key"]), line))
            .collect();
        last.into_values().partition(|line| line["op"] == "put")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: &str = r#"{"kind":"cursor","cursor":"c","has_more":true,"snapshotting":false}"#;

    #[test]
    fn last_cursor_wins_and_truncated_page_is_rejected() {
        let put = |n: u8, op: &str| {
            format!(r#"{{"kind":"task","op":"{op}","tenant":"","key":{{"id":{n}}}}}"#)
        };
        let text = [
            put(1, "put"),
            put(2, "put"),
            put(1, "delete"),
            LAST.to_owned(),
        ]
        .join("\n");
        let page = ExportPage::read(&text).ok().unwrap();
        let (there, removed) = page.of("task");
        assert_eq!(
            (there.len(), removed.len(), page.of("instance").0.len()),
            (1, 1, 0)
        );
        assert_eq!(
            (page.cursor.as_str(), page.more, page.snapshotting),
            ("c", true, false)
        );
        for cut in ["", &put(1, "put"), &text[..text.len() - 3]] {
            assert!(ExportPage::read(cut).is_err(), "{cut}");
        }
    }
}
