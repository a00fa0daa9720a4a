//! Slots: fixed hash buckets that distribute instances over shards.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{InstanceKey, TenantId};

/// Number of slots. It never changes: stored keys start with the slot.
pub const SLOTS: u16 = 1024;

/// One of [`SLOTS`] hash buckets. A shard owns a range of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u16);

/// Returns FNV-1a, 32 bit, of the concatenated tokens, as NATS `partition()` computes it. The
/// function never changes.
#[must_use]
pub fn fnv1a(tokens: &[&str]) -> u32 {
    let bytes = tokens.iter().flat_map(|t| t.bytes());
    bytes.fold(2_166_136_261, |hash: u32, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(16_777_619)
    })
}

/// Assigns instances to slots: by tenant, or by key for key-sharded tenants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotAssigner {
    key_sharded: BTreeSet<TenantId>,
}

impl SlotAssigner {
    /// Assigns every tenant to one slot, except the key-sharded ones, whose instances are
    /// distributed by (tenant, saga, correlation).
    #[must_use]
    pub fn with_key_sharded(tenants: impl IntoIterator<Item = TenantId>) -> Self {
        Self {
            key_sharded: tenants.into_iter().collect(),
        }
    }

    /// Returns the slot of an instance.
    #[must_use]
    pub fn slot_of(&self, key: &InstanceKey) -> Slot {
        if self.key_sharded.contains(&key.tenant) {
            Self::slot_of_key(key)
        } else {
            slot(&[key.tenant.as_str()])
        }
    }

    /// Returns the slot that an instance of a key-sharded tenant has.
    #[must_use]
    pub fn slot_of_key(key: &InstanceKey) -> Slot {
        slot(&[
            key.tenant.as_str(),
            key.saga.as_str(),
            key.correlation.as_str(),
        ])
    }

    /// Returns the slot of a tenant, or `None` if the tenant is key-sharded.
    #[must_use]
    pub fn tenant_slot(&self, tenant: &TenantId) -> Option<Slot> {
        (!self.is_key_sharded(tenant)).then(|| self.home_slot(tenant))
    }

    /// Returns whether the tenant is key-sharded.
    #[must_use]
    pub fn is_key_sharded(&self, tenant: &TenantId) -> bool {
        self.key_sharded.contains(tenant)
    }

    /// Returns the slot for data that belongs to a tenant and to no instance, for key-sharded
    /// tenants too.
    #[must_use]
    pub fn home_slot(&self, tenant: &TenantId) -> Slot {
        slot(&[tenant.as_str()])
    }
}

fn slot(tokens: &[&str]) -> Slot {
    let slot = fnv1a(tokens) % u32::from(SLOTS);
    Slot(u16::try_from(slot).expect("a remainder below 1024 fits"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CorrelationId, SagaName};

    fn key(tenant: &str) -> InstanceKey {
        InstanceKey {
            tenant: TenantId::new(tenant).unwrap(),
            saga: SagaName::new("order").unwrap(),
            correlation: CorrelationId::new("o-1").unwrap(),
        }
    }

    #[test]
    fn matches_fnv_1a_test_vectors() {
        assert_eq!(fnv1a(&[""]), 0x811c_9dc5);
        assert_eq!(fnv1a(&["a"]), 0xe40c_292c);
        assert_eq!(fnv1a(&["foobar"]), 0xbf9c_f968);
        assert_eq!(fnv1a(&["foo", "bar"]), 0xbf9c_f968);
    }

    #[test]
    fn slot_assignment_is_stable() {
        let slots = SlotAssigner::with_key_sharded([TenantId::new("big").unwrap()]);
        assert_eq!(slots.slot_of(&key("")), Slot(453));
        assert_eq!(
            slots.slot_of(&key("acme")),
            slots.tenant_slot(&TenantId::new("acme").unwrap()).unwrap()
        );
        let big = TenantId::new("big").unwrap();
        assert_eq!(
            (slots.tenant_slot(&big), slots.is_key_sharded(&big)),
            (None, true)
        );
        assert_eq!(
            slots.home_slot(&big),
            Slot(u16::try_from(fnv1a(&["big"]) % 1024).unwrap())
        );
        assert_eq!(
            slots.slot_of(&key("big")),
            Slot(u16::try_from(fnv1a(&["bigordero-1"]) % 1024).unwrap())
        );
    }
}
