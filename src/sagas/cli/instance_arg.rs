//! Arguments that select an instance and its node.

use crate::cli::client::{ServerArgs, path};

/// Instance to select.
#[derive(Debug, clap::Args)]
pub(crate) struct InstanceArgs {
    /// Saga name
    pub(crate) saga: String,
    /// Correlation id
    pub(crate) correlation: String,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

impl InstanceArgs {
    /// Returns the API path of the instance, or of an action on it.
    pub(crate) fn path(&self, verb: Option<&str>) -> String {
        let mut parts = vec!["v1", "sagas", &self.saga, &self.correlation];
        parts.extend(verb);
        path(&parts)
    }
}
