//! Cancellation of the reads of a thread.
//!
//! A request that has timed out, or whose client has gone, must not go on reading: its scan competes with
//! the commits. The reads of a request run on one thread, so the flag belongs to the thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CURRENT: RefCell<Option<Arc<AtomicBool>>> = const { RefCell::new(None) };
}

/// Cancellation of the reads of a request.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Returns a guard that cancels the reads when it is dropped: the request has ended, timed out, or lost its
    /// client.
    #[must_use]
    pub fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }

    /// Runs `read` on this thread. After the cancellation, scans return [`crate::Error::Cancelled`] at the next group
    /// of rows.
    pub fn run<T>(self, read: impl FnOnce() -> T) -> T {
        let _restored = Restored(CURRENT.replace(Some(self.0)));
        read()
    }
}

/// Guard of a request.
#[derive(Debug)]
pub struct CancelOnDrop(Cancellation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.0.store(true, Ordering::Relaxed);
    }
}

/// Returns whether the reads of this thread are cancelled.
#[must_use]
pub fn is_cancelled() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed)))
}

/// Restores the previous flag of the thread, also after a panic.
struct Restored(Option<Arc<AtomicBool>>);

impl Drop for Restored {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, Commit, Status};

    use super::*;
    use crate::Error;
    use crate::read::sweep::SweepCursor;
    use crate::samples::{at, instance, key, small};

    #[test]
    fn cancelled_scan_ends_after_a_group_of_rows() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let instance = |number| {
            let empty = Commit::empty(key("acme", &format!("o-{number}")), at(1));
            Change::Apply(Box::new(Commit { instance: Some(instance(1, Status::Running)), ..empty }))
        };
        writer.commit(&(0..2000).map(instance).collect::<Vec<_>>(), at(1)).unwrap();
        let (cancellation, read) = (Cancellation::default(), std::cell::Cell::new(0));
        let request = std::cell::Cell::new(Some(cancellation.on_drop()));
        let sweep = || {
            read.set(0);
            reader.sweep_instances(&SweepCursor::default(), (9999, 9999), |_, _| {
                read.set(read.get() + 1);
                drop(request.take());
                false
            })
        };
        let swept = cancellation.run(sweep);
        assert!(matches!(swept, Err(Error::Cancelled)));
        assert!((1..1000).contains(&read.get()), "{} rows", read.get());
        sweep().expect("the flag belongs to the request that has ended");
        assert_eq!(read.get(), 2000);
    }
}
