//! Workflows of the Rust library, deployed to a node that is embedded in the program.

use orlog_workflow::{DeployError, NodeParts, NodeWorkflow};

use crate::app::AppOverrides;

impl AppOverrides {
    /// Returns the overrides for [`crate::App::start_with`] that deploy these workflows; several versions of one may be among them.
    ///
    /// # Errors
    /// All problems of the workflows, each with its remedy.
    pub fn workflows(workflows: impl IntoIterator<Item = NodeWorkflow>) -> Result<Self, DeployError> {
        let parts = NodeParts::of(workflows)?;
        Ok(Self {
            programs: parts.programs,
            upstreams: parts.upstream.into_iter().collect(),
            ..Self::default()
        })
    }
}
