//! Attempts that workers execute: the timeout counts from the claim.

use orlog_effect::config::{UpstreamConfig, UpstreamSite};
use orlog_effect::worker::{
    ClaimOptions, ClaimRequest, ClaimedJob, JobBoard, JobReport, ReportContent, ReportRules,
    Reports, WorkerConfig, WorkerProvider, runners,
};
use orlog_effect::{FactTypes, FunctionProvider, Policy, Reply, Upstream};
use orlog_model::{EventType, Fact, TenantId};
use orlog_testkit::wait::within;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicUsize;

use super::*;

/// Rules of a board that accepts all facts, for upstreams that are created by code.
pub(super) const RULES: ReportRules<'static> = ReportRules {
    claim_ttl: Duration::from_mins(5),
    facts: &FactTypes::Any,
};

pub(super) struct Stage {
    pub(super) clock: Arc<SimClock>,
    pub(super) board: Arc<JobBoard>,
    pub(super) executor: Arc<EffectExecutor>,
}

impl Stage {
    pub(super) fn new(policy: Policy) -> Self {
        Self::with_probes(policy, false)
    }

    /// Workers determine the outcome of jobs in doubt.
    fn probed(policy: Policy) -> Self {
        Self::with_probes(policy, true)
    }

    fn with_probes(policy: Policy, probes: bool) -> Self {
        let (clock, board) = (SimClock::new(START), Arc::new(JobBoard::default()));
        let provider = Arc::new(WorkerProvider::new(
            Arc::clone(&board),
            probes,
            policy.in_doubt,
        ));
        let upstream = Upstream {
            board: Some((Arc::clone(&board), ClaimOptions::default())),
            ..Upstream::effects("media", vec![name()], provider, policy)
        };
        let executor = EffectExecutor::new(upstream, Arc::clone(&clock) as Arc<dyn Clock>);
        Self {
            clock,
            board,
            executor,
        }
    }

    fn execute(&self, item: WorkItem) -> tokio::task::JoinHandle<ExecutionResult> {
        let executor = Arc::clone(&self.executor);
        tokio::spawn(async move { executor.execute(&item).await })
    }

    /// Claims the available jobs; waits for one up to `wait`.
    pub(super) async fn claim_within(&self, wait: Duration, probes: bool) -> Vec<ClaimedJob> {
        let request = ClaimRequest {
            tenant: acme(),
            effects: vec![name()],
            worker: "w".to_owned(),
            probes,
            labels: BTreeMap::new(),
            capacity: None,
        };
        self.board
            .claim(&*self.clock, &request, 1, ClaimOptions::default(), wait)
            .await
    }

    /// Claims the only job.
    pub(super) async fn claim(&self, probes: bool) -> ClaimedJob {
        self.claim_within(Duration::from_hours(1), probes)
            .await
            .pop()
            .expect("a job is available")
    }

    pub(super) fn report(&self, claimed: &ClaimedJob, result: Result<Reply, ProviderError>) {
        let content = ReportContent::Result(Box::new(result.into()));
        let mut reports = Reports::new([JobReport {
            job: claimed.item.id,
            claim: claimed.claim,
            content,
        }]);
        self.board
            .report(&*self.clock, &acme(), RULES, &mut reports);
        assert!(reports.into_acks().iter().all(Result::is_ok));
    }

    /// Claims the job as a worker that executes it and stops, then as one that probes and cannot determine the outcome.
    async fn report_retry_in_doubt(&self) {
        let stopped = self.claim(false).await;
        assert!(!stopped.in_doubt);
        self.clock.advance_to(stopped.expires_at);
        let probing = self.claim(true).await;
        assert!(probing.in_doubt);
        self.report(
            &probing,
            Err(ProviderError::unavailable(
                "db",
                "the database is not available",
            )),
        );
    }
}

pub(super) fn acme() -> TenantId {
    TenantId::new("acme").expect("valid")
}

