//! What happens for each tenant, for as many tenants as are allowed; the rest are counted together as `other`.
//!
//! Whoever comes first has a series of its own, until the process ends: a series that went over to another tenant would
//! lie to whoever adds it up.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use orlog_model::{Instance, Standing, Status, TenantId};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;

use super::sink::Sheet;

/// The name under which all others are counted, together with a tenant that is called so.
const OTHER: &str = "other";

type ByTenant = [(&'static str, String); 1];

/// All tenants.
#[derive(Debug)]
pub(crate) struct Tenants {
    most: usize,
    transitions: Family<ByTenant, Counter>,
    started: Family<ByTenant, Counter>,
    ended: Family<[(&'static str, String); 2], Counter>,
    stuck: Family<ByTenant, Counter>,
    dead_letters: Family<ByTenant, Counter>,
    known: RwLock<HashMap<TenantId, Arc<OfTenant>>>,
    other: RwLock<Option<Arc<OfTenant>>>,
}

/// The counters of one tenant, or of all that have none of their own.
#[derive(Debug)]
pub(crate) struct OfTenant {
    transitions: Counter,
    started: Counter,
    completed: Counter,
    failed: Counter,
    cancelled: Counter,
    stuck: Counter,
    pub(crate) dead_letters: Counter,
}

impl OfTenant {
    /// A transition led from one standing to another; nowhere before the first.
    pub(crate) fn count(&self, before: Option<Standing>, after: &Instance) {
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

impl Tenants {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            transitions: Family::default(),
            started: Family::default(),
            ended: Family::default(),
            stuck: Family::default(),
            dead_letters: Family::default(),
            known: RwLock::default(),
            other: RwLock::default(),
        }
    }

    pub(super) fn show(&self, sheet: &mut impl Sheet) {
        sheet.put("tenant_transitions_total", self.transitions.clone());
        sheet.put("tenant_instances_started_total", self.started.clone());
        sheet.put("tenant_instances_ended_total", self.ended.clone());
        sheet.put("tenant_instances_stuck_total", self.stuck.clone());
        sheet.put("tenant_dead_letters_total", self.dead_letters.clone());
    }

    /// The counters of a tenant.
    pub(crate) fn of(&self, tenant: &TenantId) -> Arc<OfTenant> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let full = known.len() >= self.most;
        if let Some(own) = known.get(tenant) {
            return Arc::clone(own);
        }
        drop(known);
        if full {
            return self.other();
        }
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= self.most {
            drop(known);
            return self.other();
        }
        let own = known.entry(tenant.clone()).or_insert_with(|| Arc::new(self.begin(tenant.as_str())));
        Arc::clone(own)
    }

    fn other(&self) -> Arc<OfTenant> {
        let other = self.other.read().unwrap_or_else(PoisonError::into_inner).clone();
        other.unwrap_or_else(|| {
            let mut other = self.other.write().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(other.get_or_insert_with(|| Arc::new(self.begin(OTHER))))
        })
    }

    fn begin(&self, tenant: &str) -> OfTenant {
        let one = [("tenant", tenant.to_owned())];
        let ended = |status: Status| {
            let labels = [("tenant", tenant.to_owned()), ("status", status.as_str().to_owned())];
            self.ended.get_or_create(&labels).clone()
        };
        OfTenant {
            transitions: self.transitions.get_or_create(&one).clone(),
            started: self.started.get_or_create(&one).clone(),
            completed: ended(Status::Completed),
            failed: ended(Status::Failed),
            cancelled: ended(Status::Cancelled),
            stuck: self.stuck.get_or_create(&one).clone(),
            dead_letters: self.dead_letters.get_or_create(&one).clone(),
        }
    }
}

/// Remembers the tenant that was counted last: of a group of commits most are of few tenants.
#[derive(Debug, Default)]
pub(crate) struct Passing(Option<(TenantId, Arc<OfTenant>)>);

impl Passing {
    /// The counters of a tenant.
    pub(crate) fn counters(&mut self, tenants: &Tenants, tenant: &TenantId) -> &OfTenant {
        if self.0.as_ref().is_none_or(|(last, _)| last != tenant) {
            self.0 = None;
        }
        &self.0.get_or_insert_with(|| (tenant.clone(), tenants.of(tenant))).1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_beyond_the_bound_share_a_series() {
        let tenants = Tenants::new(2);
        let mut passing = Passing::default();
        for name in ["a", "b", "c", "d", "a", "", "c"] {
            passing.counters(&tenants, &TenantId::new(name).unwrap()).transitions.inc();
        }
        let of = |name: &str| tenants.transitions.get_or_create(&[("tenant", name.to_owned())]).get();
        assert_eq!((of("a"), of("b"), of(OTHER)), (2, 1, 4));
        assert_eq!(tenants.known.read().unwrap().len(), 2);
    }
}
