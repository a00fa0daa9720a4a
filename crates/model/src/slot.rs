//! Slots: the fixed, tiny addresses by which instances are spread over shards.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{InstanceKey, TenantId};

/// How many slots there are. Fixed for ever: stored keys begin with the slot.
pub const SLOTS: u16 = 1024;

/// One of [`SLOTS`] addresses. A shard owns a range of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u16);

/// FNV-1a, 32 bit, over the concatenated tokens; what NATS's `partition()` computes. Fixed for ever.
#[must_use]
pub fn fnv1a(tokens: &[&str]) -> u32 {
    let bytes = tokens.iter().flat_map(|t| t.bytes());
    bytes.fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

/// Which tenants are spread over all slots by key instead of living in one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slots {
    spread: BTreeSet<TenantId>,
}

impl Slots {
    /// Every tenant in one slot, but those named, whose instances are spread by (tenant, saga, correlation).
    #[must_use]
    pub fn spreading(spread: impl IntoIterator<Item = TenantId>) -> Self {
        Self { spread: spread.into_iter().collect() }
    }

    /// The slot of an instance.
    #[must_use]
    pub fn of(&self, key: &InstanceKey) -> Slot {
        if self.spread.contains(&key.tenant) {
            slot(&[key.tenant.as_str(), key.saga.as_str(), key.correlation.as_str()])
        } else {
            slot(&[key.tenant.as_str()])
        }
    }

    /// The one slot of a tenant, or `None` when the tenant is spread.
    #[must_use]
    pub fn of_tenant(&self, tenant: &TenantId) -> Option<Slot> {
        (!self.spreads(tenant)).then(|| self.home(tenant))
    }

    /// Whether the instances of a tenant are spread.
    #[must_use]
    pub fn spreads(&self, tenant: &TenantId) -> bool {
        self.spread.contains(tenant)
    }

    /// The slot for what belongs to a tenant and to no instance, spread or not.
    #[must_use]
    pub fn home(&self, tenant: &TenantId) -> Slot {
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
    fn hashes_as_published_for_fnv_1a() {
        assert_eq!(fnv1a(&[""]), 0x811c_9dc5);
        assert_eq!(fnv1a(&["a"]), 0xe40c_292c);
        assert_eq!(fnv1a(&["foobar"]), 0xbf9c_f968);
        assert_eq!(fnv1a(&["foo", "bar"]), 0xbf9c_f968);
    }

    #[test]
    fn slots_never_change() {
        let slots = Slots::spreading([TenantId::new("big").unwrap()]);
        assert_eq!(slots.of(&key("")), Slot(453));
        assert_eq!(slots.of(&key("acme")), slots.of_tenant(&TenantId::new("acme").unwrap()).unwrap());
        let big = TenantId::new("big").unwrap();
        assert_eq!((slots.of_tenant(&big), slots.spreads(&big)), (None, true));
        assert_eq!(slots.home(&big), Slot(u16::try_from(fnv1a(&["big"]) % 1024).unwrap()));
        assert_eq!(slots.of(&key("big")), Slot(u16::try_from(fnv1a(&["bigordero-1"]) % 1024).unwrap()));
    }
}
