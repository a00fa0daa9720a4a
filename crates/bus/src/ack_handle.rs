//! What a consumer and its ackers share: the messages in flight, and the floor that others look at.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::Acker;
use crate::checkpoint::Mark;
use crate::in_flight::{Changed, Flight};

/// The handle to answer with.
pub(crate) struct Answers {
    flight: Mutex<Flight>,
    floor: Arc<AtomicU64>,
    /// Called when the floor has moved.
    moved: Box<dyn Fn() + Send + Sync>,
    wake: Notify,
}

impl Answers {
    /// Nothing in flight after the floor; at most `max` at a time.
    pub(crate) fn new(floor: Arc<AtomicU64>, max: usize, moved: impl Fn() + Send + Sync + 'static) -> Self {
        let flight = Mutex::new(Flight::new(floor.load(Ordering::Relaxed), max));
        Self { flight, floor, moved: Box::new(moved), wake: Notify::new() }
    }

    pub(crate) fn flight(&self) -> MutexGuard<'_, Flight> {
        self.flight.lock().expect("no holder of this lock panics")
    }

    /// Shows the floor to whoever looks.
    pub(crate) fn publish_floor(&self, flight: &Flight) {
        let floor = flight.floor();
        if self.floor.swap(floor, Ordering::Relaxed) != floor {
            (self.moved)();
        }
    }

    /// Completes when an answer lets the consumer go on.
    pub(crate) fn woken(&self) -> Notified<'_> {
        self.wake.notified()
    }

    fn answer(&self, change: impl FnOnce(&mut Flight) -> Changed) {
        let changed = {
            let mut flight = self.flight();
            let changed = change(&mut flight);
            if changed.floor {
                self.publish_floor(&flight);
            }
            changed
        };
        if changed.wake {
            self.wake.notify_one();
        }
    }
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Answers").field("floor", &self.floor).finish_non_exhaustive()
    }
}

impl Acker for Answers {
    fn ack(&self, sequence: u64) {
        self.answer(|flight| flight.ack(sequence));
    }

    fn nak(&self, sequence: u64) {
        self.answer(|flight| flight.nak(sequence));
    }

    fn floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    fn mark(&self) -> Mark {
        self.flight().mark()
    }
}
