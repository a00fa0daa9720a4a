//! A dispatched work item, and its place in the window of its tenant and its priority at its
//! upstream.
//!
//! A dispatch ends by one call: [`WorkDispatch::complete`], [`WorkDispatch::dead_letter`],
//! [`WorkDispatch::return_to_relay`] or [`WorkDispatch::abandon`]. It then leaves the window, which
//! limits the items that are dispatched and not completed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use compact_str::CompactString;
use orlog_effect::{Dispatcher, ExecutionProgress, ExecutionResult, ResultReceipt, StopToken};
use orlog_model::count::{Operation, count};
use orlog_model::{
    Change, Clock, DeadLetter, Input, JobClaim, OutboxKey, TenantId, TraceParent, WorkItem,
    WorkResult,
};
use orlog_store::Reader;
use ractor::ActorRef;

use crate::instance::InstanceRegistry;
use crate::instance::completion::Completion;
use crate::instance::mailbox::Envelope;
use crate::shard::epoch::ShardEpoch;
use crate::shard::fresh_queue::{OutboxRow, StoredWork};
use crate::shard::submission::Submission;
use crate::telemetry::metrics::{ActorKind, GaugeGuard, Metrics};
use crate::telemetry::trace_context;
use crate::telemetry::tracer::{ExecutedBy, FinishedWork, Tracer};

/// Maximum ratio of items that wait for their next attempt to the size of the window.
const WAITING_RATIO: usize = 4;

/// Messages of the relay.
pub(crate) enum RelayMessage {
    /// Commits added work items.
    Wake(GaugeGuard),
    /// A window at its limit has capacity again.
    Capacity(Arc<Window>),
    /// A dispatched item was returned unfinished, with its execution progress.
    Returned(OutboxKey, ExecutionProgress, GaugeGuard),
    /// The delay of returned items is over.
    DispatchReturned,
    /// The task that waits for new items ended.
    Ended(Result<(), String>),
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
        if free > 0 && self.starved.swap(false, Ordering::SeqCst) {
            free
        } else {
            0
        }
    }

    /// Sets the number of items in flight.
    #[cfg(test)]
    pub(crate) fn fill(&self, in_flight: usize) {
        self.in_flight.store(in_flight, Ordering::SeqCst);
    }

    fn free(&self, size: usize) -> usize {
        // Waiting items keep no place, but each costs memory, so their number has a bound of its
        // own.
        if self.waiting.load(Ordering::SeqCst) >= size.saturating_mul(WAITING_RATIO) {
            return 0;
        }
        size.saturating_sub(self.in_flight.load(Ordering::SeqCst))
    }
}

/// The relay of one incarnation of a shard: dispatches work items and receives their results.
pub(crate) struct DispatchOrigin {
    pub(crate) relay: ActorRef<RelayMessage>,
    pub(crate) epoch: Arc<ShardEpoch>,
    pub(crate) registry: Arc<InstanceRegistry>,
    pub(crate) reader: Reader,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: String,
    /// Whether the results of effects are published as events.
    pub(crate) publishes_results: bool,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

impl DispatchOrigin {
    fn send(&self, message: RelayMessage) {
        count(Operation::ActorMessage);
        // An error means that the relay is gone; the next one reads the outbox from the start.
        drop(self.relay.cast(message));
    }
}

/// Place of a dispatched item in its window.
pub(crate) struct WindowPlace {
    window: Arc<Window>,
    origin: Arc<DispatchOrigin>,
    is_waiting: AtomicBool,
}

impl WindowPlace {
    /// Enters the window, even if it is full.
    fn enter(window: Arc<Window>, origin: Arc<DispatchOrigin>) -> Self {
        window.in_flight.fetch_add(1, Ordering::SeqCst);
        origin.epoch.item_dispatched();
        Self {
            window,
            origin,
            is_waiting: AtomicBool::new(false),
        }
    }

    fn leave(mut self) {
        let is_waiting = *self.is_waiting.get_mut();
        self.origin.epoch.item_ended();

        // An explicit end, not `Drop`: an end decides whether the item is dispatched again, and
        // wakes the relay.
        self.free(if is_waiting {
            &self.window.waiting
        } else {
            &self.window.in_flight
        });
    }

    fn free(&self, count: &AtomicUsize) {
        count.fetch_sub(1, Ordering::SeqCst);
        if self.window.starved.swap(false, Ordering::SeqCst) {
            self.origin
                .send(RelayMessage::Capacity(Arc::clone(&self.window)));
        }
    }
}

impl Dispatcher for WindowPlace {
    fn wait_started(&self) {
        self.window.waiting.fetch_add(1, Ordering::SeqCst);
        self.is_waiting.store(true, Ordering::SeqCst);
        // The backoff of one item must not block the others of its window.
        self.free(&self.window.in_flight);
    }

    fn wait_ended(&self) {
        // Even if the window is full: the delay of the item is over.
        self.window.in_flight.fetch_add(1, Ordering::SeqCst);
        self.is_waiting.store(false, Ordering::SeqCst);
        self.free(&self.window.waiting);
    }

    fn stop_token(&self) -> Option<&StopToken> {
        Some(self.origin.epoch.ended())
    }