/// Requirements: S4.
#[tokio::test]
async fn attempt_timeout_counts_from_the_claim() {
    let policy = Policy {
        attempt_timeout: Duration::from_mins(1),
        max_attempts: Some(1),
        ..Policy::worker()
    };
    let stage = Stage::new(policy.clone());
    let done = stage.execute(item(&name(), 1));
    let available = ClaimRequest {
        tenant: acme(),
        effects: vec![name()],
        worker: "w".to_owned(),
        probes: false,
        labels: BTreeMap::new(),
        capacity: None,
    };
    let waiting = stage
        .board
        .fetch(&*stage.clock, &available, 1, Duration::from_hours(1))
        .await;
    assert_eq!(waiting.len(), 1);
    stage.clock.advance(Duration::from_mins(30));
    let claimed = stage.claim(false).await;
    stage.report(&claimed, Ok(Reply::default()));
    assert_eq!(failure(&done.await.expect("it ends")).0, "succeeded");

    let stage = Stage::new(policy);
    let done = stage.execute(item(&name(), 1));
    stage.claim(false).await;
    let due = stage.clock.due_within(Duration::from_mins(1)).await;
    assert_eq!(
        due,
        START.saturating_add(Duration::from_mins(1)),
        "the claim started the timeout"
    );
    stage.clock.advance_to(due);
    let (kind, text) = failure(&done.await.expect("it ends"));
    assert!(
        kind == "timed out" && text.contains("did not respond within 1m"),
        "{kind}: {text}"
    );
}

/// A withdrawn job must not depend on the requests of workers: its worker may be gone, and no other one may exist.
#[tokio::test]
async fn withdrawn_job_ends_in_doubt_with_its_claim_although_no_worker_requests_jobs() {
    let stage = Stage::new(Policy {
        max_attempts: Some(1),
        ..Policy::worker()
    });
    let done = stage.execute(item(&name(), 1));
    let claimed = stage.claim(false).await;
    assert!(
        stage
            .board
            .withdraw(stage.clock.steady(), &acme(), claimed.item.id)
    );
    let due = stage.clock.due_within(Duration::from_hours(1)).await;
    assert_eq!(due, claimed.expires_at);
    stage.clock.advance_to(due);
    assert_eq!(failure(&done.await.expect("it ends")).0, "timed out");
    assert_eq!(stage.board.list(&*stage.clock, &acme()), []);
}

/// The deadline of the item is the outer limit of a job that no worker claims. It was not executed.
///
/// Requirements: S4, R10.
#[tokio::test]
async fn job_that_no_worker_claims_before_its_deadline_was_not_executed() {
    let policy = Policy {
        attempt_timeout: Duration::from_mins(1),
        ..Policy::worker()
    };
    let stage = Stage::new(policy);
    let deadline = START.saturating_add(Duration::from_mins(10));
    let done = stage.execute(WorkItem {
        deadline: Some(deadline),
        ..item(&name(), 1)
    });
    let due = stage.clock.due_within(Duration::from_hours(1)).await;
    assert_eq!(due, deadline);
    stage.clock.advance_to(due);
    let (kind, text) = failure(&done.await.expect("it ends"));
    assert!(
        kind == "failed" && text.contains("no worker claimed the job"),
        "{kind}: {text}"
    );
}

/// Requirements: S4, R10.
#[tokio::test]
async fn claimed_job_that_is_silent_until_its_deadline_is_in_doubt() {
    let stage = Stage::new(Policy::worker());
    let deadline = START.saturating_add(Duration::from_mins(10));
    let done = stage.execute(WorkItem {
        deadline: Some(deadline),
        ..item(&name(), 1)
    });
    stage.claim(false).await;
    stage.clock.advance_to(deadline);
    assert_eq!(failure(&done.await.expect("it ends")).0, "timed out");
}

