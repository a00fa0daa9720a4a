//! Instances that require attention: a list that every commit maintains, so that no scan is
//! required.

use orlog_model::{InstanceKey, StatusSnapshot, Timestamp};
use serde::{Deserialize, Serialize};

use crate::encoding::keys;
use crate::encoding::range::KeyRange;
use crate::encoding::tuple::KeyReader;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// Status of an instance that requires an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// Status and `paused` flag.
    pub status: StatusSnapshot,
    /// Time since which the instance has this status.
    pub since: Timestamp,
}

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns the instances that require an operator, at most `limit`, in key order. Reads no
    /// other rows.
    pub fn attention(&self, limit: usize) -> Result<Vec<(InstanceKey, Attention)>, Error> {
        self.scan_rows(Table::Attention, &KeyRange::all(), limit, |key, value| {
            let (_, instance) = keys::read_instance(&mut KeyReader::of(key))?;
            Ok((instance, decode(Table::Attention, value)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use orlog_model::{Change, Commit, Instance, Status};

    use crate::samples::{at, instance, key, small};

    fn moved(before: Option<Arc<Instance>>, status: Status, paused: bool, millis: i64) -> Change {
        let mut snapshot = instance(1, status);
        snapshot.paused = paused;
        let empty = Commit::empty(key("acme", "a"), at(millis));
        Change::Apply(Box::new(Commit {
            instance: Some(Arc::new(snapshot)),
            before,
            ..empty
        }))
    }

    #[test]
    fn stuck_and_paused_instances_are_listed_until_they_continue() {
        let dir = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(dir.path(), small()).unwrap();
        let mut before = None;
        let mut check = |status, paused, millis, expected: Option<(Status, bool, i64)>| {
            writer
                .commit(&[moved(before.take(), status, paused, millis)], at(millis))
                .unwrap();
            before = reader.instance(&key("acme", "a")).unwrap().map(Arc::new);
            writer.flush().unwrap();
            let listed = reader.attention(9).unwrap();
            let listed: Vec<_> = listed
                .iter()
                .map(|(_, a)| (a.status.status, a.status.paused, a.since))
                .collect();
            let expected: Vec<_> = expected
                .into_iter()
                .map(|(s, p, millis)| (s, p, at(millis)))
                .collect();
            assert_eq!(listed, expected, "{status} {paused}");
        };
        check(Status::Running, false, 1, None);
        check(Status::Running, true, 2, Some((Status::Running, true, 2)));
        check(Status::Running, true, 3, Some((Status::Running, true, 2)));
        check(Status::Compensating, false, 4, None);
        check(Status::Stuck, false, 5, Some((Status::Stuck, false, 5)));
        check(Status::Stuck, true, 6, Some((Status::Stuck, true, 6)));
        check(Status::Failed, true, 7, None);
        check(Status::Failed, true, 8, None);
    }
}
