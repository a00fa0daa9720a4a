//! Who calls, what they may do, and for whom: the words.

use std::collections::BTreeSet;
use std::net::IpAddr;

use orlog_model::TenantId;
use serde::Serialize;

/// What a caller may do. Each may do what those before it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Gives instructions to sagas, answers tasks, publishes events, does work.
    Operator,
    /// Changes what the node does and for whom.
    Admin,
}

impl Role {
    /// The word in tokens and headers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Operator => "operator",
            Role::Admin => "admin",
        }
    }

    pub(super) fn of(text: &str) -> Option<Self> {
        [Role::Viewer, Role::Operator, Role::Admin].into_iter().find(|role| role.as_str() == text)
    }
}

/// For whom somebody may act.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// For every tenant, and for the node.
    All,
    /// For these.
    These(BTreeSet<TenantId>),
}

impl Reach {
    /// From names; `*` is everybody. Names that no tenant can have are nobody's.
    pub(super) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tenants = BTreeSet::new();
        for name in names {
            if name == "*" {
                return Reach::All;
            }
            tenants.extend(TenantId::new(name));
        }
        Reach::These(tenants)
    }

    /// Whether a tenant is among them.
    #[must_use]
    pub fn has(&self, tenant: &TenantId) -> bool {
        match self {
            Reach::All => true,
            Reach::These(tenants) => tenants.contains(tenant),
        }
    }

    /// The tenant, where there is only one.
    #[must_use]
    pub fn only(&self) -> Option<&TenantId> {
        match self {
            Reach::These(tenants) if tenants.len() == 1 => tenants.first(),
            Reach::All | Reach::These(_) => None,
        }
    }
}

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Their name; nothing where nobody asks for it.
    pub name: Option<String>,
    /// What they may do; `None`: nothing.
    pub role: Option<Role>,
    /// For whom.
    pub reach: Reach,
    /// The roles that tasks for people name.
    pub groups: BTreeSet<String>,
}

impl Caller {
    /// Whoever calls where nobody asks.
    #[must_use]
    pub fn anybody() -> Self {
        Self { name: None, role: Some(Role::Admin), reach: Reach::All, groups: BTreeSet::new() }
    }

    /// In whose name a call acts: in the caller's. An admin may call for somebody else, as a service does for its users; where
    /// nobody asks who calls, it is whoever is named.
    ///
    /// # Errors
    /// When somebody else is named.
    pub fn acts_as(&self, named: Option<String>) -> Result<Option<String>, NotTheirs> {
        let named = named.filter(|named| !named.is_empty());
        match (&self.name, named) {
            (Some(name), Some(named)) if *name != named && self.role != Some(Role::Admin) => {
                Err(NotTheirs(format!("by: the caller is {name} and cannot act as {named:?}; leave it out")))
            }
            (name, named) => Ok(named.or_else(|| name.clone())),
        }
    }

    /// With which roles a call takes a task: with those it states, which must be the caller's, or with all that the caller has.
    /// An admin may state those of whom it calls for.
    ///
    /// # Errors
    /// When the caller does not have one of them.
    pub fn acts_with(&self, stated: Vec<String>) -> Result<Vec<String>, NotTheirs> {
        let Some(name) = &self.name else { return Ok(stated) };
        if stated.is_empty() {
            return Ok(self.groups.iter().cloned().collect());
        }
        let theirs = |role: &&String| self.role != Some(Role::Admin) && !self.groups.contains(*role);
        match stated.iter().find(theirs) {
            Some(role) => Err(NotTheirs(format!("roles: {name} does not have the role {role:?}"))),
            None => Ok(stated),
        }
    }
}

/// A call states a name or a role that is not the caller's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotTheirs(String);

/// Why it is not known who calls.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// Nothing says who it is.
    #[error("{0}")]
    Nobody(String),
    /// What says it is not believed.
    #[error("{0}")]
    Disbelieved(String),
    /// Whether it can be believed is not known at this moment.
    #[error("{0}")]
    Unknowable(String),
}

/// What a request shows of its caller.
pub struct Shown<'a> {
    /// Its headers; names in lowercase.
    pub headers: Vec<(&'a str, &'a [u8])>,
    /// Where the connection comes from, where that is known.
    pub source: Option<IpAddr>,
}

impl Shown<'_> {
    /// The header of this name, which may stand there once.
    pub(super) fn header(&self, name: &str) -> Result<Option<&str>, Denied> {
        let mut values = self.headers.iter().filter(|(other, _)| *other == name).map(|(_, value)| *value);
        let Some(first) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Denied::Disbelieved(format!("the header {name} is given twice")));
        }
        let text = std::str::from_utf8(first);
        text.map(Some).map_err(|_| Denied::Disbelieved(format!("the header {name} is no text")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn a_star_reaches_everybody_and_names_reach_whom_they_name() {
        assert_eq!(Reach::of(["acme", "*"]), Reach::All);
        let reach = Reach::of(["acme", "b\u{0}d"]);
        assert!(reach.has(&tenant("acme")) && !reach.has(&tenant("beta")) && !reach.has(&tenant("")));
        assert_eq!(reach.only(), Some(&tenant("acme")));
        assert_eq!(
            (Reach::of(["a", "b"]).only(), Reach::of([]).only(), Reach::All.only()),
            (None, None, None)
        );
    }

    #[test]
    fn callers_act_in_their_own_name_and_admins_in_that_of_others() {
        let groups = BTreeSet::from(["clerk".to_owned()]);
        let caller = |role| Caller {
            name: Some("ada".to_owned()),
            role: Some(role),
            reach: Reach::All,
            groups: groups.clone(),
        };
        let (operator, admin, anybody) = (caller(Role::Operator), caller(Role::Admin), Caller::anybody());
        let some = |text: &str| Some(text.to_owned());
        for by in [None, some(""), some("ada")] {
            assert_eq!(operator.acts_as(by.clone()).unwrap(), some("ada"), "{by:?}");
        }
        assert!(operator.acts_as(some("bob")).unwrap_err().to_string().contains("the caller is ada"));
        assert_eq!(admin.acts_as(some("bob")).unwrap(), some("bob"));
        assert_eq!(
            (anybody.acts_as(some("bob")).unwrap(), anybody.acts_as(None).unwrap()),
            (some("bob"), None)
        );

        let roles = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(operator.acts_with(roles(&[])).unwrap(), roles(&["clerk"]));
        assert_eq!(operator.acts_with(roles(&["clerk"])).unwrap(), roles(&["clerk"]));
        assert!(operator.acts_with(roles(&["clerk", "director"])).is_err());
        assert_eq!(admin.acts_with(roles(&["director"])).unwrap(), roles(&["director"]));
        assert_eq!(anybody.acts_with(roles(&["director"])).unwrap(), roles(&["director"]));
    }

    #[test]
    fn roles_grow() {
        assert!(Role::Admin > Role::Operator && Role::Operator > Role::Viewer);
        assert_eq!((Role::of("admin"), Role::of("Admin"), Role::of("root")), (Some(Role::Admin), None, None));
    }

    #[test]
    fn a_header_that_is_given_twice_says_nothing() {
        let headers = vec![("a", b"1".as_slice()), ("b", b"2"), ("a", b"1"), ("c", b"\xff")];
        let shown = Shown { headers, source: None };
        assert_eq!(shown.header("b"), Ok(Some("2")));
        assert_eq!(shown.header("d"), Ok(None));
        assert!(shown.header("a").is_err() && shown.header("c").is_err());
    }
}
