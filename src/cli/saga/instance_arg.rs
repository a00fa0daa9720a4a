//! The instance that a command is about, and the node that has it.

use crate::cli::client::{Server, path};

/// Which instance.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The definition's name
    pub(super) saga: String,
    /// The correlation id
    pub(super) correlation: String,
    #[command(flatten)]
    pub(super) server: Server,
}

impl Which {
    /// The path of the instance, or of something below it.
    pub(super) fn path(&self, verb: Option<&str>) -> String {
        let mut parts = vec!["v1", "sagas", &self.saga, &self.correlation];
        parts.extend(verb);
        path(&parts)
    }
}
