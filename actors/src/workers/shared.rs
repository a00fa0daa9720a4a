//! State that all worker groups of a pool share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use dashmap::{DashMap, DashSet};
use orlog_bus::effect_queue::{EffectQueue, SubscriptionState};
use orlog_effect::Catalog;
use orlog_model::{Clock, EffectName, TenantId};
use tokio::sync::watch;
use uuid::Uuid;

use crate::supervision::RestartIntensity;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tracer::Tracer;

/// Maximum number of jobs whose returned deliveries are counted.
const MAX_RETURNED: usize = 65_536;

/// Configuration of a worker pool.
#[derive(Clone, Debug)]
pub struct WorkerPoolConfig {
    /// Name of this node, for the history.
    pub node: String,
    /// Maximum number of concurrent jobs of one effect; with a list of tenants, of one effect and
    /// tenant.
    pub max_in_flight: usize,
    /// Time without a sign of progress after which the queue delivers a job to another worker.
    pub ack_wait: Duration,
    /// Tenants whose effects are executed; `None`: all tenants.
    pub tenants: Option<Arc<BTreeSet<TenantId>>>,
    /// Restart limit of worker groups.
    pub intensity: RestartIntensity,
}

/// Jobs that a worker group fetches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// Name of the effect.
    pub effect: EffectName,
    /// Tenant of the jobs; `None`: all tenants.
    pub tenant: Option<TenantId>,
}

impl std::fmt::Display for GroupKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.tenant {
            Some(tenant) if tenant.as_str().is_empty() => {
                write!(f, "{} of the default tenant", self.effect)
            }
            Some(tenant) => write!(f, "{} of tenant {tenant}", self.effect),
            None => write!(f, "{}", self.effect),
        }
    }
}

/// State that all worker groups share.
pub(crate) struct WorkerPoolState {
    pub(crate) queue: Arc<dyn EffectQueue>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) config: WorkerPoolConfig,
    pub(crate) jobs: AtomicUsize,
    /// Number of groups to which the queue may deliver jobs.
    pub(crate) receiving: AtomicUsize,
    /// States of the subscriptions of all groups.
    pub(crate) subscriptions: DashMap<GroupKey, watch::Receiver<SubscriptionState>>,
    /// Commands in flight: a duplicate is not executed concurrently.
    pub(crate) in_flight: DashSet<Uuid>,
    /// Deliveries that this process returned to the queue without an attempt.
    pub(crate) returned: ReturnedDeliveries,
    /// No more jobs are requested.
    pub(crate) draining: watch::Sender<bool>,
}

/// Number of deliveries by job that were returned to the queue without an attempt. It is in memory,
/// and bounded: a job that is missing counts as possibly attempted.
#[derive(Default)]
pub(crate) struct ReturnedDeliveries(DashMap<(Uuid, u64), u64>);

impl ReturnedDeliveries {
    /// Adds to the number of a job. A repeated dispatch of a command has another sequence.
    pub(crate) fn add(&self, id: Uuid, sequence: u64, count: u64) {
        // A missing job counts as possibly attempted, which is safe.
        if self.0.len() >= MAX_RETURNED {
            self.0.clear();
        }
        *self.0.entry((id, sequence)).or_default() += count;
    }

    /// Removes a job and returns its number.
    pub(crate) fn take(&self, id: Uuid, sequence: u64) -> u64 {
        self.0.remove(&(id, sequence)).map_or(0, |(_, count)| count)
    }
}

impl WorkerPoolState {
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}
