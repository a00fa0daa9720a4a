//! Providers: each work item goes to the mailbox of its upstream; the provider actor executes it in
//! a task of its own, or at once if that does not wait, and reports the outcome.
//!
//! The effect executor applies circuit breaker, limits, backoff and deadlines. A task ends with its
//! work item or with the epoch of its shard, not with the actor that started it: a crashed provider
//! loses neither queued items nor attempts in flight.
//!
//! A reload that changes the upstream starts a new provider and retires the old one, whose queued
//! items move. Attempts in flight finish at the old executor. Items that wait for their next
//! attempt move to the new provider under the same id and keep their attempt count.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use compact_str::{CompactString, format_compact};
use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use futures::FutureExt as _;
use orlog_effect::{Catalog, CatalogChange, EffectExecutor, UpstreamScope, is_job};
use orlog_model::{
    Confirmation, Destination, InstanceKey, SteadyTime, TenantId, Work, WorkKind, WorkOutcome,
};
use orlog_sagas::flow;
use parking_lot::RwLock;
use ractor::ActorRef;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::effects::work_dispatch::{WindowKey, WorkDispatch};
use crate::effects::work_mailbox::WorkMailbox;
use crate::supervision::TaskKind;
use crate::telemetry::metrics::{ActorKind, Metrics, OutcomeMetrics};

/// Number of windows of a tenant for jobs that wait for a runner.
const JOB_WINDOWS: u64 = 64;

/// Maximum number of items that a provider starts before it yields to other actors.
const MAX_BATCH: usize = 64;

/// Provider actor.
pub(crate) struct Provider;

impl TaskKind for Provider {
    const KIND: ActorKind = ActorKind::Provider;
}

/// Mailboxes of the providers by effect executor and of the publisher, and all items in flight. The
/// registry survives crashes of the actors.
pub(crate) struct ProviderRegistry {
    catalog: Arc<Catalog>,
    metrics: Arc<Metrics>,
    /// By [`EffectExecutor::id`]: after a reload, an old and a new provider of one name coexist for
    /// a while.
    mailboxes: RwLock<BTreeMap<u64, Arc<WorkMailbox>>>,
    publisher: Arc<WorkMailbox>,
    /// Items in flight, each with its later dispatches.
    in_flight: DashMap<Uuid, Vec<WorkDispatch>>,
    supervisor: RwLock<Option<ActorRef<ReloadCatalog>>>,
}

/// Message to the supervisor: activates another catalog and returns the change.
pub(crate) struct ReloadCatalog(
    pub(crate) Arc<Catalog>,
    pub(crate) oneshot::Sender<CatalogChange>,
);

