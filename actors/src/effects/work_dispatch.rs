//! A dispatched work item. It is completed with an outcome, or returned to the relay.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use orlog_effect::{self as effect, ExecutionProgress};
use orlog_model::{Change, Destination, Input, OutboxKey, TraceParent, WorkItem, WorkResult};
use ractor::ActorRef;
use uuid::Uuid;

use crate::instance::completion::Completion;
use crate::instance::mailbox::Envelope;
use crate::instance::registry::InstanceRegistry;
use crate::shard::submission::{ShardUnavailable, Submission};
use crate::telemetry::metrics::{ActorKind, MailboxGuard};
use crate::telemetry::tracer::{ExecutedBy, FinishedWork};

/// Messages of the relay.
pub(crate) enum RelayMessage {
    /// Commits added work items.
    Wake(MailboxGuard),
    /// A destination at its limit has capacity again.
    Capacity(Destination, MailboxGuard),
    /// A dispatched item was returned unfinished, with its execution progress.
    Returned(OutboxKey, ExecutionProgress, MailboxGuard),
    /// The delay of returned items is over.
    DispatchReturned,
    /// The task that waits for new items ended.
    Ended(String),
}

/// In-flight window of a destination.
pub(crate) struct DestinationWindow {
    destination: Destination,
    pub(crate) in_flight: AtomicUsize,
    /// The relay stopped at the limit and requires a message when capacity is available.
    pub(crate) starved: AtomicBool,
}

impl DestinationWindow {
    /// Creates an empty window.
    pub(crate) fn new(destination: Destination) -> Self {
        Self { destination, in_flight: AtomicUsize::new(0), starved: AtomicBool::new(false) }
    }
}

/// A dispatched work item. If it is dropped without [`WorkDispatch::complete`], it returns to the
/// relay.
pub(crate) struct WorkDispatch {
    pub(crate) item: WorkItem,
    /// Progress of earlier dispatches; in doubt if an attempt may have been in flight when the process
    /// crashed.
    pub(crate) progress: ExecutionProgress,
    pub(crate) key: OutboxKey,
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) relay: ActorRef<RelayMessage>,
    pub(crate) window: Arc<DestinationWindow>,
    pub(crate) concluded: bool,
    /// Span data, if the item is traced.
    pub(crate) span: Option<DispatchSpan>,
}

/// Additional span data of a dispatch.
pub(crate) struct DispatchSpan {
    /// Parent span.
    pub(crate) parent: TraceParent,
    /// Time of the dispatch.
    pub(crate) started: Instant,
}

impl WorkDispatch {
    /// Completes the item: its outcome becomes an input of the instance, or, if `silent`, only the outbox
    /// row is removed.
    pub(crate) fn complete(mut self, done: effect::ExecutionResult, silent: bool) {
        self.trace(&done);
        self.concluded = if silent { self.remove_row() } else { self.report(done) }.is_ok();
    }

    fn trace(&self, done: &effect::ExecutionResult) {
        let tracer = self.instances.context.tracer.as_ref();
        if let (Some(tracer), Some(DispatchSpan { parent, started })) = (tracer, &self.span) {
            let (item, outcome, attempts) = (&self.item, &done.outcome, done.attempts);
            tracer.finished(&FinishedWork {
                item,
                parent,
                executed_by: ExecutedBy::LocalNode,
                outcome,
                attempts,
                started: *started,
            });
        }
    }

    fn remove_row(&self) -> Result<(), ShardUnavailable> {
        let remove_row = Change::Settle(self.key.clone());
        self.instances.committer()?.submit(Submission::new(remove_row, Completion::None))
    }

    fn report(&self, done: effect::ExecutionResult) -> Result<(), ShardUnavailable> {
        let effect::ExecutionResult { outcome: work_outcome, attempts, facts, trace } = done;
        let outcome = WorkResult {
            work_id: self.item.id,
            outbox_key: self.key.clone(),
            outcome: work_outcome,
            attempts,
            at: self.instances.context.clock.now(),
            facts,
            trace: trace.or_else(|| self.item.trace.clone()),
        };
        let envelope = Envelope::new(Input::WorkResult(outcome), Completion::None);
        self.instances.deliver(&self.item.instance, envelope)
    }
}

impl Drop for WorkDispatch {
    fn drop(&mut self) {
        self.window.in_flight.fetch_sub(1, Ordering::AcqRel);
        let waiting = || self.instances.context.metrics.messages_enqueued(ActorKind::Relay, 1);
        // An error means that the relay is gone; the next one reads the outbox from the start.
        if !self.concluded {
            drop(self.relay.cast(RelayMessage::Returned(self.key.clone(), self.progress, waiting())));
        }
        if self.window.starved.swap(false, Ordering::AcqRel) {
            let destination = self.window.destination.clone();
            drop(self.relay.cast(RelayMessage::Capacity(destination, waiting())));
        }
    }
}

/// Items in flight, each with its later dispatches.
#[derive(Default)]
pub(crate) struct InFlightItems {
    items: DashMap<Uuid, Vec<WorkDispatch>>,
}

/// Guard of an item in flight. When it is dropped, later dispatches return to their relay: the first
/// dispatch may belong to a relay that has stopped, and no other component would dispatch the item
/// again.
pub(crate) struct InFlightGuard {
    all: Arc<InFlightItems>,
    id: Uuid,
}

impl InFlightItems {
    /// Registers a work item as in flight; returns `None` if it is already in flight.
    pub(crate) fn register(
        self: &Arc<Self>,
        mut dispatch: WorkDispatch,
    ) -> Option<(InFlightGuard, WorkDispatch)> {
        let id = dispatch.item.id;
        match self.items.entry(id) {
            Entry::Occupied(mut later) => {
                // Whatever the result of the first dispatch is, an attempt may have been made.
                dispatch.progress.in_doubt = true;
                later.get_mut().push(dispatch);
                None
            }
            Entry::Vacant(entry) => {
                entry.insert(Vec::new());
                Some((InFlightGuard { all: Arc::clone(self), id }, dispatch))
            }
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        // Dropped outside the lock of the map.
        let later = self.all.items.remove(&self.id);
        drop(later);
    }
}
