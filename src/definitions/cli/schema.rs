//! `orlog schema`: prints the JSON Schema of definitions for editors.

use crate::cli::console::Console;
use crate::cli::exit::CommandError;

pub(crate) fn run(console: &Console) -> Result<(), CommandError> {
    console.json(&orlog_program::json_schema())
}
