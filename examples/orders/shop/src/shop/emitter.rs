//! Sends the aggregates' events to the runner, again and again until it accepts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Client;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::{Desk, REPEAT_ONE_IN};

/// Events sent at once.
const BATCH: usize = 100;
/// Between attempts while the runner is away.
const PAUSE: Duration = Duration::from_millis(50);

/// Where aggregates put their events.
pub(super) struct Emitter {
    queue: UnboundedSender<Value>,
    unsent: AtomicUsize,
}

impl Emitter {
    pub(super) fn new() -> (Self, UnboundedReceiver<Value>) {
        let (queue, outbound) = unbounded_channel();
        (Self { queue, unsent: AtomicUsize::new(0) }, outbound)
    }

    pub(super) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Acquire)
    }
}

impl Desk {
    /// Puts an event on its way, now and then twice.
    pub(super) fn emit(&self, event: Value) {
        self.book().events += 1;
        if self.draw(|chance| chance.u32(0..REPEAT_ONE_IN)) == 0 {
            self.book().repeated += 1;
            self.queue(event.clone());
        }
        self.queue(event);
    }

    fn queue(&self, event: Value) {
        self.emitter.unsent.fetch_add(1, Ordering::AcqRel);
        // An error means that the shop is closing.
        drop(self.emitter.queue.send(event));
    }
}

/// Sends what is queued, in order. Ends when the shop closes.
pub(super) async fn send(
    mut outbound: UnboundedReceiver<Value>,
    client: Client,
    orlog: String,
    desk: Arc<Desk>,
) {
    let url = format!("{orlog}/v1/events");
    let mut batch = Vec::new();
    while outbound.recv_many(&mut batch, BATCH).await > 0 {
        while !accepted(&client, &url, &batch, &desk).await {
            tokio::time::sleep(PAUSE).await;
        }
        desk.emitter.unsent.fetch_sub(batch.len(), Ordering::AcqRel);
        batch.clear();
    }
}

/// `false`: try again. An event that is refused for good is a fault that the audit will tell.
async fn accepted(client: &Client, url: &str, batch: &[Value], desk: &Desk) -> bool {
    let Ok(response) = client.post(url).json(batch).send().await else { return false };
    let status = response.status();
    if status.is_client_error() && status.as_u16() != 429 {
        let why = response.text().await.unwrap_or_default();
        desk.book().faults.push(format!("the runner refused events with {status}: {why}"));
        return true;
    }
    status.is_success()
}
