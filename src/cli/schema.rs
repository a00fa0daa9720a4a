//! `orlog schema`: the JSON Schema of definitions, for editors.

use super::console::Console;
use super::exit::Failure;

pub(super) fn perform(console: &Console) -> Result<(), Failure> {
    console.json(&orlog_program::schema())
}
