//! Context: a tenant with a record, which lists its members.

use std::collections::BTreeSet;

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::member::Member;
use crate::auth::{Caller, Role, Roles};

/// Record of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Members with all rights in the context.
    pub admins: BTreeSet<Member>,
    /// Members who read the context.
    pub readers: BTreeSet<Member>,
    /// Members who execute its jobs.
    pub executors: BTreeSet<Member>,
    /// Time of the creation.
    pub created_at: Timestamp,
    /// The last changes.
    pub changes: Vec<Change>,
}

impl Context {
    /// Creates a context without members.
    #[must_use]
    pub fn new(at: Timestamp) -> Self {
        let (admins, readers, executors) = Default::default();
        Self { admins, readers, executors, created_at: at, changes: Vec::new() }
    }

    /// Returns the lists with their names, and the role that each one grants.
    #[must_use]
    pub fn lists(&self) -> [(&'static str, Role, &BTreeSet<Member>); 3] {
        [
            ("admins", Role::Admin, &self.admins),
            ("readers", Role::Viewer, &self.readers),
            ("executors", Role::Worker, &self.executors),
        ]
    }

    /// Returns the roles that the lists grant to a caller; none if it is in no list.
    #[must_use]
    pub fn roles_of(&self, caller: &Caller) -> Roles {
        let lists = self.lists().into_iter();
        let granted = lists.filter(|(_, _, list)| list.iter().any(|member| member.matches(caller)));
        granted.map(|(_, role, _)| role).collect()
    }

    /// Replaces the lists. Returns `false` if nothing changes.
    pub fn replace(&mut self, lists: [BTreeSet<Member>; 3], at: Timestamp, by: Option<String>) -> bool {
        let entries = |context: &Self| -> BTreeSet<String> {
            let lists = context.lists().into_iter();
            lists
                .flat_map(|(name, _, list)| list.iter().map(move |member| format!("{name} {member}")))
                .collect()
        };
        let before = entries(self);
        [self.admins, self.readers, self.executors] = lists;
        let after = entries(self);
        if before == after {
            return false;
        }
        let [added, removed] = [(&after, &before), (&before, &after)]
            .map(|(one, other)| one.difference(other).cloned().collect());
        Change { at, by, added, removed }.append_to(&mut self.changes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(members: &[&str]) -> BTreeSet<Member> {
        members.iter().map(|member| member.parse().unwrap()).collect()
    }

    #[test]
    fn each_list_grants_one_role() {
        let mut context = Context::new(Timestamp::from_millis(1));
        let lists = [list(&["user:ada"]), list(&["user:ada", "group:audit"]), list(&["user:robo"])];
        assert!(context.replace(lists, Timestamp::from_millis(2), None));
        let roles = |name: &str, groups: &[&str]| {
            let task_roles = groups.iter().map(|group| (*group).to_owned()).collect();
            let caller = Caller { name: Some(name.to_owned()), task_roles, ..Caller::unauthenticated() };
            context.roles_of(&caller).to_string()
        };
        assert_eq!(roles("ada", &[]), "viewer, admin");
        assert_eq!(roles("bob", &["audit"]), "viewer");
        assert_eq!(roles("robo", &[]), "worker");
        assert_eq!(roles("eve", &["other"]), "none");
    }

    #[test]
    fn changes_name_what_was_added_and_removed() {
        let mut context = Context::new(Timestamp::from_millis(1));
        let [at, later] = [2, 3].map(Timestamp::from_millis);
        let first = [list(&["user:ada"]), list(&[]), list(&["actor:robo"])];
        assert!(context.replace(first.clone(), at, Some("ada".to_owned())));
        assert!(!context.replace(first, at, None), "equal lists are no change");
        assert!(context.replace([list(&["user:ada"]), list(&["actor:robo"]), list(&[])], later, None));
        let change = context.changes.last().unwrap();
        assert_eq!(change.added, ["readers actor:robo"]);
        assert_eq!(change.removed, ["executors actor:robo"]);
        assert_eq!(context.changes.len(), 2);
    }
}
