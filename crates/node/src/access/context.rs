//! Context: a tenant with a record, which lists its members.

use std::borrow::Cow;
use std::collections::BTreeSet;

use orlog_model::Timestamp;
use serde::{Deserialize, Serialize};

use super::change::Change;
use super::member::Member;
use crate::auth::{Caller, Role, Roles};

/// Entry of a change: the requirement of signed events.
const REQUIRE_SIGNED_EVENTS: &str = "require_signed_events";

/// Record of a context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    /// Members with all rights in the context.
    pub admins: BTreeSet<Member>,
    /// Members who read the context.
    pub readers: BTreeSet<Member>,
    /// Members who execute its jobs.
    pub executors: BTreeSet<Member>,
    /// Whether events and signals must be signed by a member who may publish.
    #[serde(default)]
    pub require_signed_events: bool,
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
        Self {
            admins,
            readers,
            executors,
            require_signed_events: false,
            created_at: at,
            changes: Vec::new(),
        }
    }

    /// Returns the context as it was at a time, by its last changes; the oldest known state if the
    /// time is before them.
    #[must_use]
    pub fn at(&self, time: Timestamp) -> Cow<'_, Self> {
        let later = self
            .changes
            .iter()
            .rev()
            .take_while(|change| change.at > time);

        // Most events are newer than the last change and need no copy.
        let mut context = Cow::Borrowed(self);
        for change in later {
            let before = context.to_mut();
            // Reverts the change: what it added is removed, and what it removed is added.
            for (entries, is_member) in [(&change.added, false), (&change.removed, true)] {
                for entry in entries {
                    before.set(entry, is_member);
                }
            }
        }

        context
    }

    /// Sets an entry of a change.
    fn set(&mut self, entry: &str, is_set: bool) {
        if entry == REQUIRE_SIGNED_EVENTS {
            self.require_signed_events = is_set;
            return;
        }

        let Some((name, member)) = entry.split_once(' ') else {
            return;
        };

        let list = match name {
            "admins" => &mut self.admins,
            "readers" => &mut self.readers,
            "executors" => &mut self.executors,
            _ => return,
        };

        // A text that is no member is in no list.
        let Ok(member) = member.parse() else { return };
        if is_set {
            list.insert(member);
        } else {
            list.remove(&member);
        }
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

    /// Sets whether events must be signed. Returns `false` if nothing changes.
    pub fn set_require_signed_events(
        &mut self,
        required: bool,
        at: Timestamp,
        by: Option<String>,
    ) -> bool {
        if self.require_signed_events == required {
            return false;
        }

        self.require_signed_events = required;
        let entry = vec![REQUIRE_SIGNED_EVENTS.to_owned()];
        let none = Vec::new();
        let (added, removed) = if required {
            (entry, none)
        } else {
            (none, entry)
        };

        Change {
            at,
            by,
            added,
            removed,
        }
        .append_to(&mut self.changes);
        true
    }

    /// Replaces the lists. Returns `false` if nothing changes.
    pub fn replace(
        &mut self,
        lists: [BTreeSet<Member>; 3],
        at: Timestamp,
        by: Option<String>,
    ) -> bool {
        let entries = |context: &Self| -> BTreeSet<String> {
            let lists = context.lists().into_iter();
            lists
                .flat_map(|(name, _, list)| {
                    list.iter().map(move |member| format!("{name} {member}"))
                })
                .collect()
        };
        // With the name of the list, so that a move to another list is a removal and an addition.
        let before = entries(self);

        [self.admins, self.readers, self.executors] = lists;
        let after = entries(self);
        if before == after {
            return false;
        }

        let [added, removed] = [(&after, &before), (&before, &after)]
            .map(|(one, other)| one.difference(other).cloned().collect());
        Change {
            at,
            by,
            added,
            removed,
        }
        .append_to(&mut self.changes);

        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(members: &[&str]) -> BTreeSet<Member> {
        members
            .iter()
            .map(|member| member.parse().unwrap())
            .collect()
    }

    #[test]
    fn each_list_grants_one_role() {
        let mut context = Context::new(Timestamp::from_millis(1));
        let lists = [
            list(&["user:ada"]),
            list(&["user:ada", "group:audit"]),
            list(&["user:robo"]),
        ];
        assert!(context.replace(lists, Timestamp::from_millis(2), None));
        let roles = |name: &str, groups: &[&str]| {
            let task_roles = groups.iter().map(|group| (*group).to_owned()).collect();
            let caller = Caller {
                name: Some(name.to_owned()),
                task_roles,
                ..Caller::unauthenticated()
            };
            context.roles_of(&caller).to_string()
        };
        assert_eq!(roles("ada", &[]), "viewer, admin");
        assert_eq!(roles("bob", &["audit"]), "viewer");
        assert_eq!(roles("robo", &[]), "worker");
        assert_eq!(roles("eve", &["other"]), "none");
    }

    /// Requirements: F1.
    #[test]
    fn context_is_known_as_it_was_at_a_time() {
        let at = Timestamp::from_millis;
        let mut context = Context::new(at(10));
        let mut states = vec![(10, context.clone())];
        let lists =
            |admins: &[&str], executors: &[&str]| [list(admins), list(&[]), list(executors)];
        for time in 11..40 {
            match time % 4 {
                0 => context.replace(lists(&["user:ada"], &["actor:robo"]), at(time), None),
                1 => context.replace(lists(&["user:ada", "actor:robo"], &[]), at(time), None),
                2 => context.set_require_signed_events(true, at(time), None),
                _ => context.set_require_signed_events(false, at(time), None),
            };
            states.push((time, context.clone()));
        }
        for (time, known) in &states {
            let found = context.at(at(*time)).into_owned();
            assert_eq!(
                Context {
                    changes: known.changes.clone(),
                    ..found
                },
                *known,
                "{time}"
            );
        }
        assert!(
            matches!(context.at(at(39)), Cow::Borrowed(_)),
            "the current state is not copied"
        );
        // After more changes than a record contains, an earlier time has the oldest known state.
        for time in 40..100 {
            context.set_require_signed_events(time % 2 == 0, at(time), None);
        }
        assert_eq!(
            context.at(at(5)),
            context.at(at(context.changes[0].at.as_millis() - 1))
        );
    }

    #[test]
    fn changes_name_what_was_added_and_removed() {
        let mut context = Context::new(Timestamp::from_millis(1));
        let [at, later] = [2, 3].map(Timestamp::from_millis);
        let first = [list(&["user:ada"]), list(&[]), list(&["actor:robo"])];
        assert!(context.replace(first.clone(), at, Some("ada".to_owned())));
        assert!(
            !context.replace(first, at, None),
            "equal lists are no change"
        );
        assert!(context.replace(
            [list(&["user:ada"]), list(&["actor:robo"]), list(&[])],
            later,
            None
        ));
        let change = context.changes.last().unwrap();
        assert_eq!(change.added, ["readers actor:robo"]);
        assert_eq!(change.removed, ["executors actor:robo"]);
        assert_eq!(context.changes.len(), 2);
    }
}
