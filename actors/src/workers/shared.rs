//! State that all worker groups of a pool share.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use dashmap::DashSet;
use orlog_bus::effect_queue::EffectQueue;
use orlog_effect::Catalog;
use orlog_model::{Clock, TenantId};
use tokio::sync::watch;
use uuid::Uuid;

use crate::supervision::RestartIntensity;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tracer::Tracer;

/// Configuration of a worker pool.
#[derive(Clone, Debug)]
pub struct WorkerPoolConfig {
    /// Name of this node, for the history.
    pub node: String,
    /// Maximum number of concurrent jobs of one effect.
    pub max_in_flight: usize,
    /// Time without a sign of progress after which the queue delivers a job to another worker.
    pub ack_wait: Duration,
    /// Tenants whose effects are executed; `None`: all tenants.
    pub tenants: Option<BTreeSet<TenantId>>,
    /// Restart limit of worker groups.
    pub intensity: RestartIntensity,
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
    /// Commands in flight: a duplicate is not executed concurrently.
    pub(crate) in_flight: DashSet<Uuid>,
    /// No more jobs are requested.
    pub(crate) draining: watch::Sender<bool>,
}

impl WorkerPoolState {
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}
