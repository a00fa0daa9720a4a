//! Queues of a job board: the jobs of one effect of a tenant that no worker has claimed, and the
//! requests that wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::{EffectName, Priority, TenantId};
use tokio::sync::Notify;
use uuid::Uuid;

use super::claim::ClaimRequest;

/// Tenant, effect, and whether the jobs require a worker that probes.
pub(super) type QueueKey = (TenantId, EffectName, bool);

/// Place of a job in its queue: the higher priority first, then in posting order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct QueuePlace {
    pub(super) priority: Priority,
    /// Position of the job on its board.
    pub(super) position: u64,
}

/// Jobs of one effect of a tenant that no worker has claimed, and the requests that wait for them.
#[derive(Default)]
pub(super) struct JobQueue {
    /// By priority, in posting order.
    pub(super) jobs: BTreeMap<QueuePlace, Uuid>,
    /// Jobs that name a runner, in the same order. They are claimed before the others.
    pub(super) selective: BTreeMap<QueuePlace, Uuid>,
    /// In order of arrival.
    pub(super) waiters: BTreeMap<u64, Arc<Notify>>,
}

/// Queues of a board; unused ones are removed.
#[derive(Default)]
pub(super) struct JobQueues(BTreeMap<QueueKey, JobQueue>);

/// Returns the keys of the queues whose jobs the worker of a request may claim.
fn keys(request: &ClaimRequest) -> impl Iterator<Item = QueueKey> {
    let kinds: &[bool] = if request.probes {
        &[false, true]
    } else {
        &[false]
    };

    request.effects.iter().flat_map(move |effect| {
        kinds
            .iter()
            .map(move |probes| key(request, effect, *probes))
    })
}

fn key(request: &ClaimRequest, effect: &EffectName, requires_probe: bool) -> QueueKey {
    (request.tenant.clone(), effect.clone(), requires_probe)
}

impl JobQueues {
    /// Returns the queues whose jobs the worker of a request may claim.
    pub(super) fn of(&self, request: &ClaimRequest) -> impl Iterator<Item = &JobQueue> {
        keys(request).filter_map(|key| self.0.get(&key))
    }

    pub(super) fn get(&self, key: &QueueKey) -> Option<&JobQueue> {
        self.0.get(key)
    }

    /// Returns the queues of a tenant.
    pub(super) fn of_tenant(
        &self,
        tenant: &TenantId,
    ) -> impl Iterator<Item = (&QueueKey, &JobQueue)> {
        self.0.iter().filter(move |((of, ..), _)| of == tenant)
    }

    /// Returns a queue; creates it if it is new.
    pub(super) fn queue(&mut self, key: QueueKey) -> &mut JobQueue {
        self.0.entry(key).or_default()
    }

    /// Removes a job from its queue.
    pub(super) fn remove(&mut self, key: &QueueKey, place: &QueuePlace) {
        if let Some(queue) = self.0.get_mut(key) {
            queue.jobs.remove(place);
            queue.selective.remove(place);
            if queue.is_unused() {
                self.0.remove(key);
            }
        }
    }

    /// Removes all jobs.
    pub(super) fn remove_jobs(&mut self) {
        self.0.retain(|_, queue| {
            queue.jobs.clear();
            queue.selective.clear();
            !queue.is_unused()
        });
    }

    /// Notifies the first request that waits for jobs of a queue.
    pub(super) fn notify(&mut self, key: &QueueKey) {
        if let Some(queue) = self.0.get_mut(key) {
            queue.notify();
        }
    }

    /// Lets a request wait for jobs.
    pub(super) fn wait(&mut self, request: &ClaimRequest, waiter: u64, wake: &Arc<Notify>) {
        for key in keys(request) {
            self.queue(key).waiters.insert(waiter, Arc::clone(wake));
        }
    }

    /// Ends the wait of a request, and notifies the next one of each queue that has jobs. With
    /// claims it notifies the next one of each queue: only the request that leaves may know the
    /// first expiry of a claim, after which its job waits again.
    pub(super) fn leave(&mut self, request: &ClaimRequest, waiter: u64, has_claims: bool) {
        for key in keys(request) {
            let Some(queue) = self.0.get_mut(&key) else {
                continue;
            };

            queue.waiters.remove(&waiter);
            if !queue.jobs.is_empty() || has_claims {
                queue.notify();
            }
            if queue.is_unused() {
                self.0.remove(&key);
            }
        }
    }
}

impl JobQueue {
    /// Notifies the first request that waits. It claims jobs, or waits again.
    pub(super) fn notify(&mut self) {
        // A request that waits again does so under the same number, and keeps its position.
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
        let first = QueuePlace {
            priority,
            position: 0,
        };
        let last = QueuePlace {
            priority,
            position: u64::MAX,
        };
        let (place, id) = self.jobs.range(first..=last).next()?;
        Some((place.position, *id))
    }

    /// Returns places and ids of jobs: a limited number of those of all workers, and of those that
    /// name a runner and are meant.
    pub(super) fn places(
        &self,
        limit: usize,
        is_meant: impl Fn(&Uuid) -> bool,
    ) -> impl Iterator<Item = (QueuePlace, Uuid)> {
        // Both kinds up to the limit, because only the caller merges and cuts them.
        let selective = self
            .selective
            .iter()
            .filter(move |(_, id)| is_meant(id))
            .take(limit);

        self.jobs
            .iter()
            .take(limit)
            .chain(selective)
            .map(|(place, id)| (*place, *id))
    }

    /// Returns whether a job waits at this place.
    pub(super) fn contains(&self, place: &QueuePlace) -> bool {
        self.jobs.contains_key(place) || self.selective.contains_key(place)
    }

    fn is_unused(&self) -> bool {
        self.jobs.is_empty() && self.selective.is_empty() && self.waiters.is_empty()
    }
}
