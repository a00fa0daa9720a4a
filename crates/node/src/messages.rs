//! Messages between contexts, also of other nodes: outbox, inbox and delivery.

pub mod check;
pub(crate) mod delivery;
pub mod exchange;
pub(crate) mod outbound;
pub mod peer_message;

use orlog_model::{CorrelationId, InstanceKey, SagaName, TenantId};
use orlog_sagas::message::{self, INBOX_PREFIX, Message};

/// Returns the instance of a message: received messages have ids of their own form.
///
/// # Errors
/// If the id is invalid.
pub fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
    if id.starts_with(INBOX_PREFIX) {
        let correlation = CorrelationId::for_path(id).map_err(|error| error.to_string())?;
        return Ok(instance(tenant, message::INBOX_SAGA, correlation));
    }
    sent_key(tenant, id)
}

/// Returns the instance of a sent message.
///
/// # Errors
/// If the id is invalid, or has the form of the id of a received message.
pub fn sent_key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
    Ok(instance(tenant, message::SAGA, message::check_id(id)?))
}

/// Returns the instance of a message at its receiver.
#[must_use]
pub fn received_key(message: &Message) -> InstanceKey {
    let id = message::inbox_id(&message.from, &message.id);
    instance(message.to.context.clone(), message::INBOX_SAGA, id)
}

fn instance(tenant: TenantId, saga: &str, correlation: CorrelationId) -> InstanceKey {
    InstanceKey {
        tenant,
        saga: SagaName::new(saga).expect("the name is short"),
        correlation,
    }
}
