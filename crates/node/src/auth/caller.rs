//! Caller of a request: roles, tenants and authentication errors.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use orlog_model::{ActorId, NodeName, TenantId};
use orlog_signature::KeyId;

use super::rights::{Right, Role, Roles};
use super::signature_rejection::SignatureRejection;

/// Tenants for which a caller may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TenantScope {
    /// All tenants, and the node.
    All,
    /// Only these tenants.
    Only(BTreeSet<TenantId>),
}

impl TenantScope {
    /// Creates the scope from tenant names; `*` means all tenants. Invalid tenant names are
    /// ignored.
    pub(super) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tenants = BTreeSet::new();
        for name in names {
            if name == "*" {
                return TenantScope::All;
            }
            tenants.extend(TenantId::new(name));
        }
        TenantScope::Only(tenants)
    }

    /// Returns whether the scope contains a tenant.
    #[must_use]
    pub fn contains(&self, tenant: &TenantId) -> bool {
        match self {
            TenantScope::All => true,
            TenantScope::Only(tenants) => tenants.contains(tenant),
        }
    }

    /// Returns the tenant if the scope contains exactly one.
    #[must_use]
    pub fn single_tenant(&self) -> Option<&TenantId> {
        match self {
            TenantScope::Only(tenants) if tenants.len() == 1 => tenants.first(),
            TenantScope::All | TenantScope::Only(_) => None,
        }
    }
}

/// Rights of an actor, as those of every other caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActorRights {
    /// Roles.
    pub roles: Roles,
    /// Tenants for which the actor may act.
    pub tenants: TenantScope,
    /// Roles for human tasks.
    pub task_roles: BTreeSet<String>,
}

impl ActorRights {
    /// Creates the rights from names; `*` means all tenants. Unknown roles and invalid tenants
    /// grant nothing.
    pub(crate) fn new<'a>(
        roles: impl IntoIterator<Item = &'a str>,
        tenants: impl IntoIterator<Item = &'a str>,
        task_roles: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        Self {
            roles: Roles::of(roles),
            tenants: TenantScope::of(tenants),
            task_roles: task_roles.into_iter().map(str::to_owned).collect(),
        }
    }
}

/// Caller of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User name; `None` if authentication is off.
    pub name: Option<String>,
    /// Roles; empty: no rights.
    pub roles: Roles,
    /// Tenants for which the caller may act.
    pub tenants: TenantScope,
    /// Groups: its roles for human tasks, and entries in the lists of contexts.
    pub task_roles: BTreeSet<String>,
    /// Actor that signed the request; its id is also the user name.
    pub actor: Option<ActorId>,
    /// Other node that signed the request.
    pub peer: Option<NodeName>,
    /// Key that signed the request; `None` without a signature.
    pub key: Option<KeyId>,
    /// Receives the user that the request names, for its audit record; `None` if the request is not
    /// recorded.
    pub named_user: Option<Arc<OnceLock<String>>>,
}

impl Caller {
    /// Returns the caller of all requests if authentication is off.
    #[must_use]
    pub fn unauthenticated() -> Self {
        Self {
            name: None,
            roles: Roles::from_iter([Role::Admin]),
            tenants: TenantScope::All,
            task_roles: BTreeSet::new(),
            actor: None,
            peer: None,
            key: None,
            named_user: None,
        }
    }

