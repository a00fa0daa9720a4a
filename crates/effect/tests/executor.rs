//! Tests of the executor with a fake provider: deadlines, waiting, doubt, limits, hints.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use orlog_effect::limits::breaker::{self, BreakerState};
use orlog_effect::limits::rate::RateLimit;
use orlog_effect::retry::Backoff;
use orlog_effect::retry_budget;
use orlog_effect::{
    Attempt, AttemptReport, Catalog, Dispatcher, EffectExecutor, EffectObserver, ExecutionProgress,
    ExecutionResult, FunctionProvider, LeaseEnd, NoopObserver, Policy, Probe, ProbeOutcome,
    ProbeResult, Provider, ProviderError, Reply, StopToken, SyncFunctionCall, Upstream,
};
use orlog_model::{
    AttemptOutcome, Clock, EffectName, InDoubtPolicy, RetryPolicy, Work, WorkItem, WorkOutcome,
};
use orlog_testkit::SimClock;
use orlog_testkit::provider_suite::{START, item};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

#[path = "executor/attempt_log.rs"]
mod attempt_log;
#[path = "executor/in_doubt.rs"]
mod in_doubt;
#[path = "executor/stored_claims.rs"]
mod stored_claims;
#[path = "executor/withdrawn.rs"]
mod withdrawn;
#[path = "executor/worker.rs"]
mod worker;

/// Provider that responds to each attempt with the result of a function of its number.
struct FakeProvider<F> {
    respond: F,
    probe: ProbeResult,
    calls: AtomicU32,
}

#[async_trait]
impl<F: Fn(u32) -> Result<Reply, ProviderError> + Send + Sync + 'static> Provider
    for FakeProvider<F>
{
    async fn execute(&self, _: &WorkItem, _: Attempt) -> Result<Reply, ProviderError> {
        (self.respond)(self.calls.fetch_add(1, Ordering::SeqCst) + 1)
    }

    async fn probe(&self, _: &WorkItem, _: Probe) -> ProbeResult {
        self.probe.clone()
    }
}

fn name() -> EffectName {
    EffectName::new("payments.charge").expect("valid")
}

fn lost(_: u32) -> Result<Reply, ProviderError> {
    Err(ProviderError::response_lost(
        "transport",
        "connection reset",
    ))
}

fn unhealthy(_: u32) -> Result<Reply, ProviderError> {
    Err(ProviderError::unavailable(
        "unreachable",
        "connection refused",
    ))
}

type Calls = Arc<dyn Fn() -> u32 + Send + Sync>;

fn stage<F>(
    policy: Policy,
    probe: ProbeResult,
    respond: F,
) -> (Arc<SimClock>, Arc<EffectExecutor>, Calls)
where
    F: Fn(u32) -> Result<Reply, ProviderError> + Send + Sync + 'static,
{
    let clock = SimClock::new(START);
    let fake = Arc::new(FakeProvider {
        respond,
        probe,
        calls: AtomicU32::new(0),
    });
    let upstream = Upstream::effects(
        "payments",
        vec![name()],
        Arc::clone(&fake) as Arc<dyn Provider>,
        policy,
    );
    let executor = EffectExecutor::new(upstream, Arc::clone(&clock) as Arc<dyn Clock>);
    (
        clock,
        executor,
        Arc::new(move || fake.calls.load(Ordering::SeqCst)),
    )
}

/// Advances the clock whenever a task sleeps, until `work` completes.
async fn run_with_clock<T>(clock: &SimClock, work: impl Future<Output = T>) -> T {
    let time = async {
        loop {
            let due = clock.due_within(Duration::from_hours(24 * 365)).await;
            clock.advance_to(due);
            tokio::task::yield_now().await;
        }
    };
    let within = async {
        tokio::select! {
            biased;
            out = work => out,
            () = time => unreachable!("the clock never stops"),
        }
    };
    tokio::time::timeout(Duration::from_mins(1), within)
        .await
        .expect("it hangs")
}

