//! Claims of jobs by workers, as the store contains them.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{InstanceKey, Slot, SlotAssigner, Timestamp};

/// Claim of a job by a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobClaim {
    /// Id of the claim.
    pub id: Uuid,
    /// Worker.
    pub worker: String,
    /// Number of claims of the job so far, with this one.
    pub number: u32,
    /// Expiry, unless a heartbeat extends it.
    pub until: Timestamp,
}

/// Change of the stored claim of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobClaimUpdate {
    /// Instance of the job.
    pub instance: InstanceKey,
    /// Id of the work item.
    pub job: Uuid,
    /// Claim to store; `None` deletes the stored one.
    pub claim: Option<JobClaim>,
}

impl JobClaim {
    /// Returns the id of a claim of a job of this instance: a random one, with the slot that the
    /// instance has if its tenant is key-sharded. Every pod finds the shard of the job by it.
    #[must_use]
    pub fn id_for(instance: &InstanceKey, random: Uuid) -> Uuid {
        let Slot(slot) = SlotAssigner::slot_of_key(instance);
        // Version 8 marks ids with a slot. The bits of the version and the variant are in other
        // bytes.
        let mut bytes = random.into_bytes();
        [bytes[14], bytes[15]] = slot.to_be_bytes();
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }

    /// Returns the slot in the id of a claim; `None` if it has none.
    #[must_use]
    pub fn slot_in(id: Uuid) -> Option<Slot> {
        // The last bytes of an id of another version are random.
        if id.get_version_num() != 8 {
            return None;
        }

        let bytes = id.as_bytes();
        let slot = u16::from_be_bytes([bytes[14], bytes[15]]);
        Some(Slot(slot)).filter(|slot| slot.0 < crate::SLOTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorrelationId, SagaName, TenantId};

    #[test]
    fn id_of_a_claim_contains_the_slot_of_its_instance() {
        let key = InstanceKey {
            tenant: TenantId::new("acme").unwrap(),
            saga: SagaName::new("film").unwrap(),
            correlation: CorrelationId::new("f-1").unwrap(),
        };
        let slots = SlotAssigner::with_key_sharded([key.tenant.clone()]);
        let random = [1, u128::MAX].map(Uuid::from_u128);
        let ids = random.map(|random| JobClaim::id_for(&key, random));
        assert_ne!(ids[0], ids[1]);
        for id in ids {
            assert_eq!(JobClaim::slot_in(id), Some(slots.slot_of(&key)));
        }
        assert_eq!(JobClaim::slot_in(Uuid::nil()), None);
    }
}
