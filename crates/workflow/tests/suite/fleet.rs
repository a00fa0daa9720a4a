//! Fleets of pooled workers: seeded kills, contention, shutdown.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use orlog_testkit::wait::{until, within};
use orlog_workflow::backend::{After, BackendError, Save};
use orlog_workflow::{
    CheckpointingRunner, Client, Clock, Context, Graph, PooledWorker, RunError, Task, TaskError,
    TaskRegistry, WorkerHandle, Workflow,
};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize, Serializer};

use crate::support::{BackendKind, TestBackend, number, worker};
use crate::tasks::{Order, calls, step};

/// Tasks that count their calls and detect two concurrent executions of one instance.
#[derive(Clone, Default)]
struct Watched {
    running: Arc<Mutex<BTreeSet<String>>>,
    calls: Arc<AtomicU64>,
    violations: Arc<Mutex<Vec<String>>>,
}

struct Execution(Watched, String);

impl Drop for Execution {
    fn drop(&mut self) {
        self.0.running.lock().remove(&self.1);
    }
}

impl Task<u64> for Watched {
    type Out = u64;

    async fn run(&self, context: &Context, input: u64) -> Result<u64, TaskError> {
        let id = context.instance().to_owned();
        let is_new = self.running.lock().insert(id.clone());
        if !is_new {
            self.violations.lock().push(context.idempotency_key());
        }
        let _execution = Execution(self.clone(), id);
        self.calls.fetch_add(1, Ordering::SeqCst);
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        Ok(input + 1)
    }
}

fn workflow(watched: &Watched) -> Workflow<u64, u64> {
    Workflow::builder("watched")
        .then("a", watched.clone())
        .then("b", watched.clone())
        .then("c", watched.clone())
        .build()
        .expect("valid")
}

/// Starts instances while workers are killed and replaced; each instance completes once.
async fn kill_workers(kind: BackendKind, seed: u64, kills: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let watched = Watched::default();
    let workflow = workflow(&watched);
    let test = kind.open().await;
    let client = Client::new(Arc::clone(&test.backend));
    let spawn = |test: &TestBackend| -> WorkerHandle {
        worker(test, &workflow)
            .claim_ttl(Duration::from_millis(400))
            .heartbeat_interval(Duration::from_millis(100))
            .concurrency(4)
            .spawn()
    };
    let mut workers: Vec<_> = (0..3).map(|_| spawn(&test)).collect();
    let mut started = 0;
    for _ in 0..kills {
        // Each new instance makes at least 3 calls.
        let (calls, more) = (watched.calls.load(Ordering::SeqCst), random.u64(1..4));
        for _ in 0..random.u32(1..6) {
            client
                .start(&workflow, &format!("w-{started}"), started)
                .await
                .expect("starts");
            started += 1;
        }
        until("the workers make progress", || async {
            (watched.calls.load(Ordering::SeqCst) >= calls + more).then_some(())
        })
        .await;
        let victim = random.usize(..workers.len());
        workers.swap_remove(victim).abort().await;
        workers.push(spawn(&test));
    }
    for number in 0..started {
        let result = within(
            "each instance completes",
            client.outcome::<u64>(&format!("w-{number}")),
        )
        .await;
        assert_eq!(result.expect("completes"), number + 3);
    }
    for worker in workers {
        worker.shutdown();
        worker.join().await;
    }
    assert_eq!(*watched.violations.lock(), Vec::<String>::new());
}

async fn kill_with_random_seed(kind: BackendKind, kills: u64) {
    let seed = number("ORLOG_SEED", fastrand::u64(..));
    println!("ORLOG_SEED={seed}");
    kill_workers(kind, seed, kills).await;
}

