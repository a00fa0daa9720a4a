//! Idempotency keys of requests, with the fingerprints of their requests.

use orlog_model::{DedupeKey, InstanceKey, TenantId};
use uuid::Uuid;

use super::unbound_key::unbound_key;

/// Saga of the keys. No instance has it.
const REQUESTS: &str = "orlog.start";

/// Returns the dedupe key of a fingerprint, in the pseudo-instance of its key: two requests with one
/// key can concern two instances.
pub(crate) fn request_key(
    tenant: &TenantId,
    key: Uuid,
    fingerprint: Uuid,
) -> (InstanceKey, DedupeKey) {
    unbound_key(REQUESTS, tenant, key, fingerprint)
}

#[cfg(test)]
mod tests {
    use orlog_model::Change;

    use super::*;
    use crate::RequestKeyUse;
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
                .request_key_use(tenant, key, fingerprint, at(6))
                .unwrap()
        };
        assert_eq!(use_of(&tenant, used, first), RequestKeyUse::Unused);

        let change = Change::RequestKey {
            tenant: tenant.clone(),
            key: used,
            fingerprint: first,
        };
        writer.commit(&[change], at(5)).unwrap();
        assert_eq!(use_of(&tenant, used, first), RequestKeyUse::Same);
        assert_eq!(use_of(&tenant, used, second), RequestKeyUse::Other);
        assert_eq!(use_of(&tenant, unused, second), RequestKeyUse::Unused);
        let other = key("beta", "o-1").tenant;
        assert_eq!(use_of(&other, used, second), RequestKeyUse::Unused);
    }
}
