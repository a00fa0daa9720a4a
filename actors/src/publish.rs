//! Publishes messages that are already committed, with unlimited retries.

use std::time::Duration;

use orlog_bus::{Bus, Error, Message};

/// Delay between two attempts while the bus is unavailable.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Publishes messages and retries until the bus stores them. Returns an error if the bus rejects them
/// permanently. `label` is for log records.
pub(crate) async fn publish_with_retry(
    bus: &dyn Bus,
    messages: Vec<Message>,
    label: &str,
) -> Result<(), Error> {
    let mut reported = false;
    while !messages.is_empty() {
        match bus.publish(messages.clone()).await {
            Ok(_) => return Ok(()),
            Err(error @ (Error::Full(_) | Error::Unavailable(_) | Error::InUse(_))) => {
                if !std::mem::replace(&mut reported, true) {
                    let count = messages.len();
                    tracing::warn!(%error, count, label, "publish failed; retrying");
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error @ (Error::InvalidSubject { .. } | Error::TooLarge { .. })) => return Err(error),
        }
    }
    Ok(())
}

/// Publishes the messages of a batch in order. Each item leaves the batch when its result is known, and
/// goes to `done`. If the bus rejects messages, a smaller part is published until the rejected item is
/// found; the bus deduplicates messages that it has already stored.
pub(crate) async fn publish_batch<T>(
    bus: &dyn Bus,
    label: &str,
    batch: &mut Vec<T>,
    messages_of: impl Fn(&T) -> &[Message],
    mut done: impl FnMut(T, Result<(), Error>),
) {
    let mut size = batch.len();
    while !batch.is_empty() {
        let count = size.min(batch.len());
        let messages = batch[..count].iter().flat_map(&messages_of).cloned().collect();
        match publish_with_retry(bus, messages, label).await {
            Ok(()) => batch.drain(..count).for_each(|item| done(item, Ok(()))),
            Err(_) if count > 1 => size = count / 2,
            Err(error) => {
                done(batch.remove(0), Err(error));
                size = batch.len();
            }
        }
    }
}
