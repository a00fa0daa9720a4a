//! What commands write: tables for people, JSON for programs. Colours on a terminal only.

use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::exit::Failure;

/// For whom a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Output {
    /// People
    #[default]
    Table,
    /// Programs: what the node answered, as one JSON document
    Json,
}

/// Standard output.
pub(super) struct Console {
    output: Output,
    colours: bool,
    stdout: io::Stdout,
}

impl Console {
    pub(super) fn new(output: Output) -> Self {
        let stdout = io::stdout();
        let colours = stdout.is_terminal() && std::env::var_os("NO_COLOR").is_none();
        Self { output, colours, stdout }
    }

    /// Whether programs read it.
    pub(super) fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// A line of text.
    pub(super) fn line(&self, text: &str) -> Result<(), Failure> {
        Ok(writeln!(self.stdout.lock(), "{text}")?)
    }

    /// A JSON document.
    pub(super) fn json(&self, value: &Value) -> Result<(), Failure> {
        self.line(&format!("{value:#}"))
    }

    /// A table with a head; `empty` where there is no row.
    pub(super) fn table(&self, head: &[&str], rows: &[Vec<String>], empty: &str) -> Result<(), Failure> {
        if rows.is_empty() {
            return self.line(empty);
        }
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(head).add_rows(rows);
        let lines: Vec<_> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        self.line(&lines.join("\n"))
    }

    /// A status in its colour.
    pub(super) fn painted(&self, text: &str) -> String {
        let colour = match text {
            "completed" => 32,
            "running" | "compensating" => 36,
            "failed" | "cancelled" | "paused" => 33,
            "stuck" => 31,
            _ => return text.to_owned(),
        };
        if self.colours { format!("\u{1b}[{colour}m{text}\u{1b}[0m") } else { text.to_owned() }
    }
}

/// A word beside the result, on standard error.
pub(super) fn remark(text: &str) {
    // When nobody hears it, the result is the same.
    drop(writeln!(io::stderr(), "{text}"));
}

/// A field as text; empty where it is not there or null.
pub(super) fn text(value: &Value, field: &str) -> String {
    match &value[field] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The members of an array field.
pub(super) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}
