//! Data as an argument: JSON, a file, or the standard input.

use serde_json::Value;

use crate::cli::exit::CommandError;

/// Reads JSON from an argument, `@FILE` or `@-`.
pub(crate) fn read_data(argument: &str, text: &str) -> Result<Value, CommandError> {
    // JSON never starts with this character, so that no document is mistaken for a file.
    let (content, origin) = match text.strip_prefix('@') {
        Some("-") => (std::io::read_to_string(std::io::stdin())?, "standard input"),
        Some(file) => {
            let content = std::fs::read_to_string(file)
                .map_err(|error| CommandError::usage(format!("{argument} @{file}: {error}")))?;
            (content, file)
        }
        None => (text.to_owned(), argument),
    };
    serde_json::from_str(&content)
        .map_err(|error| CommandError::usage(format!("{origin}: {error}")))
}
