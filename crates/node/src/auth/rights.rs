//! Roles of callers, and the rights that each role grants.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Serialize, Serializer};

/// Right that a route requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Right {
    /// Read instances, dead letters, definitions and the node.
    Read,
    /// Read human tasks.
    ReadTasks,
    /// Read messages of the context.
    ReadMessages,
    /// Publish events.
    Publish,
    /// Claim and execute jobs; send and process messages.
    Work,
    /// Claim, release and complete human tasks.
    Tasks,
    /// Assign human tasks to other users and roles.
    Assign,
    /// Control instances; redrive and discard dead letters.
    Control,
    /// Read the audit trail.
    Audit,
    /// Read the metrics of the node.
    Metrics,
    /// Administer the node, its definitions and its instances; act for other users.
    Admin,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 11] = [
        Self::Read,
        Self::ReadTasks,
        Self::ReadMessages,
        Self::Publish,
        Self::Work,
        Self::Tasks,
        Self::Assign,
        Self::Control,
        Self::Audit,
        Self::Metrics,
        Self::Admin,
    ];

    /// Returns the name in documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Right::Read => "read",
            Right::ReadTasks => "read tasks",
            Right::ReadMessages => "read messages",
            Right::Publish => "publish",
            Right::Work => "work",
            Right::Tasks => "tasks",
            Right::Assign => "assign",
            Right::Control => "control",
            Right::Audit => "audit",
            Right::Metrics => "metrics",
            Right::Admin => "admin",
        }
    }
}

/// Role of a caller: a named set of rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads, also the audit trail.
    Auditor,
    /// Publishes events.
    Publisher,
    /// Executes jobs; reads, sends and processes messages.
    Worker,
    /// Reads the metrics.
    Monitor,
    /// Reads, claims and completes human tasks.
    Approver,
    /// Reads and assigns human tasks.
    Manager,
    /// Reads, publishes, executes jobs, completes human tasks and controls instances.
    Operator,
    /// Has all rights.
    Admin,
}

/// Name and rights of each role.
const ROLES: [(Role, &str, &[Right]); 9] = [
    (
        Role::Viewer,
        "viewer",
        &[
            Right::Read,
            Right::ReadTasks,
            Right::ReadMessages,
            Right::Metrics,
        ],
    ),
    (
        Role::Auditor,
        "auditor",
        &[
            Right::Read,
            Right::ReadTasks,
            Right::ReadMessages,
            Right::Audit,
            Right::Metrics,
        ],
    ),
    (Role::Publisher, "publisher", &[Right::Publish]),
    (Role::Worker, "worker", &[Right::Work, Right::ReadMessages]),
    (Role::Monitor, "monitor", &[Right::Metrics]),
    (
        Role::Approver,
        "approver",
        &[Right::ReadTasks, Right::Tasks],
    ),
    (Role::Manager, "manager", &[Right::ReadTasks, Right::Assign]),
    (
        Role::Operator,
        "operator",
        // Without the right to assign: an operator could assign a task to anybody, and complete it.
        &[
            Right::Read,
            Right::ReadTasks,
            Right::ReadMessages,
            Right::Publish,
            Right::Work,
            Right::Tasks,
            Right::Control,
            Right::Metrics,
        ],
    ),
    (Role::Admin, "admin", &Right::ALL),
];

impl Role {
    /// Returns all roles.
    pub fn all() -> impl Iterator<Item = Self> {
        ROLES.iter().map(|(role, ..)| *role)
    }

    /// Returns the name in tokens and headers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        // `ROLES` has the order of the variants.
        ROLES[self as usize].1
    }

    /// Returns whether the role grants a right.
    #[must_use]
    pub fn allows(self, right: Right) -> bool {
        ROLES[self as usize].2.contains(&right)
    }
}

/// Roles of a caller. They grant the rights of each of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles(BTreeSet<Role>);

impl Roles {
    /// Reads the names of roles. Unknown names grant no rights.
    pub(super) fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        names
            .into_iter()
            .filter_map(|name| Role::all().find(|role| role.as_str() == name))
            .collect()
    }

    /// Returns the names of the roles.
    pub fn names(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|role| role.as_str())
    }

    /// Returns whether one of the roles grants a right.
    #[must_use]
    pub fn allow(&self, right: Right) -> bool {
        self.0.iter().any(|role| role.allows(right))
    }
}

impl Roles {
    /// Adds other roles.
    pub(super) fn extend(&mut self, others: Self) {
        self.0.extend(others.0);
    }
}

impl FromIterator<Role> for Roles {
    fn from_iter<I: IntoIterator<Item = Role>>(roles: I) -> Self {
        Self(roles.into_iter().collect())
    }
}

impl fmt::Display for Roles {
    /// Writes the names, separated by commas; `none` without roles.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.write_str(
            if names.is_empty() {
                "none".to_owned()
            } else {
                names.join(", ")
            }
            .as_str(),
        )
    }
}

impl Serialize for Roles {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_its_own_row() {
        for (index, role) in Role::all().enumerate() {
            assert_eq!(role as usize, index, "{role:?}");
            assert_eq!(Roles::of([role.as_str()]), Roles::from_iter([role]));
        }
        assert_eq!(Roles::of(["Admin", "root", ""]), Roles::default());
    }

    #[test]
    fn several_roles_grant_the_rights_of_each() {
        let both = Roles::of(["publisher", "baker", "approver"]);
        let granted: Vec<_> = Right::ALL
            .into_iter()
            .filter(|right| both.allow(*right))
            .collect();
        assert_eq!(granted, [Right::ReadTasks, Right::Publish, Right::Tasks]);
        assert_eq!(
            (both.to_string(), Roles::default().to_string()),
            ("publisher, approver".into(), "none".into())
        );
    }

    #[test]
    fn viewer_operator_and_admin_include_each_other() {
        for right in Right::ALL {
            assert!(Role::Admin.allows(right));
            assert!(
                Role::Operator.allows(right) || !Role::Viewer.allows(right),
                "{right:?}"
            );
        }
    }

    #[test]
    fn only_managers_and_admins_assign_tasks() {
        let assign: Vec<_> = Role::all()
            .filter(|role| role.allows(Right::Assign))
            .collect();
        assert_eq!(assign, [Role::Manager, Role::Admin]);
    }
}
