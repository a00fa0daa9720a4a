//! Output of commands: tables or JSON. Colors only on a terminal.

use std::io::{self, IsTerminal, Write};

use comfy_table::{ContentArrangement, Table, presets};
use serde_json::Value;

use super::exit::CommandError;
use super::printable::{one_line, printable, printable_json};

/// Output format of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// Table
    #[default]
    Table,
    /// JSON: the response of the node as one document
    Json,
}

/// Standard output.
pub(crate) struct Console {
    output: Output,
    colors: bool,
    /// Number of columns of the terminal; `None` if the output is no terminal.
    columns: Option<u16>,
    stdout: io::Stdout,
}

impl Console {
    pub(crate) fn new(output: Output) -> Self {
        let stdout = io::stdout();
        let is_terminal = stdout.is_terminal();
        let colors = is_terminal && std::env::var_os("NO_COLOR").is_none();
        let size = is_terminal
            .then(|| rustix::termios::tcgetwinsize(&stdout).ok())
            .flatten();
        // A terminal without a known size reports 0 columns, in which nothing fits.
        let columns = size.map(|size| size.ws_col).filter(|columns| *columns > 0);

        Self {
            output,
            colors,
            columns,
            stdout,
        }
    }

    /// Returns whether the output format is JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.output == Output::Json
    }

    /// Prints text of one or more lines.
    pub(crate) fn line(&self, text: &str) -> Result<(), CommandError> {
        Ok(writeln!(self.stdout.lock(), "{}", printable(text))?)
    }

    /// Prints a name, padded to a width, and its value on one line.
    pub(crate) fn field(&self, name: &str, width: usize, value: &str) -> Result<(), CommandError> {
        self.line(&format!("{name:<width$} {}", one_line(value)))
    }

    /// Prints a line with a colored status between two texts.
    pub(crate) fn status(
        &self,
        before: &str,
        status: &str,
        after: &str,
    ) -> Result<(), CommandError> {
        let before = one_line(before);
        // Escaped before it is colored, because the escape codes of the color must stay.
        let status = self.painted(&one_line(status));
        let after = one_line(after);
        Ok(writeln!(self.stdout.lock(), "{before}{status}{after}")?)
    }

    /// Prints a JSON document.
    pub(crate) fn json(&self, value: &Value) -> Result<(), CommandError> {
        Ok(writeln!(
            self.stdout.lock(),
            "{}",
            printable_json(&format!("{value:#}"))
        )?)
    }

    /// Prints a table with a header; prints `empty` if there are no rows. On a terminal, cells wrap
    /// at its width.
    pub(crate) fn table(
        &self,
        head: &[&str],
        rows: &[Vec<String>],
        empty: &str,
    ) -> Result<(), CommandError> {
        if rows.is_empty() {
            return self.line(empty);
        }
        self.line(&table_text(head, rows, self.columns))
    }

    /// Colors a status.
    fn painted(&self, text: &str) -> String {
        // Red needs an operator, yellow ended without success or is paused, cyan is in progress.
        let color = match text {
            "completed" => 32,
            "running" | "compensating" => 36,
            "failed" | "cancelled" | "paused" => 33,
            "stuck" => 31,
            _ => return text.to_owned(),
        };
        if self.colors {
            format!("\u{1b}[{color}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// Returns the lines of a table; its cells wrap if it has more than this number of columns.
fn table_text(head: &[&str], rows: &[Vec<String>], columns: Option<u16>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match columns {
        Some(columns) => table
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(columns),
        // Scripts read one line for each row.
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };

    // A line feed in a cell could forge another row.
    let cells = rows.iter().map(|row| row.iter().map(|cell| one_line(cell)));
    table.set_header(head).add_rows(cells);
    let lines: Vec<_> = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Prints a note on standard error, beside the result.
pub(crate) fn note(text: &str) {
    // A write error on standard error does not change the result.
    drop(writeln!(io::stderr(), "{}", printable(text)));
}

/// Returns a field as text; empty if the field is absent or null.
pub(crate) fn text(value: &Value, field: &str) -> String {
    match &value[field] {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the elements of an array field.
pub(crate) fn items<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_wrap_at_the_width_of_the_terminal() {
        let rows = [
            vec!["charge".to_owned(), "declined ".repeat(40)],
            vec!["ship".to_owned(), String::new()],
        ];
        let table = table_text(&["STEP", "FAILURE"], &rows, Some(60));
        assert!(table.lines().all(|line| line.len() <= 60), "{table}");
        assert_eq!(table.matches("declined").count(), 40, "{table}");
        let narrow = [vec!["charge".to_owned(), "declined".to_owned()]];
        let without_terminal = table_text(&["STEP", "FAILURE"], &narrow, None);
        assert_eq!(
            table_text(&["STEP", "FAILURE"], &narrow, Some(60)),
            without_terminal
        );
        assert_eq!(
            table_text(&["STEP", "FAILURE"], &rows, None)
                .lines()
                .count(),
            3
        );
    }
}