impl ProviderRegistry {
    pub(crate) fn new(catalog: Arc<Catalog>, metrics: Arc<Metrics>) -> Arc<Self> {
        let publisher = WorkMailbox::new(metrics.mailbox_depth(ActorKind::Publisher).clone());
        Arc::new(Self {
            catalog,
            metrics,
            mailboxes: RwLock::default(),
            publisher: Arc::new(publisher),
            in_flight: DashMap::new(),
            supervisor: RwLock::default(),
        })
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the mailbox of the publisher.
    pub(crate) fn publisher(&self) -> &Arc<WorkMailbox> {
        &self.publisher
    }

    pub(crate) fn set_supervisor(&self, actor: ActorRef<ReloadCatalog>) {
        *self.supervisor.write() = Some(actor);
    }

    pub(crate) fn supervisor(&self) -> Option<ActorRef<ReloadCatalog>> {
        self.supervisor.read().clone()
    }

    /// Returns the window of a destination and its weight.
    pub(crate) fn window(&self, destination: &Destination) -> (WindowKey, usize) {
        let executor = self.catalog.executor_for(destination);
        let upstream = executor.as_ref().map(|executor| executor.upstream());
        let has_own_upstream =
            upstream.is_some_and(|upstream| matches!(upstream.scope, UpstreamScope::Effects(_)));

        // Jobs without an upstream of their own wait for a runner. Several windows for their types:
        // those of a type without a runner rarely take the places of another type.
        let name = match upstream {
            _ if !has_own_upstream && is_job(&destination.name) => job_window(&destination.name),
            Some(upstream) => upstream.name.as_str().into(),
            None => CompactString::default(),
        };

        let weight = upstream.map_or(1, |upstream| {
            upstream.policy.tenant_limits.weight(&destination.tenant)
        });
        ((destination.tenant.clone(), name), weight as usize)
    }

    /// Returns whether the work items of a destination wait for workers, as jobs of definitions and
    /// of flows.
    pub(crate) fn awaits_workers(&self, destination: &Destination) -> bool {
        let has_board = |executor: Option<Arc<EffectExecutor>>| {
            executor.is_some_and(|executor| executor.upstream().board.is_some())
        };
        has_board(self.catalog.executor_for(destination))
            && has_board(self.catalog.executor_for_flow(destination))
    }

    /// Routes work items of one destination to their providers. If there is no provider at the
    /// moment, the items return to the relay.
    pub(crate) fn route(&self, destination: &Destination, dispatches: Vec<WorkDispatch>) {
        if matches!(destination.kind, WorkKind::Fact | WorkKind::Saga) {
            return_all(self.publisher.push(dispatches));
            return;
        }

        if !is_job(&destination.name) {
            return self.provide(self.catalog.executor_for(destination), dispatches);
        }

        // Jobs of one type can have another executor in flows than in definitions.
        let (flows, definitions): (Vec<_>, Vec<_>) = dispatches
            .into_iter()
            .partition(|dispatch| is_flow(&dispatch.work.item.instance));

        if !definitions.is_empty() {
            self.provide(self.catalog.executor_for(destination), definitions);
        }
        if !flows.is_empty() {
            self.provide(self.catalog.executor_for_flow(destination), flows);
        }
    }

    /// Passes work items to the provider of an executor.
    fn provide(&self, executor: Option<Arc<EffectExecutor>>, dispatches: Vec<WorkDispatch>) {
        let Some(executor) = executor else {
            for mut dispatch in dispatches {
                let progress = std::mem::take(&mut dispatch.progress);
                let result = self
                    .catalog
                    .unroutable_result(&dispatch.work.item, progress);
                dispatch.complete(result, false);
            }
            return;
        };

        let mailbox = self.mailboxes.read().get(&executor.id()).cloned();
        // A reload may have retired the executor after it was looked up.
        return_all(match mailbox {
            Some(mailbox) => mailbox.push(dispatches),
            None => Err(dispatches),
        });
    }

    /// Withdraws jobs that their saga no longer awaits from the workers. Other work is not
    /// affected.
    pub(crate) fn withdraw(&self, tenant: &TenantId, jobs: &[Uuid], now: SteadyTime) {
        let boards = self.catalog.job_boards();
        for job in jobs.iter().copied() {
            let is_withdrawn = boards
                .iter()
                .any(|(board, ..)| board.withdraw(now, tenant, job));

            // A job that is not posted yet reads from the store that it is abandoned, unless it has
            // already read it. Then its board finds it withdrawn.
            if !is_withdrawn {
                for (board, ..) in &boards {
                    board.withdraw_later(job);
                }
            }
        }
    }

    /// Returns the mailbox of an effect executor; creates it if it is new.
    pub(crate) fn mailbox(&self, executor: &EffectExecutor) -> Arc<WorkMailbox> {
        let mut mailboxes = self.mailboxes.write();
        let mailbox = mailboxes.entry(executor.id()).or_insert_with(|| {
            let depth = self.metrics.mailbox_depth(ActorKind::Provider).clone();
            Arc::new(WorkMailbox::new(depth))
        });
        Arc::clone(mailbox)
    }

    /// Stops the provider of an effect executor that is replaced; its queued items move to the
    /// replacement.
    pub(crate) fn retire(&self, executor: &EffectExecutor) {
        let mailbox = self.mailboxes.write().remove(&executor.id());

        // Each item is routed on its own: it may have another executor in the new catalog.
        for dispatch in mailbox.into_iter().flat_map(|mailbox| mailbox.close()) {
            let destination = dispatch.work.key.destination.clone();
            self.route(&destination, vec![dispatch]);
        }
    }

    /// Registers a work item as in flight. If it is already in flight, the later dispatch waits
    /// until the earlier one ends.
    fn start(&self, mut dispatch: WorkDispatch) -> Option<WorkDispatch> {
        match self.in_flight.entry(dispatch.work.item.id) {
            Entry::Occupied(mut later) => {
                // Whatever the result of the first dispatch is, an attempt may have been made.
                dispatch.progress.in_doubt = true;
                later.get_mut().push(dispatch);
                None
            }
            Entry::Vacant(entry) => {
                entry.insert(Vec::new());
                Some(dispatch)
            }
        }
    }

    /// Ends a work item in flight.
    fn end(&self, id: Uuid) {
        let Some((_, later)) = self.in_flight.remove(&id) else {
            return;
        };

        // The first dispatch may belong to a relay that has stopped, and no other component would
        // dispatch the item again.
        for dispatch in later {
            dispatch.return_to_relay();
        }
    }
}

/// Returns the items that a mailbox did not accept to their relay.
fn return_all(result: Result<(), Vec<WorkDispatch>>) {
    for dispatch in result.err().unwrap_or_default() {
        dispatch.return_to_relay();
    }
}

/// Returns the name of the window of a type of jobs. The number of windows bounds the jobs in
/// memory.
fn job_window(kind: &str) -> CompactString {
    let mut hasher = DefaultHasher::new();
    kind.hash(&mut hasher);
    format_compact!(
        "{}/{}",
        orlog_effect::worker::RUNNERS,
        hasher.finish() % JOB_WINDOWS
    )
}

fn is_flow(instance: &InstanceKey) -> bool {
    instance.saga.as_str() == flow::SAGA
}

/// Executes the items of a mailbox until it is closed.
pub(crate) async fn provide(
    executor: Arc<EffectExecutor>,
    mailbox: Arc<WorkMailbox>,
    registry: Arc<ProviderRegistry>,
) -> Result<(), String> {
    let outcomes = registry.metrics.effects.outcomes(&executor.upstream().name);

    while let Some(dispatches) = mailbox.take(MAX_BATCH).await {
        for dispatch in dispatches {
            let Some(dispatch) = registry.start(dispatch) else {
                continue;
            };
            let completes_at_once = executor
                .upstream()
                .provider
                .completes_at_once(&dispatch.work.item);

            let execution = execute(
                dispatch,
                Arc::clone(&executor),
                Arc::clone(&registry),
                Arc::clone(&outcomes),
            );
            if completes_at_once {
                execute_at_once(Box::pin(AssertUnwindSafe(execution).catch_unwind())).await;
            } else {
                // A task of its own: the first steps may need much CPU, and tasks use all cores.
                tokio::spawn(execution);
            }
        }

        // An execution that completes at once does not yield.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Polls an execution once, which usually completes it; the rest is a task. Never waits: the caller
/// holds items that nothing else would execute.
async fn execute_at_once(
    mut execution: Pin<Box<impl Future<Output = std::thread::Result<()>> + Send + 'static>>,
) {
    match futures::poll!(execution.as_mut()) {
        Poll::Ready(Ok(())) => {}
        Poll::Ready(Err(_panic)) => tracing::error!("the execution of an effect panicked"),
        Poll::Pending => drop(tokio::spawn(execution)),
    }
}

/// Executes one item and ends its dispatch.
async fn execute(
    mut dispatch: WorkDispatch,
    executor: Arc<EffectExecutor>,
    registry: Arc<ProviderRegistry>,
    outcomes: Arc<OutcomeMetrics>,
) {
    let id = dispatch.work.item.id;
    let started = Instant::now();
    let progress = dispatch.progress.clone();
    // If the execution panics or is cancelled, an attempt may have been in flight.
    dispatch.progress.in_doubt = true;

    let epoch = Arc::clone(&dispatch.origin().epoch);
    let WorkDispatch { work, place, .. } = &mut dispatch;
    let result = {
        let execution = pin!(
            AssertUnwindSafe(executor.execute_for(&mut work.item, progress, place)).catch_unwind()
        );
        tokio::select! {
            biased;
            result = execution => Some(result),
            () = epoch.cancelled() => None,
        }
    };

    let Some(result) = result else {
        dispatch.abandon();
        return registry.end(id);
    };

    match result {
        Ok(Ok(done)) => {
            outcomes.count(&done.outcome, started.elapsed());
            let silent = done.outcome == WorkOutcome::Accepted
                && !requires_acceptance(&dispatch.work.item.work);
            dispatch.complete(done, silent);
            registry.end(id);
        }
        // The executor ended with its shard: the next owner reads the outbox.
        Ok(Err(_)) if epoch.ended().is_stopped() => {
            dispatch.abandon();
            registry.end(id);
        }
        // A reload retired the executor while the item waited: its successor continues.
        Ok(Err(progress)) => {
            dispatch.progress = progress;
            registry.end(id);
            let destination = dispatch.work.key.destination.clone();
            registry.route(&destination, vec![dispatch]);
        }
        Err(_panic) => {
            dispatch.return_to_relay();
            registry.end(id);
        }
    }
}

fn requires_acceptance(work: &Work) -> bool {
    matches!(work, Work::Command(command) if command.confirmation == Confirmation::Acceptance)
}
