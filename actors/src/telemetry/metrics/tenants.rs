//! Metrics per tenant, up to a maximum number of tenants; all others share the series `other`.
//!
//! The first tenants get a series of their own until the process ends. Reassigning a series to
//! another tenant would make sums incorrect.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use orlog_model::{Instance, Status, TenantId};
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::sink::MetricSink;

/// Label of the shared series; also counts a tenant of this name.
const OTHER: &str = "other";

type ByTenant = [(&'static str, String); 1];

/// Metrics of all tenants.
#[derive(Debug)]
pub(crate) struct TenantMetrics {
    max_series: usize,
    transitions: Family<ByTenant, Counter>,
    started: Family<ByTenant, Counter>,
    ended: Family<[(&'static str, String); 2], Counter>,
    stuck: Family<ByTenant, Counter>,
    dead_letters: Family<ByTenant, Counter>,
    decision_seconds: Family<ByTenant, Counter<f64, AtomicU64>>,
    known: RwLock<HashMap<TenantId, Arc<TenantCounters>>>,
    other: RwLock<Option<Arc<TenantCounters>>>,
}

/// Counters of one tenant, or of all tenants in the shared series.
#[derive(Debug)]
pub(crate) struct TenantCounters {
    transitions: Counter,
    started: Counter,
    completed: Counter,
    failed: Counter,
    cancelled: Counter,
    stuck: Counter,
    pub(crate) dead_letters: Counter,
    /// Time in the pool of costly decisions.
    pub(crate) decision_seconds: Counter<f64, AtomicU64>,
}

impl TenantCounters {
    /// Counts a transition between two snapshots; `before` is `None` for the first transition.
    pub(crate) fn count(&self, before: Option<&Instance>, after: &Instance) {
        self.transitions.inc();
        if after.version == 1 {
            self.started.inc();
        }

        if before.is_some_and(|before| before.status == after.status) {
            return;
        }
        match after.status {
            Status::Completed => self.completed.inc(),
            Status::Failed => self.failed.inc(),
            Status::Cancelled => self.cancelled.inc(),
            Status::Stuck => self.stuck.inc(),
            Status::Running | Status::Compensating => return,
        };
    }
}

impl TenantMetrics {
    pub(super) fn new(max_series: usize) -> Self {
        Self {
            max_series,
            transitions: Family::default(),
            started: Family::default(),
            ended: Family::default(),
            stuck: Family::default(),
            dead_letters: Family::default(),
            decision_seconds: Family::default(),
            known: RwLock::default(),
            other: RwLock::default(),
        }
    }

    pub(super) fn register(&self, sink: &mut impl MetricSink) {
        sink.register("tenant_transitions_total", self.transitions.clone());
        sink.register("tenant_instances_started_total", self.started.clone());
        sink.register("tenant_instances_ended_total", self.ended.clone());
        sink.register("tenant_instances_stuck_total", self.stuck.clone());
        sink.register(
            "tenant_dead_letters_created_total",
            self.dead_letters.clone(),
        );
        sink.register(
            "tenant_decision_seconds_total",
            self.decision_seconds.clone(),
        );
    }

    /// Returns the counters of a tenant.
    pub(crate) fn counters(&self, tenant: &TenantId) -> Arc<TenantCounters> {
        let known = self.known.read();
        let full = known.len() >= self.max_series;
        if let Some(own) = known.get(tenant) {
            return Arc::clone(own);
        }
        drop(known);

        if full {
            return self.other();
        }

        // Another thread may have taken the last series meanwhile.
        let mut known = self.known.write();
        if known.len() >= self.max_series {
            drop(known);
            return self.other();
        }

        let own = known
            .entry(tenant.clone())
            .or_insert_with(|| Arc::new(self.create(tenant.as_str())));
        Arc::clone(own)
    }

    /// Returns the label of the series of a tenant; a tenant without one gets a series of its own
    /// while there are any.
    pub(super) fn series(&self, tenant: &TenantId) -> String {
        self.counters(tenant);
        let known = self.known.read();
        if known.contains_key(tenant) {
            tenant.to_string()
        } else {
            OTHER.to_owned()
        }
    }

    pub(super) fn transition_totals(&self) -> BTreeMap<String, u64> {
        let known = self.known.read();
        let mut totals: BTreeMap<String, u64> = known
            .iter()
            .map(|(tenant, counters)| (tenant.to_string(), counters.transitions.get()))
            .collect();
        drop(known);

        if let Some(other) = &*self.other.read() {
            totals.insert(OTHER.to_owned(), other.transitions.get());
        }
        totals
    }

    fn other(&self) -> Arc<TenantCounters> {
        let other = self.other.read().clone();
        other.unwrap_or_else(|| {
            let mut other = self.other.write();
            Arc::clone(other.get_or_insert_with(|| Arc::new(self.create(OTHER))))
        })
    }

    fn create(&self, tenant: &str) -> TenantCounters {
        let one = [("tenant", tenant.to_owned())];
        let ended = |status: Status| {
            let labels = [
                ("tenant", tenant.to_owned()),
                ("status", status.as_str().to_owned()),
            ];
            self.ended.get_or_create(&labels).clone()
        };

        TenantCounters {
            transitions: self.transitions.get_or_create(&one).clone(),
            started: self.started.get_or_create(&one).clone(),
            completed: ended(Status::Completed),
            failed: ended(Status::Failed),
            cancelled: ended(Status::Cancelled),
            stuck: self.stuck.get_or_create(&one).clone(),
            dead_letters: self.dead_letters.get_or_create(&one).clone(),
            decision_seconds: self.decision_seconds.get_or_create(&one).clone(),
        }
    }
}

/// Cache of the last tenant: most commits of a group belong to few tenants.
#[derive(Debug, Default)]
pub(crate) struct TenantCache(Option<(TenantId, Arc<TenantCounters>)>);

impl TenantCache {
    /// Returns the counters of a tenant.
    pub(crate) fn counters(
        &mut self,
        tenants: &TenantMetrics,
        tenant: &TenantId,
    ) -> &TenantCounters {
        if self.0.as_ref().is_none_or(|(last, _)| last != tenant) {
            self.0 = None;
        }
        &self
            .0
            .get_or_insert_with(|| (tenant.clone(), tenants.counters(tenant)))
            .1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_beyond_the_limit_share_a_series() {
        let tenants = TenantMetrics::new(2);
        let mut tenant_cache = TenantCache::default();
        for name in ["a", "b", "c", "d", "a", "", "c"] {
            tenant_cache
                .counters(&tenants, &TenantId::new(name).unwrap())
                .transitions
                .inc();
        }
        let of = |name: &str| {
            tenants
                .transitions
                .get_or_create(&[("tenant", name.to_owned())])
                .get()
        };
        assert_eq!((of("a"), of("b"), of(OTHER)), (2, 1, 4));
        let series = ["a", "c"].map(|name| tenants.series(&TenantId::new(name).unwrap()));
        assert_eq!(series, ["a", OTHER]);
        assert_eq!(tenants.known.read().len(), 2);
    }
}
