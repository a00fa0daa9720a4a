//! Control of the scans of a reader.

use std::fmt::Debug;

use crate::Error;

/// Control of scans, which [`Reader::with_control`](crate::Reader::with_control) sets: a scan
/// competes with the commits, so it can be ended, or let others read first.
pub trait ScanControl: Debug + Send + Sync {
    /// Runs before each group of rows, on the thread of the scan. The scan holds neither a lock nor
    /// a read transaction, so this may wait.
    ///
    /// # Errors
    /// The error ends the scan: [`Error::Cancelled`] if its rows are not needed any more.
    fn before_group(&self) -> Result<(), Error>;
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use orlog_model::{Change, Commit, Status};

    use super::*;
    use crate::encoding::range::KeyRange;
    use crate::samples::{GroupLimit, at, instance, key, small};
    use crate::table::Table;

    const INSTANCES: usize = 2000;

    #[test]
    fn control_ends_a_scan_before_a_group_of_rows() {
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
            .commit(&(0..INSTANCES).map(instance).collect::<Vec<_>>(), at(1))
            .unwrap();

        let count_rows = |reader: &crate::Reader| {
            let mut rows = 0;
            let scanned = reader.scan(Table::Instance, &KeyRange::all(), |_, _| {
                rows += 1;
                Ok(ControlFlow::Continue(()))
            });
            (rows, scanned)
        };
        let controlled = reader.with_control(GroupLimit::new(2));

        let (rows, scanned) = count_rows(&controlled);
        assert!(matches!(scanned, Err(Error::Cancelled)));
        assert!((2..INSTANCES).contains(&rows), "{rows} rows");

        let (rows, scanned) = count_rows(&reader);
        scanned.expect("the control belongs to the other reader");
        assert_eq!(rows, INSTANCES);
    }
}
