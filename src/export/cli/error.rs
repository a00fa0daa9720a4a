//! Errors that stop an export.

use crate::cli::exit::CommandError;

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
