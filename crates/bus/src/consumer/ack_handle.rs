//! State that a consumer and its ackers share: the in-flight messages and the published ack floor.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use super::in_flight::{AckUpdate, InFlight};
use crate::checkpoint::AckPosition;
use crate::{Acker, MaxInFlight};

/// Shared handle that acknowledges the messages of a consumer.
pub(crate) struct AckHandle {
    flight: Mutex<InFlight>,
    floor: AtomicU64,
    /// Cursor of the durable name.
    cursor: Arc<AtomicU64>,
    /// Whether the cursor follows the checkpoint of the consumer, not the ack floor.
    has_checkpoint: bool,
    /// Called after the cursor moves.
    moved: Box<dyn Fn() + Send + Sync>,
    wake: Notify,
}

impl AckHandle {
    /// Creates a handle with nothing in flight after the cursor and these limits of in-flight
    /// messages.
    pub(crate) fn new(
        cursor: Arc<AtomicU64>,
        max: MaxInFlight,
        has_checkpoint: bool,
        moved: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        let start = cursor.load(Ordering::Relaxed);
        Self {
            flight: Mutex::new(InFlight::new(start, max)),
            floor: AtomicU64::new(start),
            cursor,
            has_checkpoint,
            moved: Box::new(moved),
            wake: Notify::new(),
        }
    }

    pub(crate) fn in_flight(&self) -> MutexGuard<'_, InFlight> {
        self.flight.lock()
    }

    /// Publishes the ack floor, and moves the cursor if it follows the floor.
    pub(crate) fn publish_ack_floor(&self, flight: &InFlight) {
        let ack_floor = flight.ack_floor();
        self.floor.store(ack_floor, Ordering::Relaxed);
        // A cursor ahead of the checkpoint proves that the store lost commits. A consumer with a
        // checkpoint therefore moves its cursor itself, after each durable commit.
        if !self.has_checkpoint {
            self.move_cursor(ack_floor);
        }
    }

    fn move_cursor(&self, sequence: u64) {
        // The embedded bus writes the cursors after each notification, so only a real move
        // notifies.
        if self.cursor.swap(sequence, Ordering::Relaxed) != sequence {
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
            // Most acknowledgements complete a message behind an open one, and the floor stays.
            if changed.floor {
                self.publish_ack_floor(&flight);
            }
            changed
        };
        // Without the lock: the consumer takes it at once.
        if changed.wake {
            self.wake.notify_one();
        }
    }
}

impl std::fmt::Debug for AckHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AckHandle")
            .field("ack_floor", &self.floor)
            .finish_non_exhaustive()
    }
}

impl Acker for AckHandle {
    fn ack(&self, sequence: u64) {
        self.update(|flight| flight.ack(sequence));
    }

    fn ack_all(&self, sequences: &[u64]) {
        self.update(|flight| flight.ack_all(sequences));
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
    fn ack_position_with(&self, sequences: &[u64]) -> AckPosition {
        self.in_flight().ack_position_with(sequences)
    }

    fn set_cursor(&self, sequence: u64) {
        // Without a checkpoint the cursor has already followed the ack floor.
        if self.has_checkpoint {
            self.move_cursor(sequence);
        }
    }
}
