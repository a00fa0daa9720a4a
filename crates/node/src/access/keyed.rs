//! Records with keys: actors and peers. Their histories name each change of a key.

use std::fmt::Display;

use orlog_model::Timestamp;

use super::change::Change;
use super::key_ring::{Key, KeyError, KeyRing};

/// Record with keys and a history.
pub trait Keyed {
    /// Kind of the owner, for example `actor`.
    const KIND: &'static str;

    /// Returns the keys and the history.
    fn keys_and_changes(&mut self) -> (&mut KeyRing, &mut Vec<Change>);

    /// Adds a key.
    ///
    /// # Errors
    /// [`KeyError::Exists`], [`KeyError::TooMany`].
    fn add_key(&mut self, key: Key, at: Timestamp, by: Option<String>) -> Result<(), KeyError> {
        let (keys, changes) = self.keys_and_changes();
        let added = vec![format!("key {}", key.id)];

        keys.add(key, at)?;
        Change {
            at,
            by,
            added,
            removed: Vec::new(),
        }
        .append_to(changes);

        Ok(())
    }

    /// Revokes a key of the owner `name` at once. Returns `false` if it is revoked already.
    ///
    /// # Errors
    /// [`KeyError::Missing`].
    fn revoke_key(
        &mut self,
        name: impl Display,
        id: &str,
        at: Timestamp,
        by: Option<String>,
    ) -> Result<bool, KeyError> {
        let (keys, changes) = self.keys_and_changes();
        let is_change = keys.revoke(format_args!("{} {name}", Self::KIND), id, at)?;
        if is_change {
            removed(id, at, by).append_to(changes);
        }
        Ok(is_change)
    }

    /// Removes a key that was added in vain. Returns `false` if there is none.
    fn remove_key(&mut self, id: &str, at: Timestamp) -> bool {
        let (keys, changes) = self.keys_and_changes();
        let is_change = keys.remove(id);
        if is_change {
            removed(id, at, None).append_to(changes);
        }
        is_change
    }
}

fn removed(id: &str, at: Timestamp, by: Option<String>) -> Change {
    Change {
        at,
        by,
        added: Vec::new(),
        removed: vec![format!("key {id}")],
    }
}
