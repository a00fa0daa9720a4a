//! `orlog context`, `orlog actor` and `orlog nats`.

pub(crate) mod actors;
pub(crate) mod contexts;
pub(crate) mod nats;

use serde_json::Value;

use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;

/// Prints the last changes of a context, an actor or a peer.
pub(crate) fn print_changes(record: &Value, console: &Console) -> Result<(), CommandError> {
    let texts = |change: &Value, field: &str| -> String {
        items(change, field)
            .iter()
            .filter_map(Value::as_str)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let row = |change: &Value| {
        vec![
            text(change, "at"),
            text(change, "by"),
            texts(change, "added"),
            texts(change, "removed"),
        ]
    };
    let rows: Vec<_> = items(record, "changes").iter().map(row).collect();
    console.line("")?;

    console.table(&["CHANGED", "BY", "ADDED", "REMOVED"], &rows, "no changes")
}

/// Returns the texts of a list, separated by commas.
fn joined(record: &Value, field: &str) -> String {
    items(record, field)
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
