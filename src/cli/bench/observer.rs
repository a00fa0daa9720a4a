//! Hears of every commit: tells clients that their saga has ended, and how late timers were.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlog_actors::CommitObserver;
use orlog_model::{Clock, Commit};
use tokio::sync::oneshot;

/// Lists of waiting clients, so that they seldom meet.
const LISTS: usize = 64;

/// See the top of this file.
pub(super) struct Ends {
    waiting: Vec<Mutex<HashMap<u64, oneshot::Sender<()>>>>,
    ended: AtomicU64,
    late: Mutex<Vec<Duration>>,
    clock: Arc<dyn Clock>,
}

impl Ends {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            waiting: (0..LISTS).map(|_| Mutex::default()).collect(),
            ended: AtomicU64::new(0),
            late: Mutex::default(),
            clock,
        })
    }

    /// Resolves when the saga with this number has ended, durably. Call it before the saga begins.
    pub(super) fn of(&self, number: u64) -> oneshot::Receiver<()> {
        let (told, ended) = oneshot::channel();
        self.list(number).lock().unwrap_or_else(PoisonError::into_inner).insert(number, told);
        ended
    }

    /// How many have ended.
    pub(super) fn count(&self) -> u64 {
        self.ended.load(Ordering::Acquire)
    }

    /// How much later than due the consequences of timers were durable.
    pub(super) fn take_late(&self) -> Vec<Duration> {
        std::mem::take(&mut self.late.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn list(&self, number: u64) -> &Mutex<HashMap<u64, oneshot::Sender<()>>> {
        let index = usize::try_from(number % LISTS as u64).expect("a remainder below 64 fits");
        &self.waiting[index]
    }
}

impl CommitObserver for Ends {
    fn committed(&self, commit: &Commit) {
        let Some(instance) = &commit.instance else { return };
        if commit.history.as_ref().is_some_and(|record| record.input.as_str().starts_with("timer:")) {
            let late = self.clock.now().since(commit.at);
            self.late.lock().unwrap_or_else(PoisonError::into_inner).push(late);
        }
        if !instance.status.is_final() {
            return;
        }
        self.ended.fetch_add(1, Ordering::AcqRel);
        let number = commit.key.correlation.as_str().rsplit('-').next().and_then(|n| n.parse().ok());
        let told =
            number.and_then(|n| self.list(n).lock().unwrap_or_else(PoisonError::into_inner).remove(&n));
        if let Some(told) = told {
            // An error means that the client has given up.
            told.send(()).ok();
        }
    }
}
