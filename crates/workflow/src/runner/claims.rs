//! Claims of a worker: heartbeats extend them, and an instance stops when its claim is lost.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tracing::warn;

use crate::backend::{Backend, InstanceId, NEVER_MS};
use crate::clock::Clock;
use crate::retry::millis;

/// Claims of a worker.
#[derive(Clone)]
pub(super) struct Claims {
    pub(super) backend: Arc<dyn Backend>,
    pub(super) clock: Clock,
    pub(super) ttl: Duration,
    pub(super) interval: Duration,
    held: Arc<Mutex<BTreeMap<InstanceId, Held>>>,
}

struct Held {
    epoch: u64,
    valid_until_ms: u64,
    instance: AbortHandle,
}

impl Claims {
    pub(super) fn new(
        backend: Arc<dyn Backend>,
        clock: Clock,
        ttl: Duration,
        interval: Duration,
    ) -> Self {
        Self {
            backend,
            clock,
            ttl,
            interval,
            held: Arc::default(),
        }
    }

    /// Adds a claim. A former claim of the instance has expired, so its execution stops.
    pub(super) fn add(
        &self,
        id: InstanceId,
        epoch: u64,
        valid_until_ms: u64,
        instance: AbortHandle,
    ) {
        let former = self.held.lock().insert(
            id,
            Held {
                epoch,
                valid_until_ms,
                instance,
            },
        );
        former.inspect(|former| former.instance.abort());
    }

    /// Forgets a claim that ended. A later claim of the same instance remains.
    pub(super) fn remove(&self, id: &str, epoch: u64) {
        let mut held = self.held.lock();
        if held.get(id).is_some_and(|held| held.epoch == epoch) {
            held.remove(id);
        }
    }

    /// Extends the claims until the future is dropped. An instance whose claim expired or is lost
    /// is stopped at once: another worker may execute it.
    pub(super) async fn keep(self) {
        let mut beat_ms = self.clock.now_ms().saturating_add(millis(self.interval));

        loop {
            let expires_ms = self
                .held
                .lock()
                .values()
                .map(|held| held.valid_until_ms)
                .min()
                .unwrap_or(NEVER_MS);

            self.clock.wait_until(beat_ms.min(expires_ms)).await;

            let now = self.clock.now_ms();

            // Before the extension: another worker may have the instance of an expired claim.
            self.stop_expired(now);
            if now >= beat_ms {
                self.extend(now).await;
                beat_ms = self.clock.now_ms().saturating_add(millis(self.interval));
            }
        }
    }

    async fn extend(&self, now_ms: u64) {
        // Copied, because instances start and end during the request.
        let claims: Vec<_> = self
            .held
            .lock()
            .iter()
            .map(|(id, held)| (Arc::clone(id), held.epoch))
            .collect();

        let expires_ms = self
            .held
            .lock()
            .values()
            .map(|held| held.valid_until_ms)
            .min();
        let Some(expires_ms) = expires_ms else { return };

        let until_ms = now_ms.saturating_add(millis(self.ttl));

        // Not longer than the claims are valid: a backend that does not respond must not delay
        // their end.
        let limit = Duration::from_millis(expires_ms.saturating_sub(now_ms));
        match tokio::time::timeout(limit, self.backend.extend(&claims, until_ms)).await {
            Ok(Ok(lost)) => self.extended(&claims, &lost, until_ms),
            // The claims stay valid until they expire, and the next heartbeat tries again.
            Ok(Err(error)) => warn!(%error, "claims not extended"),
            Err(_) => warn!(
                reason = "the backend does not respond",
                "claims not extended"
            ),
        }
    }

    fn extended(&self, claims: &[(InstanceId, u64)], lost: &[InstanceId], until_ms: u64) {
        let mut held = self.held.lock();
        for (id, epoch) in claims {
            // The claim can have ended, or be another one, since the request was sent.
            let Some(found) = held.get_mut(id).filter(|held| held.epoch == *epoch) else {
                continue;
            };
            if lost.contains(id) {
                warn!(instance = %id, "claim lost, instance stopped");
                found.instance.abort();
                held.remove(id);
            } else {
                found.valid_until_ms = until_ms;
            }
        }
    }

    fn stop_expired(&self, now_ms: u64) {
        self.held.lock().retain(|id, held| {
            let is_valid = held.valid_until_ms > now_ms;
            if !is_valid {
                warn!(instance = %id, "claim expired, instance stopped");
                held.instance.abort();
            }
            is_valid
        });
    }
}
