//! `orlog schema`: prints the JSON Schema of definitions for editors.

use super::console::Console;
use super::exit::CommandError;

pub(super) fn run(console: &Console) -> Result<(), CommandError> {
    console.json(&orlog_program::json_schema())
}
