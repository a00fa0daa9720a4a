//! Admission of authenticated callers: applies the permission of the route, and the lists of the
//! context.
//!
//! A request to a context has the roles that its lists grant to the caller
//! ([`AccessRegistry::enter`]). A context in which the caller has no role and a tenant without
//! access return the same problem.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue};
use orlog_bus::registry::RegistryView;
use orlog_model::{ActorId, TenantId};
use percent_encoding::percent_decode_str;
use tokio::sync::watch;
use tokio::time::{Interval, MissedTickBehavior};

use super::extract::TENANT_HEADER;
use super::parts::access::Access;
use super::permissions::Permission;
use super::problem::{Code, Problem};
use orlog_node::access::{AccessRegistry, Outdated};
use orlog_node::auth::{Caller, Right, Role, TenantScope};
use orlog_node::coded_error::CodedError;

/// Segment of the path that names the tenant of a context, or an actor: `/v1/contexts/{tenant}`.
const SUBJECT_SEGMENT: usize = 3;

/// Interval in which the access of a stream is checked without a change: keys end, and the registry
/// can be out of reach.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Caller of a request as it was authenticated, and what the request needs.
#[derive(Clone)]
pub(crate) struct Admission(Arc<Requirement>);

struct Requirement {
    caller: Caller,
    permission: Permission,
    /// Distinct tenants that the request names; the default tenant if it names none. Invalid ones
    /// belong to no tenant; the handler rejects them.
    tenants: Vec<TenantId>,
    /// Actor in the path.
    actor: Option<ActorId>,
}

impl Admission {
    /// Reads what a request needs. Names the only tenant of the caller in the header if the request
    /// names none.
    pub(crate) fn new(caller: Caller, permission: Permission, request: &mut Request) -> Self {
        let actor = match permission {
            Permission::Actor => subject(request.uri().path()).and_then(|id| ActorId::new(id).ok()),
            _ => None,
        };
        let headers = request.headers_mut();
        // A caller with one tenant may omit it; handler, forwarding and audit then read the same
        // header.
        if !headers.contains_key(TENANT_HEADER)
            && matches!(permission, Permission::Tenant(_))
            && let Some(only) = caller.tenants.single_tenant()
            && let Ok(only) = HeaderValue::from_bytes(only.as_str().as_bytes())
        {
            headers.insert(TENANT_HEADER, only);
        }

        let tenants = named_tenants(headers);
        Self(Arc::new(Requirement {
            caller,
            permission,
            tenants,
            actor,
        }))
    }

    /// Returns the caller without the roles of a context.
    pub(crate) fn authenticated(&self) -> &Caller {
        &self.0.caller
    }

    /// Returns the caller with the roles that it has for this request.
    ///
    /// # Errors
    /// If it lacks the permission, or if the lists of the context are outdated.
    pub(crate) fn admit(&self, access: &AccessRegistry) -> Result<Caller, Problem> {
        let Requirement {
            caller,
            permission,
            tenants,
            actor,
        } = &*self.0;
        let mut caller = caller.clone();

        match permission {
            Permission::Public | Permission::Authenticated => {}
            Permission::Tenant(needed) | Permission::Context(needed) => {
                // Each `enter` restricts the caller to its context, so that a request for several
                // tenants with a context is rejected.
                for tenant in tenants {
                    access.enter(&mut caller, tenant)?;
                }
                acts_for(&caller, tenants, *needed)?;
            }
            Permission::Node(needed) => has_node(&caller, *needed)?,
            Permission::Peer => {
                if caller.peer.is_none() {
                    return Err(Problem::not_a_peer());
                }
            }
            Permission::Actor => {
                // An unreadable id in the path is no actor, so that two missing ids must not count
                // as equal.
                if caller.actor.is_none() || caller.actor != *actor {
                    has_node(&caller, Right::Admin)?;
                }
            }
        }

        Ok(caller)
    }

