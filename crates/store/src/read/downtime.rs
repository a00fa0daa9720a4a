//! Downtime: time in which a store is closed, or its process is suspended, does not expire dedupe
//! keys.
//!
//! Dedupe keys are in buckets as long as the window; the two newest buckets contain all keys
//! younger than a window. After a longer downtime those two are empty, but events applied just
//! before it are redelivered just after it, because checkpoints lag. Therefore the two newest
//! buckets from before a downtime are also valid until the store has been open for a window. If the
//! store is closed sooner, no key is lost: at the next opening these buckets are still among the
//! newest, unless events were applied in two later ones.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use orlog_model::Timestamp;
use parking_lot::Mutex;

use crate::error::Error;
use crate::lock::lock;

/// Number of valid buckets from before a downtime: the same as without one.
const RETAINED_BUCKETS: usize = 2;
/// Minimum gap that counts as downtime. An open store reads the clock more often than this. If the
/// window is shorter, only a longer gap is a downtime.
const DOWNTIME_THRESHOLD: Duration = Duration::from_mins(10);

/// Tracker of the last downtime of a store.
#[derive(Debug)]
pub(crate) struct DowntimeTracker {
    /// Newest bucket for which no bucket from before a downtime is valid. Most calls read only this
    /// field.
    clear_bucket: AtomicI64,
    /// Current awake period; `None` before the first read of the clock.
    waking: Mutex<Option<AwakePeriod>>,
}

/// Time, and the dedupe bucket that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct DedupeTime {
    pub(crate) at: Timestamp,
    pub(crate) bucket: i64,
}

#[derive(Debug)]
struct AwakePeriod {
    /// Start of the period.
    since: Timestamp,
    /// Last time at which the store was awake. One update for each bucket is sufficient.
    seen: DedupeTime,
    /// Valid buckets from before the downtime, the older one first.
    retained: Vec<i64>,
}

impl Default for DowntimeTracker {
    fn default() -> Self {
        Self {
            clear_bucket: AtomicI64::new(i64::MIN),
            waking: Mutex::default(),
        }
    }
}

impl DowntimeTracker {
    /// Returns the buckets, in addition to the last two, that are valid at `now`; oldest first.
    /// `before` returns all existing buckets before a bucket, in order.
    pub(crate) fn retained_buckets(
        &self,
        now: DedupeTime,
        window: Duration,
        before: impl FnOnce(i64) -> Result<Vec<i64>, Error>,
    ) -> Result<Vec<i64>, Error> {
        if self.clear_bucket.load(Ordering::Relaxed) >= now.bucket {
            return Ok(Vec::new());
        }

        let mut waking = lock(&self.waking);
        let waking = match &mut *waking {
            Some(waking) if !waking.slept_until(now) => waking,
            asleep => {
                // The two newest buckets are always valid, so only earlier ones are retained in
                // addition.
                let mut retained = before(now.bucket.saturating_sub(1))?;
                retained.drain(..retained.len().saturating_sub(RETAINED_BUCKETS));
                asleep.insert(AwakePeriod {
                    since: now.at,
                    seen: now,
                    retained,
                })
            }
        };

        waking.seen = waking.seen.max(now);
        // After a window, the newest buckets contain all keys that are younger than a window.
        if waking.since.saturating_add(window) <= now.at {
            waking.retained.clear();
        }
        if waking.retained.is_empty() {
            self.clear_bucket.store(now.bucket, Ordering::Relaxed);
        }

        Ok(waking.retained.clone())
    }
}

impl AwakePeriod {
    fn slept_until(&self, now: DedupeTime) -> bool {
        // With a short window, an open store can skip buckets between two reads of the clock. A gap
        // within two buckets hides no key.
        now.bucket > self.seen.bucket.saturating_add(1)
            && self.seen.at.saturating_add(DOWNTIME_THRESHOLD) < now.at
    }
}
