//! Forwards events to instances that may run in other processes.

use orlog_bus::{Bus, Message};

use crate::instance::completion::Completion;
use crate::publish_with_retry::publish_with_retry;

/// Label for log records.
const LOG_LABEL: &str = "events forwarded to instances";

/// Messages to forward from one batch of deliveries.
#[derive(Default)]
pub(crate) struct ForwardBatch(Vec<ForwardedDelivery>);

struct ForwardedDelivery {
    sequence: u64,
    messages: Vec<Message>,
    done: Completion,
}

impl ForwardBatch {
    /// Adds the messages of the delivery with this sequence number; there may be none.
    pub(crate) fn add(&mut self, sequence: u64, messages: impl Iterator<Item = Message>, done: Completion) {
        self.0.push(ForwardedDelivery { sequence, messages: messages.collect(), done });
    }

    /// Publishes all messages with retries and completes the deliveries that the bus accepted. Returns the
    /// deliveries whose messages the bus rejects permanently, with the reason.
    pub(crate) async fn send(self, bus: &dyn Bus) -> Vec<(u64, String)> {
        let all = self.0.iter().flat_map(|sending| sending.messages.iter().cloned()).collect();
        if publish_with_retry(bus, all, LOG_LABEL).await.is_ok() {
            self.0.into_iter().for_each(|sending| sending.done.complete());
            return Vec::new();
        }
        // One message makes the batch fail: publish one by one to find it.
        let mut never = Vec::new();
        for ForwardedDelivery { sequence, messages, done } in self.0 {
            match publish_with_retry(bus, messages, LOG_LABEL).await {
                Ok(()) => done.complete(),
                Err(error) => never.push((sequence, format!("cannot forward the event: {error}"))),
            }
        }
        never
    }
}