/// Requirements: R10.
#[tokio::test]
async fn job_in_doubt_stays_in_doubt_after_a_retry_report() {
    let stage = Stage::probed(Policy {
        in_doubt: InDoubtPolicy::Fail,
        ..Policy::worker()
    });
    let done = stage.execute(item(&name(), 1));
    stage.report_retry_in_doubt().await;
    let due = stage.clock.due_within(Duration::from_mins(1)).await;
    stage.clock.advance_to(due);
    while stage.board.list(&*stage.clock, &acme()).is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(
        stage.claim_within(Duration::ZERO, false).await.is_empty(),
        "this worker does not probe"
    );
    let probing = stage.claim(true).await;
    assert!(probing.in_doubt);
    stage.report(&probing, Ok(Reply::default()));
    assert_eq!(failure(&done.await.expect("it ends")).0, "succeeded");
}

#[tokio::test]
async fn job_in_doubt_without_attempts_left_times_out() {
    let stage = Stage::probed(Policy {
        max_attempts: Some(1),
        ..Policy::worker()
    });
    let done = stage.execute(item(&name(), 1));
    stage.report_retry_in_doubt().await;
    assert_eq!(failure(&done.await.expect("it ends")).0, "timed out");
}

/// Requirements: F5.
#[tokio::test]
async fn jobs_that_wait_for_a_runner_take_no_place_of_other_tenants() {
    let clock = SimClock::new(START);
    let executor = EffectExecutor::new(runners(), Arc::clone(&clock) as Arc<dyn Clock>);
    let (board, terms) = executor
        .upstream()
        .board
        .clone()
        .expect("runners have a board");
    let kind = EffectName::new("job.rare").expect("valid");
    let execute = |tenant: &str, number| {
        let (executor, mut item) = (Arc::clone(&executor), item(&kind, number));
        item.instance.tenant = TenantId::new(tenant).expect("valid");
        tokio::spawn(async move { executor.execute(&item).await })
    };
    let _jobs: Vec<_> = (0..5000).map(|number| execute("acme", number)).collect();
    let _job = execute("beta", 5000);
    let request = ClaimRequest {
        tenant: TenantId::new("beta").expect("valid"),
        effects: vec![kind.clone()],
        worker: "w".to_owned(),
        probes: false,
        labels: BTreeMap::new(),
        capacity: None,
    };
    let claimed = board.claim(&*clock, &request, 1, terms, Duration::from_hours(1));
    assert_eq!(within("the job is on the board", claimed).await.len(), 1);
}

#[tokio::test]
async fn jobs_in_doubt_follow_the_setting_of_the_active_catalog() {
    let media = |probes: &str| {
        let config: WorkerConfig =
            toml::from_str(&format!("effects = ['payments.charge']\n{probes}")).expect("valid");
        config.upstream(UpstreamSite::new("media")).expect("valid")
    };
    let clock = SimClock::new(START);
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
    let catalog = Catalog::new(vec![media("probes = true")], &time, &observer).expect("valid");
    let next = catalog.rebuild(vec![media("")]).expect("valid");
    for (number, activated) in [(1, false), (2, true)] {
        if activated {
            catalog.replace_with(&next);
        }
        let (board, _, executor) = catalog.job_boards().remove(0);
        let stage = Stage {
            clock: Arc::clone(&clock),
            board,
            executor,
        };
        let job = stage.execute(item(&name(), number));
        let stopped = stage.claim(false).await;
        clock.advance_to(stopped.expires_at);
        let claimed = stage.claim_within(Duration::ZERO, false).await;
        assert_eq!(
            claimed.len(),
            usize::from(activated),
            "only an active catalog applies"
        );
        let claimed = if activated {
            claimed
        } else {
            vec![stage.claim(true).await]
        };
        assert!(claimed[0].in_doubt);
        stage.report(&claimed[0], Ok(Reply::default()));
        assert_eq!(failure(&job.await.expect("it ends")).0, "succeeded");
    }
}