    /// Returns the caller of a request to a public route, who has no rights.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            name: None,
            ..Self::without_rights(String::new())
        }
    }

    /// Returns the caller of a request with the valid signature of a webhook.
    #[must_use]
    pub fn webhook(name: &str, tenant: &TenantId) -> Self {
        let tenants = TenantScope::Only(BTreeSet::from([tenant.clone()]));
        Self {
            tenants,
            ..Self::without_rights(format!("webhook:{name}"))
        }
    }

    /// Returns the caller of a request that an actor signed.
    pub(super) fn actor(actor: ActorId, rights: ActorRights, key: KeyId) -> Self {
        let ActorRights {
            roles,
            tenants,
            task_roles,
        } = rights;
        let caller = Self::without_rights(actor.to_string());

        Self {
            roles,
            tenants,
            task_roles,
            actor: Some(actor),
            key: Some(key),
            ..caller
        }
    }

    /// Returns the caller of a request that another node signed.
    pub(super) fn peer(peer: NodeName, key: KeyId) -> Self {
        let caller = Self::without_rights(format!("peer:{peer}"));
        Self {
            peer: Some(peer),
            key: Some(key),
            ..caller
        }
    }

    fn without_rights(name: String) -> Self {
        Self {
            name: Some(name),
            roles: Roles::default(),
            tenants: TenantScope::of([]),
            task_roles: BTreeSet::new(),
            actor: None,
            peer: None,
            key: None,
            named_user: None,
        }
    }

    /// Restricts the caller to the context of a tenant, in which its lists grant these roles. They
    /// add to the roles that the caller has for the tenant. Without granted roles, the caller loses
    /// its access to the tenant.
    pub(crate) fn enter(&mut self, tenant: &TenantId, granted: Roles) {
        let is_member = granted != Roles::default();

        // Its roles apply to its own tenants; in this one, only the lists of the context grant any.
        if is_member && !self.tenants.contains(tenant) {
            self.roles = Roles::default();
        }
        self.roles.extend(granted);
        let tenants = is_member.then(|| tenant.clone());
        self.tenants = TenantScope::Only(tenants.into_iter().collect());
    }

    /// Returns the user in whose name a request acts. That is the caller; an admin may act for
    /// another user, as a service does for its users. If authentication is off, it is the named
    /// user. The audit record of the request contains the first user that it names.
    ///
    /// # Errors
    /// If the request names another user and the caller is not an admin.
    pub fn check_user(&self, named: Option<String>) -> Result<Option<String>, ImpersonationError> {
        let named = named.filter(|named| !named.is_empty());
        if let (Some(recorded), Some(named)) = (&self.named_user, &named) {
            // Before the check: a rejected impersonation is recorded with the user that it named.
            recorded.get_or_init(|| named.clone());
        }

        match (&self.name, named) {
            (Some(name), Some(named)) if *name != named && !self.roles.allow(Right::Admin) => {
                Err(ImpersonationError(format!(
                    "user: the caller is {name} and cannot act as {named:?}; omit the field"
                )))
            }
            (name, named) => Ok(named.or_else(|| name.clone())),
        }
    }

    /// Returns the roles with which a request claims a task: the stated roles, which must belong to
    /// the caller, or all roles of the caller. An admin may state the roles of another user.
    ///
    /// # Errors
    /// If the caller lacks one of the roles.
    pub fn check_roles(&self, stated: Vec<String>) -> Result<Vec<String>, ImpersonationError> {
        // Without authentication, a request can state any roles, as it can name any user.
        let Some(name) = &self.name else {
            return Ok(stated);
        };
        if stated.is_empty() {
            return Ok(self.task_roles.iter().cloned().collect());
        }

        match stated
            .iter()
            .find(|role| !self.roles.allow(Right::Admin) && !self.task_roles.contains(*role))
        {
            Some(role) => Err(ImpersonationError(format!(
                "roles: {name} does not have the role {role:?}"
            ))),
            None => Ok(stated),
        }
    }
}

/// Maximum length of a user name in bytes.
const MAX_NAME_BYTES: usize = 255;

/// Returns whether a text can be the name of a user, which events and records contain.
pub(crate) fn is_user_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_NAME_BYTES && !text.chars().any(char::is_control)
}

/// Error: a request states a user or role that does not belong to the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ImpersonationError(String);

/// Reason of a failed authentication.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The credentials are missing.
    #[error("{0}")]
    Missing(String),
    /// The credentials are invalid.
    #[error("{0}")]
    Invalid(String),
    /// The signature of the request is not accepted.
    #[error("{0}")]
    Signature(SignatureRejection),
    /// The credentials cannot be verified at the moment.
    #[error("{0}")]
    Unavailable(String),
}

