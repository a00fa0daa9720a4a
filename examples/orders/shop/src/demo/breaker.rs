//! Watches how the runner sees the payment service.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use crate::orlog::Client;

const UPSTREAM: &str = "payments";
/// Short, since a breaker is half open only while one question is asked.
const LOOK: Duration = Duration::from_millis(10);

/// A task that looks, until this is dropped.
pub(super) struct Breaker {
    seen: UnboundedReceiver<String>,
    opened: u64,
    task: AbortHandle,
}

impl Breaker {
    pub(super) fn watching(client: Client) -> Self {
        let (tell, seen) = unbounded_channel();
        let task = tokio::spawn(async move {
            let mut last = String::from("closed");
            loop {
                // While the runner is away there is nothing to see.
                let upstreams = client.upstreams().await.unwrap_or_default();
                let payments = upstreams.into_iter().find(|upstream| upstream.name == UPSTREAM);
                if let Some(state) =
                    payments.and_then(|payments| payments.breaker).filter(|state| *state != last)
                {
                    last.clone_from(&state);
                    if tell.send(state).is_err() {
                        return;
                    }
                }
                tokio::time::sleep(LOOK).await;
            }
        });
        Self { seen, opened: 0, task: task.abort_handle() }
    }

    /// The states it took since the last look.
    pub(super) fn changes(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        while let Ok(state) = self.seen.try_recv() {
            self.opened += u64::from(state == "open");
            changes.push(state);
        }
        changes
    }

    /// How often it was seen to open.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }
}

impl Drop for Breaker {
    fn drop(&mut self) {
        self.task.abort();
    }
}