    /// Checks again whether the caller has access. A change cannot be reverted, so that only
    /// requests of readers and workers are checked.
    ///
    /// # Errors
    /// Those of [`Self::admit`], and if the key of the caller is not valid any more.
    pub(crate) fn recheck(&self, access: &Access) -> Result<(), Problem> {
        match self.0.permission {
            Permission::Tenant(
                Right::Read | Right::ReadMessages | Right::ReadTasks | Right::Audit | Right::Work,
            ) => {
                self.admit(access.registry())?;
                let key = self
                    .0
                    .caller
                    .key
                    .map(|key| access.authenticator().signed().recheck(key));
                Ok(key.unwrap_or(Ok(()))?)
            }
            _ => Ok(()),
        }
    }
}

/// Access of the caller of a stream, which outlives its admission.
pub(crate) struct AccessWatch {
    access: Access,
    /// `None` without authentication.
    admission: Option<Admission>,
    changes: watch::Receiver<Arc<RegistryView>>,
    checks: Interval,
}

impl AccessWatch {
    pub(crate) fn new(access: Access, admission: Option<Admission>) -> Self {
        let mut checks = tokio::time::interval(CHECK_INTERVAL);
        // After a pause of the process, one check replaces all that were missed.
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let changes = access.registry().changes();

        Self {
            access,
            admission,
            changes,
            checks,
        }
    }

    /// Waits until the caller has lost its access: by a change of a context or an actor, by the end
    /// of its key, or because the node cannot follow the registry. The future can be dropped and
    /// created again.
    pub(crate) async fn revoked(&mut self) {
        let Some(admission) = &self.admission else {
            return std::future::pending().await;
        };
        loop {
            // Changes end the access at once; the interval finds keys that end and a registry that
            // is out of reach.
            tokio::select! {
                // The sender lives as long as the node.
                Ok(()) = self.changes.changed() => {}
                _ = self.checks.tick() => {}
            }
            if admission.recheck(&self.access).is_err() {
                return;
            }
        }
    }
}

/// Names the tenant of a context in the path also in the header, which the handler, the forwarding
/// and the audit read.
///
/// # Errors
/// If the tenant in the path is invalid.
pub(crate) fn name_context(permission: Permission, request: &mut Request) -> Result<(), Problem> {
    if !matches!(permission, Permission::Context(_)) {
        return Ok(());
    }

    let invalid = |error: &dyn std::fmt::Display| Problem::new(Code::BadTenant, error.to_string());
    let tenant = subject(request.uri().path()).unwrap_or_default();
    let tenant = TenantId::for_path(tenant).map_err(|error| invalid(&error))?;
    let value =
        HeaderValue::from_bytes(tenant.as_str().as_bytes()).map_err(|error| invalid(&error))?;
    // Replaces the header of the client: the permission is checked for the tenant of the path, and
    // only for it.
    request.headers_mut().insert(TENANT_HEADER, value);
    Ok(())
}

/// Returns the subject of a route: a tenant or the id of an actor.
fn subject(path: &str) -> Option<String> {
    let segment = path.split('/').nth(SUBJECT_SEGMENT)?;
    percent_decode_str(segment)
        .decode_utf8()
        .ok()
        .map(String::from)
}

fn named_tenants(headers: &HeaderMap) -> Vec<TenantId> {
    let absent = HeaderValue::from_static("");
    let mut named: Vec<&HeaderValue> = headers.get_all(TENANT_HEADER).iter().collect();
    if named.is_empty() {
        named.push(&absent);
    }

    let mut tenants: Vec<_> = named
        .iter()
        .filter_map(|value: &&HeaderValue| {
            TenantId::new(std::str::from_utf8(value.as_bytes()).ok()?).ok()
        })
        .collect();
    tenants.dedup();
    tenants
}

fn has_node(caller: &Caller, needed: Right) -> Result<(), Problem> {
    has_right(caller, needed)?;
    if caller.tenants == TenantScope::All {
        return Ok(());
    }
    let detail = "this route affects the whole node and requires access to all tenants (*)";
    Err(Problem::new(Code::TenantForbidden, detail))
}

fn has_right(caller: &Caller, needed: Right) -> Result<(), Problem> {
    if caller.roles.allow(needed) {
        return Ok(());
    }

    let name = caller.name.as_deref().unwrap_or("the caller");
    let granting: Vec<_> = Role::all()
        .filter(|role| role.allows(needed))
        .map(Role::as_str)
        .collect();
    let detail = format!(
        "this requires the right {:?}; roles that grant it: {}; roles of {name}: {}",
        needed.as_str(),
        granting.join(", "),
        caller.roles
    );

    Err(Problem::new(Code::Forbidden, detail))
}

