//! Publishes messages that are already committed, with unlimited retries.

use std::sync::Arc;
use std::time::Duration;

use orlog_bus::{Bus, Error, Message};

/// Delay between two attempts while the bus is unavailable.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Publishes messages and retries until the bus stores them. `messages` returns the same messages
/// for each attempt. Returns an error if the bus rejects them permanently. `label` is for log
/// records.
pub(crate) async fn publish_with_retry(
    bus: &dyn Bus,
    messages: impl Fn() -> Vec<Arc<Message>>,
    label: &str,
) -> Result<(), Error> {
    let mut reported = false;
    loop {
        let attempt = messages();
        let count = attempt.len();
        if count == 0 {
            return Ok(());
        }
        match bus.publish(attempt).await {
            Ok(_) => return Ok(()),
            Err(error @ (Error::Full(_) | Error::Unavailable(_) | Error::InUse(_))) => {
                // Once: an outage of hours must not fill the log.
                if !std::mem::replace(&mut reported, true) {
                    tracing::warn!(%error, count, label, "publish failed; retrying");
                }
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(error @ (Error::InvalidSubject { .. } | Error::TooLarge { .. })) => {
                return Err(error);
            }
        }
    }
}

/// Publishes the messages of a batch in order. Each item leaves the batch when its result is known,
/// and goes to `done`; an item that `done` returns is published again in its place. If the bus
/// rejects messages, a smaller part is published until the rejected item is found; the bus
/// deduplicates messages that it has already stored.
pub(crate) async fn publish_batch<T>(
    bus: &dyn Bus,
    label: &str,
    batch: &mut Vec<T>,
    messages_of: impl Fn(&T) -> &[Arc<Message>],
    mut done: impl FnMut(T, Result<(), Error>) -> Option<T>,
) {
    let mut size = batch.len();
    while !batch.is_empty() {
        let count = size.min(batch.len());

        let part = &batch[..count];
        let result = publish_with_retry(
            bus,
            || part.iter().flat_map(&messages_of).cloned().collect(),
            label,
        )
        .await;
        match result {
            Ok(()) => {
                for item in batch.drain(..count) {
                    drop(done(item, Ok(())));
                }
            }
            // The bus does not say which message it rejects.
            Err(_) if count > 1 => size = count / 2,
            Err(error) => {
                if let Some(item) = done(batch.remove(0), Err(error)) {
                    batch.insert(0, item);
                }
                size = batch.len();
            }
        }
    }
}
