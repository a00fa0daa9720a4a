//! Shadows: compare a candidate with the active definition, by the recorded inputs of live
//! instances.
//!
//! A shadow is an instance of the built-in saga `orlog.shadow` (`crates/sagas/src/shadow`). While
//! it runs, the saga actors record the inputs of a sample of the new instances in their histories.
//! A page, an effect in the process of the shard, reads the instances that ended (`cases.rs`), adds
//! the events that only the candidate consumes (`events.rs`), and compares them in memory
//! (`counts.rs`).

pub mod candidate;
pub(crate) mod cases;
pub(crate) mod counts;
pub(crate) mod events;
pub(crate) mod pages;

use orlog_model::{CorrelationId, InstanceKey, SagaName, TenantId};
use orlog_sagas::shadow;

/// Returns the instance of the shadow of a saga.
///
/// # Errors
/// If the name is invalid.
pub fn key(tenant: TenantId, saga: &str) -> Result<InstanceKey, String> {
    let name = SagaName::new(saga).map_err(|error| error.to_string())?;
    let correlation = CorrelationId::for_path(name.as_str()).map_err(|error| error.to_string())?;
    Ok(InstanceKey {
        tenant,
        saga: SagaName::new(shadow::SAGA).expect("the name is short"),
        correlation,
    })
}
