//! Locks that are counted.

use orlog_model::count::{Operation, count};
use parking_lot::{Mutex, MutexGuard};

/// Acquires a lock, and counts it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    count(Operation::Lock);
    mutex.lock()
}
