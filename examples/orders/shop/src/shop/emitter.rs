//! Sends the aggregates' events to the runner and retries until it accepts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Client;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Maximum number of events per request.
const BATCH: usize = 100;
/// Delay between attempts while the runner is down.
const PAUSE: Duration = Duration::from_millis(50);

/// Sender side of the event queue.
pub(super) struct Emitter {
    queue: UnboundedSender<Value>,
    unsent: Arc<AtomicUsize>,
}

/// Receiver side of the event queue.
pub(super) struct Queue {
    events: UnboundedReceiver<Value>,
    unsent: Arc<AtomicUsize>,
}

impl Emitter {
    pub(super) fn new() -> (Self, Queue) {
        let (queue, events) = unbounded_channel();
        let unsent = Arc::new(AtomicUsize::new(0));
        (
            Self {
                queue,
                unsent: Arc::clone(&unsent),
            },
            Queue { events, unsent },
        )
    }

    pub(super) fn queue(&self, event: Value) {
        self.unsent.fetch_add(1, Ordering::AcqRel);
        // An error means that the shop is closing.
        drop(self.queue.send(event));
    }

    pub(super) fn unsent(&self) -> usize {
        self.unsent.load(Ordering::Acquire)
    }
}

/// Sends the queued events in order until the shop closes. Reports permanently rejected events.
pub(super) async fn send(
    mut queue: Queue,
    client: Client,
    url: String,
    report: impl Fn(String) + Send,
) {
    let mut batch = Vec::new();
    while queue.events.recv_many(&mut batch, BATCH).await > 0 {
        loop {
            match accepted(&client, &url, &batch).await {
                PublishResult::Accepted => break,
                PublishResult::Rejected(reason) => {
                    report(reason);
                    break;
                }
                PublishResult::RetryLater => tokio::time::sleep(PAUSE).await,
            }
        }
        queue.unsent.fetch_sub(batch.len(), Ordering::AcqRel);
        batch.clear();
    }
}

enum PublishResult {
    Accepted,
    Rejected(String),
    RetryLater,
}

async fn accepted(client: &Client, url: &str, batch: &[Value]) -> PublishResult {
    let Ok(response) = client.post(url).json(batch).send().await else {
        return PublishResult::RetryLater;
    };
    let status = response.status();
    if status.is_success() {
        return PublishResult::Accepted;
    }
    if status.is_client_error() && !matches!(status.as_u16(), 408 | 429) {
        let reason = response.text().await.unwrap_or_default();
        return PublishResult::Rejected(format!(
            "the runner rejected events with {status}: {reason}"
        ));
    }
    PublishResult::RetryLater
}
