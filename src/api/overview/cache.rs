//! The last counts of what tenants have, and when they are too old.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use orlog_model::{TenantId, Timestamp};
use orlog_store::Census;

/// A count younger than this is not made anew …
const YOUNG: Duration = Duration::from_secs(2);
/// … nor one younger than so many times the time it took.
const TIMES: u32 = 20;
/// Tenants whose counts are kept.
const TENANTS: usize = 100;

/// The counts of the tenants that somebody asked about.
#[derive(Default)]
pub(crate) struct Tallies {
    of: Mutex<BTreeMap<TenantId, Tally>>,
}

/// The counting for one tenant.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) last: Option<Arc<Counted>>,
    pub(crate) is_counting: bool,
}

/// A count.
pub(crate) struct Counted {
    pub(crate) census: Census,
    pub(crate) letters: Letters,
    pub(crate) tasks: Tasks,
    pub(crate) at: Timestamp,
    pub(crate) took: Duration,
    pub(crate) made: Instant,
}

/// Dead letters.
pub(crate) struct Letters {
    pub(crate) count: u64,
    pub(crate) complete: bool,
}

/// Tasks that wait for somebody.
pub(crate) struct Tasks {
    pub(crate) waiting: usize,
    pub(crate) overdue: usize,
    pub(crate) complete: bool,
}

impl Tallies {
    pub(crate) fn lock(&self) -> MutexGuard<'_, BTreeMap<TenantId, Tally>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Counted {
    /// Whether it is time for another.
    pub(crate) fn is_old(&self) -> bool {
        self.made.elapsed() > YOUNG.max(self.took * TIMES)
    }
}

/// Forgets the oldest count where there are too many for another tenant.
pub(crate) fn make_room(tallies: &mut BTreeMap<TenantId, Tally>, tenant: &TenantId) {
    if tallies.len() < TENANTS || tallies.contains_key(tenant) {
        return;
    }
    let idle = tallies.iter().filter(|(_, tally)| !tally.is_counting);
    let oldest = idle.min_by_key(|(_, tally)| tally.last.as_ref().map(|last| last.made));
    if let Some(tenant) = oldest.map(|(tenant, _)| tenant.clone()) {
        tallies.remove(&tenant);
    }
}
