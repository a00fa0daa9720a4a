//! Worker group of one effect, or of one effect and tenant: requests as many jobs as it has free
//! capacity and executes each in its own task. A group that ends returns the jobs that the queue
//! still delivers to it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use orlog_bus::effect_queue::{Job, JobStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;

use super::job;
use super::shared::WorkerPoolState;
use crate::supervision::TaskKind;
use crate::telemetry::metrics::ActorKind;

/// Worker group actor.
pub(super) struct WorkerGroup;

impl TaskKind for WorkerGroup {
    const KIND: ActorKind = ActorKind::WorkerGroup;
}

/// Redelivery delay of a job that arrives after its group has ended.
const RETURN_DELAY: Duration = Duration::from_millis(100);

/// A group that may still receive jobs.
struct ReceivingGroup(Arc<WorkerPoolState>);

impl ReceivingGroup {
    fn begin(shared: &Arc<WorkerPoolState>) -> Self {
        shared.receiving.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(shared))
    }
}

impl Drop for ReceivingGroup {
    fn drop(&mut self) {
        self.0.receiving.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A counted job in flight.
struct InFlightJob {
    shared: Arc<WorkerPoolState>,
    _permit: OwnedSemaphorePermit,
}

impl Drop for InFlightJob {
    fn drop(&mut self) {
        self.shared.jobs.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Requests jobs. Returns when the group is drained and no job is in flight; fails when the task of
/// a job has panicked. If it is aborted, it abandons the jobs in flight.
pub(super) async fn fetch_jobs(
    mut jobs: Box<dyn JobStream>,
    shared: Arc<WorkerPoolState>,
    mut leaving: watch::Receiver<bool>,
) -> Result<(), String> {
    let receiving = ReceivingGroup::begin(&shared);
    let permits = Arc::new(Semaphore::new(shared.config.max_in_flight.max(1)));
    let mut draining = shared.draining.subscribe();
    let mut tasks = JoinSet::new();

    loop {
        tokio::select! {
            biased;
            _ = draining.wait_for(|draining| *draining) => break,
            _ = leaving.wait_for(|leaving| *leaving) => break,
            reason = panic_of(&mut tasks) => return Err(reason),
            (permit, claimed) = take(&mut jobs, &permits) => {
                start_jobs(&shared, &permits, permit, claimed, &mut tasks);
            }
        }
    }

    return_remaining(&mut jobs).await;
    // Before the jobs in flight end: a drain waits only for deliveries that may still arrive.
    drop(receiving);
    while tasks.join_next().await.is_some() {}
    Ok(())
}

/// Returns the jobs of the last request to other workers, without an attempt. A job that the queue
/// delivers and that no worker receives would wait until the queue delivers it again.
async fn return_remaining(jobs: &mut Box<dyn JobStream>) {
    loop {
        let unattempted = jobs.remaining().await;
        if unattempted.is_empty() {
            return;
        }
        for job in unattempted {
            job.ack.nak_with_delay(RETURN_DELAY).await;
        }
    }
}

/// Requests jobs, never more than the free capacity.
async fn take(
    jobs: &mut Box<dyn JobStream>,
    permits: &Arc<Semaphore>,
) -> (OwnedSemaphorePermit, Vec<Job>) {
    let permit = Arc::clone(permits)
        .acquire_owned()
        .await
        .expect("the semaphore is never closed");
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
        let in_flight = InFlightJob {
            shared: Arc::clone(shared),
            _permit: permit,
        };
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
