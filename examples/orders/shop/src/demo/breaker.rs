//! Monitor of the runner's circuit breaker of the payment service.

use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::AbortHandle;

use crate::orlog::Client;

const UPSTREAM: &str = "payments";
/// Poll interval; short, because a breaker is half open for one call only.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polling task; aborted on drop.
pub(super) struct BreakerMonitor {
    seen: UnboundedReceiver<String>,
    opened: u64,
    task: AbortHandle,
}

impl BreakerMonitor {
    pub(super) fn watching(client: Client) -> Self {
        let (sender, seen) = unbounded_channel();
        let task = tokio::spawn(async move {
            let mut last = String::from("closed");
            loop {
                // While the runner is down there is no state to read.
                let upstreams = client.upstreams().await.unwrap_or_default();
                let payments = upstreams
                    .into_iter()
                    .find(|upstream| upstream.name == UPSTREAM);
                if let Some(state) = payments
                    .and_then(|payments| payments.breaker)
                    .filter(|state| *state != last)
                {
                    last.clone_from(&state);
                    if sender.send(state).is_err() {
                        return;
                    }
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        });
        Self {
            seen,
            opened: 0,
            task: task.abort_handle(),
        }
    }

    /// Returns the state changes since the last call.
    pub(super) fn changes(&mut self) -> Vec<String> {
        let mut changes = Vec::new();
        while let Ok(state) = self.seen.try_recv() {
            self.opened += u64::from(state == "open");
            changes.push(state);
        }
        changes
    }

    /// Returns the number of observed openings.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }
}

impl Drop for BreakerMonitor {
    fn drop(&mut self) {
        self.task.abort();
    }
}
