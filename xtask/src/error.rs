//! What can keep a chore from running at all.

/// Findings are not errors.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A file or folder of the checkout cannot be read.
    #[error("cannot read {path}: {source}")]
    Read { path: String, source: std::io::Error },
    /// A file that must be TOML is not.
    #[error("{path} is not valid: {source}")]
    Toml { path: String, source: Box<toml::de::Error> },
    /// `cargo metadata` failed; its own message is the best there is.
    #[error("cargo metadata failed: {message}")]
    Metadata { message: String },
}
