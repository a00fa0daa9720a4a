//! A rest: while a store is closed, or its process sleeps, no time passes for what it remembers.
//!
//! Marks of applied events lie in buckets as long as the window; the two newest ones hold whatever is younger than a window. After a
//! longer rest those two are empty, and yet what was applied just before it is delivered again just after it, because checkpoints lag
//! behind. So the two newest buckets from before a rest count too, until the store has been awake for a window. A store that is closed
//! sooner loses nothing: at the next opening these are still among the newest that it finds, unless events were applied in two later ones.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use orlog_model::Timestamp;

use crate::error::Error;
use crate::lock::lock;

/// How many buckets from before a rest count: as many as without one.
const KEPT: usize = 2;
/// A store that is awake is asked for the time more often than this. With a window shorter than that, only a longer silence is a rest.
const SILENCE: Duration = Duration::from_mins(10);

/// What a store knows of its last rest.
#[derive(Debug)]
pub(crate) struct Rest {
    /// The newest bucket of which it is known that none from before a rest counts any more. All that most calls look at.
    settled: AtomicI64,
    /// `None` before the first look at the time.
    waking: Mutex<Option<Waking>>,
}

#[derive(Debug)]
struct Waking {
    /// When it woke up.
    since: Timestamp,
    /// When it was seen awake last, and the bucket of that. Within a bucket once is enough.
    seen: (Timestamp, i64),
    /// The buckets from before that count, the older first.
    kept: Vec<i64>,
}

impl Default for Rest {
    fn default() -> Self {
        Self { settled: AtomicI64::new(i64::MIN), waking: Mutex::default() }
    }
}

impl Rest {
    /// The buckets older than the last two that count at `now`, which lies in `bucket`, the oldest first. `before` answers all that
    /// there are before a bucket, in order.
    pub(crate) fn kept(
        &self,
        (now, bucket): (Timestamp, i64),
        window: Duration,
        before: impl FnOnce(i64) -> Result<Vec<i64>, Error>,
    ) -> Result<Vec<i64>, Error> {
        if self.settled.load(Ordering::Relaxed) >= bucket {
            return Ok(Vec::new());
        }
        let mut waking = lock(&self.waking);
        let waking = match &mut *waking {
            Some(waking) if !waking.slept_until(now, bucket) => waking,
            asleep => {
                let mut kept = before(bucket.saturating_sub(1))?;
                kept.drain(..kept.len().saturating_sub(KEPT));
                asleep.insert(Waking { since: now, seen: (now, bucket), kept })
            }
        };
        waking.seen = waking.seen.max((now, bucket));
        if waking.since.after(window) <= now {
            waking.kept.clear();
        }
        if waking.kept.is_empty() {
            self.settled.store(bucket, Ordering::Relaxed);
        }
        Ok(waking.kept.clone())
    }
}

impl Waking {
    fn slept_until(&self, now: Timestamp, bucket: i64) -> bool {
        let (seen, last) = self.seen;
        bucket > last.saturating_add(1) && seen.after(SILENCE) < now
    }
}