    fn stored_claim(&self, item: &WorkItem) -> Option<JobClaim> {
        // A claim that cannot be read is lost: the job is offered again.
        let claim = self.origin.reader.job_claim(&item.instance, item.id);
        claim.ok().flatten()
    }

    fn is_abandoned(&self, item: &WorkItem) -> bool {
        // An item of an unreadable instance is executed: its result is needed, or ignored.
        let instance = self.origin.reader.instance(&item.instance).ok().flatten();
        instance.is_some_and(|it| {
            it.pending_work
                .iter()
                .any(|work| work.id == item.id && work.abandoned)
        })
    }
}

/// A dispatched work item; see the module documentation.
#[must_use]
pub(crate) struct WorkDispatch {
    pub(crate) work: StoredWork,
    /// Progress of earlier dispatches; in doubt if an attempt may have been in flight when the
    /// process crashed.
    pub(crate) progress: ExecutionProgress,
    pub(crate) place: WindowPlace,
    /// Parent span and time of the dispatch, if the item is traced.
    span: Option<(TraceParent, Instant)>,
}

impl WorkDispatch {
    /// Enters the item into its window, even if the window is full.
    pub(crate) fn new(
        origin: &Arc<DispatchOrigin>,
        window: Arc<Window>,
        mut work: StoredWork,
        progress: ExecutionProgress,
    ) -> Self {
        origin.metrics.dispatched.inc();
        let parent = origin
            .tracer
            .as_ref()
            .and_then(|_| trace_context::start_work_span(&mut work.item));
        let span = parent.map(|parent| (parent, Instant::now()));

        Self {
            work,
            progress,
            place: WindowPlace::enter(window, Arc::clone(origin)),
            span,
        }
    }

    /// Returns the origin of the dispatch.
    pub(crate) fn origin(&self) -> &DispatchOrigin {
        &self.place.origin
    }

    /// Completes the item: its outcome becomes an input of the instance, or, if `silent`, only the
    /// outbox row is removed.
    pub(crate) fn complete(self, mut done: ExecutionResult, silent: bool) {
        self.trace(&done);
        let claim = done.receipt.as_ref().and_then(ResultReceipt::claim);
        let completion = done
            .receipt
            .take()
            .map_or(Completion::None, Completion::Receipt);

        let Self { work, place, .. } = self;
        let OutboxRow { key, item } = *work;
        let DispatchOrigin {
            registry,
            clock,
            publishes_results,
            ..
        } = &*place.origin;

        let stored = if silent {
            // The instance needs no acceptance; only the outbox row must go.
            registry
                .lifecycle
                .submit(Submission::new(Change::Settle(key), completion))
        } else {
            let publishes = *publishes_results && !done.is_published && is_public(&item);
            let ExecutionResult {
                outcome,
                attempts,
                facts,
                trace,
                attempt_log,
                ..
            } = done;
            let result = WorkResult {
                work_id: item.id,
                outbox_key: key,
                outcome,
                requested_at: item.created_at,
                attempts,
                at: clock.now(),
                facts,
                publishes,
                trace: trace.or(item.trace),
                attempt_log,
            };

            let mut envelope = Envelope::new(Input::WorkResult(result), completion);
            // A worker that sends the result again receives the same response, also after a
            // restart.
            envelope.extra_change = claim.map(|claim| Change::JobResult {
                tenant: item.instance.tenant.clone(),
                job: item.id,
                claim,
            });
            registry.deliver(&item.instance, envelope)
        };

        // An error means that the incarnation has ended; the next one dispatches the item again.
        drop(stored);
        place.leave();
    }

    /// Completes the item without a result: its message becomes a dead letter.
    pub(crate) fn dead_letter(self, dead_letter: DeadLetter) {
        let Self { work, place, .. } = self;
        let DispatchOrigin {
            registry,
            clock,
            metrics,
            ..
        } = &*place.origin;

        let stored = Submission::dead_letter(dead_letter, clock.now(), metrics, Completion::None);
        // An error means that the incarnation has ended; the next one dispatches the item again.
        drop(registry.lifecycle.submit(Submission {
            extra: Some(Change::Settle(work.key)),
            ..stored
        }));
        place.leave();
    }

    /// Returns the item unfinished; the relay dispatches it again.
    pub(crate) fn return_to_relay(self) {
        let Self {
            work,
            progress,
            place,
            ..
        } = self;

        let waiting = place.origin.metrics.messages_enqueued(ActorKind::Relay, 1);
        place
            .origin
            .send(RelayMessage::Returned(work.key, progress, waiting));
        place.leave();
    }

    /// Ends the dispatch after the end of its epoch: the next owner, or the next incarnation, reads
    /// the outbox.
    pub(crate) fn abandon(self) {
        self.place.leave();
    }

    fn trace(&self, done: &ExecutionResult) {
        if let (Some(tracer), Some((parent, started))) = (&self.place.origin.tracer, &self.span) {
            tracer.finished(&FinishedWork {
                item: &self.work.item,
                parent,
                executed_by: ExecutedBy::LocalNode,
                outcome: &done.outcome,
                attempts: done.attempts,
                started: *started,
            });
        }
    }
}

/// Returns whether other systems can receive the result: that of an effect of a definition.
fn is_public(item: &WorkItem) -> bool {
    item.work.effect().is_some() && !orlog_program::is_built_in(item.instance.saga.as_str())
}