fn failure(done: &ExecutionResult) -> (&'static str, String) {
    match &done.outcome {
        WorkOutcome::Accepted => ("accepted", String::new()),
        WorkOutcome::Succeeded { .. } => ("succeeded", String::new()),
        WorkOutcome::Failed { failure, .. } => ("failed", failure.to_string()),
        WorkOutcome::TimedOut { failure } => ("timed out", failure.to_string()),
    }
}

#[tokio::test]
async fn expired_work_is_not_started() {
    let (_, executor, calls) = stage(Policy::default(), ProbeResult::Unknown, unhealthy);
    let done = executor
        .execute(&WorkItem {
            deadline: Some(START),
            ..item(&name(), 1)
        })
        .await;
    let text = "deadline exceeded: payments was never called (deadline_passed)".to_owned();
    assert_eq!(
        (failure(&done), done.attempts, calls()),
        (("failed", text), 0, 0)
    );
}

#[tokio::test]
async fn retries_until_the_deadline_only() {
    let (clock, executor, calls) = stage(
        Policy {
            breaker: None,
            ..Policy::default()
        },
        ProbeResult::Unknown,
        unhealthy,
    );
    let deadline = START.saturating_add(Duration::from_secs(30));
    let item = WorkItem {
        deadline: Some(deadline),
        ..item(&name(), 1)
    };
    let done = run_with_clock(&clock, executor.execute(&item)).await;
    let (kind, text) = failure(&done);
    assert!(
        kind == "failed" && text.contains("connection refused"),
        "{kind}: {text}"
    );
    assert!(
        clock.now() < deadline && calls() == done.attempts && done.attempts > 5,
        "{}",
        done.attempts
    );
}

#[tokio::test]
async fn exhausted_attempts_without_doubt_fail() {
    let policy = Policy {
        max_attempts: Some(3),
        ..Policy::default()
    };
    let (clock, executor, _) = stage(policy.clone(), ProbeResult::Unknown, unhealthy);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    let text =
        "payments: failed after 3 attempts; last: connection refused (unreachable)".to_owned();
    assert_eq!(failure(&done), ("failed", text));
    let (clock, executor, _) = stage(policy.clone(), ProbeResult::Unknown, lost);
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!(failure(&done).0, "timed out");
}

#[tokio::test]
async fn retry_hints_override_the_policy() {
    let (clock, executor, calls) = stage(Policy::default(), ProbeResult::Unknown, unhealthy);
    let mut item = item(&name(), 1);
    let Work::Effect(effect) = &mut item.work else {
        panic!("it is an effect")
    };
    effect.retry = Some(RetryPolicy {
        max_attempts: Some(2),
        initial_backoff: Some(Duration::from_secs(9)),
    });
    let done = run_with_clock(&clock, executor.execute(&item)).await;
    assert_eq!((done.attempts, calls()), (2, 2));
    assert!(clock.now() >= START.saturating_add(Duration::from_secs(9)));
}

