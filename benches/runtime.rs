//! Benchmarks of the whole runtime: store, embedded bus, actors, engine and in-process effects, on a
//! real disk.
//!
//! Each benchmark measures one part of the path of an event. The others run too, but wait or are idle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use divan::Bencher;
use divan::counter::ItemsCount;
use futures::future::join_all;
use orlog_effect::{FunctionProvider, Policy, SyncFunctionCall, Upstream};
use orlog_model::{
    Clock, ControlAction, ControlRequest, CorrelationId, Event, EventId, EventType, InstanceKey,
    SagaName, Timestamp,
};
use orlog_program::{Program, compile_yaml};
use orlog_testkit::SimClock;
use orlog_testkit::fake_upstreams::{FakeUpstreams, event};
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, tenant};
use serde_json::json;
use tempfile::TempDir;

/// Instances of one sample.
const INSTANCES: u64 = 1000;
const EFFECTS: u64 = 3;
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);
const WAIT: Duration = Duration::from_hours(1);

/// Waits for an hour.
const WAITING: &str = "
saga: waiting
version: 1
correlate: id
start: waiting.started
steps:
  - { id: pause, do: { wait: 1h } }
";

/// Executes three effects.
const EXECUTING: &str = "
saga: executing
version: 1
correlate: id
start: executing.started
vars: { id: =event.id }
steps:
  - { id: first, do: { effect: bench.call, data: { id: =vars.id } } }
  - { id: second, do: { effect: bench.call, data: { id: =vars.id } } }
  - { id: third, do: { effect: bench.call, data: { id: =vars.id } } }
";

fn main() {
    divan::main();
}

/// Runtime of a benchmark, with its own directory and clock.
struct Bench {
    tokio: tokio::runtime::Runtime,
    runtime: Option<TestRuntime>,
    config: TestRuntimeConfig,
    upstreams: Arc<FakeUpstreams>,
    clock: Arc<SimClock>,
    next_id: AtomicU64,
    _dir: TempDir,
}

impl Bench {
    fn start() -> Self {
        // The temporary directory may be in memory, where fsync is free.
        let dir = TempDir::new_in(env!("CARGO_TARGET_TMPDIR"))
            .expect("the directory of the build exists");
        let clock = SimClock::new(START);
        let programs = [WAITING, EXECUTING].map(|source| {
            let program = compile_yaml(source, "bench.saga.yaml").expect("the definition is valid");
            Arc::new(program) as Arc<dyn Program>
        });
        let runtime_clock: Arc<dyn Clock> = clock.clone();
        let upstreams = FakeUpstreams::new(runtime_clock.clone(), 1);
        let mut config =
            TestRuntimeConfig::new(dir.path().to_owned(), programs.into(), runtime_clock);
        let slots = config.store.slots;
        config.store = orlog_store::Options {
            slots,
            ..orlog_store::Options::default()
        };
        config.more_upstreams = vec![effects()];
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        let mut bench = Self {
            tokio,
            runtime: None,
            config,
            upstreams,
            clock,
            next_id: AtomicU64::new(0),
            _dir: dir,
        };
        bench.restart();
        bench
    }

    fn restart(&mut self) {
        self.runtime = Some(self.tokio.block_on(self.config.start(&self.upstreams)));
    }

    fn crash(&mut self) {
        let runtime = self.runtime.take().expect("the runtime runs");
        self.tokio.block_on(runtime.crash());
    }

    fn runtime(&self) -> &TestRuntime {
        self.runtime.as_ref().expect("the runtime runs")
    }

    /// Returns the start events of new instances of a saga.
    fn events(&self, saga: &str) -> Vec<(InstanceKey, Event)> {
        let first = self.next_id.fetch_add(INSTANCES, Ordering::Relaxed);
        (first..first + INSTANCES)
            .map(|number| start_event(saga, number))
            .collect()
    }

    /// Publishes the events and waits until `transitions` transitions of each instance are durable.
    fn run(&self, events: &[(InstanceKey, Event)], transitions: u64) {
        let before = self.transitions();
        self.tokio.block_on(async {
            join_all(
                events
                    .iter()
                    .map(|(_, event)| self.runtime().publish(event)),
            )
            .await;
            let expected = before + INSTANCES * transitions;
            self.wait_for(expected).await;
        });
    }

