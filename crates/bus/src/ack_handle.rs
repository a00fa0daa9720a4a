//! State that a consumer and its ackers share: the in-flight messages and the published ack floor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::Acker;
use crate::checkpoint::AckPosition;
use crate::in_flight::{AckUpdate, InFlight};

/// Shared handle that acknowledges the messages of a consumer.
pub(crate) struct AckHandle {
    flight: Mutex<InFlight>,
    floor: Arc<AtomicU64>,
    /// Called after the ack floor moves.
    moved: Box<dyn Fn() + Send + Sync>,
    wake: Notify,
}

impl AckHandle {
    /// Creates a handle with nothing in flight after the ack floor and a limit of `max` in-flight messages.
    pub(crate) fn new(
        ack_floor: Arc<AtomicU64>,
        max: usize,
        moved: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let flight = Mutex::new(InFlight::new(ack_floor.load(Ordering::Relaxed), max));
        Self { flight, floor: ack_floor, moved: Box::new(moved), wake: Notify::new() }
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.flight.lock().expect("no thread panics while it holds this lock")
    }

    /// Publishes the ack floor to other readers.
    pub(crate) fn publish_ack_floor(&self, flight: &InFlight) {
        let ack_floor = flight.ack_floor();
        if self.floor.swap(ack_floor, Ordering::Relaxed) != ack_floor {
            (self.moved)();
        }
    }

    /// Completes when an acknowledgement lets the consumer continue.
    pub(crate) fn ready(&self) -> Notified<'_> {
        self.wake.notified()
    }

    fn update(&self, change: impl FnOnce(&mut InFlight) -> AckUpdate) {
        let changed = {
            let mut flight = self.in_flight();
            let changed = change(&mut flight);
            if changed.floor {
                self.publish_ack_floor(&flight);
            }
            changed
        };
        if changed.wake {
            self.wake.notify_one();
        }
    }
}

impl std::fmt::Debug for AckHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AckHandle").field("ack_floor", &self.floor).finish_non_exhaustive()
    }
}

impl Acker for AckHandle {
    fn ack(&self, sequence: u64) {
        self.update(|flight| flight.ack(sequence));
    }

    fn nak(&self, sequence: u64) {
        self.update(|flight| flight.nak(sequence));
    }

    fn ack_floor(&self) -> u64 {
        self.floor.load(Ordering::Relaxed)
    }

    fn ack_position(&self) -> AckPosition {
        self.in_flight().ack_position()
    }
}