#[tokio::test]
async fn one_probe_runs_while_many_wait_at_an_open_breaker() {
    let options = breaker::BreakerOptions {
        failure_threshold: 1,
        rate: None,
        open_duration: Duration::from_secs(5),
    };
    let policy = Policy {
        breaker: Some(options),
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(policy, ProbeResult::Unknown, |n| {
        if n == 1 {
            unhealthy(n)
        } else {
            Ok(Reply::default())
        }
    });
    let tasks: Vec<_> = (1..=50)
        .map(|n| {
            let executor = Arc::clone(&executor);
            tokio::spawn(async move { executor.execute(&item(&name(), n)).await })
        })
        .collect();
    // One is in its delay; each of the others has two timers, for the breaker and for the deadline.
    clock.until_sleeping(1 + 49 * 2).await;
    assert_eq!(
        (calls(), executor.status().breaker),
        (1, Some(BreakerState::Open))
    );
    for task in tasks {
        let done = run_with_clock(&clock, task).await.unwrap();
        assert_eq!(failure(&done).0, "succeeded");
    }
    assert_eq!((calls(), executor.status().breaker_open_count), (51, 1));
}

#[tokio::test]
async fn waiting_at_an_open_breaker_fails_at_the_deadline() {
    let options = breaker::BreakerOptions {
        failure_threshold: 1,
        rate: None,
        open_duration: Duration::from_hours(1),
    };
    let policy = Policy {
        breaker: Some(options),
        max_attempts: Some(2),
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(policy, ProbeResult::Unknown, unhealthy);
    let first = WorkItem {
        deadline: Some(START.saturating_add(Duration::from_mins(1))),
        ..item(&name(), 1)
    };
    run_with_clock(&clock, executor.execute(&first)).await;
    let second = WorkItem {
        deadline: Some(START.saturating_add(Duration::from_secs(90))),
        ..item(&name(), 2)
    };
    let done = run_with_clock(&clock, executor.execute(&second)).await;
    let text = "deadline exceeded: the breaker of payments is open (deadline_passed)".to_owned();
    assert_eq!(
        (failure(&done), calls(), clock.now()),
        (
            ("failed", text),
            1,
            START.saturating_add(Duration::from_secs(90))
        )
    );
}

#[tokio::test]
async fn flapping_upstream_loses_no_effect_and_reuses_no_key() {
    let seen = Arc::new(Mutex::new(
        std::collections::BTreeMap::<uuid::Uuid, u32>::new(),
    ));
    let upstream = {
        let (seen, calls) = (Arc::clone(&seen), AtomicU32::new(0));
        FunctionProvider::new().sync_effect("payments.charge", move |call| {
            let nth = calls.fetch_add(1, Ordering::SeqCst);
            if nth / 100 % 3 == 1 {
                return Err(ProviderError::unavailable(
                    "unhealthy",
                    "down for a hundred calls",
                ));
            }
            *seen.lock().entry(call.item.id).or_default() += 1;
            Ok(Value::Null)
        })
    };
    let options = breaker::BreakerOptions {
        failure_threshold: 5,
        rate: None,
        open_duration: Duration::from_secs(1),
    };
    let policy = Policy {
        breaker: Some(options),
        max_concurrency: 16,
        deadline: None,
        ..Policy::default()
    };
    let clock = SimClock::new(START);
    let executor = EffectExecutor::new(
        upstream.upstream("payments", policy),
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let tasks: Vec<_> = (1..=2_000)
        .map(|n| {
            let executor = Arc::clone(&executor);
            tokio::spawn(async move { executor.execute(&item(&name(), n)).await })
        })
        .collect();
    for task in tasks {
        assert_eq!(
            failure(&run_with_clock(&clock, task).await.unwrap()).0,
            "succeeded"
        );
    }
    let seen = seen.lock();
    assert_eq!((seen.len(), seen.values().max()), (2_000, Some(&1)));
    assert!(executor.status().breaker_open_count > 3 && executor.status().in_flight == 0);
}

#[tokio::test]
async fn panicking_function_is_retried_then_abandoned() {
    let native = FunctionProvider::new().effect("payments.charge", |call| async move {
        assert!(call.payload["card"].is_string(), "no such card");
        Ok(Value::Null)
    });
    let policy = Policy {
        max_attempts: Some(2),
        ..Policy::in_process()
    };
    let clock = SimClock::new(START);
    let executor = EffectExecutor::new(
        native.upstream("native", policy),
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let done = run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    let (kind, text) = failure(&done);
    assert_eq!((kind, done.attempts), ("timed out", 2));
    assert!(
        text.contains("the function of payments.charge panicked: no such card"),
        "{text}"
    );
}

#[tokio::test]
async fn typed_function_rejects_invalid_arguments() {
    #[derive(serde::Deserialize)]
    struct Charge {
        amount: u32,
    }
    let native = FunctionProvider::new()
        .typed("payments.charge", |charge: Charge, _| async move {
            Ok(charge.amount * 2)
        })
        .typed("payments.refund", |text: String, _| async move { Ok(text) });
    let upstream = native.upstream("native", Policy::in_process());
    let executor = EffectExecutor::new(upstream, SimClock::new(START));
    let done = executor.execute(&item(&name(), 1)).await;
    assert_eq!(done.outcome, WorkOutcome::succeeded(None, json!(250)));
    let done = executor
        .execute(&item(&EffectName::new("payments.refund").unwrap(), 1))
        .await;
    let (kind, text) = failure(&done);
    assert!(
        kind == "failed" && text.contains("arguments of payments.refund: invalid type"),
        "{text}"
    );
}

#[derive(Default)]
struct RecordingObserver {
    outcomes: Mutex<Vec<AttemptOutcome>>,
    states: Mutex<Vec<BreakerState>>,
    probes: Mutex<Vec<ProbeOutcome>>,
}

impl EffectObserver for RecordingObserver {
    fn attempt_finished(&self, attempted: &AttemptReport<'_>) {
        assert_eq!(attempted.upstream, "payments");
        self.outcomes.lock().push(attempted.outcome);
    }

    fn probe_finished(&self, upstream: &str, outcome: ProbeOutcome) {
        assert_eq!(upstream, "payments");
        self.probes.lock().push(outcome);
    }

    fn breaker_changed(&self, _: &str, state: BreakerState) {
        self.states.lock().push(state);
    }
}

#[tokio::test]
async fn observer_receives_attempts_and_breaker_changes() {
    let (observer, clock, calls) = (
        Arc::new(RecordingObserver::default()),
        SimClock::new(START),
        AtomicU32::new(0),
    );
    let native = FunctionProvider::new().sync_effect("payments.charge", move |_| {
        match calls.fetch_add(1, Ordering::SeqCst) {
            0 => Err(ProviderError::throttled("busy", "later")),
            1 => Err(ProviderError::unavailable("unhealthy", "down")),
            _ => Ok(Value::Null),
        }
    });
    let options = breaker::BreakerOptions {
        failure_threshold: 1,
        ..breaker::BreakerOptions::default()
    };
    let upstream = native.upstream(
        "payments",
        Policy {
            breaker: Some(options),
            ..Policy::default()
        },
    );
    let executor = EffectExecutor::with_observer(
        upstream,
        Arc::clone(&clock) as Arc<dyn Clock>,
        Arc::clone(&observer) as Arc<dyn EffectObserver>,
    );
    run_with_clock(&clock, executor.execute(&item(&name(), 1))).await;
    assert_eq!(
        *observer.outcomes.lock(),
        [
            AttemptOutcome::Throttled,
            AttemptOutcome::Unavailable,
            AttemptOutcome::Succeeded
        ]
    );
    assert_eq!(
        *observer.states.lock(),
        [
            BreakerState::Open,
            BreakerState::HalfOpen,
            BreakerState::Closed
        ]
    );
}

#[tokio::test]
async fn catalog_routes_effects_and_reports_unroutable_ones() {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let observer: Arc<dyn EffectObserver> = Arc::new(NoopObserver);
    let native = || FunctionProvider::new().sync_effect("payments.charge", |_| Ok(Value::Null));
    let upstreams = vec![native().upstream("a", Policy::in_process())];
    let catalog = Catalog::new(upstreams, &clock, &observer).unwrap();
    assert_eq!(
        catalog.effects(),
        [("payments.charge".to_owned(), vec!["a".to_owned()])]
    );
    assert_eq!(
        failure(&catalog.execute(&item(&name(), 1)).await).0,
        "succeeded"
    );
    let unknown = catalog
        .execute(&item(&EffectName::new("payments.chrge").unwrap(), 1))
        .await;
    let text = "no upstream serves payments.chrge; did you mean payments.charge? (effect_unknown)"
        .to_owned();
    assert_eq!(failure(&unknown), ("failed", text));
    let twice = ["a", "b"]
        .map(|name| native().upstream(name, Policy::in_process()))
        .into();
    let error = Catalog::new(twice, &clock, &observer).err().unwrap();
    assert_eq!(
        error.to_string(),
        r#"effect payments.charge is configured in "a" and "b"; remove it from one"#
    );
}

#[tokio::test]
async fn deadline_starts_at_the_transition_and_survives_a_crash() {
    let policy = Policy {
        deadline: Some(Duration::from_mins(10)),
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(policy.clone(), ProbeResult::Unknown, unhealthy);
    clock.advance_to(START.saturating_add(Duration::from_mins(9)));
    let done = run_with_clock(&clock, executor.resume(&item(&name(), 1))).await;
    assert_eq!((failure(&done).0, calls() > 0), ("timed out", true));
    assert!(clock.now() <= START.saturating_add(Duration::from_mins(10)));
    let (clock, executor, calls) = stage(policy, ProbeResult::Unknown, unhealthy);
    clock.advance_to(START.saturating_add(Duration::from_mins(10)));
    let done = run_with_clock(&clock, executor.resume(&item(&name(), 1))).await;
    assert_eq!((failure(&done).0, calls()), ("timed out", 0));
}

#[tokio::test]
async fn attempts_respect_the_rate_limit() {
    let rate = RateLimit {
        count: NonZeroU32::new(10).unwrap(),
        per: Duration::from_secs(1),
        burst: NonZeroU32::MIN,
    };
    let (clock, executor, calls) = stage(
        Policy {
            rate: Some(rate),
            ..Policy::default()
        },
        ProbeResult::Unknown,
        |_| Ok(Reply::default()),
    );
    let items: Vec<_> = (1..=21).map(|n| item(&name(), n)).collect();
    let all = futures::future::join_all(items.iter().map(|item| executor.execute(item)));
    run_with_clock(&clock, all).await;
    assert_eq!(
        (calls(), clock.now()),
        (21, START.saturating_add(Duration::from_secs(2)))
    );
}

#[tokio::test]
async fn only_retries_wait_for_the_retry_budget() {
    let budget = retry_budget::RetryBudgetOptions {
        percent: 10,
        min_per_second: 1,
        max_saved: 1,
    };
    let policy = Policy {
        retry_budget: Some(budget),
        breaker: None,
        deadline: None,
        ..Policy::default()
    };
    let (clock, executor, calls) = stage(policy, ProbeResult::Unknown, |n| {
        if n <= 100 {
            unhealthy(n)
        } else {
            Ok(Reply::default())
        }
    });
    let items: Vec<_> = (1..=50).map(|n| item(&name(), n)).collect();
    let all = futures::future::join_all(items.iter().map(|item| executor.execute(item)));
    let done = run_with_clock(&clock, all).await;
    assert!(done.iter().all(|done| failure(done).0 == "succeeded"));
    let retries = u64::from(calls()) - 50;
    let allowed = 1 + 5 + clock.now().duration_since(START).as_secs();
    assert_eq!(
        (retries, retries <= allowed),
        (100, true),
        "{retries} of {allowed}"
    );
}

#[tokio::test]
async fn retired_executor_returns_queued_work_and_finishes_running_work() {
    let breaker = breaker::BreakerOptions {
        failure_threshold: 1,
        rate: None,
        open_duration: Duration::from_hours(1),
    };
    let (_, executor, calls) = stage(
        Policy {
            breaker: Some(breaker),
            ..Policy::default()
        },
        ProbeResult::Unknown,
        lost,
    );
    let item = item(&name(), 1);
    let mut first = item.clone();
    let mut waiting =
        std::pin::pin!(executor.execute_for(&mut first, ExecutionProgress::default(), &()));
    assert!(futures::poll!(&mut waiting).is_pending());
    executor.retire();
    let progress = waiting.await.expect_err("it was retired");
    assert_eq!(
        (progress.attempts, progress.in_doubt, calls()),
        (1, true, 1)
    );
    let progress = ExecutionProgress {
        attempts: 4,
        ..ExecutionProgress::default()
    };
    let late = executor.execute_for(&mut item.clone(), progress, &()).await;
    assert_eq!(
        late.map_err(|progress| (progress.attempts, progress.in_doubt)),
        Err((4, false))
    );
}

/// Dispatcher of a process with a lease.
struct Leased(StopToken);

impl Dispatcher for Leased {
    fn wait_started(&self) {}

    fn wait_ended(&self) {}

    fn stop_token(&self) -> Option<&StopToken> {
        Some(&self.0)
    }
}

/// A process that was suspended can continue with an attempt before any message about the end of its lease.
#[tokio::test(start_paused = true)]
async fn no_attempt_starts_after_the_end_of_the_lease() {
    let ttl = Duration::from_secs(3);
    let lease = LeaseEnd::default();
    let dispatcher = Leased(StopToken::until(lease.clone()));
    let (clock, executor, calls) = stage(
        Policy {
            max_attempts: None,
            deadline: None,
            ..Policy::default()
        },
        ProbeResult::Unknown,
        unhealthy,
    );
    lease.begin(Instant::now() + ttl);
    let mut item = item(&name(), 1);
    let mut running =
        std::pin::pin!(executor.execute_for(&mut item, ExecutionProgress::default(), &dispatcher));
    assert!(futures::poll!(&mut running).is_pending());
    assert_eq!(calls(), 1);
    tokio::time::advance(ttl / 2).await;
    assert!(lease.extend(Instant::now() + ttl), "its end has not passed");
    tokio::time::advance(ttl).await;
    assert!(!lease.extend(Instant::now() + ttl), "its end has passed");
    clock.advance(Duration::from_hours(1));
    let ended = tokio::time::timeout(ttl, running)
        .await
        .expect("no further attempt");
    let progress = ended.expect_err("the item is dropped");
    assert_eq!((progress.attempts, calls()), (1, 1));
    lease.begin(Instant::now() + ttl);
    assert!(
        dispatcher.0.is_stopped(),
        "the next lease is that of another epoch"
    );
}

#[tokio::test]
async fn ten_thousand_effects_complete_within_the_retry_budget() {
    let budget = retry_budget::RetryBudgetOptions {
        percent: 20,
        min_per_second: 50,
        max_saved: 100,
    };
    // With an open duration equal to the period of the upstream, every probe would fail.
    let breaker = breaker::BreakerOptions {
        open_duration: Duration::from_millis(700),
        ..breaker::BreakerOptions::default()
    };
    let policy = Policy {
        retry_budget: Some(budget),
        breaker: Some(breaker),
        deadline: None,
        max_concurrency: 64,
        ..Policy::default()
    };
    let clock = SimClock::new(START);
    let (keys, attempts) = (
        Arc::new(Mutex::new(std::collections::BTreeMap::new())),
        Arc::new(AtomicU32::new(0)),
    );
    let (seen, counted, time) = (Arc::clone(&keys), Arc::clone(&attempts), Arc::clone(&clock));
    // Healthy for three seconds, unhealthy for two, and so on; records the calls.
    let native = FunctionProvider::new().sync_effect(
        "payments.charge",
        move |call: SyncFunctionCall<'_>| {
            counted.fetch_add(1, Ordering::SeqCst);
            let order = call.effect.payload["order"]["id"].clone();
            let earlier = seen.lock().insert(call.item.id, order.clone());
            assert!(
                earlier.is_none_or(|earlier| earlier == order),
                "a key is used twice"
            );
            let unhealthy = time.now().duration_since(START).as_secs() % 5 >= 3;
            if unhealthy {
                Err(ProviderError::unavailable("unhealthy", "down"))
            } else {
                Ok(Value::Null)
            }
        },
    );
    let executor = EffectExecutor::new(
        native.upstream("payments", policy),
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    let rate = 1_000;
    let items: Vec<_> = (1..=10_000).map(|n| item(&name(), n)).collect();
    let arriving = items.iter().zip(0u64..).map(|(item, n)| {
        let (clock, executor) = (Arc::clone(&clock), Arc::clone(&executor));
        async move {
            clock
                .sleep_until_due(START.saturating_add(Duration::from_millis(n * 1000 / rate)))
                .await;
            executor.execute(item).await
        }
    });
    let done = run_with_clock(&clock, futures::future::join_all(arriving)).await;
    assert!(
        done.iter().all(|done| failure(done).0 == "succeeded"),
        "one is lost"
    );
    let (attempts, seconds) = (
        u64::from(attempts.load(Ordering::SeqCst)),
        clock.now().duration_since(START).as_secs() + 1,
    );
    assert_eq!(keys.lock().len(), 10_000);
    assert!(
        attempts <= 10_000 + 2_000 + 50 * seconds + 100,
        "{attempts} attempts in {seconds} s"
    );
}

/// Sets the clock back by an hour as soon as a task sleeps, and returns the time that `work` took.
async fn time_with_a_clock_set_back(
    clock: &SimClock,
    work: impl Future<Output = ExecutionResult>,
) -> Duration {
    let start = clock.steady();
    let mut work = std::pin::pin!(work);
    assert!(futures::poll!(&mut work).is_pending(), "nothing waits");
    clock.set_back(Duration::from_hours(1));
    run_with_clock(clock, work).await;
    clock.steady().duration_since(start)
}

#[tokio::test]
async fn clock_set_back_delays_no_retry_breaker_timeout_or_deadline() {
    let second = Duration::from_secs(1);
    let constant = Backoff {
        initial: second,
        max: second,
        multiplier: 1,
    };
    let second_works = |n| {
        if n == 1 {
            unhealthy(n)
        } else {
            Ok(Reply::default())
        }
    };
    let policy = Policy {
        backoff: constant,
        ..Policy::default()
    };
    let (clock, executor, _) = stage(policy.clone(), ProbeResult::Unknown, second_works);
    let work = item(&name(), 1);
    assert_eq!(
        time_with_a_clock_set_back(&clock, executor.execute(&work)).await,
        second,
        "backoff"
    );

    let breaker = breaker::BreakerOptions {
        failure_threshold: 1,
        rate: None,
        open_duration: Duration::from_secs(2),
    };
    let open = Policy {
        breaker: Some(breaker),
        ..policy.clone()
    };
    let (clock, executor, _) = stage(open, ProbeResult::Unknown, second_works);
    assert_eq!(
        time_with_a_clock_set_back(&clock, executor.execute(&work)).await,
        2 * second,
        "breaker"
    );

    let rate = RateLimit {
        count: NonZeroU32::MIN,
        per: Duration::from_secs(3),
        burst: NonZeroU32::MIN,
    };
    let limited = Policy {
        rate: Some(rate),
        ..policy.clone()
    };
    let (clock, executor, _) = stage(limited, ProbeResult::Unknown, |_| Ok(Reply::default()));
    executor.execute(&work).await;
    assert_eq!(
        time_with_a_clock_set_back(&clock, executor.execute(&work)).await,
        3 * second,
        "rate"
    );

    let deadline = Policy {
        deadline: Some(Duration::from_secs(30)),
        ..policy.clone()
    };
    let (clock, executor, _) = stage(deadline, ProbeResult::Unknown, unhealthy);
    let time = time_with_a_clock_set_back(&clock, executor.execute(&work)).await;
    assert!(time <= 30 * second, "deadline: {time:?}");

    let never = FunctionProvider::new().effect("payments.charge", |_| {
        std::future::pending::<Result<Value, _>>()
    });
    let timeout = Policy {
        attempt_timeout: Duration::from_secs(5),
        max_attempts: Some(1),
        ..policy
    };
    let clock = SimClock::new(START);
    let executor = EffectExecutor::new(
        never.upstream("payments", timeout),
        Arc::clone(&clock) as Arc<dyn Clock>,
    );
    assert_eq!(
        time_with_a_clock_set_back(&clock, executor.execute(&work)).await,
        5 * second,
        "timeout"
    );
}
