//! Publishing until the bus has it: what is committed to be said is said, however long the bus is away.

use std::time::Duration;

use orlog_bus::{Bus, Error, Message};

/// Between two attempts while the bus does not take them.
const PAUSE: Duration = Duration::from_millis(100);

/// Returns when the bus has the messages, or says that it never will. `what` they are is for the log.
pub(crate) async fn publish(bus: &dyn Bus, messages: Vec<Message>, what: &str) -> Result<(), Error> {
    let mut told = false;
    while !messages.is_empty() {
        match bus.publish(messages.clone()).await {
            Ok(_) => return Ok(()),
            Err(error @ (Error::Full(_) | Error::Unavailable(_) | Error::InUse(_))) => {
                if !std::mem::replace(&mut told, true) {
                    let count = messages.len();
                    tracing::warn!(%error, count, what, "the bus does not take messages; they are tried again");
                }
                tokio::time::sleep(PAUSE).await;
            }
            Err(error @ (Error::Subject { .. } | Error::TooLarge { .. })) => return Err(error),
        }
    }
    Ok(())
}
