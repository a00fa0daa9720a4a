//! Member of a context: an actor, a group, a user, or another context.

use std::fmt;
use std::str::FromStr;

use orlog_model::{ActorId, AddressError, ContextAddress, IdError};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::auth::{Caller, is_user_name};

/// Entry in a list of a context, as text: `actor:<id>`, `context:<context>@<node>`, `group:<name>`
/// or `user:<name>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Member {
    /// Actor, identified by the signatures of its requests.
    Actor(ActorId),
    /// Context that sends messages, also of another node. It is no caller of the API.
    Context(ContextAddress),
    /// Callers with this group in their token, or in the header of the gateway.
    Group(String),
    /// User with this name in its token (`sub`), or in the header of the gateway.
    User(String),
}

/// Error of a text that is no member.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The text has no known prefix.
    #[error(
        "{0:?} is no member; write actor:<id>, context:<context>@<node>, group:<name> or \
         user:<name>"
    )]
    Prefix(String),
    /// The name of a user or group is empty, too long, or contains control characters.
    #[error("the name in {0:?} is empty, longer than 255 bytes, or contains control characters")]
    Name(String),
    /// The id of the actor is invalid.
    #[error(transparent)]
    Actor(#[from] IdError),
    /// The address of the context is invalid.
    #[error(transparent)]
    Context(#[from] AddressError),
}

impl Member {
    /// Returns whether a caller is this member. A user is no actor and no peer, also if they have
    /// the same name.
    #[must_use]
    pub fn matches(&self, caller: &Caller) -> bool {
        match self {
            Member::Actor(id) => caller.actor.as_ref() == Some(id),
            Member::Context(_) => false,
            Member::Group(name) => caller.task_roles.contains(name),
            Member::User(name) => {
                caller.actor.is_none()
                    && caller.peer.is_none()
                    && caller.name.as_ref() == Some(name)
            }
        }
    }
}

impl FromStr for Member {
    type Err = MemberError;

    fn from_str(text: &str) -> Result<Self, MemberError> {
        let name = |name: &str| {
            let valid = is_user_name(name).then(|| name.to_owned());
            // Shortened, because the message of the error repeats the text.
            valid.ok_or_else(|| MemberError::Name(text.chars().take(100).collect()))
        };
        match text.split_once(':') {
            Some(("actor", id)) => Ok(Member::Actor(ActorId::for_path(id)?)),
            Some(("context", address)) => Ok(Member::Context(address.parse()?)),
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
            Member::Context(address) => write!(f, "context:{address}"),
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
        String::deserialize(deserializer)?
            .parse()
            .map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::NodeName;

    use super::*;

    #[test]
    fn text_of_a_member_is_read_back() {
        for text in [
            "actor:runner-1",
            "context:acme@b.example",
            "group:ops",
            "user:ada@example.com",
            "user:actor:x",
        ] {
            assert_eq!(text.parse::<Member>().unwrap().to_string(), text);
        }
        for (text, expected) in [
            (
                "ada",
                "write actor:<id>, context:<context>@<node>, group:<name> or user:<name>",
            ),
            ("context:acme", "write <context>@<node>"),
            ("context:acme@", "is no name of a node"),
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
        let user = Caller {
            name: Some("robo".to_owned()),
            ..Caller::unauthenticated()
        };
        let actor = Caller {
            actor: Some(ActorId::new("robo").unwrap()),
            ..user.clone()
        };
        let (as_user, as_actor) = (
            "user:robo".parse::<Member>().unwrap(),
            "actor:robo".parse::<Member>().unwrap(),
        );
        assert!(as_user.matches(&user) && !as_actor.matches(&user));
        assert!(as_actor.matches(&actor) && !as_user.matches(&actor));
        let grouped = Caller {
            task_roles: ["ops".to_owned()].into(),
            ..user.clone()
        };
        let group = "group:ops".parse::<Member>().unwrap();
        assert!(group.matches(&grouped) && !group.matches(&user));
    }
    #[test]
    fn context_and_peer_are_no_users() {
        let context = "context:shop@b".parse::<Member>().unwrap();
        let user = Caller {
            name: Some("shop@b".to_owned()),
            ..Caller::unauthenticated()
        };
        assert!(!context.matches(&user), "a context is no caller");
        let named = "user:peer:b".parse::<Member>().unwrap();
        let user = Caller {
            name: Some("peer:b".to_owned()),
            ..user
        };
        let peer = Caller {
            peer: Some(NodeName::new("b").unwrap()),
            ..user.clone()
        };
        assert!(named.matches(&user) && !named.matches(&peer));
    }
}
