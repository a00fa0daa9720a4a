//! Durable names of a stream: the cursor of each name, and the exclusive right to consume under it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::Error;

/// Names by text; `T` is what a bus stores with each.
#[derive(Debug)]
pub(crate) struct DurableNames<T>(Mutex<BTreeMap<String, DurableName<T>>>);

#[derive(Debug)]
pub(crate) struct DurableName<T> {
    cursor: Arc<AtomicU64>,
    pub(crate) in_use: bool,
    pub(crate) details: T,
}

/// Exclusive right to consume under a name; dropping it releases the name.
#[derive(Debug)]
pub(crate) struct NameGuard<T> {
    names: Arc<DurableNames<T>>,
    name: String,
    /// Position of the cursor. The cursor moves with it.
    pub(crate) cursor: Arc<AtomicU64>,
}

impl<T> DurableName<T> {
    /// Creates a name that no consumer uses.
    pub(crate) fn new(cursor: u64, details: T) -> Self {
        Self {
            cursor: Arc::new(AtomicU64::new(cursor)),
            in_use: false,
            details,
        }
    }

    pub(crate) fn cursor(&self) -> u64 {
        self.cursor.load(Ordering::Relaxed)
    }
}

impl<T> DurableNames<T> {
    pub(crate) fn new(names: BTreeMap<String, DurableName<T>>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(names)))
    }

    /// Returns the cursor of a name; 0 if it does not exist.
    pub(crate) fn cursor(&self, name: &str) -> u64 {
        self.names().get(name).map_or(0, DurableName::cursor)
    }

    /// Acquires a name, or creates it with the details of `make`, and sets its cursor to `after` if
    /// that is given.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        name: &str,
        after: Option<u64>,
        make: impl FnOnce() -> Result<T, Error>,
    ) -> Result<NameGuard<T>, Error> {
        // The lock is held while `make` creates a file: of two first uses at the same time, only
        // one creates the name.
        let mut names = self.names();
        if !names.contains_key(name) {
            names.insert(name.to_owned(), DurableName::new(0, make()?));
        }

        let entry = names
            .get_mut(name)
            .expect("the entry was created if it did not exist");
        if entry.in_use {
            return Err(Error::InUse(name.to_owned()));
        }

        entry.in_use = true;
        // A separate counter, so that late acknowledgements of an earlier consumer have no effect.
        entry.cursor = Arc::new(AtomicU64::new(after.unwrap_or(entry.cursor())));
        Ok(NameGuard {
            names: Arc::clone(self),
            name: name.to_owned(),
            cursor: Arc::clone(&entry.cursor),
        })
    }

    pub(crate) fn names(&self) -> MutexGuard<'_, BTreeMap<String, DurableName<T>>> {
        self.0.lock()
    }
}

impl<T> Drop for NameGuard<T> {
    fn drop(&mut self) {
        if let Some(name) = self.names.names().get_mut(&self.name) {
            name.in_use = false;
        }
    }
}
