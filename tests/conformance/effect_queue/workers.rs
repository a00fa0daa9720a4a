//! Dispatchers and workers, with the queue between them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use orlog_actors::{
    Metrics, QueueProvider, RestartIntensity, ResultListener, WorkerPool, WorkerPoolConfig,
    WorkerPoolDependencies,
};
use orlog_bus::Message;
use orlog_bus::effect_queue::{EffectQueue, encode_start};
use orlog_bus::nats::NatsEffectQueue;
use orlog_effect::{
    Catalog, EffectExecutor, EffectObserver, ExecutionResult, FunctionCall, FunctionProvider,
    NoopObserver, Policy, ProbeResult, ProviderError, Reply, Upstream,
};
use orlog_model::{InDoubtPolicy, WorkItem, WorkOutcome};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::effect_queue::fixture::{
    QueueFixture, clock, command, connect, effect_mut, effect_of, in_time, item, item_of, until,
};

const SOON: Duration = Duration::from_millis(300);

/// Starts workers of these functions on their own connection.
async fn workers(fixture: &QueueFixture, native: FunctionProvider) -> WorkerPool {
    let config = WorkerPoolConfig {
        node: "worker".to_owned(),
        max_in_flight: 64,
        ack_wait: SOON,
        tenants: None,
        intensity: RestartIntensity::default(),
    };
    workers_with(fixture, native, config).await
}

/// Starts workers of these functions with this configuration, on their own connection.
pub(super) async fn workers_with(
    fixture: &QueueFixture,
    native: FunctionProvider,
    config: WorkerPoolConfig,
) -> WorkerPool {
    let queue: Arc<dyn EffectQueue> =
        Arc::new(NatsEffectQueue::new(connect(&fixture.urls()).await));
    let observer = Arc::new(NoopObserver) as Arc<dyn EffectObserver>;
    let upstream = native.upstream("native", Policy::in_process());
    let catalog = Arc::new(Catalog::new(vec![upstream], &clock(), &observer).unwrap());
    let dependencies = WorkerPoolDependencies {
        queue,
        catalog,
        clock: clock(),
        metrics: Arc::new(Metrics::default()),
        tracer: None,
    };
    WorkerPool::start(dependencies, config).await.unwrap()
}

/// Returns the executor of a node without local effect execution.
async fn remote_executor(fixture: &QueueFixture, timeout: Duration) -> Arc<EffectExecutor> {
    let listener = ResultListener::subscribe(Arc::clone(&fixture.queue), clock())
        .await
        .unwrap();
    let upstream = Upstream::fallback(
        "elsewhere",
        Arc::new(QueueProvider::new(listener, timeout)),
        Policy::worker(),
    );
    EffectExecutor::new(upstream, clock())
}

fn payload(done: &ExecutionResult) -> serde_json::Value {
    let WorkOutcome::Succeeded { payload, .. } = &done.outcome else {
        panic!("{done:?}")
    };
    payload.clone()
}

/// Function that counts its calls by key.
#[derive(Clone, Default)]
pub(super) struct CallCounter(Arc<Mutex<BTreeMap<Uuid, usize>>>);

impl CallCounter {
    fn note(&self, key: Uuid) -> usize {
        let mut calls = self.0.lock();
        let count = calls.entry(key).or_default();
        *count += 1;
        *count
    }

    pub(super) fn all(&self) -> BTreeMap<Uuid, usize> {
        self.0.lock().clone()
    }
}

pub(super) fn doing(name: &str, calls: &CallCounter, by: &'static str) -> FunctionProvider {
    let calls = calls.clone();
    FunctionProvider::new().effect(name, move |call: FunctionCall| {
        let count = calls.note(call.idempotency_key);
        async move { Ok::<_, ProviderError>(json!({ "user": by, "count": count })) }
    })
}

