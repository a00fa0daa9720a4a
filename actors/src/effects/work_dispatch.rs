//! A dispatched work item. It is completed with an outcome, or returned to the relay.

use std::sync::Arc;
use std::time::Instant;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use orlog_effect::{self as effect, ExecutionProgress};
use orlog_model::{Change, DeadLetter, Input, OutboxKey, TraceParent, WorkItem, WorkResult};
use uuid::Uuid;

use crate::effects::window::{RelayMessage, WindowPlace};
use crate::instance::completion::Completion;
use crate::instance::mailbox::Envelope;
use crate::instance::registry::InstanceRegistry;
use crate::shard::submission::{ShardUnavailable, Submission};
use crate::telemetry::metrics::ActorKind;
use crate::telemetry::tracer::{ExecutedBy, FinishedWork};

/// A dispatched work item. If it is dropped without [`WorkDispatch::complete`], it returns to the
/// relay.
pub(crate) struct WorkDispatch {
    pub(crate) item: WorkItem,
    /// Progress of earlier dispatches; in doubt if an attempt may have been in flight when the process
    /// crashed.
    pub(crate) progress: ExecutionProgress,
    pub(crate) key: OutboxKey,
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) place: WindowPlace,
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

    /// Completes the item without a result: its message becomes a dead letter.
    pub(crate) fn dead_letter(mut self, dead_letter: DeadLetter) {
        let remove_row = Change::Settle(self.key.clone());
        let stored = self.instances.store_dead_letter(dead_letter, Some(remove_row), Completion::None);
        self.concluded = stored.is_ok();
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
            requested_at: self.item.created_at,
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
        if self.concluded {
            return;
        }
        let waiting = self.instances.context.metrics.messages_enqueued(ActorKind::Relay, 1);
        self.place.send(RelayMessage::Returned(self.key.clone(), self.progress, waiting));
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
