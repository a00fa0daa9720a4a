//! Registered runners: processes that execute the jobs of script types. A registration is a statement of the runner that expires; it is
//! stored in memory, and the runner repeats it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlog_model::{Name, SteadyTime, TenantId};

/// Time for which a registration is valid.
pub(crate) const EXPIRY: Duration = Duration::from_mins(1);
/// Maximum number of runners of one tenant.
pub(crate) const MAX_RUNNERS: usize = 1000;

/// What a runner states about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runner {
    /// Name, unique in its tenant; also the name under which it claims jobs.
    pub(crate) name: String,
    /// Script types.
    pub(crate) types: Vec<Name>,
    /// Public key.
    pub(crate) key: Option<String>,
    /// Address.
    pub(crate) address: Option<String>,
    /// Topic.
    pub(crate) topic: Option<String>,
    /// Whether it runs on the machine of the node.
    pub(crate) local: bool,
    /// Labels.
    pub(crate) labels: BTreeMap<Name, String>,
    /// Maximum number of jobs that it holds.
    pub(crate) capacity: u32,
}

/// Registered runners of all tenants.
#[derive(Default)]
pub(crate) struct Runners(Mutex<BTreeMap<(TenantId, String), (Runner, SteadyTime)>>);

impl Runners {
    /// Registers a runner, or extends its registration. Returns false if the tenant has too many.
    pub(crate) fn register(&self, tenant: TenantId, runner: Runner, now: SteadyTime) -> bool {
        let mut runners = self.lock();
        runners.retain(|_, (_, until)| *until > now);
        let key = (tenant, runner.name.clone());
        let count = runners.keys().filter(|(of, _)| *of == key.0).count();
        if count >= MAX_RUNNERS && !runners.contains_key(&key) {
            return false;
        }
        runners.insert(key, (runner, now.saturating_add(EXPIRY)));
        true
    }

    /// Ends a registration.
    pub(crate) fn remove(&self, tenant: &TenantId, name: &str) {
        self.lock().remove(&(tenant.clone(), name.to_owned()));
    }

    /// Returns the registered runner of a tenant whose name follows `after`, and the end of its registration. One at a time: each can
    /// have some 40 KB.
    pub(crate) fn next(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        now: SteadyTime,
    ) -> Option<(Runner, SteadyTime)> {
        let runners = self.lock();
        let start = match after {
            Some(name) => Bound::Excluded((tenant.clone(), name.to_owned())),
            None => Bound::Included((tenant.clone(), String::new())),
        };
        runners
            .range((start, Bound::Unbounded))
            .take_while(|((of, _), _)| of == tenant)
            .map(|(_, found)| found)
            .find(|(_, until)| *until > now)
            .cloned()
    }

    /// Returns the registration of a runner.
    pub(crate) fn get(&self, tenant: &TenantId, name: &str, now: SteadyTime) -> Option<Runner> {
        let runners = self.lock();
        let found = runners
            .get(&(tenant.clone(), name.to_owned()))
            .filter(|(_, until)| *until > now);
        found.map(|(runner, _)| runner.clone())
    }

    /// Returns whether a runner of this script type is registered.
    pub(crate) fn has(&self, tenant: &TenantId, kind: &str, now: SteadyTime) -> bool {
        let runners = self.lock();
        let mut of_tenant = runners
            .iter()
            .filter(|((of, _), (_, until))| of == tenant && *until > now);
        of_tenant.any(|(_, (runner, _))| runner.types.iter().any(|of| of.as_str() == kind))
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(TenantId, String), (Runner, SteadyTime)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
