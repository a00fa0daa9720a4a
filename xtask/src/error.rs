//! Errors that prevent an xtask command from running.

/// Error of an xtask command. Violations are not errors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file or directory of the checkout cannot be read.
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// A file is not valid TOML.
    #[error("{path} is not valid: {source}")]
    Toml { path: String, source: Box<toml::de::Error> },
    /// `cargo metadata` failed; contains its message.
    #[error("cargo metadata failed: {message}")]
    Metadata { message: String },
}