/// Returns a provider whose calls never end; each call adds a permit.
fn hanging(name: &str, started: &Arc<Semaphore>) -> FunctionProvider {
    let started = Arc::clone(started);
    FunctionProvider::new().effect(name, move |_: FunctionCall| {
        started.add_permits(1);
        std::future::pending::<Result<serde_json::Value, ProviderError>>()
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn dispatched_command_is_executed_remotely_and_result_returned() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let pool = workers(&fixture, doing("a.b", &calls, "one")).await;
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    let item = item_of("acme", "a.b", 1);
    assert_eq!(
        payload(&in_time(executor.execute(&item)).await),
        json!({ "user": "one", "count": 1 })
    );
    // The effect is requested again, as after a crash: the existing result is used and the effect is not
    // executed again.
    assert_eq!(
        payload(&in_time(executor.execute(&item)).await),
        json!({ "user": "one", "count": 1 })
    );
    assert_eq!(
        payload(&in_time(executor.resume(&item)).await),
        json!({ "user": "one", "count": 1 })
    );
    assert_eq!(calls.all(), BTreeMap::from([(item.id, 1)]));
    let rejecting = FunctionProvider::new().effect("c.d", |_: FunctionCall| async {
        Err::<serde_json::Value, _>(ProviderError::permanent("no_funds", "the card is empty"))
    });
    let other = workers(&fixture, rejecting).await;
    let result = in_time(executor.execute(&crate::effect_queue::fixture::item("c.d", 2))).await;
    assert!(
        matches!(&result.outcome, WorkOutcome::Failed { failure, .. } if failure.code == "no_funds")
    );
    assert!(
        pool.drain(Duration::from_secs(10)).await && other.drain(Duration::from_secs(10)).await
    );
    pool.stop().await;
    other.stop().await;
}

/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn duplicate_command_executes_once() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let item = item("a.b", 1);
    for offer in 1..=4 {
        fixture
            .queue
            .enqueue(command(&item, offer), offer == 1)
            .await
            .unwrap();
    }
    let pool = workers(&fixture, doing("a.b", &calls, "one")).await;
    let last = fixture
        .queue
        .enqueue(command(&item, 5), false)
        .await
        .unwrap();
    let name = &effect_of(&item).name;
    until(async || (!fixture.queue.is_pending(name, &last).await.ok()?).then_some(())).await;
    assert_eq!(calls.all(), BTreeMap::from([(item.id, 1)]));
    assert_eq!(fixture.count("WORKFLOW_EVENTS", "effect_result.>").await, 1);
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn job_of_a_dead_worker_is_reassigned() {
    let fixture = QueueFixture::one().await;
    let started = Arc::new(Semaphore::new(0));
    let dies = workers(&fixture, hanging("a.b", &started)).await;
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    let item = item("a.b", 1);
    let pending = tokio::spawn({
        let item = item.clone();
        async move { executor.execute(&item).await }
    });
    in_time(started.acquire()).await.unwrap().forget();
    dies.stop().await;
    let calls = CallCounter::default();
    let pool = workers(&fixture, doing("a.b", &calls, "another")).await;
    assert_eq!(
        payload(&in_time(pending).await.unwrap()),
        json!({ "user": "another", "count": 1 })
    );
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn non_retryable_job_is_not_reassigned() {
    let fixture = QueueFixture::one().await;
    let started = Arc::new(Semaphore::new(0));
    let dies = workers(&fixture, hanging("a.b", &started)).await;
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    let mut item = item("a.b", 1);
    effect_mut(&mut item).in_doubt = Some(InDoubtPolicy::Fail);
    let pending = tokio::spawn(async move { executor.execute(&item).await });
    in_time(started.acquire()).await.unwrap().forget();
    dies.stop().await;
    let calls = CallCounter::default();
    let pool = workers(&fixture, doing("a.b", &calls, "another")).await;
    let done = in_time(pending).await.unwrap();
    assert!(
        matches!(&done.outcome, WorkOutcome::TimedOut { failure } if failure.code == "in_doubt"),
        "{done:?}"
    );
    assert_eq!(calls.all(), BTreeMap::new());
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_result_of_racing_workers_wins() {
    let fixture = QueueFixture::one().await;
    let gate = Arc::new(tokio::sync::Barrier::new(2));
    let racing = |by: &'static str| {
        let gate = Arc::clone(&gate);
        FunctionProvider::new().effect("a.b", move |_: FunctionCall| {
            let gate = Arc::clone(&gate);
            async move {
                gate.wait().await;
                Ok::<_, ProviderError>(json!({ "user": by }))
            }
        })
    };
    let (one, two) = (
        workers(&fixture, racing("one")).await,
        workers(&fixture, racing("two")).await,
    );
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    let item = item("a.b", 1);
    let pending = tokio::spawn({
        let (executor, item) = (Arc::clone(&executor), item.clone());
        async move { executor.execute(&item).await }
    });
    // Dispatched again while the first is in flight: the other worker receives it too, or this one receives
    // it later.
    for offer in 2.. {
        fixture
            .queue
            .enqueue(command(&item, offer), false)
            .await
            .unwrap();
        if tokio::time::timeout(Duration::from_millis(200), fixture.result_message(&item))
            .await
            .is_ok()
        {
            break;
        }
    }
    let received = payload(&in_time(pending).await.unwrap());
    assert_eq!(received, fixture.result_json(&item).await["payload"]);
    assert!(one.drain(Duration::from_secs(20)).await && two.drain(Duration::from_secs(20)).await);
    assert_eq!(fixture.count("WORKFLOW_EVENTS", "effect_result.>").await, 1);
    one.stop().await;
    two.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_command_is_dispatched_again() {
    let fixture = QueueFixture::one().await;
    let executor = remote_executor(&fixture, SOON).await;
    let items: Vec<_> = (1..=5).map(|number| item("a.b", number)).collect();
    let pending: Vec<_> = items
        .iter()
        .map(|item| {
            let (executor, item) = (Arc::clone(&executor), item.clone());
            tokio::spawn(async move { executor.execute(&item).await })
        })
        .collect();
    until(async || (fixture.count("WORKFLOW_COMMANDS", "effect.>").await == 5).then_some(())).await;
    fixture.purge("WORKFLOW_COMMANDS").await;
    until(async || (fixture.count("WORKFLOW_COMMANDS", "effect.>").await == 5).then_some(())).await;
    let calls = CallCounter::default();
    let pool = workers(&fixture, doing("a.b", &calls, "one")).await;
    for done in pending {
        assert_eq!(payload(&in_time(done).await.unwrap())["user"], "one");
    }
    assert_eq!(calls.all(), items.iter().map(|item| (item.id, 1)).collect());
    assert_eq!(fixture.count("WORKFLOW_EVENTS", "effect_result.>").await, 5);
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn queued_command_is_not_dispatched_again() {
    let fixture = QueueFixture::one().await;
    let executor = remote_executor(&fixture, Duration::from_millis(20)).await;
    let one = item("a.b", 1);
    let pending = tokio::spawn({
        let (executor, item) = (Arc::clone(&executor), one.clone());
        async move { executor.execute(&item).await }
    });
    until(async || (fixture.count("WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(())).await;
    // Another item meanwhile waits for its full deadline: the redispatch delay has elapsed many times.
    let mut other = item("c.d", 2);
    other.deadline = Some(clock().now().saturating_add(Duration::from_secs(1)));
    let done = in_time(executor.execute(&other)).await;
    assert!(
        matches!(&done.outcome, WorkOutcome::TimedOut { .. }),
        "{done:?}"
    );
    assert_eq!(fixture.count("WORKFLOW_COMMANDS", "effect.>").await, 2);
    let pool = workers(&fixture, doing("a.b", &CallCounter::default(), "one")).await;
    assert_eq!(payload(&in_time(pending).await.unwrap())["count"], 1);
    pool.stop().await;
}

/// Requirements: S4.
#[tokio::test(flavor = "multi_thread")]
async fn deadline_publishes_timed_out_if_first() {
    let fixture = QueueFixture::one().await;
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    let mut late = item("a.b", 1);
    late.deadline = Some(clock().now().saturating_add(SOON));
    let done = in_time(executor.execute(&late)).await;
    assert!(
        matches!(&done.outcome, WorkOutcome::TimedOut { .. }),
        "{done:?}"
    );
    assert_eq!(fixture.result_json(&late).await["result_type"], "TimedOut");
    // A worker that receives the command later finds the result and does not execute the effect.
    let calls = CallCounter::default();
    let pool = workers(&fixture, doing("a.b", &calls, "late")).await;
    let other = item("a.b", 2);
    assert_eq!(
        payload(&in_time(executor.execute(&other)).await)["user"],
        "late"
    );
    assert_eq!(calls.all(), BTreeMap::from([(other.id, 1)]));
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn result_published_without_listener_is_found() {
    let fixture = QueueFixture::one().await;
    let item = item("a.b", 1);
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    let pending = tokio::spawn({
        let item = item.clone();
        async move { executor.execute(&item).await }
    });
    until(async || (fixture.count("WORKFLOW_COMMANDS", "effect.>").await == 1).then_some(())).await;
    pending.abort();
    drop(pending.await);
    let calls = CallCounter::default();
    let pool = workers(&fixture, doing("a.b", &calls, "meanwhile")).await;
    fixture.result_message(&item).await;
    pool.stop().await;
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    assert_eq!(
        payload(&in_time(executor.resume(&item)).await)["user"],
        "meanwhile"
    );
    assert_eq!(calls.all(), BTreeMap::from([(item.id, 1)]));
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_command_is_dead_lettered() {
    let fixture = QueueFixture::one().await;
    let pool = workers(&fixture, doing("a.b", &CallCounter::default(), "one")).await;
    let mut poison = command(&item_of("acme", "a.b", 1), 1);
    poison.payload = poison
        .payload
        .iter()
        .map(|byte| if *byte == b'{' { b'[' } else { *byte })
        .collect();
    let elsewhere = Message {
        subject: poison.subject.replace("acme", "other"),
        ..command(&item_of("acme", "a.b", 2), 1)
    };
    for invalid in [poison, elsewhere] {
        fixture.queue.enqueue(invalid, true).await.unwrap();
    }
    let executor = remote_executor(&fixture, Duration::from_mins(1)).await;
    in_time(executor.execute(&item("a.b", 3))).await;
    let buried = || async {
        fixture
            .count("WORKFLOW_DEADLETTERS", "tenant.*.deadletter.effect.*")
            .await
    };
    until(async || (buried().await == 2).then_some(())).await;
    assert_eq!(
        fixture
            .count("WORKFLOW_DEADLETTERS", "tenant.other.deadletter.effect.*")
            .await,
        1
    );
    pool.stop().await;
}

/// Requirements: S4.
#[tokio::test(flavor = "multi_thread")]
async fn draining_worker_finishes_and_takes_no_jobs() {
    let fixture = QueueFixture::one().await;
    let (started, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let waits = FunctionProvider::new().effect("a.b", {
        let (started, go_on) = (Arc::clone(&started), Arc::clone(&go_on));
        move |_: FunctionCall| {
            let (started, go_on) = (Arc::clone(&started), Arc::clone(&go_on));
            async move {
                started.add_permits(1);
                drop(go_on.acquire().await);
                Ok::<_, ProviderError>(json!({ "user": "the one that drains" }))
            }
        }
    });
    let pool = Arc::new(workers(&fixture, waits).await);
    let (first, second) = (item("a.b", 1), item("a.b", 2));
    fixture
        .queue
        .enqueue(command(&first, 1), true)
        .await
        .unwrap();
    in_time(started.acquire()).await.unwrap().forget();
    let drained = tokio::spawn({
        let pool = Arc::clone(&pool);
        async move { pool.drain(Duration::from_secs(30)).await }
    });
    until(async || pool.is_draining().then_some(())).await;
    let offered = fixture
        .queue
        .enqueue(command(&second, 1), true)
        .await
        .unwrap();
    go_on.add_permits(1);
    assert!(in_time(drained).await.unwrap());
    assert_eq!(
        fixture.result_json(&first).await["payload"]["user"],
        "the one that drains"
    );
    assert_eq!(pool.in_flight(), 0);
    let name = &effect_of(&second).name;
    assert!(fixture.queue.is_pending(name, &offered).await.unwrap());
    pool.stop().await;
}

/// A command that may have been executed is probed by the upstream of the worker.
///
/// Requirements: R10.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_command_is_probed_before_it_is_executed() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let found = |_| std::future::ready(ProbeResult::Done(Reply::from(json!({ "user": "found" }))));
    let pool = workers(&fixture, doing("a.b", &calls, "one").probe("a.b", found)).await;
    let (first, repeated) = (item("a.b", 1), item("a.b", 2));
    fixture
        .queue
        .enqueue(command(&first, 1), true)
        .await
        .unwrap();
    let start = encode_start(
        &repeated,
        effect_of(&repeated),
        Uuid::nil(),
        "a worker that ended",
        clock().now(),
    );
    fixture.queue.record_start(start).await.unwrap();
    fixture
        .queue
        .enqueue(command(&repeated, 2), true)
        .await
        .unwrap();
    assert_eq!(
        fixture.result_json(&repeated).await["payload"]["user"],
        "found"
    );
    assert_eq!(fixture.result_json(&first).await["payload"]["user"], "one");
    assert_eq!(calls.all(), BTreeMap::from([(first.id, 1)]));
    pool.stop().await;
}

/// Ten thousand effects and two workers, one of which is stopped meanwhile; each order has one result
/// and one key.
#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_effects_have_one_result_each() {
    const COUNT: u128 = 10_000;
    let fixture = QueueFixture::one().await;
    let (calls, done) = (CallCounter::default(), Arc::new(AtomicUsize::new(0)));
    let executor = remote_executor(&fixture, Duration::from_secs(20)).await;
    let dies = workers(&fixture, doing("a.b", &calls, "the one that dies")).await;
    let survivor = workers(&fixture, doing("a.b", &calls, "the one that lives")).await;
    let started = std::time::Instant::now();
    let pending: Vec<_> = (0..COUNT)
        .map(|number| {
            let (executor, done, item) = (
                Arc::clone(&executor),
                Arc::clone(&done),
                item("a.b", number),
            );
            tokio::spawn(async move {
                let work_outcome = executor.execute(&item).await;
                done.fetch_add(1, Ordering::AcqRel);
                (item, work_outcome)
            })
        })
        .collect();
    until(async || (done.load(Ordering::Acquire) > 2_000).then_some(())).await;
    dies.stop().await;
    let mut results: Vec<(WorkItem, ExecutionResult)> = Vec::new();
    for pending in pending {
        results.push(in_time(pending).await.unwrap());
    }
    println!("{COUNT} effects in {:?}", started.elapsed());
    let keys = calls.all();
    assert_eq!(keys.len(), results.len());
    for (item, result) in &results {
        assert!(keys.contains_key(&item.id));
        assert!(
            matches!(result.outcome, WorkOutcome::Succeeded { .. }),
            "{result:?}"
        );
    }
    assert_eq!(
        fixture.count("WORKFLOW_EVENTS", "effect_result.>").await,
        results.len()
    );
    survivor.stop().await;
}