/// Credentials of a request.
pub struct RequestCredentials<'a> {
    /// Headers with lowercase names.
    pub headers: Vec<(&'a str, &'a [u8])>,
    /// Source address of the connection, if known.
    pub source: Option<IpAddr>,
}

impl RequestCredentials<'_> {
    /// Returns the header of this name, which may occur once.
    pub(super) fn header(&self, name: &str) -> Result<Option<&str>, AuthError> {
        let mut values = self
            .headers
            .iter()
            .filter(|(other, _)| *other == name)
            .map(|(_, value)| *value);
        let Some(first) = values.next() else {
            return Ok(None);
        };

        // Two values are ambiguous: a proxy and this node could use different ones.
        if values.next().is_some() {
            return Err(AuthError::Invalid(format!("duplicate header {name}")));
        }

        let text = std::str::from_utf8(first);
        text.map(Some)
            .map_err(|_| AuthError::Invalid(format!("the header {name} is not valid text")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn star_matches_all_tenants_and_names_match_themselves() {
        assert_eq!(TenantScope::of(["acme", "*"]), TenantScope::All);
        let reach = TenantScope::of(["acme", "b\u{0}d"]);
        assert!(
            reach.contains(&tenant("acme"))
                && !reach.contains(&tenant("beta"))
                && !reach.contains(&tenant(""))
        );
        assert_eq!(reach.single_tenant(), Some(&tenant("acme")));
        assert_eq!(
            (
                TenantScope::of(["a", "b"]).single_tenant(),
                TenantScope::of([]).single_tenant(),
                TenantScope::All.single_tenant()
            ),
            (None, None, None)
        );
    }

    #[test]
    fn only_admins_act_for_others() {
        let groups = BTreeSet::from(["clerk".to_owned()]);
        let caller = |role| Caller {
            name: Some("ada".to_owned()),
            roles: Roles::from_iter([role]),
            tenants: TenantScope::All,
            task_roles: groups.clone(),
            actor: None,
            peer: None,
            key: None,
            named_user: None,
        };
        let (operator, admin, anybody) = (
            caller(Role::Operator),
            caller(Role::Admin),
            Caller::unauthenticated(),
        );
        let some = |text: &str| Some(text.to_owned());
        for by in [None, some(""), some("ada")] {
            assert_eq!(
                operator.check_user(by.clone()).unwrap(),
                some("ada"),
                "{by:?}"
            );
        }
        assert!(
            operator
                .check_user(some("bob"))
                .unwrap_err()
                .to_string()
                .contains("the caller is ada")
        );
        assert_eq!(admin.check_user(some("bob")).unwrap(), some("bob"));
        assert_eq!(
            (
                anybody.check_user(some("bob")).unwrap(),
                anybody.check_user(None).unwrap()
            ),
            (some("bob"), None)
        );

        let roles = |names: &[&str]| {
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(operator.check_roles(roles(&[])).unwrap(), roles(&["clerk"]));
        assert_eq!(
            operator.check_roles(roles(&["clerk"])).unwrap(),
            roles(&["clerk"])
        );
        assert!(operator.check_roles(roles(&["clerk", "director"])).is_err());
        assert_eq!(
            admin.check_roles(roles(&["director"])).unwrap(),
            roles(&["director"])
        );
        assert_eq!(
            anybody.check_roles(roles(&["director"])).unwrap(),
            roles(&["director"])
        );
    }

    #[test]
    fn duplicated_header_is_ignored() {
        let headers = vec![
            ("a", b"1".as_slice()),
            ("b", b"2"),
            ("a", b"1"),
            ("c", b"\xff"),
        ];
        let credentials = RequestCredentials {
            headers,
            source: None,
        };
        assert_eq!(credentials.header("b"), Ok(Some("2")));
        assert_eq!(credentials.header("d"), Ok(None));
        assert!(credentials.header("a").is_err() && credentials.header("c").is_err());
    }
}
