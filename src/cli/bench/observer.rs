//! Observer of commits: notifies clients when their saga ends, and measures timer delays.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use orlog_actors::CommitObserver;
use orlog_model::{Clock, Commit, Timestamp};
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Number of lists of waiting clients; reduces lock contention.
const LISTS: usize = 64;

/// Tracks ended sagas and timer delays.
pub(super) struct CompletionTracker {
    waiting: Vec<Mutex<HashMap<u64, oneshot::Sender<()>>>>,
    ended: AtomicU64,
    late: Mutex<Vec<Duration>>,
    clock: Arc<dyn Clock>,
}

impl CompletionTracker {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            waiting: (0..LISTS).map(|_| Mutex::default()).collect(),
            ended: AtomicU64::new(0),
            late: Mutex::default(),
            clock,
        })
    }

    /// Returns a receiver that resolves when the saga with this number has ended durably. Call it
    /// before the saga starts.
    pub(super) fn of(&self, number: u64) -> oneshot::Receiver<()> {
        let (sender, ended) = oneshot::channel();
        self.list(number).lock().insert(number, sender);
        ended
    }

    /// Returns the number of ended sagas.
    pub(super) fn count(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// Returns the delays between due time and durable commit of the fired timers.
    pub(super) fn take_late(&self) -> Vec<Duration> {
        std::mem::take(&mut self.late.lock())
    }

    fn list(&self, number: u64) -> &Mutex<HashMap<u64, oneshot::Sender<()>>> {
        // With one lock for all, the thread of the committer would wait for clients that register.
        let index = usize::try_from(number % LISTS as u64).expect("a remainder below 64 fits");
        &self.waiting[index]
    }
}

impl CommitObserver for CompletionTracker {
    fn on_commit(&self, commit: &Commit) {
        let Some(instance) = &commit.instance else {
            return;
        };

        let timer = commit
            .history
            .as_ref()
            .filter(|record| record.input_id.as_str().starts_with("timer:"));
        if let Some(record) = timer {
            let late = lateness(record.origin.delay_ms, commit.at, self.clock.now());
            self.late.lock().push(late);
        }

        // A saga that is compensated also ends with a final status, so that workload B counts.
        if !instance.status.is_final() {
            return;
        }

        self.ended.fetch_add(1, Ordering::AcqRel);
        // The number is the last part of the correlation id (`b-17`, `n-17`). Other instances have
        // no waiting client.
        let number = commit
            .key
            .correlation
            .as_str()
            .rsplit('-')
            .next()
            .and_then(|n| n.parse().ok());
        let sender = number.and_then(|n| self.list(n).lock().remove(&n));

        if let Some(sender) = sender {
            // An error means that the client no longer waits.
            sender.send(()).ok();
        }
    }
}

/// Returns the time from the due time of a timer to now, after its commit is durable. `delay_ms` is
/// the part before the decision.
fn lateness(delay_ms: Option<u64>, decided_at: Timestamp, now: Timestamp) -> Duration {
    let undecided = Duration::from_millis(delay_ms.unwrap_or_default());
    undecided + now.duration_since(decided_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timer_is_late_from_its_due_time_on() {
        let decided = Timestamp::parse("2026-11-26T12:00:00.004Z").unwrap();
        let durable = Timestamp::parse("2026-11-26T12:00:00.010Z").unwrap();
        let late = lateness(Some(4), decided, durable);
        assert_eq!(late, Duration::from_millis(10));
    }
}
