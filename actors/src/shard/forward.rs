//! Sending events on to instances that may live in other processes.

use orlog_bus::{Bus, Message};

use crate::instance::completion::Done;
use crate::publish_with_retry::publish;

/// For the log.
const WHAT: &str = "events on their way to instances";

/// What a batch of deliveries asks to be sent on.
#[derive(Default)]
pub(crate) struct Forward(Vec<Sending>);

struct Sending {
    sequence: u64,
    messages: Vec<Message>,
    done: Done,
}

impl Forward {
    /// Adds what becomes of the delivery with this number; that may be nothing.
    pub(crate) fn add(&mut self, sequence: u64, messages: impl Iterator<Item = Message>, done: Done) {
        self.0.push(Sending { sequence, messages: messages.collect(), done });
    }

    /// Publishes everything and tells who waits for what the bus has; tries until it has it. Answers those deliveries
    /// whose messages it will never take, and why.
    pub(crate) async fn send(self, bus: &dyn Bus) -> Vec<(u64, String)> {
        let all = self.0.iter().flat_map(|sending| sending.messages.iter().cloned()).collect();
        if publish(bus, all, WHAT).await.is_ok() {
            self.0.into_iter().for_each(|sending| sending.done.complete());
            return Vec::new();
        }
        // One of them spoils the others: which, shows one by one.
        let mut never = Vec::new();
        for Sending { sequence, messages, done } in self.0 {
            match publish(bus, messages, WHAT).await {
                Ok(()) => done.complete(),
                Err(error) => never.push((sequence, format!("it cannot be sent on: {error}"))),
            }
        }
        never
    }
}
