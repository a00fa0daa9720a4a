//! Deployments: the active definitions of an owner, their activation times and the users who
//! deployed them.

use serde::{Deserialize, Serialize};

use crate::{DefinitionRef, EventType, TenantId, Timestamp};

/// Definitions of one owner that were activated together: the shared definitions, or those of a
/// context. It is one row, so that a crash leaves either the old or the new set.
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
    /// Context that owns the definitions; `None`: they are shared. It is the last field and absent
    /// if they are shared, because rows are read by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<TenantId>,
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
    /// Event types that it consumes, if it belongs to a context: its events are not lost if a later
    /// release cannot load it. It is the last field and absent if it is shared, because rows are
    /// read by position.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventType>,
}

impl Deployment {
    /// Returns the active definitions.
    pub fn active(&self) -> impl Iterator<Item = &DeployedDefinition> {
        self.definitions
            .iter()
            .filter(|definition| definition.retired_at.is_none())
    }

    /// Returns whether it replaces another deployment of the same owner. Pods that deploy at the
    /// same time choose the same number; then the later one counts, and of two in the same
    /// millisecond that with the higher hashes.
    #[must_use]
    pub fn is_newer_than(&self, other: Option<&Self>) -> bool {
        other.is_none_or(|other| {
            let order = (self.number, self.at).cmp(&(other.number, other.at));

            // Equal numbers occur only between deployments of releases without the counter of the
            // cluster. All pods must then choose the same one, so the content decides.
            order
                .then_with(|| self.content().cmp(&other.content()))
                .is_gt()
        })
    }

    /// Returns the hashes of the active definitions, and the schedules.
    fn content(&self) -> (Vec<[u8; 16]>, Vec<(String, bool)>) {
        let hashes = self
            .active()
            .map(|definition| definition.program.hash)
            .collect();
        let schedules = self
            .schedules
            .iter()
            .map(|schedule| (schedule.source.clone(), schedule.removed))
            .collect();
        (hashes, schedules)
    }

    /// Returns the deployed definition with this hash.
    #[must_use]
    pub fn find(&self, hash: &[u8; 16]) -> Option<&DeployedDefinition> {
        self.definitions
            .iter()
            .find(|definition| definition.program.hash == *hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SagaName;

    /// Requirements: F2.
    #[test]
    fn of_two_deployments_one_is_newer_on_all_pods() {
        let deployment = |number, at, hash| Deployment {
            number,
            at: Timestamp::from_millis(at),
            deployed_by: "ada".to_owned(),
            definitions_digest: None,
            definitions: vec![DeployedDefinition {
                program: DefinitionRef {
                    saga: SagaName::new("order").unwrap(),
                    version: 1,
                    hash: [hash; 16],
                },
                file: "order.saga.yaml".to_owned(),
                at: Timestamp::from_millis(at),
                deployed_by: "ada".to_owned(),
                retired_at: None,
                events: Vec::new(),
            }],
            schedules: Vec::new(),
            context: None,
        };
        let ordered = [
            deployment(1, 9, 9),
            deployment(2, 1, 9),
            deployment(2, 2, 1),
            deployment(2, 2, 2),
        ];
        for (index, one) in ordered.iter().enumerate() {
            for (other, two) in ordered.iter().enumerate() {
                assert_eq!(
                    one.is_newer_than(Some(two)),
                    index > other,
                    "{index} {other}"
                );
            }
        }
        assert!(ordered[0].is_newer_than(None));
    }
}
