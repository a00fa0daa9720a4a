//! Dedupe keys that belong to no instance.

use orlog_model::{CorrelationId, DedupeKey, InstanceKey, SagaName, TenantId};
use uuid::Uuid;

/// Returns the dedupe key of a value within an owner that is no instance. `saga` separates the kinds
/// of owners; no instance has it.
pub(super) fn unbound_key(
    saga: &str,
    tenant: &TenantId,
    owner: Uuid,
    value: Uuid,
) -> (InstanceKey, DedupeKey) {
    let key = InstanceKey {
        tenant: tenant.clone(),
        saga: SagaName::new(saga).expect("the name is short"),
        correlation: CorrelationId::new(owner.to_string()).expect("a UUID is a correlation id"),
    };
    (key, DedupeKey::from_uuid(value))
}
