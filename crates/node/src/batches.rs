//! Batches: one instruction for all instances that match a filter.

pub(crate) mod pages;
pub mod selection;

use orlog_model::{InstanceKey, SagaName, TenantId};
use orlog_sagas::batch;

/// Returns the instance of a batch.
///
/// # Errors
/// If the id is invalid.
pub fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
    let saga = SagaName::new(batch::SAGA).expect("the name is short");
    Ok(InstanceKey {
        tenant,
        saga,
        correlation: batch::check_id(id)?,
    })
}
