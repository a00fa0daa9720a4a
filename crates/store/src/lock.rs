//! Locks that ignore poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

use orlog_model::count::{Operation, count};

/// Acquires a lock. A thread that panicked with it left no partial change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    count(Operation::Lock);
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