/// Rejects callers without the right, and tenants that the caller may not access.
fn acts_for(caller: &Caller, tenants: &[TenantId], needed: Right) -> Result<(), Problem> {
    // First, because it does not depend on the tenant: the response must not reveal which contexts
    // exist.
    has_right(caller, needed)?;
    match tenants
        .iter()
        .find(|tenant| !caller.tenants.contains(tenant))
    {
        Some(tenant) => Err(no_access(tenant)),
        None => Ok(()),
    }
}

fn no_access(tenant: &TenantId) -> Problem {
    let detail = match tenant.as_str() {
        "" => format!("no access to the default tenant; set a tenant in {TENANT_HEADER}"),
        name => format!("no access to the tenant {name:?}"),
    };
    Problem::new(Code::TenantForbidden, detail)
}

impl From<Outdated> for Problem {
    fn from(error: Outdated) -> Self {
        CodedError::from(error).into()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::body::Body;
    use orlog_bus::embedded::JournalRegistry;
    use orlog_bus::registry::Registry;

    use super::*;
    use orlog_node::auth::Roles;

    /// Admits a request with this tenant in its header; returns the code of a denial.
    fn admitted(
        caller: &Caller,
        permission: Permission,
        path: &str,
    ) -> Result<Request, &'static str> {
        let dir = tempfile::tempdir().unwrap();
        let registry = JournalRegistry::open(&dir.path().join("registry"), None).unwrap();
        let access = AccessRegistry::new(Arc::new(registry) as Arc<dyn Registry>, None);
        let request = Request::builder().uri(path).header(TENANT_HEADER, "other");
        let mut request = request.body(Body::empty()).unwrap();
        name_context(permission, &mut request).map_err(|problem| problem.code().as_str())?;
        let admission = Admission::new(caller.clone(), permission, &mut request);
        admission
            .admit(&access)
            .map(|_| request)
            .map_err(|problem| problem.code().as_str())
    }

    fn user(name: &str) -> Caller {
        let tenants = TenantScope::Only(BTreeSet::new());
        Caller {
            name: Some(name.to_owned()),
            roles: Roles::default(),
            tenants,
            ..Caller::unauthenticated()
        }
    }

    #[test]
    fn actor_is_admitted_to_itself_only() {
        let actor = Caller {
            actor: ActorId::new("robo 1").ok(),
            ..user("robo 1")
        };
        let check = |caller: &Caller, path: &str| admitted(caller, Permission::Actor, path).err();
        assert_eq!(check(&actor, "/v1/actors/robo%201/keys"), None);
        assert_eq!(check(&actor, "/v1/actors/other"), Some("OR0042"));
        assert_eq!(
            check(&user("robo 1"), "/v1/actors/robo%201"),
            Some("OR0042"),
            "a user is no actor"
        );
        assert_eq!(
            check(&Caller::unauthenticated(), "/v1/actors/other"),
            None,
            "an administrator"
        );
        let tenants = TenantScope::Only(BTreeSet::from([TenantId::default_tenant()]));
        let of_tenant = Caller {
            tenants,
            ..Caller::unauthenticated()
        };
        assert_eq!(check(&of_tenant, "/v1/actors/other"), Some("OR0043"));
    }

    #[test]
    fn tenant_in_the_path_of_a_context_replaces_the_header() {
        let acme = TenantScope::Only(BTreeSet::from([TenantId::new("acme").unwrap()]));
        let admin = Caller {
            tenants: acme,
            ..Caller::unauthenticated()
        };
        let check = |path: &str| admitted(&admin, Permission::Context(Right::Admin), path);
        assert_eq!(
            check("/v1/contexts/acme").unwrap().headers()[TENANT_HEADER],
            "acme"
        );
        assert_eq!(check("/v1/contexts/other").err(), Some("OR0043"));
        assert_eq!(check("/v1/contexts/a%00b").err(), Some("OR0006"));
        assert_eq!(
            admitted(&admin, Permission::Tenant(Right::Read), "/v1/sagas").err(),
            Some("OR0043")
        );
    }
}
