//! Queues of a job board: the jobs of one effect of a tenant that no worker has claimed, and the requests that wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{EffectName, Priority, TenantId};
use tokio::sync::Notify;
use uuid::Uuid;

use super::claim::ClaimRequest;

/// Tenant, effect, and whether the jobs require a worker that probes.
pub(super) type QueueKey = (TenantId, EffectName, bool);

/// Jobs of one effect of a tenant that no worker has claimed, and the requests that wait for them.
#[derive(Default)]
pub(super) struct JobQueue {
    /// By priority, in posting order.
    pub(super) jobs: BTreeMap<(Priority, u64), Uuid>,
    /// Jobs that name a runner, in the same order. They are claimed before the others.
    pub(super) selective: BTreeMap<(Priority, u64), Uuid>,
    /// In order of arrival.
    pub(super) waiters: BTreeMap<u64, Arc<Notify>>,
}

/// Returns the keys of the queues whose jobs the worker of a request may claim.
pub(super) fn keys(request: &ClaimRequest) -> impl Iterator<Item = QueueKey> {
    let kinds: &[bool] = if request.probes { &[false, true] } else { &[false] };
    let of_effect = move |effect| kinds.iter().map(move |probes| key(request, effect, *probes));
    request.effects.iter().flat_map(of_effect)
}

fn key(request: &ClaimRequest, effect: &EffectName, requires_probe: bool) -> QueueKey {
    (request.tenant.clone(), effect.clone(), requires_probe)
}

impl JobQueue {
    /// Notifies the first request that waits. It claims jobs, or waits again.
    pub(super) fn notify(&mut self) {
        if let Some((_, wake)) = self.waiters.pop_first() {
            wake.notify_one();
        }
    }

    /// Notifies all requests that wait, because only some of them may claim the job.
    pub(super) fn notify_all(&mut self) {
        for wake in std::mem::take(&mut self.waiters).into_values() {
            wake.notify_one();
        }
    }

    /// Returns the position and the id of the oldest job of a priority.
    pub(super) fn first(&self, priority: Priority) -> Option<(u64, Uuid)> {
        let (place, id) = self.jobs.range((priority, 0)..=(priority, u64::MAX)).next()?;
        Some((place.1, *id))
    }

    pub(super) fn is_unused(&self) -> bool {
        self.jobs.is_empty() && self.selective.is_empty() && self.waiters.is_empty()
    }
}
