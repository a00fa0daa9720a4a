//! Jobs that their saga abandons, or whose shard ends: those without a worker end at once, and only jobs that a worker may
//! have executed are in doubt.

use std::sync::atomic::AtomicBool;

use orlog_effect::worker::{ClaimedJob, JobReport, ReportContent, Reports};
use orlog_testkit::wait::within;
use tokio::task::JoinHandle;

use super::worker::{RULES, Stage, acme};
use super::*;

/// Dispatcher of a saga that can abandon its job, and whose shard can end.
#[derive(Clone, Default)]
struct Saga {
    abandoned: Arc<AtomicBool>,
    ended: StopToken,
}

impl Dispatcher for Saga {
    fn wait_started(&self) {}

    fn wait_ended(&self) {}

    fn stop_token(&self) -> Option<&StopToken> {
        Some(&self.ended)
    }

    fn is_abandoned(&self, _: &WorkItem) -> bool {
        self.abandoned.load(Ordering::SeqCst)
    }
}

impl Saga {
    /// Abandons the job, and withdraws it from the board as the committer does.
    fn abandon(&self, stage: &Stage) {
        self.abandoned.store(true, Ordering::SeqCst);
        assert!(
            stage
                .board
                .withdraw(stage.clock.steady(), &acme(), item(&name(), 1).id)
        );
    }

    fn execute(&self, stage: &Stage, progress: ExecutionProgress) -> JoinHandle<ExecutionResult> {
        let done = self.execute_for(stage, progress);
        tokio::spawn(async move {
            done.await
                .expect("no panic")
                .expect("the executor is not retired")
        })
    }

    fn execute_for(
        &self,
        stage: &Stage,
        progress: ExecutionProgress,
    ) -> JoinHandle<Result<ExecutionResult, ExecutionProgress>> {
        let (saga, executor) = (self.clone(), Arc::clone(&stage.executor));
        tokio::spawn(async move {
            executor
                .execute_for(&mut item(&name(), 1), progress, &saga)
                .await
        })
    }
}

async fn until_posted(stage: &Stage) {
    while stage.board.list(&*stage.clock, &acme()).is_empty() {
        tokio::task::yield_now().await;
    }
}

/// Returns the failure of a job that ends although the clock stands still, so without a delay.
async fn failure_at_once(done: JoinHandle<ExecutionResult>) -> (&'static str, String) {
    failure(&within("the end of the job", done).await.expect("it ends"))
}

fn heartbeat(stage: &Stage, claimed: &ClaimedJob) -> bool {
    let report = JobReport {
        job: claimed.item.id,
        claim: claimed.claim,
        content: ReportContent::Heartbeat,
    };
    let mut reports = Reports::new([report]);
    stage
        .board
        .report(&*stage.clock, &acme(), RULES, &mut reports);
    reports.into_acks().iter().all(Result::is_ok)
}

/// Requirements: R10.
#[tokio::test]
async fn withdrawn_job_without_a_worker_fails_at_once() {
    for policy in [InDoubtPolicy::Retry, InDoubtPolicy::Fail] {
        let (stage, saga) = (
            Stage::new(Policy {
                in_doubt: policy,
                ..Policy::worker()
            }),
            Saga::default(),
        );
        let done = saga.execute(&stage, ExecutionProgress::default());
        within("the job on the board", until_posted(&stage)).await;
        saga.abandon(&stage);
        let (kind, text) = failure_at_once(done).await;
        assert!(
            kind == "failed" && text.contains("no longer awaits the job"),
            "{kind}: {text}"
        );
    }
}

/// Requirements: R10.
#[tokio::test]
async fn withdrawn_job_of_a_worker_ends_in_doubt_with_its_next_heartbeat() {
    let (stage, saga) = (Stage::new(Policy::worker()), Saga::default());
    let done = saga.execute(&stage, ExecutionProgress::default());
    let claimed = stage.claim(false).await;
    saga.abandon(&stage);
    assert!(!heartbeat(&stage, &claimed), "the worker must stop");
    assert_eq!(failure_at_once(done).await.0, "timed out");
}

