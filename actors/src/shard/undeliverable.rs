//! Dead letters of messages that an ingester cannot deliver.

use orlog_bus::{Delivery, subject};
use orlog_model::{
    DeadLetter, DeadLetterOriginal, DeadLetterReason, Event, Input, SagaName, Timestamp,
};
use orlog_program::ProgramError;

/// Returns the dead letter of a message as it was received.
pub(crate) fn of_message(
    delivery: &Delivery,
    reason: DeadLetterReason,
    error: String,
    node: &str,
) -> DeadLetter {
    let tenant = subject::tenant_of(&delivery.message.subject).unwrap_or_default();
    let original = DeadLetterOriginal::Message {
        subject: delivery.message.subject.clone(),
        headers: delivery.message.headers.clone(),
        payload: delivery.message.payload.to_vec(),
    };
    orlog_engine::dead_letter_message(tenant, original, reason, error, node, delivery.published_at)
}

/// Returns the dead letter of an event without the identifier of its instance. Each publication has
/// its own, because a redrive removes the earlier one, maybe after the event has failed again.
pub(crate) fn of_event(
    event: &Event,
    published_at: Timestamp,
    saga: &SagaName,
    error: &ProgramError,
    node: &str,
) -> DeadLetter {
    let original = DeadLetterOriginal::Input(Box::new(Input::Event(event.clone())));
    let text = format!("saga {saga}: {error}");

    orlog_engine::dead_letter_message(
        event.tenant.clone(),
        original,
        DeadLetterReason::SchemaMismatch,
        text,
        node,
        published_at,
    )
}
