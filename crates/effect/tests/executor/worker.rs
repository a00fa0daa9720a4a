//! Attempts that workers execute: the timeout counts from the claim.

use orlog_effect::worker::{
    ClaimOptions, ClaimRequest, JobBoard, JobReport, ReportContent, Reports, WorkerProvider,
};
use orlog_effect::{Policy, Reply, Upstream};
use orlog_model::TenantId;

use super::*;

struct Stage {
    clock: Arc<SimClock>,
    board: Arc<JobBoard>,
    executor: Arc<EffectExecutor>,
}

impl Stage {
    fn new(policy: Policy) -> Self {
        let (clock, board) = (SimClock::new(START), Arc::new(JobBoard::default()));
        let provider = Arc::new(WorkerProvider::new(Arc::clone(&board)));
        let upstream = Upstream::effects("media", vec![name()], provider, policy);
        let executor = EffectExecutor::new(upstream, Arc::clone(&clock) as Arc<dyn Clock>);
        Self { clock, board, executor }
    }

    fn execute(&self, item: WorkItem) -> tokio::task::JoinHandle<ExecutionResult> {
        let executor = Arc::clone(&self.executor);
        tokio::spawn(async move { executor.execute(&item).await })
    }

    /// Claims the only job and returns its ids.
    async fn claim(&self) -> JobReport {
        let tenant = TenantId::new("acme").expect("valid");
        let request = ClaimRequest { tenant, effects: vec![name()], worker: "w".to_owned(), probes: false };
        let wait = Duration::from_hours(1);
        let claimed = self.board.claim(&*self.clock, &request, 1, ClaimOptions::default(), wait).await;
        let [claimed] = claimed.as_slice() else { panic!("{claimed:?}") };
        let content = ReportContent::Result(Box::new(Ok(Reply::default()).into()));
        JobReport { job: claimed.item.id, claim: claimed.claim, content }
    }
}

/// Requirements: S4.
#[tokio::test]
async fn attempt_timeout_counts_from_the_claim() {
    let policy =
        Policy { attempt_timeout: Duration::from_mins(1), max_attempts: Some(1), ..Policy::worker() };
    let stage = Stage::new(policy.clone());
    let done = stage.execute(item(&name(), 1));
    let tenant = TenantId::new("acme").expect("valid");
    let available =
        ClaimRequest { tenant: tenant.clone(), effects: vec![name()], worker: "w".to_owned(), probes: false };
    let waiting = stage.board.fetch(&*stage.clock, &available, 1, Duration::from_hours(1)).await;
    assert_eq!(waiting.len(), 1);
    stage.clock.advance(Duration::from_mins(30));
    let claimed = stage.claim().await;
    let mut reports = Reports::new([claimed]);
    stage.board.report(&*stage.clock, &tenant, Duration::from_mins(5), &mut reports);
    assert!(reports.into_acks().iter().all(Result::is_ok));
    assert_eq!(failure(&done.await.expect("it ends")).0, "succeeded");

    let stage = Stage::new(policy);
    let done = stage.execute(item(&name(), 1));
    stage.claim().await;
    let due = stage.clock.due_within(Duration::from_mins(1)).await;
    assert_eq!(due, START.saturating_add(Duration::from_mins(1)), "the claim started the timeout");
    stage.clock.advance_to(due);
    let (kind, text) = failure(&done.await.expect("it ends"));
    assert!(kind == "timed out" && text.contains("did not respond within 1m"), "{kind}: {text}");
}

/// The deadline of the item is the outer limit of a job that no worker claims. It was not executed.
///
/// Requirements: S4, R10.
#[tokio::test]
async fn job_that_no_worker_claims_before_its_deadline_was_not_executed() {
    let policy = Policy { attempt_timeout: Duration::from_mins(1), ..Policy::worker() };
    let stage = Stage::new(policy);
    let deadline = START.saturating_add(Duration::from_mins(10));
    let done = stage.execute(WorkItem { deadline: Some(deadline), ..item(&name(), 1) });
    let due = stage.clock.due_within(Duration::from_hours(1)).await;
    assert_eq!(due, deadline);
    stage.clock.advance_to(due);
    let (kind, text) = failure(&done.await.expect("it ends"));
    assert!(kind == "failed" && text.contains("no worker claimed the job"), "{kind}: {text}");
}

/// Requirements: S4, R10.
#[tokio::test]
async fn claimed_job_that_is_silent_until_its_deadline_is_in_doubt() {
    let stage = Stage::new(Policy::worker());
    let deadline = START.saturating_add(Duration::from_mins(10));
    let done = stage.execute(WorkItem { deadline: Some(deadline), ..item(&name(), 1) });
    stage.claim().await;
    stage.clock.advance_to(deadline);
    assert_eq!(failure(&done.await.expect("it ends")).0, "timed out");
}
