//! Deployments: the active definitions, their activation times and the users who deployed them.

use serde::{Deserialize, Serialize};

use crate::{DefinitionRef, TenantId, Timestamp};

/// Definitions that were activated together. It is one row, so that a crash leaves either the old or
/// the new set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deployment {
    /// Number of the deployment, starting at 1 and incremented by one.
    pub number: u64,
    /// Time of the deployment.
    pub at: Timestamp,
    /// User who deployed.
    pub deployed_by: String,
    /// Digest of the definitions directory at its last deployment; `None` if it was never deployed.
    pub definitions_digest: Option<[u8; 16]>,
    /// Definitions, including retired ones, ordered by saga and version.
    pub definitions: Vec<DeployedDefinition>,
    /// Schedules of files, including removed ones, ordered by tenant and name.
    #[serde(default)]
    pub schedules: Vec<DeployedSchedule>,
}

/// Deployed schedule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedSchedule {
    /// Tenant.
    pub tenant: TenantId,
    /// Name of the schedule.
    pub name: String,
    /// Name of its file, without a directory.
    pub file: String,
    /// Text of the file.
    pub source: String,
    /// Whether a later deployment has no file of it, so that it is deleted.
    pub removed: bool,
}

/// Deployed definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeployedDefinition {
    /// Definition ref.
    pub program: DefinitionRef,
    /// Name of its file, without a directory.
    pub file: String,
    /// Activation time.
    pub at: Timestamp,
    /// User who deployed it.
    pub deployed_by: String,
    /// Time since which it accepts no new instances; `None` while it is active.
    pub retired_at: Option<Timestamp>,
}

impl Deployment {
    /// Returns the active definitions.
    pub fn active(&self) -> impl Iterator<Item = &DeployedDefinition> {
        self.definitions.iter().filter(|definition| definition.retired_at.is_none())
    }

    /// Returns the deployed definition with this hash.
    #[must_use]
    pub fn find(&self, hash: &[u8; 16]) -> Option<&DeployedDefinition> {
        self.definitions.iter().find(|definition| definition.program.hash == *hash)
    }
}
