//! Dead letters of effect workers, as the store keeps them.

use orlog_bus::codec::DecodeError;
use orlog_bus::{Delivery, effect_queue, subject};
use orlog_model::{DeadLetter, DeadLetterOriginal, DeadLetterReason};

/// Decodes the dead letter of a worker. Its id derives from the command and the publish time, so
/// that a message that is delivered again is stored once.
///
/// # Errors
/// If the message is not a dead letter of a worker.
pub(super) fn decode(delivery: &Delivery) -> Result<DeadLetter, DecodeError> {
    let dead_letter = effect_queue::decode_dead_letter(&delivery.message)?;
    let command = dead_letter.original;

    // A command that the worker could not decode may be readable here.
    let instance = effect_queue::decode_command(&command)
        .ok()
        .map(|command| command.item.instance);
    let original = DeadLetterOriginal::Message {
        subject: command.subject,
        headers: command.headers,
        payload: command.payload.to_vec(),
    };

    let tenant = subject::tenant_of(&delivery.message.subject).unwrap_or_default();
    let stored = orlog_engine::dead_letter_message(
        tenant,
        original,
        DeadLetterReason::Undecodable,
        dead_letter.reason,
        &dead_letter.node,
        delivery.published_at,
    );
    Ok(DeadLetter { instance, ..stored })
}
