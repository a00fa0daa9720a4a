//! Claims that each worker holds, and the claim requests that wait because their worker has reached
//! its capacity.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_model::TenantId;
use tokio::sync::Notify;

use super::claim::{ClaimRejection, ClaimRequest};

/// Tenant and name of a worker.
type Holder = (TenantId, String);

/// Claims by worker.
#[derive(Default)]
pub(super) struct HeldClaims {
    counts: BTreeMap<Holder, usize>,
    /// Requests that wait for the end of a claim, in order of arrival.
    waiters: BTreeMap<Holder, BTreeMap<u64, Arc<Notify>>>,
}

impl HeldClaims {
    /// Returns the number of valid claims of a worker.
    pub(super) fn count(&self, tenant: &TenantId, worker: &str) -> usize {
        self.counts
            .get(&holder(tenant, worker))
            .copied()
            .unwrap_or_default()
    }

    /// Returns the number of jobs that the worker of a request may claim.
    pub(super) fn free(&self, request: &ClaimRequest) -> usize {
        let Some(capacity) = request.capacity else {
            return usize::MAX;
        };
        capacity.saturating_sub(self.count(&request.tenant, &request.worker))
    }

    /// Checks that a worker may claim one more job.
    pub(super) fn check(
        &self,
        tenant: &TenantId,
        worker: &str,
        capacity: Option<usize>,
    ) -> Result<(), ClaimRejection> {
        let held = self.count(tenant, worker);
        match capacity {
            Some(capacity) if held >= capacity => {
                Err(ClaimRejection::AtCapacity { held, capacity })
            }
            Some(_) | None => Ok(()),
        }
    }

    pub(super) fn add(&mut self, tenant: &TenantId, worker: &str) {
        *self.counts.entry(holder(tenant, worker)).or_default() += 1;
    }

    /// Ends a claim, and notifies the requests that wait for it.
    pub(super) fn release(&mut self, tenant: &TenantId, worker: &str) {
        let holder = holder(tenant, worker);
        if let Some(count) = self.counts.get_mut(&holder) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&holder);
            }
        }

        for (_, wake) in self.waiters.remove(&holder).into_iter().flatten() {
            wake.notify_one();
        }
    }

    /// Lets a request wait for the end of a claim of its worker.
    pub(super) fn wait(
        &mut self,
        tenant: &TenantId,
        worker: &str,
        waiter: u64,
        wake: &Arc<Notify>,
    ) {
        self.waiters
            .entry(holder(tenant, worker))
            .or_default()
            .insert(waiter, Arc::clone(wake));
    }

    /// Ends the wait of a request.
    pub(super) fn leave(&mut self, tenant: &TenantId, worker: &str, waiter: u64) {
        // The usual case: no worker has reached its capacity, and no key is built.
        if self.waiters.is_empty() {
            return;
        }

        let holder = holder(tenant, worker);
        if let Some(waiters) = self.waiters.get_mut(&holder) {
            waiters.remove(&waiter);
            if waiters.is_empty() {
                self.waiters.remove(&holder);
            }
        }
    }
}

fn holder(tenant: &TenantId, worker: &str) -> Holder {
    (tenant.clone(), worker.to_owned())
}
