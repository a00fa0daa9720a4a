//! What all crews of a pool share.

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

use crate::restart::Intensity;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::tracer::Tracer;

/// How a pool behaves.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// The name of this node, for the record.
    pub node: String,
    /// Jobs of one effect at once, at most.
    pub in_flight: usize,
    /// A job of which the queue hears nothing for this long is given to another.
    pub ack_wait: Duration,
    /// Whose effects; `None`: everybody's.
    pub tenants: Option<BTreeSet<TenantId>>,
    /// How often crews may be restarted.
    pub intensity: Intensity,
}

/// What all crews share.
pub(crate) struct Shared {
    pub(crate) queue: Arc<dyn EffectQueue>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) config: PoolConfig,
    pub(crate) jobs: AtomicUsize,
    /// Commands in hand: one that comes twice is not performed twice at once.
    pub(crate) under_way: DashSet<Uuid>,
    /// No more jobs are asked for.
    pub(crate) draining: watch::Sender<bool>,
}

impl Shared {
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }
}
