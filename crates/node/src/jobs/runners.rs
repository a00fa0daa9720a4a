//! Registered runners: processes that execute the jobs of script types. A registration is a
//! statement of the runner that expires; it is stored in memory, and the runner repeats it.
//!
//! As long as a registration is valid, its name belongs to the caller that registered it: other
//! callers neither register nor delete it, nor claim jobs under this name.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use orlog_model::{Name, SteadyTime, TenantId};
use parking_lot::Mutex;

/// Time for which a registration is valid.
pub const EXPIRY: Duration = Duration::from_mins(1);
/// Maximum number of runners of one tenant.
pub(crate) const MAX_RUNNERS: usize = 1000;

/// What a runner states about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Name, unique in its tenant; also the name under which it claims jobs.
    pub name: String,
    /// Script types.
    pub types: Vec<Name>,
    /// Public key.
    pub key: Option<String>,
    /// Address.
    pub address: Option<String>,
    /// Topic.
    pub topic: Option<String>,
    /// Whether it runs on the machine of the node.
    pub local: bool,
    /// Labels.
    pub labels: BTreeMap<Name, String>,
    /// Maximum number of jobs that it holds.
    pub capacity: u32,
}

/// Reason why a request about a runner is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunnerError {
    /// The tenant has too many runners.
    #[error("the tenant has {MAX_RUNNERS} runners; wait until registrations expire")]
    TooMany,
    /// Another caller has registered the name.
    #[error(
        "another caller has registered a runner with this name; use another name, or wait until \
         the registration expires"
    )]
    OfOtherCaller,
}

/// Registration of a runner.
struct Registration {
    runner: Runner,
    /// Name of the caller; `None` if authentication is off.
    caller: Option<String>,
    until: SteadyTime,
}

/// Registered runners of all tenants.
#[derive(Default)]
pub struct Runners(Mutex<BTreeMap<(TenantId, String), Registration>>);

impl Runners {
    /// Registers a runner for a caller, or extends its registration.
    ///
    /// # Errors
    /// If another caller has registered the name, or the tenant has too many runners.
    pub fn register(
        &self,
        tenant: TenantId,
        runner: Runner,
        caller: Option<&str>,
        now: SteadyTime,
    ) -> Result<(), RunnerError> {
        let mut runners = self.0.lock();

        // Expired registrations hold a place of the tenant, and a name.
        runners.retain(|_, registration| registration.until > now);

        let key = (tenant, runner.name.clone());
        if let Some(registration) = runners.get(&key) {
            registration.check(caller)?;
        } else if runners.keys().filter(|(of, _)| *of == key.0).count() >= MAX_RUNNERS {
            return Err(RunnerError::TooMany);
        }

        let registration = Registration {
            runner,
            caller: caller.map(str::to_owned),
            until: now.saturating_add(EXPIRY),
        };
        runners.insert(key, registration);

        Ok(())
    }

    /// Ends a registration.
    ///
    /// # Errors
    /// If it is that of another caller.
    pub fn remove(
        &self,
        tenant: &TenantId,
        name: &str,
        caller: Option<&str>,
        now: SteadyTime,
    ) -> Result<(), RunnerError> {
        let mut runners = self.0.lock();
        let key = (tenant.clone(), name.to_owned());
        // An expired registration belongs to no caller, so that each caller may remove it.
        let valid = runners
            .get(&key)
            .filter(|registration| registration.until > now);
        if let Some(registration) = valid {
            registration.check(caller)?;
        }

        runners.remove(&key);
        Ok(())
    }

    /// Returns the registered runner of a tenant whose name follows `after`, and the end of its
    /// registration. One at a time: each can have some 40 KB.
    pub fn next(
        &self,
        tenant: &TenantId,
        after: Option<&str>,
        now: SteadyTime,
    ) -> Option<(Runner, SteadyTime)> {
        let runners = self.0.lock();
        let start = match after {
            Some(name) => Bound::Excluded((tenant.clone(), name.to_owned())),
            None => Bound::Included((tenant.clone(), String::new())),
        };

        runners
            .range((start, Bound::Unbounded))
            .take_while(|((of, _), _)| of == tenant)
            .map(|(_, registration)| registration)
            .find(|registration| registration.until > now)
            .map(|registration| (registration.runner.clone(), registration.until))
    }

    /// Returns the registration under which a caller claims jobs; `None` if the name is not
    /// registered.
    ///
    /// # Errors
    /// If it is that of another caller.
    pub fn get(
        &self,
        tenant: &TenantId,
        name: &str,
        caller: Option<&str>,
        now: SteadyTime,
    ) -> Result<Option<Runner>, RunnerError> {
        let runners = self.0.lock();
        let found = runners
            .get(&(tenant.clone(), name.to_owned()))
            .filter(|registration| registration.until > now);
        let Some(registration) = found else {
            return Ok(None);
        };

        registration.check(caller)?;
        Ok(Some(registration.runner.clone()))
    }

    /// Returns whether a runner of this script type is registered.
    pub fn has(&self, tenant: &TenantId, kind: &str, now: SteadyTime) -> bool {
        let runners = self.0.lock();
        let mut of_tenant = of_tenant(&runners, tenant, now);
        of_tenant.any(|registration| {
            let mut types = registration.runner.types.iter();
            types.any(|of| of.as_str() == kind)
        })
    }
}

impl Registration {
    fn check(&self, caller: Option<&str>) -> Result<(), RunnerError> {
        if self.caller.as_deref() == caller {
            Ok(())
        } else {
            Err(RunnerError::OfOtherCaller)
        }
    }
}

/// Returns the valid registrations of a tenant.
fn of_tenant<'a>(
    runners: &'a BTreeMap<(TenantId, String), Registration>,
    tenant: &'a TenantId,
    now: SteadyTime,
) -> impl Iterator<Item = &'a Registration> {
    runners
        .iter()
        .filter(move |((of, _), registration)| of == tenant && registration.until > now)
        .map(|(_, registration)| registration)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runner() -> Runner {
        Runner {
            name: "host-1".to_owned(),
            types: vec![Name::new("python").unwrap()],
            key: None,
            address: None,
            topic: None,
            local: false,
            labels: BTreeMap::new(),
            capacity: 1,
        }
    }

    /// Requirements: F5.
    #[test]
    fn name_belongs_to_the_caller_that_registered_it_until_the_registration_expires() {
        let (runners, tenant) = (Runners::default(), TenantId::new("acme").unwrap());
        let start = SteadyTime::default();
        let other = Err(RunnerError::OfOtherCaller);
        let register = |caller, now| runners.register(tenant.clone(), runner(), caller, now);

        assert_eq!(register(Some("ann"), start), Ok(()));
        assert_eq!(register(Some("bob"), start), other);
        assert_eq!(runners.remove(&tenant, "host-1", Some("bob"), start), other);
        let claims = |caller, now| runners.get(&tenant, "host-1", caller, now).map(drop);
        assert_eq!(claims(Some("bob"), start), other);
        assert_eq!(claims(None, start), other);
        assert_eq!(register(Some("ann"), start), Ok(()));
        let registered = runners.get(&tenant, "host-1", Some("ann"), start);
        assert_eq!(registered, Ok(Some(runner())));

        let later = start.saturating_add(EXPIRY);
        assert_eq!(claims(Some("bob"), later), Ok(()));
        assert_eq!(register(Some("bob"), later), Ok(()));
        assert_eq!(
            runners.remove(&tenant, "host-1", Some("bob"), later),
            Ok(())
        );
    }
}