/// Requirements: S2, S3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_no_instance_in_memory() {
    kill_with_random_seed(BackendKind::Memory, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_no_instance_embedded() {
    kill_with_random_seed(BackendKind::Embedded, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_no_instance_on_postgres() {
    kill_with_random_seed(BackendKind::Postgres, 30).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_workers_lose_no_instance_on_nats() {
    kill_with_random_seed(BackendKind::Nats, 30).await;
}

/// Task that waits until a test continues.
#[derive(Clone, Default)]
struct Gate(Arc<tokio::sync::Notify>);

impl Task<Order> for Gate {
    type Out = Order;

    async fn run(&self, context: &Context, order: Order) -> Result<Order, TaskError> {
        order.call(context)?;
        self.0.notified().await;
        Ok(order)
    }
}

/// Requirements: S4.
#[tokio::test]
async fn a_worker_that_shuts_down_ends_its_task_and_another_continues() {
    let gate = Gate::default();
    let workflow = Workflow::builder("gate")
        .then("a", gate.clone())
        .then("b", step)
        .build()
        .expect("valid");
    let test = BackendKind::Memory.open().await;
    let client = Client::new(Arc::clone(&test.backend));
    let first = worker(&test, &workflow).spawn();
    let order = Order::new();
    client
        .start(&workflow, "g-1", order.clone())
        .await
        .expect("starts");
    until("the task starts", || async {
        (calls(&order.key) == ["a"]).then_some(())
    })
    .await;
    first.shutdown();
    gate.0.notify_one();
    within("the worker stops", first.join()).await;
    assert_eq!(calls(&order.key), ["a"]);
    let second = worker(&test, &workflow).spawn();
    let result = within("the instance completes", client.outcome::<Order>("g-1")).await;
    assert_eq!(result.expect("completes").key, order.key);
    assert_eq!(calls(&order.key), ["a", "b"]);
    second.shutdown();
    second.join().await;
}

/// Requirements: S3.
#[tokio::test]
async fn a_heartbeat_keeps_the_claim_of_a_long_task() {
    let gate = Gate::default();
    let workflow = Workflow::builder("gate")
        .then("a", gate.clone())
        .build()
        .expect("valid");
    let test = BackendKind::Memory.open().await;
    let client = Client::new(Arc::clone(&test.backend));
    let ttl = Duration::from_millis(200);
    let spawn = || {
        worker(&test, &workflow)
            .claim_ttl(ttl)
            .heartbeat_interval(ttl / 4)
            .spawn()
    };
    let workers = [spawn(), spawn()];
    let order = Order::new();
    client
        .start(&workflow, "g-1", order.clone())
        .await
        .expect("starts");
    until("the task starts", || async {
        (!calls(&order.key).is_empty()).then_some(())
    })
    .await;
    let start = tokio::time::Instant::now();
    until("three times the time to live passes", || async {
        (start.elapsed() > 3 * ttl).then_some(())
    })
    .await;
    assert_eq!(calls(&order.key), ["a"]);
    gate.0.notify_one();
    within("the instance completes", client.outcome::<Order>("g-1"))
        .await
        .expect("completes");
    assert_eq!(calls(&order.key), ["a"]);
    for worker in workers {
        worker.shutdown();
        worker.join().await;
    }
}

/// Requirements: S1.
#[tokio::test]
async fn a_worker_executes_a_workflow_that_it_did_not_build() {
    let test = BackendKind::Memory.open().await;
    let workflow = Workflow::builder("remote")
        .then("a", step)
        .then("b", step)
        .build()
        .expect("valid");
    let registry = TaskRegistry::new().task("a", step).task("b", step);
    let worker = PooledWorker::new("w", Arc::clone(&test.backend), registry).spawn();
    let client = Client::new(Arc::clone(&test.backend));
    let order = Order::new();
    client
        .start(&workflow, "r-1", order.clone())
        .await
        .expect("starts");
    within("the instance completes", client.outcome::<Order>("r-1"))
        .await
        .expect("completes");
    assert_eq!(calls(&order.key), ["a", "b"]);
    worker.shutdown();
    worker.join().await;
}

#[test]
fn a_missing_or_changed_task_is_an_error_before_the_workflow_runs() {
    async fn other(_: &Context, number: u32) -> Result<u32, TaskError> {
        Ok(number)
    }
    let workflow = Workflow::builder("remote")
        .then("a", step)
        .then("b", step)
        .build()
        .expect("valid");
    let graph: Graph = workflow.graph().clone();
    let error = TaskRegistry::new()
        .task("b", other)
        .assemble::<Order, Order>(graph)
        .expect_err("tasks are wrong");
    assert_eq!(
        error.problems,
        [
            "no function \"a\" is registered; add it to the registry",
            "function \"b\" is registered as `u32 -> u32`, the workflow needs `Order -> Order`; register it under another name",
        ]
    );
}

#[tokio::test]
async fn a_stuck_instance_continues_after_an_operator_decides() {
    async fn broken(_: &Context, _: Order, _: Order) -> Result<(), TaskError> {
        Err(TaskError::permanent("no such reservation"))
    }
    let workflow = Workflow::builder("stuck")
        .then("a", step)
        .undo(broken)
        .then("b", step)
        .build()
        .expect("valid");
    let test = BackendKind::Memory.open().await;
    let worker = worker(&test, &workflow).spawn();
    let client = Client::new(Arc::clone(&test.backend));
    client
        .start(&workflow, "s-1", Order::failing("b"))
        .await
        .expect("starts");
    let stuck = within("the instance is stuck", client.outcome::<Order>("s-1")).await;
    assert!(matches!(stuck, Err(RunError::Stuck(_))), "{stuck:?}");
    client.retry_compensation("s-1").await.expect("stores");
    let stuck = within(
        "the instance is stuck again",
        client.outcome::<Order>("s-1"),
    )
    .await;
    assert!(matches!(stuck, Err(RunError::Stuck(_))), "{stuck:?}");
    client.skip_compensation("s-1").await.expect("stores");
    let failed = within("the instance fails", client.outcome::<Order>("s-1")).await;
    assert!(matches!(failed, Err(RunError::Failed(_))), "{failed:?}");
    worker.shutdown();
    worker.join().await;
}

/// Whether the next value of a test panics while it is serialized.
static PANICS: [AtomicBool; 2] = [const { AtomicBool::new(true) }; 2];

/// Value of a test.
#[derive(Debug, Clone, Deserialize)]
struct Fragile<const TEST: usize>(u64);

impl<const TEST: usize> Serialize for Fragile<TEST> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert!(
            !PANICS[TEST].swap(false, Ordering::SeqCst),
            "this value cannot be serialized"
        );
        serializer.serialize_u64(self.0)
    }
}

async fn fragile<const TEST: usize>(_: &Context, number: u64) -> Result<Fragile<TEST>, TaskError> {
    Ok(Fragile(number))
}

#[tokio::test(start_paused = true)]
async fn an_instance_whose_value_panics_is_available_again_when_its_claim_expires() {
    let workflow = Workflow::builder("fragile")
        .then("a", fragile::<0>)
        .build()
        .expect("valid");
    let test = BackendKind::Memory.open().await;
    let (ttl, clock) = (Duration::from_secs(10), Clock::virtual_time());
    let worker = worker(&test, &workflow)
        .clock(clock)
        .claim_ttl(ttl)
        .heartbeat_interval(ttl / 4)
        .spawn();
    let client = Client::new(Arc::clone(&test.backend)).clock(clock);
    client.start(&workflow, "f-1", 7).await.expect("starts");
    let result = within(
        "the instance completes",
        client.outcome::<Fragile<0>>("f-1"),
    )
    .await;
    assert_eq!(result.expect("completes").0, 7);
    assert!(!PANICS[0].load(Ordering::SeqCst));
    worker.shutdown();
    worker.join().await;
}

#[tokio::test]
async fn a_panic_of_one_resumed_instance_does_not_stop_the_others() {
    let workflow = Workflow::builder("fragile")
        .then("a", fragile::<1>)
        .build()
        .expect("valid");
    let test = BackendKind::Memory.open().await;
    let client = Client::new(Arc::clone(&test.backend));
    for id in ["f-1", "f-2"] {
        client.start(&workflow, id, 7).await.expect("starts");
    }
    let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
    let registry = TaskRegistry::new().workflow(&workflow);
    let resumed = within("the instances end", runner.resume_all(&registry))
        .await
        .expect("lists");
    let (completed, failed): (Vec<_>, Vec<_>) =
        resumed.iter().partition(|resumed| resumed.result.is_ok());
    assert_eq!((completed.len(), failed.len()), (1, 1), "{resumed:?}");
    let reason = failed[0]
        .result
        .as_ref()
        .expect_err("it panicked")
        .to_string();
    assert!(reason.contains("cannot be serialized"), "{reason}");
    let again = within("the instance ends", runner.resume_all(&registry))
        .await
        .expect("lists");
    assert!(again.len() == 1 && again[0].result.is_ok(), "{again:?}");
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_functions_does_not_starve_the_others() {
    let [own, foreign] = ["own", "foreign"].map(|name| {
        Workflow::builder(name)
            .then(name, step)
            .build()
            .expect("valid")
    });
    let test = BackendKind::Memory.open().await;
    let clock = Clock::virtual_time();
    let client = Client::new(Arc::clone(&test.backend)).clock(clock);
    let order = Order::new();
    client
        .start(&foreign, "a", Order::new())
        .await
        .expect("starts");
    client
        .start(&own, "b", order.clone())
        .await
        .expect("starts");
    let worker = worker(&test, &own)
        .clock(clock)
        .batch(1)
        .concurrency(1)
        .spawn();
    let ended = within("the instance completes", client.outcome::<Order>("b")).await;
    assert_eq!(ended.expect("completes").key, order.key);
    worker.shutdown();
    worker.join().await;
}

#[tokio::test]
async fn an_id_that_a_backend_cannot_store_is_rejected() {
    let workflow = Workflow::builder("ids")
        .then("a", step)
        .build()
        .expect("valid");
    let client = Client::new(BackendKind::Memory.open().await.backend);
    for id in ["", "a\0b", &"x".repeat(513)] {
        let error = client
            .start(&workflow, id, Order::new())
            .await
            .expect_err("the id is invalid");
        assert!(error.to_string().contains("1 to 512 bytes"), "{error}");
    }
    client
        .start(&workflow, &"x".repeat(512), Order::new())
        .await
        .expect("starts");
}

#[tokio::test]
async fn an_ended_instance_with_an_unread_signal_has_an_outcome() {
    let workflow = Workflow::builder("ready")
        .then("a", step)
        .build()
        .expect("valid");
    for kind in BackendKind::ALL {
        let test = kind.open().await;
        let client = Client::new(Arc::clone(&test.backend));
        let order = Order::new();
        client
            .start(&workflow, "i-1", order.clone())
            .await
            .expect("starts");
        client.signal("i-1", "unknown", &1).await.expect("stores");
        let worker = worker(&test, &workflow).spawn();
        let ended = within("the outcome", client.outcome::<Order>("i-1")).await;
        assert_eq!(ended.expect("completes").key, order.key);
        worker.shutdown();
        worker.join().await;
    }
}

#[tokio::test]
async fn a_worker_whose_handle_is_dropped_continues() {
    let workflow = Workflow::builder("handle")
        .then("a", step)
        .build()
        .expect("valid");
    let test = BackendKind::Memory.open().await;
    let client = Client::new(Arc::clone(&test.backend));
    drop(worker(&test, &workflow).spawn());
    // It waits when the instances arrive.
    for id in ["i-1", "i-2"] {
        client
            .start(&workflow, id, Order::new())
            .await
            .expect("starts");
        within("the instance completes", client.outcome::<Order>(id))
            .await
            .expect("completes");
    }
}

/// Requirements: S4.
#[tokio::test(start_paused = true)]
async fn the_wait_for_a_worker_is_no_part_of_a_timeout() {
    let minute = Duration::from_mins(1);
    let workflow = Workflow::builder("deadline")
        .then("a", step)
        .timeout(minute)
        .build()
        .expect("valid");
    let (test, clock, order) = (
        BackendKind::Memory.open().await,
        Clock::virtual_time(),
        Order::new(),
    );
    let client = Client::new(Arc::clone(&test.backend)).clock(clock);
    client
        .start(&workflow, "i-1", order.clone())
        .await
        .expect("starts");
    tokio::time::advance(2 * minute).await;
    let worker = worker(&test, &workflow).clock(clock).spawn();
    within("the instance completes", client.outcome::<Order>("i-1"))
        .await
        .expect("completes");
    assert_eq!(calls(&order.key), ["a"]);
    worker.shutdown();
    worker.join().await;
}

#[tokio::test]
async fn a_waiting_run_notices_that_another_process_ended_its_instance() {
    let workflow = Workflow::builder("wait")
        .then("a", step)
        .signal::<u32>("go")
        .build()
        .expect("valid");
    for kind in BackendKind::ALL {
        let (test, order) = (kind.open().await, Order::new());
        let runner = CheckpointingRunner::new(Arc::clone(&test.backend));
        let handle = runner
            .start(&workflow, "i-1", order.clone())
            .await
            .expect("starts");
        until("it waits", || async {
            (!calls(&order.key).is_empty()).then_some(())
        })
        .await;
        let taken = test
            .other
            .take_over("i-1", "other")
            .await
            .expect("responds")
            .expect("not ended");
        let (id, hash, then) = (taken.id, taken.hash, After::End { at_ms: 1 });
        let end = Save {
            id,
            epoch: taken.epoch,
            hash,
            state: taken.state,
            last_signal: 0,
            then,
        };
        test.other.save(end).await.expect("holds the claim");
        let fenced = within("the end of the run", handle.outcome()).await;
        assert!(
            matches!(fenced, Err(RunError::Backend(BackendError::Fenced { .. }))),
            "{fenced:?}"
        );
    }
}
