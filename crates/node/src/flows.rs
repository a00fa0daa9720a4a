//! Flows: graphs of jobs that users submit at run time.

use orlog_model::{InstanceKey, SagaName, TenantId};
use orlog_sagas::flow;

/// Returns the instance of a flow.
///
/// # Errors
/// If the id is invalid.
pub fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
    let saga = SagaName::new(flow::SAGA).expect("the name is short");
    Ok(InstanceKey {
        tenant,
        saga,
        correlation: flow::check_id(id)?,
    })
}
