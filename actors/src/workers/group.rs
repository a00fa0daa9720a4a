//! Worker group of one effect: requests as many jobs as it has free capacity and executes each in its
//! own task.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use orlog_bus::effect_queue::{Job, JobStream, JobSubscription};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::job;
use super::shared::WorkerPoolState;
use crate::abort_on_drop::AbortOnDrop;
use crate::telemetry::metrics::{ActorKind, LiveActorGuard};

/// Worker group actor.
pub(super) struct WorkerGroupActor;

/// Arguments of a worker group.
pub(super) struct Arguments {
    pub(super) shared: Arc<WorkerPoolState>,
    pub(super) subscription: JobSubscription,
}

/// Messages of a worker group.
pub(super) enum Message {
    /// Request no more jobs, finish the jobs in flight, and stop.
    Drain,
    /// The task that requests jobs ended.
    Ended(String),
}

/// State of a worker group. Dropping it abandons the jobs in flight.
pub(super) struct State {
    shared: Arc<WorkerPoolState>,
    leaving: watch::Sender<bool>,
    _fetch_task: AbortOnDrop,
    _alive: LiveActorGuard,
}

/// A counted job in flight.
pub(super) struct InFlightJob {
    shared: Arc<WorkerPoolState>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for InFlightJob {
    fn drop(&mut self) {
        self.shared.jobs.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Actor for WorkerGroupActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        Arguments { shared, subscription }: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let jobs = shared.queue.subscribe_jobs(subscription).await?;
        let leaving = watch::Sender::new(false);
        let fetch_task = fetch_jobs(jobs, Arc::clone(&shared), leaving.subscribe());
        let fetch_task = AbortOnDrop::spawn(&myself, fetch_task, Message::Ended);
        let alive = shared.metrics.actor_started(ActorKind::WorkerGroup);
        Ok(State { shared, leaving, _fetch_task: fetch_task, _alive: alive })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Drain => {
                state.leaving.send_replace(true);
            }
            Message::Ended(_) if *state.leaving.borrow() || state.shared.is_draining() => myself.stop(None),
            Message::Ended(reason) => return Err(reason.into()),
        }
        Ok(())
    }
}

/// Requests jobs. Returns when the group is drained and no job is in flight, or when the task of a job
/// has panicked.
async fn fetch_jobs(
    mut jobs: Box<dyn JobStream>,
    shared: Arc<WorkerPoolState>,
    mut leaving: watch::Receiver<bool>,
) -> String {
    let permits = Arc::new(Semaphore::new(shared.config.max_in_flight.max(1)));
    let mut draining = shared.draining.subscribe();
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => break,
            _ = leaving.wait_for(|leaving| *leaving) => break,
            reason = panic_of(&mut tasks) => return reason,
            (permit, claimed) = take(&mut jobs, &permits) => start_jobs(&shared, &permits, permit, claimed, &mut tasks),
        }
    }
    drop(jobs);
    while tasks.join_next().await.is_some() {}
    "the worker group has drained".to_owned()
}

/// Requests jobs, never more than the free capacity.
async fn take(jobs: &mut Box<dyn JobStream>, permits: &Arc<Semaphore>) -> (OwnedSemaphorePermit, Vec<Job>) {
    let permit = Arc::clone(permits).acquire_owned().await.expect("the semaphore is never closed");
    let claimed = jobs.next(permits.available_permits() + 1).await;
    (permit, claimed)
}

fn start_jobs(
    shared: &Arc<WorkerPoolState>,
    permits: &Arc<Semaphore>,
    permit: OwnedSemaphorePermit,
    claimed: Vec<Job>,
    tasks: &mut JoinSet<()>,
) {
    let others = std::iter::from_fn(|| Arc::clone(permits).try_acquire_owned().ok());
    // If more jobs arrive than requested, the queue delivers the surplus to other workers.
    for (permit, job) in std::iter::once(permit).chain(others).zip(claimed) {
        shared.jobs.fetch_add(1, Ordering::AcqRel);
        let in_flight = InFlightJob { shared: Arc::clone(shared), _permit: permit };
        tasks.spawn(async move {
            job::run_job(&in_flight.shared, job).await;
            drop(in_flight);
        });
    }
}

async fn panic_of(tasks: &mut JoinSet<()>) -> String {
    loop {
        match tasks.join_next().await {
            Some(Err(error)) => return error.to_string(),
            Some(Ok(())) => {}
            None => std::future::pending().await,
        }
    }
}
