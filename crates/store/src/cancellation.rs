//! Cancellation of the reads of a request.
//!
//! A request that has timed out, or whose client has gone, must not go on reading: its scan
//! competes with the commits.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Cancellation of the readers that [`Reader::with_cancellation`](crate::Reader::with_cancellation)
/// returns.
#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

impl Cancellation {
    /// Cancels the reads: scans return [`crate::Error::Cancelled`] at the next group of rows.
    pub fn cancel(&self) {
        // No other data depends on the flag. A reader that sees it late copies one more group.
        self.0.store(true, Ordering::Relaxed);
    }

    /// Returns whether the reads are cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns a guard that cancels the reads when it is dropped: the request has ended, timed out,
    /// or lost its client.
    #[must_use]
    pub fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

/// Guard of a request.
#[derive(Debug)]
pub struct CancelOnDrop(Cancellation);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use orlog_model::{Change, Commit, Status};

    use super::*;
    use crate::encoding::range::KeyRange;
    use crate::samples::{at, instance, key, small};
    use crate::table::Table;
    use crate::{Error, FeedEntityKind, FeedQuery};

    #[test]
    fn cancelled_scan_ends_after_a_group_of_rows() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let instance = |number| {
            let empty = Commit::empty(key("acme", &format!("o-{number}")), at(1));
            Change::Apply(Box::new(Commit {
                instance: Some(Arc::new(instance(1, Status::Running))),
                ..empty
            }))
        };
        writer
            .commit(&(0..2000).map(instance).collect::<Vec<_>>(), at(1))
            .unwrap();
        let (cancellation, read) = (Cancellation::default(), std::cell::Cell::new(0));
        let request = std::cell::Cell::new(Some(cancellation.on_drop()));
        let sweep = |reader: &crate::Reader| {
            read.set(0);
            reader.scan(Table::Instance, &KeyRange::all(), |_, _| {
                read.set(read.get() + 1);
                drop(request.take());
                Ok(ControlFlow::Continue(()))
            })
        };
        let swept = sweep(&reader.with_cancellation(&cancellation));
        assert!(matches!(swept, Err(Error::Cancelled)));
        assert!((1..1000).contains(&read.get()), "{} rows", read.get());

        let all = FeedQuery {
            tenant: None,
            kinds: vec![FeedEntityKind::Instances],
            limit: 2000,
            bytes: usize::MAX,
        };
        let exported = reader
            .with_cancellation(&cancellation)
            .feed_scan(&all, None);
        assert!(matches!(exported, Err(Error::Cancelled)));

        sweep(&reader).expect("the flag belongs to the request that has ended");
        assert_eq!(read.get(), 2000);
    }
}
