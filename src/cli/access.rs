//! `orlog context`, `orlog actor` and `orlog nats`.

pub(crate) mod actors;
pub(crate) mod contexts;
pub(crate) mod nats;

use serde_json::Value;

use crate::cli::console::{Console, items, text};
use crate::cli::exit::CommandError;

/// Prints the last changes of a context, an actor or a peer.
pub(crate) fn print_changes(record: &Value, console: &Console) -> Result<(), CommandError> {
    let rows: Vec<_> = items(record, "changes").iter().map(change_row).collect();
    console.line("")?;

    console.table(&["CHANGED", "BY", "ADDED", "REMOVED"], &rows, "no changes")
}

fn change_row(change: &Value) -> Vec<String> {
    vec![
        text(change, "at"),
        text(change, "by"),
        joined(change, "added"),
        joined(change, "removed"),
    ]
}

/// Returns the texts of a list, separated by commas.
fn joined(record: &Value, field: &str) -> String {
    items(record, field)
        .iter()
        .filter_map(Value::as_str)
        .collect::<Vec<_>>()
        .join(", ")
}
