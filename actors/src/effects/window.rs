//! Window of a tenant at an upstream: limits the work items that are dispatched and not completed. The
//! window sends messages to the relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use compact_str::CompactString;
use orlog_effect::{Dispatcher, ExecutionProgress, StopToken};
use orlog_model::{OutboxKey, TenantId};
use ractor::ActorRef;

use crate::shard::epoch::ShardEpoch;
use crate::telemetry::metrics::MailboxGuard;

/// Maximum ratio of items that wait for their next attempt to the size of the window.
const WAITING_RATIO: usize = 4;

/// Messages of the relay.
pub(crate) enum RelayMessage {
    /// Commits added work items.
    Wake(MailboxGuard),
    /// A window at its limit has capacity again.
    Capacity(Arc<Window>),
    /// A dispatched item was returned unfinished, with its execution progress.
    Returned(OutboxKey, ExecutionProgress, MailboxGuard),
    /// The delay of returned items is over.
    DispatchReturned,
    /// The task that waits for new items ended.
    Ended(String),
}

/// Tenant, and name of the upstream; the name is empty for work that no upstream executes.
pub(crate) type WindowKey = (TenantId, CompactString);

/// Counts of a window. Items that wait for their next attempt are counted separately.
pub(crate) struct Window {
    pub(crate) key: WindowKey,
    in_flight: AtomicUsize,
    waiting: AtomicUsize,
    /// The relay stopped at the limit and requires a message when capacity is available.
    starved: AtomicBool,
}

impl Window {
    /// Creates an empty window.
    pub(crate) fn new(key: WindowKey) -> Arc<Self> {
        Arc::new(Self {
            key,
            in_flight: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            starved: AtomicBool::new(false),
        })
    }

    /// Returns the number of items that can be dispatched. If there are none, the relay receives
    /// [`RelayMessage::Capacity`] when this changes.
    pub(crate) fn capacity(&self, size: usize) -> usize {
        let free = self.free(size);
        if free > 0 {
            return free;
        }
        self.starved.store(true, Ordering::SeqCst);
        // Capacity that became free between the check and the flag would cause no message.
        let free = self.free(size);
        if free > 0 && self.starved.swap(false, Ordering::SeqCst) { free } else { 0 }
    }

    fn free(&self, size: usize) -> usize {
        if self.waiting.load(Ordering::SeqCst) >= size.saturating_mul(WAITING_RATIO) {
            return 0;
        }
        size.saturating_sub(self.in_flight.load(Ordering::SeqCst))
    }
}

/// Place of a dispatched item in its window; dropping it leaves the window.
pub(crate) struct WindowPlace {
    window: Arc<Window>,
    relay: ActorRef<RelayMessage>,
    epoch: Arc<ShardEpoch>,
    is_waiting: AtomicBool,
}

impl WindowPlace {
    /// Enters the window, even if it is full.
    pub(crate) fn enter(window: Arc<Window>, relay: ActorRef<RelayMessage>, epoch: &Arc<ShardEpoch>) -> Self {
        window.in_flight.fetch_add(1, Ordering::SeqCst);
        epoch.item_dispatched();
        Self { window, relay, epoch: Arc::clone(epoch), is_waiting: AtomicBool::new(false) }
    }

    /// Returns the epoch in which the item was dispatched.
    pub(crate) fn epoch(&self) -> &Arc<ShardEpoch> {
        &self.epoch
    }

    fn leave(&self, count: &AtomicUsize) {
        count.fetch_sub(1, Ordering::SeqCst);
        if self.window.starved.swap(false, Ordering::SeqCst) {
            self.send(RelayMessage::Capacity(Arc::clone(&self.window)));
        }
    }

    /// Sends a message to the relay.
    pub(crate) fn send(&self, message: RelayMessage) {
        // An error means that the relay is gone; the next one reads the outbox from the start.
        drop(self.relay.cast(message));
    }
}

impl Dispatcher for WindowPlace {
    fn wait_started(&self) {
        self.window.waiting.fetch_add(1, Ordering::SeqCst);
        self.is_waiting.store(true, Ordering::SeqCst);
        self.leave(&self.window.in_flight);
    }

    fn wait_ended(&self) {
        self.window.in_flight.fetch_add(1, Ordering::SeqCst);
        self.is_waiting.store(false, Ordering::SeqCst);
        self.leave(&self.window.waiting);
    }

    fn stop_token(&self) -> Option<&StopToken> {
        Some(self.epoch.ended())
    }
}

impl Drop for WindowPlace {
    fn drop(&mut self) {
        let is_waiting = *self.is_waiting.get_mut();
        self.epoch.item_dropped();
        self.leave(if is_waiting { &self.window.waiting } else { &self.window.in_flight });
    }
}
