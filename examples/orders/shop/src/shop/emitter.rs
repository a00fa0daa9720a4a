//! Sends the aggregates' events to the runner, again and again until it accepts them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use reqwest::Client;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Events sent at once.
const BATCH: usize = 100;
/// Between attempts while the runner is away.
const PAUSE: Duration = Duration::from_millis(50);

/// Where aggregates put their events.
pub(super) struct Emitter {
    queue: UnboundedSender<Value>,
    unsent: Arc<AtomicUsize>,
}

/// Events on their way out.
pub(super) struct Queue {
    events: UnboundedReceiver<Value>,
    unsent: Arc<AtomicUsize>,
}

impl Emitter {
    pub(super) fn new() -> (Self, Queue) {
        let (queue, events) = unbounded_channel();
        let unsent = Arc::new(AtomicUsize::new(0));
        (Self { queue, unsent: Arc::clone(&unsent) }, Queue { events, unsent })
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

/// Sends what is queued, in order. Ends when the shop closes. Events that are refused for good are told.
pub(super) async fn send(mut queue: Queue, client: Client, url: String, tell: impl Fn(String) + Send) {
    let mut batch = Vec::new();
    while queue.events.recv_many(&mut batch, BATCH).await > 0 {
        loop {
            match accepted(&client, &url, &batch).await {
                Answer::Accepted => break,
                Answer::Refused(why) => {
                    tell(why);
                    break;
                }
                Answer::Later => tokio::time::sleep(PAUSE).await,
            }
        }
        queue.unsent.fetch_sub(batch.len(), Ordering::AcqRel);
        batch.clear();
    }
}

enum Answer {
    Accepted,
    Refused(String),
    Later,
}

async fn accepted(client: &Client, url: &str, batch: &[Value]) -> Answer {
    let Ok(response) = client.post(url).json(batch).send().await else { return Answer::Later };
    let status = response.status();
    if status.is_success() {
        return Answer::Accepted;
    }
    if status.is_client_error() && !matches!(status.as_u16(), 408 | 429) {
        let why = response.text().await.unwrap_or_default();
        return Answer::Refused(format!("the runner refused events with {status}: {why}"));
    }
    Answer::Later
}
