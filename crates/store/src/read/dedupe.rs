//! Dedupe keys: applied events, and how long they are stored.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orlog_model::{DedupeKey, InstanceKey, Timestamp};

use crate::encoding::keys;
use crate::encoding::tuple::Key;
use crate::error::Error;
use crate::merged::MergedTables;
use crate::read::downtime::DedupeTime;
use crate::read::reader::Reader;
use crate::table::Table;

#[expect(
    clippy::missing_errors_doc,
    reason = "`Reader` documents the errors of its methods"
)]
impl Reader {
    /// Returns whether the instance has applied this event within the last window before `now`.
    /// Downtime of the store or suspension of the process does not count.
    pub fn is_duplicate(
        &self,
        key: &InstanceKey,
        id: DedupeKey,
        now: Timestamp,
    ) -> Result<bool, Error> {
        self.shared.read(|tables| {
            let now = self.dedupe_time(tables, now);
            let row = self.keys().instance(key);
            // A damaged row counts too, because its key is the data.
            let in_bucket =
                |bucket| tables.contains(Table::Dedupe, &keys::dedupe(bucket, &row, id));

            // The two newest buckets contain all keys that are younger than a window.
            if in_bucket(now.bucket)? || in_bucket(now.bucket.saturating_sub(1))? {
                return Ok(true);
            }

            // Downtime expires no key.
            for bucket in self.retained_buckets(tables, now)? {
                if in_bucket(bucket)? {
                    return Ok(true);
                }
            }
            Ok(false)
        })
    }

    /// Returns the buckets of the keys that were stored within the last window before `now`, as
    /// [`Self::is_duplicate`] counts it.
    pub(crate) fn dedupe_buckets(&self, now: Timestamp) -> Result<Vec<i64>, Error> {
        self.shared.read(|tables| {
            let now = self.dedupe_time(tables, now);
            let mut buckets = vec![now.bucket, now.bucket.saturating_sub(1)];
            buckets.extend(self.retained_buckets(tables, now)?);
            Ok(buckets)
        })
    }

    /// Returns the time since which dedupe keys are complete: one window before `now`. After a
    /// downtime, it is one window before the downtime, until the store has been open for a window.
    /// Older keys may be deleted.
    pub fn dedupe_horizon(&self, now: Timestamp) -> Result<Timestamp, Error> {
        self.shared.read(|tables| {
            let retained_buckets = self.retained_buckets(tables, self.dedupe_time(tables, now))?;
            let since = now.saturating_sub(self.dedupe_window());
            Ok(retained_buckets
                .first()
                .map_or(since, |bucket| since.min(self.keys().bucket_start(*bucket))))
        })
    }

    /// Returns the minimum time for which dedupe keys are stored.
    #[must_use]
    pub fn dedupe_window(&self) -> Duration {
        self.keys().window()
    }

    /// Counts the keys that a purge before this time would delete, for
    /// [`crate::Stats::dedupe_backlog`]. Reads all of them.
    pub fn count_expired_dedupe_keys(&self, before: Timestamp) -> Result<u64, Error> {
        let mut count = 0;
        self.scan(Table::Dedupe, &self.keys().dedupe_before(before), |_, _| {
            count += 1;
            Ok(ControlFlow::Continue(()))
        })?;
        self.shared.dedupe_backlog.store(count, Ordering::Relaxed);
        Ok(count)
    }

    /// Returns whether a `Change::PurgeDedupe` with this time is required: keys are expired, and no
    /// purge is in progress.
    pub fn is_dedupe_purge_due(&self, before: Timestamp) -> Result<bool, Error> {
        // The writer continues a purge with each commit until it is complete.
        if self.shared.is_purging() {
            return Ok(false);
        }

        Ok(self
            .first(Table::Dedupe, &self.keys().dedupe_before(before), |_, _| {
                Ok(())
            })?
            .is_some())
    }

    /// Returns the current time and its bucket. A clock that was set back must not hide applied
    /// events.
    fn dedupe_time(&self, tables: &MergedTables, now: Timestamp) -> DedupeTime {
        let at = now.max(tables.state().latest);
        DedupeTime {
            at,
            bucket: self.keys().bucket(at),
        }
    }

    fn retained_buckets(&self, tables: &MergedTables, now: DedupeTime) -> Result<Vec<i64>, Error> {
        self.shared
            .downtime
            .retained_buckets(now, self.dedupe_window(), |bucket| {
                buckets_before(tables, bucket)
            })
    }
}

/// Returns the nonempty buckets before this one, with one lookup each.
pub(crate) fn buckets_before(tables: &MergedTables, bucket: i64) -> Result<Vec<i64>, Error> {
    let end = keys::dedupe_bucket_start(bucket);
    let mut from = Key::new();
    let mut found = Vec::new();

    loop {
        let mut next = None;
        tables.scan(Table::Dedupe, &from, Some(&end), &mut |key, _| {
            next = Some(keys::read_bucket(key)?);
            Ok(ControlFlow::Break(()))
        })?;

        let Some(bucket) = next else { return Ok(found) };
        found.push(bucket);
        from = keys::dedupe_bucket_start(bucket.saturating_add(1));
    }
}
