//! Cache of the latest counts per tenant, and its expiry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use orlog_model::{TenantId, Timestamp};
use orlog_store::InstanceCounts;
use parking_lot::{Mutex, MutexGuard};
use serde::Serialize;
use utoipa::ToSchema;

/// Minimum age of a count before it is recomputed …
const MIN_REFRESH: Duration = Duration::from_secs(2);
/// … and minimum age as a multiple of the time that the count took.
const COST_FACTOR: u32 = 20;
/// Maximum number of tenants with cached counts.
const MAX_TENANTS: usize = 100;

/// Cached counts of the requested tenants.
#[derive(Default)]
pub(crate) struct OverviewCache {
    of: Mutex<BTreeMap<TenantId, TenantEntry>>,
}

/// Cached count of one tenant, and its running computation.
#[derive(Default)]
pub(crate) struct TenantEntry {
    pub(crate) last: Option<Arc<TenantCounts>>,
    pub(crate) is_counting: bool,
}

/// Counts of one tenant.
pub(crate) struct TenantCounts {
    pub(crate) instances: InstanceCounts,
    pub(crate) dead_letters: DeadLetterCounts,
    pub(crate) tasks: TaskCounts,
    pub(crate) at: Timestamp,
    pub(crate) duration: Duration,
    pub(crate) computed_at: Instant,
}

/// Counts of human tasks.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct TaskCounts {
    /// Open or claimed tasks.
    pub(crate) waiting: usize,
    /// Open or claimed tasks past their due time.
    pub(crate) overdue: usize,
    /// All tasks were scanned.
    pub(crate) complete: bool,
}

/// Count of dead letters.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct DeadLetterCounts {
    pub(crate) count: u64,
    /// All dead letters were scanned.
    pub(crate) complete: bool,
}

impl OverviewCache {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<TenantId, TenantEntry>> {
        self.of.lock()
    }
}

impl TenantCounts {
    /// Returns whether the count must be recomputed.
    pub(crate) fn is_stale(&self) -> bool {
        self.computed_at.elapsed() > MIN_REFRESH.max(self.duration * COST_FACTOR)
    }
}

/// Evicts the oldest count if the cache is full and the tenant is new.
pub(crate) fn evict_oldest(tallies: &mut BTreeMap<TenantId, TenantEntry>, tenant: &TenantId) {
    if tallies.len() < MAX_TENANTS || tallies.contains_key(tenant) {
        return;
    }
    // A count in progress would add its entry again, beyond the limit.
    let idle = tallies.iter().filter(|(_, entry)| !entry.is_counting);
    let oldest = idle.min_by_key(|(_, entry)| entry.last.as_ref().map(|last| last.computed_at));
    if let Some(tenant) = oldest.map(|(tenant, _)| tenant.clone()) {
        tallies.remove(&tenant);
    }
}
