//! Member of a context: an actor, a group or a user.

use std::fmt;
use std::str::FromStr;

use orlog_model::{ActorId, IdError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::auth::{Caller, is_user_name};

/// Entry in a list of a context, as text: `actor:<id>`, `group:<name>` or `user:<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// Actor, identified by the signatures of its requests.
    Actor(ActorId),
    /// Callers with this group in their token, or in the header of the gateway.
    Group(String),
    /// User with this name in its token (`sub`), or in the header of the gateway.
    User(String),
}

/// Error of a text that is no member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The text has no known prefix.
    #[error("{0:?} is no member; write actor:<id>, group:<name> or user:<name>")]
    Prefix(String),
    /// The name of a user or group is empty, too long, or contains control characters.
    #[error("the name in {0:?} is empty, longer than 255 bytes, or contains control characters")]
    Name(String),
    /// The id of the actor is invalid.
    #[error(transparent)]
    Actor(#[from] IdError),
}

impl Member {
    /// Returns whether a caller is this member. A user is no actor, also if both have the same name.
    #[must_use]
    pub fn matches(&self, caller: &Caller) -> bool {
        match self {
            Member::Actor(id) => caller.actor.as_ref() == Some(id),
            Member::Group(name) => caller.task_roles.contains(name),
            Member::User(name) => caller.actor.is_none() && caller.name.as_ref() == Some(name),
        }
    }
}

impl FromStr for Member {
    type Err = MemberError;

    fn from_str(text: &str) -> Result<Self, MemberError> {
        let name = |name: &str| {
            let valid = is_user_name(name).then(|| name.to_owned());
            valid.ok_or_else(|| MemberError::Name(text.chars().take(100).collect()))
        };
        match text.split_once(':') {
            Some(("actor", id)) => Ok(Member::Actor(ActorId::for_path(id)?)),
            Some(("group", group)) => name(group).map(Member::Group),
            Some(("user", user)) => name(user).map(Member::User),
            _ => Err(MemberError::Prefix(text.chars().take(100).collect())),
        }
    }
}

impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Member::Actor(id) => write!(f, "actor:{id}"),
            Member::Group(name) => write!(f, "group:{name}"),
            Member::User(name) => write!(f, "user:{name}"),
        }
    }
}

impl Serialize for Member {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_member_is_read_back() {
        for text in ["actor:runner-1", "group:ops", "user:ada@example.com", "user:actor:x"] {
            assert_eq!(text.parse::<Member>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            ("ada", "write actor:<id>, group:<name> or user:<name>"),
            ("User:ada", "write actor:<id>"),
            ("user:", "is empty"),
            ("group:a\nb", "control characters"),
            ("actor:", "must not be empty"),
            ("actor:..", "no URL can contain it"),
        ] {
            let error = text.parse::<Member>().unwrap_err().to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn actor_is_not_the_user_with_the_same_name() {
        let user = Caller { name: Some("robo".to_owned()), ..Caller::unauthenticated() };
        let actor = Caller { actor: Some(ActorId::new("robo").unwrap()), ..user.clone() };
        let (as_user, as_actor) =
            ("user:robo".parse::<Member>().unwrap(), "actor:robo".parse::<Member>().unwrap());
        assert!(as_user.matches(&user) && !as_actor.matches(&user));
        assert!(as_actor.matches(&actor) && !as_user.matches(&actor));
        let grouped = Caller { task_roles: ["ops".to_owned()].into(), ..user.clone() };
        let group = "group:ops".parse::<Member>().unwrap();
        assert!(group.matches(&grouped) && !group.matches(&user));
    }
}
