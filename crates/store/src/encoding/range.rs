//! Ranges of keys.

use std::ops::ControlFlow;

use crate::encoding::tuple::successor;
use crate::error::Error;

/// Shown a row, says whether to go on.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], &[u8]) -> Result<ControlFlow<()>, Error> + 'a;

/// The keys from `start` to just before `end`; `None` is the end of the table.
#[derive(Debug, Clone)]
pub(crate) struct Range {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
}

impl Range {
    /// The whole table.
    pub(crate) fn all() -> Self {
        Self { start: Vec::new(), end: None }
    }

    /// The keys that begin with `prefix`.
    pub(crate) fn of_prefix(prefix: Vec<u8>) -> Self {
        let end = successor(&prefix);
        Self { start: prefix, end }
    }

    /// What of it lies behind `key`.
    pub(crate) fn after(mut self, key: &[u8]) -> Self {
        let next = just_after(key);
        if next > self.start {
            self.start = next;
        }
        self
    }

    /// Whether no key can lie in it.
    pub(crate) fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

/// The smallest key greater than `key`.
pub(crate) fn just_after(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}
