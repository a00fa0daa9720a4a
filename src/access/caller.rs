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
}

impl Caller {
    /// Whoever calls where nobody asks.
    #[must_use]
    pub fn anybody() -> Self {
        Self { name: None, role: Some(Role::Admin), reach: Reach::All }
    }
}

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
