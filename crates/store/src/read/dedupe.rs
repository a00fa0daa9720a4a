//! Which events were applied, and for how long that is known.

use std::ops::ControlFlow;
use std::time::Duration;

use orlog_model::{EventId, InstanceKey, Timestamp};

use crate::encoding::keys;
use crate::error::Error;
use crate::merged::Tables;
use crate::read::reader::Reader;
use crate::table::Table;

impl Reader {
    /// Whether the instance has taken this event within the last window, seen from `now`. Time in which the store was closed, or the
    /// process slept, does not count.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn applied(&self, key: &InstanceKey, id: &EventId, now: Timestamp) -> Result<bool, Error> {
        self.shared.read(|tables| {
            let (now, bucket) = self.at(tables, now);
            let in_bucket = |bucket| {
                let row = self.keys().applied(bucket, key, id);
                Ok::<_, Error>(tables.get(Table::Applied, &row, |_| ())?.is_some())
            };
            if in_bucket(bucket)? || in_bucket(bucket.saturating_sub(1))? {
                return Ok(true);
            }
            for bucket in self.kept(tables, (now, bucket))? {
                if in_bucket(bucket)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Since when at least it is known what was applied, and must be: a window before `now`; after a rest, a window before that, until
    /// the store has been awake for a window. What was applied earlier may be forgotten.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn remembered_since(&self, now: Timestamp) -> Result<Timestamp, Error> {
        self.shared.read(|tables| {
            let kept = self.kept(tables, self.at(tables, now))?;
            let since = now.before(self.dedupe_window());
            Ok(kept.first().map_or(since, |bucket| since.min(self.keys().begin_of(*bucket))))
        })
    }

    /// For how long at least an applied event is remembered.
    #[must_use]
    pub fn dedupe_window(&self) -> Duration {
        self.keys().window()
    }

    /// Whether `Change::PurgeApplied` with the same time would still forget anything.
    ///
    /// # Errors
    /// See [`Reader`].
    pub fn is_purge_due(&self, before: Timestamp) -> Result<bool, Error> {
        Ok(self.first(Table::Applied, &self.keys().applied_before(before), |_, _| Ok(()))?.is_some())
    }

    /// The present, and its bucket. A clock that was set back must not hide what was applied.
    fn at(&self, tables: &Tables, now: Timestamp) -> (Timestamp, i64) {
        let now = now.max(tables.heads().latest);
        (now, self.keys().bucket(now))
    }

    fn kept(&self, tables: &Tables, at: (Timestamp, i64)) -> Result<Vec<i64>, Error> {
        self.shared.rest.kept(at, self.dedupe_window(), |bucket| buckets_before(tables, bucket))
    }
}

/// The buckets before this one that hold anything: one look each.
fn buckets_before(tables: &Tables, bucket: i64) -> Result<Vec<i64>, Error> {
    let (mut found, mut from, end) = (Vec::new(), Vec::new(), keys::applied_from(bucket));
    loop {
        let mut next = None;
        tables.scan(Table::Applied, &from, Some(&end), &mut |key, _| {
            next = Some(keys::read_bucket(key)?);
            Ok(ControlFlow::Break(()))
        })?;
        let Some(bucket) = next else { return Ok(found) };
        found.push(bucket);
        from = keys::applied_from(bucket.saturating_add(1));
    }
}
