//! Publishes messages with unlimited retries, because they are already committed.

use std::time::Duration;

use orlog_bus::{Bus, Error, Message};

/// Delay between two attempts while the bus is unavailable.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Publishes messages and retries until the bus stores them. Returns an error if the bus rejects them
/// permanently. `what` is a label for log records.
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
