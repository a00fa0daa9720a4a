//! Fleets of pooled workers: seeded kills, contention, shutdown.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use orlog_testkit::wait::{until, within};
use orlog_workflow::{
    Client, Context, Graph, PooledWorker, RunError, Task, TaskError, TaskRegistry, WorkerHandle, Workflow,
};

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
        self.0.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl Task<u64> for Watched {
    type Out = u64;

    async fn run(&self, context: &Context, input: u64) -> Result<u64, TaskError> {
        let id = context.instance().to_owned();
        let is_new = self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
        if !is_new {
            self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(context.idempotency_key());
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
            client.start(&workflow, &format!("w-{started}"), started).await.expect("starts");
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
        let result = within("each instance completes", client.outcome::<u64>(&format!("w-{number}"))).await;
        assert_eq!(result.expect("completes"), number + 3);
    }
    for worker in workers {
        worker.shutdown();
        worker.join().await;
    }
    assert_eq!(*watched.violations.lock().unwrap_or_else(PoisonError::into_inner), Vec::<String>::new());
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
    let workflow = Workflow::builder("gate").then("a", gate.clone()).then("b", step).build().expect("valid");
    let test = BackendKind::Memory.open().await;
    let client = Client::new(Arc::clone(&test.backend));
    let first = worker(&test, &workflow).spawn();
    let order = Order::new();
    client.start(&workflow, "g-1", order.clone()).await.expect("starts");
    until("the task starts", || async { (calls(&order.key) == ["a"]).then_some(()) }).await;
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
    let workflow = Workflow::builder("gate").then("a", gate.clone()).build().expect("valid");
    let test = BackendKind::Memory.open().await;
    let client = Client::new(Arc::clone(&test.backend));
    let ttl = Duration::from_millis(200);
    let spawn = || worker(&test, &workflow).claim_ttl(ttl).heartbeat_interval(ttl / 4).spawn();
    let workers = [spawn(), spawn()];
    let order = Order::new();
    client.start(&workflow, "g-1", order.clone()).await.expect("starts");
    until("the task starts", || async { (!calls(&order.key).is_empty()).then_some(()) }).await;
    let start = tokio::time::Instant::now();
    until("three times the time to live passes", || async { (start.elapsed() > 3 * ttl).then_some(()) })
        .await;
    assert_eq!(calls(&order.key), ["a"]);
    gate.0.notify_one();
    within("the instance completes", client.outcome::<Order>("g-1")).await.expect("completes");
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
    let workflow = Workflow::builder("remote").then("a", step).then("b", step).build().expect("valid");
    let registry = TaskRegistry::new().task("a", step).task("b", step);
    let worker = PooledWorker::new("w", Arc::clone(&test.backend), registry).spawn();
    let client = Client::new(Arc::clone(&test.backend));
    let order = Order::new();
    client.start(&workflow, "r-1", order.clone()).await.expect("starts");
    within("the instance completes", client.outcome::<Order>("r-1")).await.expect("completes");
    assert_eq!(calls(&order.key), ["a", "b"]);
    worker.shutdown();
    worker.join().await;
}

#[test]
fn a_missing_or_changed_task_is_an_error_before_the_workflow_runs() {
    async fn other(_: &Context, number: u32) -> Result<u32, TaskError> {
        Ok(number)
    }
    let workflow = Workflow::builder("remote").then("a", step).then("b", step).build().expect("valid");
    let graph: Graph = workflow.graph().clone();
    let error =
        TaskRegistry::new().task("b", other).assemble::<Order, Order>(graph).expect_err("tasks are wrong");
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
    let workflow =
        Workflow::builder("stuck").then("a", step).undo(broken).then("b", step).build().expect("valid");
    let test = BackendKind::Memory.open().await;
    let worker = worker(&test, &workflow).spawn();
    let client = Client::new(Arc::clone(&test.backend));
    client.start(&workflow, "s-1", Order::failing("b")).await.expect("starts");
    let stuck = within("the instance is stuck", client.outcome::<Order>("s-1")).await;
    assert!(matches!(stuck, Err(RunError::Stuck(_))), "{stuck:?}");
    client.retry_compensation("s-1").await.expect("stores");
    let stuck = within("the instance is stuck again", client.outcome::<Order>("s-1")).await;
    assert!(matches!(stuck, Err(RunError::Stuck(_))), "{stuck:?}");
    client.skip_compensation("s-1").await.expect("stores");
    let failed = within("the instance fails", client.outcome::<Order>("s-1")).await;
    assert!(matches!(failed, Err(RunError::Failed(_))), "{failed:?}");
    worker.shutdown();
    worker.join().await;
}
