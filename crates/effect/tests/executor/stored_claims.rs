//! Jobs that a worker claimed before a restart: the worker keeps them until its claim expires.

use orlog_effect::worker::{JobReport, ReportContent, Reports};
use orlog_model::JobClaim;
use orlog_testkit::wait::within;
use uuid::Uuid;

use super::worker::{RULES, Stage, acme};
use super::*;

/// Dispatcher of a shard whose store contains a claim.
struct Store(JobClaim);

impl Dispatcher for Store {
    fn wait_started(&self) {}

    fn wait_ended(&self) {}

    fn stop_token(&self) -> Option<&StopToken> {
        None
    }

    fn stored_claim(&self, _: &WorkItem) -> Option<JobClaim> {
        Some(self.0.clone())
    }
}

/// Continues the job after a restart. `since` is the time from the claim to the restart.
fn restarted(stage: &Stage, since: Duration) -> (tokio::task::JoinHandle<ExecutionResult>, Uuid) {
    let claim = JobClaim {
        id: Uuid::from_u128(9),
        worker: "w".to_owned(),
        number: 2,
        until: START.saturating_add(Duration::from_mins(5)),
    };
    let id = claim.id;
    let executor = Arc::clone(&stage.executor);
    stage.clock.advance(since);
    let done = tokio::spawn(async move {
        let progress = ExecutionProgress {
            in_doubt: true,
            ..ExecutionProgress::default()
        };
        executor
            .execute_for(&mut item(&name(), 1), progress, &Store(claim))
            .await
            .expect("the executor is not retired")
    });
    (done, id)
}

/// Requirements: R10, F5.
#[tokio::test]
async fn worker_keeps_its_claim_over_a_restart_also_if_the_policy_forbids_a_retry() {
    for in_doubt in [InDoubtPolicy::Retry, InDoubtPolicy::Fail] {
        let stage = Stage::new(Policy {
            in_doubt,
            ..Policy::worker()
        });
        let (done, claim) = restarted(&stage, Duration::from_secs(4));
        let posted = async {
            while stage.board.list(&*stage.clock, &acme()).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        within("the job on the board", posted).await;
        let others = stage.claim_within(Duration::ZERO, false).await;
        assert_eq!(others, [], "{in_doubt:?}");

        let report = JobReport {
            job: item(&name(), 1).id,
            claim,
            content: ReportContent::Result(Box::new(Ok(Reply::from(json!(7))).into())),
        };
        let mut reports = Reports::new([report]);
        stage
            .board
            .report(&*stage.clock, &acme(), RULES, &mut reports);
        assert!(reports.into_acks()[0].is_ok());
        let done = within("the end of the job", done).await.unwrap();
        assert_eq!(failure(&done).0, "succeeded");
    }
}

/// Requirements: R10.
#[tokio::test]
async fn job_whose_stored_claim_has_expired_is_offered_again_unless_the_policy_forbids_it() {
    let after_expiry = Duration::from_mins(6);
    let stage = Stage::new(Policy::worker());
    let (_done, _) = restarted(&stage, after_expiry);
    let claimed = stage.claim(false).await;
    assert_eq!((claimed.claim_count, claimed.in_doubt), (3, true));

    let stage = Stage::new(Policy {
        in_doubt: InDoubtPolicy::Fail,
        ..Policy::worker()
    });
    let (done, _) = restarted(&stage, after_expiry);
    let done = within("the end of the job", done).await.unwrap();
    let (kind, text) = failure(&done);
    assert!(kind == "timed out" && text.contains("in_doubt"), "{text}");
}