    async fn wait_for(&self, transitions: u64) {
        let reached =
            |runtime: &TestRuntime| runtime.runtime.metrics().transitions() >= transitions;
        self.runtime()
            .wait_until("the transitions are durable", reached)
            .await;
    }

    fn transitions(&self) -> u64 {
        self.runtime().runtime.metrics().transitions()
    }
}

fn effects() -> Upstream {
    let call = |_: SyncFunctionCall<'_>| Ok(json!({ "ok": true }));
    let policy = Policy {
        max_concurrency: 16_384,
        ..Policy::in_process()
    };
    FunctionProvider::new()
        .sync_effect("bench.call", call)
        .upstream("bench", policy)
}

fn start_event(saga: &str, number: u64) -> (InstanceKey, Event) {
    let key = InstanceKey {
        tenant: tenant(),
        saga: SagaName::new(saga).expect("a valid name"),
        correlation: CorrelationId::new(format!("b-{number}")).expect("a valid name"),
    };
    let event = Event {
        id: event_id("start", number),
        kind: EventType::new(format!("{saga}.started")).expect("a valid name"),
        data: json!({ "id": key.correlation }),
        ..event(&key, START)
    };
    (key, event)
}

fn event_id(prefix: &str, number: u64) -> EventId {
    EventId::new(format!("{prefix}-{number}")).expect("a valid name")
}

/// Event → bus → ingester → first transition of a new instance.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn ingest(bencher: Bencher) {
    let bench = Bench::start();
    bencher
        .counter(ItemsCount::new(INSTANCES))
        .with_inputs(|| bench.events("waiting"))
        .bench_local_values(|events| bench.run(&events, 1));
}

/// Control request → mailbox → saga actor → group commit → response. One request for each of the
/// instances, all at once.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn mailbox_to_commit(bencher: Bencher) {
    let bench = Bench::start();
    let events = bench.events("waiting");
    bench.run(&events, 1);
    let pause = AtomicU64::new(0);
    bencher.counter(ItemsCount::new(INSTANCES)).bench_local(|| {
        let round = pause.fetch_add(1, Ordering::Relaxed);
        let request = |number: usize| ControlRequest {
            id: event_id("control", round * INSTANCES + number as u64),
            action: if round.is_multiple_of(2) {
                ControlAction::Pause
            } else {
                ControlAction::Resume
            },
            at: START,
            expected_version: None,
            user: None,
            reason: None,
            trace: None,
            wait_token: None,
        };
        let runtime = &bench.runtime().runtime;
        let requests = events
            .iter()
            .enumerate()
            .map(|(number, (key, _))| runtime.control(key, request(number)));
        for response in bench.tokio.block_on(join_all(requests)) {
            response.expect("the instance exists");
        }
    });
}

/// Commit → relay → in-process effect → result → commit, three times for each instance, with the event
/// that starts it. The counter counts effects.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn relay(bencher: Bencher) {
    let bench = Bench::start();
    bencher
        .counter(ItemsCount::new(INSTANCES * EFFECTS))
        .with_inputs(|| bench.events("executing"))
        .bench_local_values(|events| bench.run(&events, 1 + EFFECTS));
}

/// Due timer → transition of its instance → commit; all timers are due at once.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn timer(bencher: Bencher) {
    let bench = Bench::start();
    bencher
        .counter(ItemsCount::new(INSTANCES))
        .with_inputs(|| bench.run(&bench.events("waiting"), 1))
        .bench_local_values(|()| {
            let expected = bench.transitions() + INSTANCES;
            bench.clock.advance(WAIT);
            bench.tokio.block_on(bench.wait_for(expected));
        });
}

/// Start of a runtime after a crash with that many waiting instances, up to the first transition of a new
/// instance.
#[divan::bench(sample_count = 20, sample_size = 1)]
fn recovery(bencher: Bencher) {
    let bench = std::cell::RefCell::new(Bench::start());
    bench.borrow().run(&bench.borrow().events("waiting"), 1);
    bencher
        .counter(ItemsCount::new(INSTANCES))
        .with_inputs(|| bench.borrow_mut().crash())
        .bench_local_values(|()| {
            bench.borrow_mut().restart();
            let bench = bench.borrow();
            let (_, event) = start_event("waiting", bench.next_id.fetch_add(1, Ordering::Relaxed));
            bench.tokio.block_on(async {
                bench.runtime().publish(&event).await;
                bench.wait_for(1).await;
            });
        });
}