/// The worker states that it executed nothing, so nothing is in doubt.
///
/// Requirements: R10.
#[tokio::test]
async fn withdrawn_job_that_its_worker_returns_fails_at_once() {
    let (stage, saga) = (Stage::new(Policy::worker()), Saga::default());
    let done = saga.execute(&stage, ExecutionProgress::default());
    let claimed = stage.claim(false).await;
    saga.abandon(&stage);
    stage.report(
        &claimed,
        Err(ProviderError::unavailable("busy", "the disk is full")),
    );
    let (kind, text) = failure_at_once(done).await;
    assert!(
        kind == "failed" && text.contains("the disk is full"),
        "{kind}: {text}"
    );
}

/// Claims are not durable: a worker may have claimed the job before the restart.
///
/// Requirements: R10.
#[tokio::test]
async fn abandoned_job_is_in_doubt_after_a_restart_and_not_offered() {
    let (stage, saga) = (Stage::new(Policy::worker()), Saga::default());
    saga.abandoned.store(true, Ordering::SeqCst);
    let restarted = ExecutionProgress {
        in_doubt: true,
        ..ExecutionProgress::default()
    };
    let done = saga.execute(&stage, restarted);
    assert_eq!(failure_at_once(done).await.0, "timed out");
    assert_eq!(stage.board.list(&*stage.clock, &acme()), []);
}

/// The next owner of the shard offers the job: it has no result here, also if no further attempt is allowed.
///
/// Requirements: R10.
#[tokio::test]
async fn end_of_the_shard_recalls_a_job_without_a_worker() {
    for in_doubt in [false, true] {
        let (stage, saga) = (
            Stage::new(Policy {
                max_attempts: Some(1),
                ..Policy::worker()
            }),
            Saga::default(),
        );
        let progress = ExecutionProgress {
            in_doubt,
            ..ExecutionProgress::default()
        };
        let job = saga.execute_for(&stage, progress);
        within("the job on the board", until_posted(&stage)).await;
        saga.ended.stop();
        let done = within("the end of the execution", job)
            .await
            .expect("no panic");
        assert!(done.is_err(), "in doubt: {in_doubt}: {done:?}");
        assert_eq!(stage.board.list(&*stage.clock, &acme()), []);
    }
}

/// Requirements: R10.
#[tokio::test]
async fn end_of_the_shard_leaves_a_job_to_its_worker() {
    let (stage, saga) = (Stage::new(Policy::worker()), Saga::default());
    let job = saga.execute_for(&stage, ExecutionProgress::default());
    let claimed = stage.claim(false).await;
    saga.ended.stop();
    tokio::task::yield_now().await;
    assert!(heartbeat(&stage, &claimed));
    stage.report(&claimed, Ok(Reply::default()));
    let done = within("the result", job)
        .await
        .expect("no panic")
        .expect("a result");
    assert_eq!(done.outcome, WorkOutcome::succeeded(None, Value::Null));
}

/// A process that was suspended offers no job that belongs to another process now.
///
/// Requirements: R10.
#[tokio::test]
async fn job_is_not_offered_after_the_end_of_the_lease() {
    let lease = LeaseEnd::default();
    let (stage, saga) = (
        Stage::new(Policy::worker()),
        Saga {
            ended: StopToken::until(lease.clone()),
            ..Saga::default()
        },
    );
    let job = saga.execute_for(&stage, ExecutionProgress::default());
    within("the job on the board", until_posted(&stage)).await;
    lease.begin(Instant::now());
    assert!(stage.claim_within(Duration::ZERO, false).await.is_empty());
    let done = within("the end of the execution", job)
        .await
        .expect("no panic");
    assert!(done.is_err(), "{done:?}");
}
