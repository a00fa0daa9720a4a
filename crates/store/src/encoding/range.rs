//! Ranges of keys.

use std::ops::ControlFlow;

use crate::encoding::tuple::{Key, successor};
use crate::error::Error;

/// Visitor of rows; returns whether to continue.
pub(crate) type RowVisitor<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error> + 'a;

/// Keys from `start` to before `end`; `None` is the end of the table.
#[derive(Debug, Clone)]
pub(crate) struct KeyRange {
    pub(crate) start: Key,
    pub(crate) end: Option<Key>,
}

impl KeyRange {
    /// Returns the range of the whole table.
    pub(crate) fn all() -> Self {
        Self {
            start: Key::new(),
            end: None,
        }
    }

    /// Returns the range of the keys that start with `prefix`.
    pub(crate) fn of_prefix(prefix: Key) -> Self {
        let end = successor(&prefix);
        Self { start: prefix, end }
    }

    /// Returns the part of the range after `key`.
    pub(crate) fn after(mut self, key: &[u8]) -> Self {
        let next = successor_key(key);
        // A cursor before the range must not extend it.
        if next > self.start {
            self.start = next;
        }
        self
    }

    /// Returns whether a key is in the range.
    pub(crate) fn contains(&self, key: &Key) -> bool {
        self.start <= *key && self.end.as_ref().is_none_or(|end| key < end)
    }

    /// Returns whether no key can be in the range.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// Returns the smallest key greater than `key`.
pub(crate) fn successor_key(key: &[u8]) -> Key {
    let mut next = Key::from_slice(key);
    next.push(0);
    next
}
