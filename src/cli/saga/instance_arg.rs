//! Arguments that select an instance and its node.

use crate::cli::client::{ServerArgs, path};

/// Instance to select.
#[derive(Debug, clap::Args)]
pub(super) struct InstanceArgs {
    /// Saga name
    pub(super) saga: String,
    /// Correlation id
    pub(super) correlation: String,
    #[command(flatten)]
    pub(super) server: ServerArgs,
}

impl InstanceArgs {
    /// Returns the API path of the instance, or of an action on it.
    pub(super) fn path(&self, verb: Option<&str>) -> String {
        let mut parts = vec!["v1", "sagas", &self.saga, &self.correlation];
        parts.extend(verb);
        path(&parts)
    }
}
