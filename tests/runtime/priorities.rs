//! Priorities of work through the complete runtime: the order in which an upstream executes a backlog.

use std::collections::BTreeSet;
use std::sync::Arc;

use orlog_effect::{FunctionProvider, Policy, Upstream};
use orlog_model::{
    Clock, CorrelationId, Destination, Event, EventId, EventType, InstanceKey, Priority, SagaName,
    Timestamp, WorkKind,
};
use orlog_program::{Program, compile_yaml};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::{FakeUpstreams, event};
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, tenant};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
/// Size of the windows of the relay, much smaller than the backlogs.
const WINDOW: usize = 16;

const PARCEL: &str = "\
saga: parcel
version: 1
start: Parcel
vars: { priority: =event.priority }
steps:
  - id: send
    do: { effect: post.send, data: { priority: =vars.priority } }
    priority: =vars.priority
completed: { fact: Sent, data: {} }
";

fn parcel() -> Arc<dyn Program> {
    Arc::new(compile_yaml(PARCEL, "parcel.saga.yaml").expect("the definition is valid"))
}

/// Upstream that executes one call at a time, after a permit, and its executed calls.
struct Post {
    gate: Arc<Semaphore>,
    calls: Arc<Mutex<Vec<Priority>>>,
}

impl Post {
    fn closed() -> Self {
        Self {
            gate: Arc::new(Semaphore::new(0)),
            calls: Arc::default(),
        }
    }

    fn upstream(&self) -> Upstream {
        let (gate, calls) = (Arc::clone(&self.gate), Arc::clone(&self.calls));
        let function = FunctionProvider::new().effect("post.send", move |call| {
            let (gate, calls) = (Arc::clone(&gate), Arc::clone(&calls));
            async move {
                gate.acquire().await.expect("it is never closed").forget();
                let priority = call.payload["priority"].as_str().expect("a text").parse();
                calls.lock().push(priority.expect("a priority"));
                Ok(Value::Null)
            }
        });
        let policy = Policy {
            max_concurrency: 1,
            ..Policy::in_process()
        };
        function
            .upstream("post", policy)
            .for_tenants(Some(BTreeSet::from([tenant()])))
    }

    /// Returns the positions of the calls of a priority, in order.
    fn positions(&self, priority: Priority) -> Vec<usize> {
        let calls = self.calls.lock();
        let of = calls.iter().enumerate().filter(|(_, of)| **of == priority);
        of.map(|(position, _)| position).collect()
    }
}

fn config(home: &tempfile::TempDir, post: &Post) -> (TestRuntimeConfig, Arc<FakeUpstreams>) {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock), 1);
    let mut config = TestRuntimeConfig::new(home.path().to_owned(), vec![parcel()], clock);
    config.limits.max_in_flight_per_window = WINDOW;
    config.more_upstreams = vec![post.upstream()];
    (config, upstreams)
}

/// Starts parcels of a priority, and waits until their work is stored.
async fn send(runtime: &TestRuntime, priority: Priority, count: usize) -> Vec<InstanceKey> {
    let keys: Vec<_> = (0..count)
        .map(|number| InstanceKey {
            tenant: tenant(),
            saga: SagaName::new("parcel").expect("a valid name"),
            correlation: CorrelationId::new(format!("{}-{number}", priority.as_str()))
                .expect("a valid id"),
        })
        .collect();
    for key in &keys {
        let start = Event {
            id: EventId::new(key.correlation.as_str()).expect("a valid id"),
            kind: EventType::new("Parcel").expect("a valid name"),
            data: json!({ "priority": priority.as_str() }),
            ..event(key, START)
        };
        runtime.publish(&start).await;
    }
    runtime
        .wait_until("the work is stored", |runtime| {
            stored(runtime, priority) == count
        })
        .await;
    keys
}

