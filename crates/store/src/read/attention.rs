//! Instances that do not go on by themselves: a list that every commit keeps, so that nobody need look for them.

use orlog_model::{InstanceKey, Standing, Timestamp};
use serde::{Deserialize, Serialize};

use crate::encoding::keys;
use crate::encoding::range::Range;
use crate::encoding::tuple::Fields;
use crate::encoding::value::decode;
use crate::error::Error;
use crate::read::reader::Reader;
use crate::table::Table;

/// How an instance stands that is stuck or paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attention {
    /// Its status, and whether it is paused.
    pub standing: Standing,
    /// Since when it stands so.
    pub since: Timestamp,
}

impl Reader {
    /// The instances that are stuck or paused, at most `limit`, in the order of their keys. Reads nothing else.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn attention(&self, limit: usize) -> Result<Vec<(InstanceKey, Attention)>, Error> {
        self.rows_of(Table::Attention, &Range::all(), limit, |key, value| {
            let (_, instance) = keys::read_instance(&mut Fields::of(key))?;
            Ok((instance, decode(Table::Attention, value)?))
        })
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::{Change, Commit, Status};

    use super::*;
    use crate::samples::{at, instance, key, small};

    fn moved(before: Option<Standing>, status: Status, paused: bool, millis: i64) -> Change {
        let mut snapshot = instance(1, status);
        snapshot.paused = paused;
        let empty = Commit::empty(key("acme", "a"), at(millis));
        Change::Apply(Box::new(Commit { instance: Some(snapshot), before, ..empty }))
    }

    #[test]
    fn who_is_stuck_or_paused_is_listed_from_then_until_it_goes_on() {
        let folder = tempfile::tempdir().unwrap();
        let (mut writer, reader) = crate::open(folder.path(), small()).unwrap();
        let mut before = None;
        let mut check = |status, paused, millis, expected: Option<(Status, bool, i64)>| {
            writer.commit(&[moved(before, status, paused, millis)], at(millis)).unwrap();
            before = Some(Standing { status, paused });
            writer.flush().unwrap();
            let listed = reader.attention(9).unwrap();
            let listed: Vec<_> =
                listed.iter().map(|(_, a)| (a.standing.status, a.standing.paused, a.since)).collect();
            let expected: Vec<_> = expected.into_iter().map(|(s, p, millis)| (s, p, at(millis))).collect();
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