/// Observer that counts the facts that are not published.
#[derive(Default)]
struct RejectedFacts(AtomicUsize);

impl EffectObserver for RejectedFacts {
    fn facts_rejected(&self, upstream: &str, number: usize) {
        assert_eq!(upstream, "media");
        self.0.fetch_add(number, Ordering::SeqCst);
    }
}

/// The provider stands for a queue, whose workers have published their result already.
#[tokio::test]
async fn undeclared_facts_of_another_process_are_not_published() {
    fn kind(name: &str) -> EventType {
        EventType::new(name).expect("valid")
    }
    let facts = || ["PointsEarned", "OrderPaid"].map(|name| Fact::new(kind(name), Value::Null));
    let execute = async |upstream: Upstream, observer: &Arc<RejectedFacts>| {
        let executor = EffectExecutor::with_observer(
            upstream,
            SimClock::new(START),
            Arc::clone(observer) as Arc<dyn EffectObserver>,
        );
        executor.execute(&item(&name(), 1)).await
    };
    let functions = || {
        let reply = move |_| async move { Ok(Reply::default().with_facts(facts())) };
        let provider = FunctionProvider::new().effect(name().as_str(), reply);
        provider.upstream("media", Policy::in_process())
    };

    let observer = Arc::<RejectedFacts>::default();
    let trusted = execute(functions(), &observer).await;
    assert_eq!(
        trusted.facts,
        facts(),
        "code of this program emits any fact"
    );
    assert_eq!(observer.0.load(Ordering::SeqCst), 0);

    let declared = functions().with_facts([kind("PointsEarned")].into());
    let done = execute(declared, &observer).await;
    assert_eq!(done.facts, facts()[..1]);
    assert_eq!(failure(&done).0, "succeeded", "the effect was executed");
    assert_eq!(observer.0.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn facts_of_configured_workers_and_of_runners_are_declared() {
    let earned: EventType = "PointsEarned".parse().expect("valid");
    let media = |facts: &str| {
        let text = format!("effects = ['media.cut']\n{facts}");
        let config: WorkerConfig = toml::from_str(&text).expect("valid");
        config.upstream(UpstreamSite::new("media")).expect("valid")
    };
    assert_eq!(media("").facts, FactTypes::none());
    assert_eq!(runners().facts, FactTypes::none());
    let declared = media("facts = ['PointsEarned']").facts;
    assert_eq!(declared, FactTypes::Declared([earned].into()));
}

#[tokio::test]
async fn job_that_waits_while_its_upstream_is_removed_uses_up_no_attempt() {
    let config: WorkerConfig =
        toml::from_str("effects = ['payments.charge']\nmax_attempts = 1").expect("valid");
    let upstream = config.upstream(UpstreamSite::new("media")).expect("valid");
    let clock = SimClock::new(START);
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
    let catalog = Catalog::new(vec![upstream], &time, &observer).expect("valid");
    let (board, _, executor) = catalog.job_boards().remove(0);
    let stage = Stage {
        clock,
        board,
        executor: Arc::clone(&executor),
    };
    let waiting = tokio::spawn(async move {
        executor
            .execute_for(&mut item(&name(), 1), ExecutionProgress::default(), &())
            .await
    });
    let posted = async {
        while stage.board.list(&*stage.clock, &acme()).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    within("the job is on the board", posted).await;
    catalog.replace_with(&catalog.rebuild(Vec::new()).expect("valid"));
    let progress = waiting
        .await
        .expect("it ends")
        .expect_err("the next upstream continues");
    assert_eq!((progress.attempts, progress.in_doubt), (0, false));
    assert!(
        progress.attempt_log.is_none(),
        "a success at the next attempt is not recorded"
    );
    // A job that is posted after the removal waits for no worker.
    let late = within("the job ends", stage.execute(item(&name(), 2)))
        .await
        .expect("it ends");
    assert_eq!(failure(&late).0, "failed");
}