/// Returns the number of work items of a priority in the outbox.
fn stored(runtime: &TestRuntime, priority: Priority) -> usize {
    let (tenant, name) = (tenant(), "post.send".into());
    let destination = Destination {
        kind: WorkKind::Effect,
        tenant,
        name,
        priority,
    };
    runtime
        .reader()
        .outbox(&destination, 0, usize::MAX)
        .expect("the store can be read")
        .len()
}

/// Waits until this number of items wait at the upstream: stored work reaches it a moment later.
async fn wait_for_waiting_items(runtime: &TestRuntime, count: usize) {
    let waits = |runtime: &TestRuntime| {
        runtime
            .catalog
            .upstream_statuses()
            .iter()
            .any(|of| of.upstream == "post" && of.waiting == count)
    };
    runtime
        .wait_until("the items wait at the upstream", waits)
        .await;
}

async fn wait_for_the_first_attempt(runtime: &TestRuntime) {
    let runs = |runtime: &TestRuntime| {
        runtime
            .catalog
            .upstream_statuses()
            .iter()
            .any(|of| of.upstream == "post" && of.in_flight == 1)
    };
    runtime.wait_until("an attempt runs", runs).await;
}

#[tokio::test]
async fn high_work_passes_a_backlog_of_low_work() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let post = Post::closed();
    let (config, upstreams) = config(&home, &post);
    let runtime = config.start(&upstreams).await;
    let low = send(&runtime, Priority::Low, 300).await;
    wait_for_the_first_attempt(&runtime).await;
    let high = send(&runtime, Priority::High, 40).await;
    // One low call runs; both windows are full.
    wait_for_waiting_items(&runtime, 2 * WINDOW - 1).await;
    post.gate.add_permits(340);
    runtime.wait_until_ended(&[low, high].concat()).await;
    for (k, position) in post.positions(Priority::High).into_iter().enumerate() {
        // One low call runs already, and the low items take turns while the relay fills the window.
        assert!(
            position <= 2 * k + WINDOW,
            "call {k} of high work was number {position} of 340"
        );
    }
    runtime.stop().await;
}

#[tokio::test]
async fn low_work_is_executed_beside_a_backlog_of_high_work() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let post = Post::closed();
    let (config, upstreams) = config(&home, &post);
    let runtime = config.start(&upstreams).await;
    let high = send(&runtime, Priority::High, 300).await;
    wait_for_the_first_attempt(&runtime).await;
    let [normal, low] = [
        send(&runtime, Priority::Normal, 6).await,
        send(&runtime, Priority::Low, 6).await,
    ];
    wait_for_waiting_items(&runtime, WINDOW - 1 + 12).await;
    post.gate.add_permits(312);
    runtime
        .wait_until_ended(&[high, normal, low].concat())
        .await;
    for (k, position) in post.positions(Priority::Low).into_iter().enumerate() {
        // A round has 20 calls of other priorities for each low one.
        assert!(
            position <= 21 * (k + 1) + WINDOW,
            "call {k} of low work was number {position} of 312"
        );
    }
    runtime.stop().await;
}

#[tokio::test]
async fn priorities_survive_a_crash() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let post = Post::closed();
    let (config, upstreams) = config(&home, &post);
    let runtime = config.start(&upstreams).await;
    let low = send(&runtime, Priority::Low, 300).await;
    let high = send(&runtime, Priority::High, 40).await;
    runtime.crash().await;
    let runtime = config.start(&upstreams).await;
    assert_eq!(
        [Priority::High, Priority::Low].map(|of| stored(&runtime, of)),
        [40, 300]
    );
    wait_for_the_first_attempt(&runtime).await;
    post.gate.add_permits(341);
    runtime.wait_until_ended(&[low, high].concat()).await;
    let last = post.positions(Priority::High).last().copied();
    assert!(
        last.is_some_and(|last| last <= 2 * 40 + WINDOW),
        "the last high call is number {last:?} of 340"
    );
    runtime.stop().await;
}
