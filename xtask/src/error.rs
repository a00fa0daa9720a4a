//! Error that prevents an xtask command from running. Violations are not errors.

/// A file, a directory or an output cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {path}: {source}")]
pub(crate) struct Error {
    pub(crate) path: String,
    pub(crate) source: std::io::Error,
}
