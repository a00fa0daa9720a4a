//! Idempotency keys of start requests, with the fingerprints of their requests.

use orlog_model::{CorrelationId, DedupeKey, InstanceKey, SagaName, TenantId};
use uuid::Uuid;

/// Saga of the keys. No instance has it.
const STARTS: &str = "orlog.start";

/// Returns the instance whose dedupe keys are the fingerprints of a key: two requests with one key
/// can concern two instances.
pub(crate) fn start_key(tenant: &TenantId, key: Uuid) -> InstanceKey {
    InstanceKey {
        tenant: tenant.clone(),
        saga: SagaName::new(STARTS).expect("the name is short"),
        correlation: CorrelationId::new(key.to_string()).expect("a UUID is a correlation id"),
    }
}

/// Returns the dedupe key of a fingerprint.
pub(super) fn fingerprint_key(fingerprint: Uuid) -> DedupeKey {
    DedupeKey::from_uuid(fingerprint)
}

#[cfg(test)]
mod tests {
    use orlog_model::Change;

    use super::*;
    use crate::StartKeyUse;
    use crate::open_in_memory;
    use crate::samples::{at, key, small};

    #[test]
    fn key_with_another_fingerprint_is_found() {
        let (mut writer, reader) = open_in_memory(small());
        let tenant = key("acme", "o-1").tenant;
        let (used, unused) = (Uuid::from_u128(7), Uuid::from_u128(8));
        let (first, second) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let use_of = |tenant: &TenantId, key, fingerprint| {
            reader
                .start_key_use(tenant, key, fingerprint, at(6))
                .unwrap()
        };
        assert_eq!(use_of(&tenant, used, first), StartKeyUse::Unused);

        let change = Change::StartKey {
            tenant: tenant.clone(),
            key: used,
            fingerprint: first,
        };
        writer.commit(&[change], at(5)).unwrap();
        assert_eq!(use_of(&tenant, used, first), StartKeyUse::Same);
        assert_eq!(use_of(&tenant, used, second), StartKeyUse::Other);
        assert_eq!(use_of(&tenant, unused, second), StartKeyUse::Unused);
        let other = key("beta", "o-1").tenant;
        assert_eq!(use_of(&other, used, second), StartKeyUse::Unused);
    }
}
