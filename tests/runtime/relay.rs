//! Relay and timer through the complete runtime: what they read from the store, and how tenants share
//! them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use orlog_actors::CommitObserver;
use orlog_effect::retry::Backoff;
use orlog_effect::{
    Attempt, FunctionProvider, Policy, Provider, ProviderError, Reply, Upstream, UpstreamStatus,
};
use orlog_model::{
    Clock, Commit, Destination, InputKind, InstanceKey, SLOTS, TenantId, Timestamp, WorkItem,
    WorkKind,
};
use orlog_testkit::SimClock;
use orlog_testkit::WAIT_TIMEOUT;
use orlog_testkit::fake_upstreams::FakeUpstreams;
use orlog_testkit::runtime::{TestRuntime, TestRuntimeConfig, tenant};
use orlog_testkit::sagas::{order, order_key, order_placed};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const TIMEOUT: Duration = Duration::from_hours(1);
/// Number of orders that are started, and of timers that fire, within one deadline.
const CHUNK: usize = 10_000;
const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn config(home: &tempfile::TempDir) -> (TestRuntimeConfig, Arc<FakeUpstreams>) {
    let clock: Arc<dyn Clock> = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock), 1);
    (
        TestRuntimeConfig::new(home.path().to_owned(), vec![order(TIMEOUT)], clock),
        upstreams,
    )
}

async fn place(runtime: &TestRuntime, numbers: std::ops::Range<usize>) -> Vec<InstanceKey> {
    place_for(runtime, &tenant(), numbers, &json!({})).await
}

async fn place_for(
    runtime: &TestRuntime,
    tenant: &TenantId,
    numbers: std::ops::Range<usize>,
    plan: &Value,
) -> Vec<InstanceKey> {
    let keys: Vec<_> = numbers.map(|number| order_key(tenant, number)).collect();
    for key in &keys {
        runtime.publish(&order_placed(key, plan, START)).await;
    }
    keys
}

/// Returns the number of charges of a tenant in the outbox.
fn charges_in_outbox(runtime: &TestRuntime, tenant: TenantId) -> usize {
    let destination = Destination {
        kind: WorkKind::Effect,
        tenant,
        name: "payments.charge".into(),
        priority: orlog_model::Priority::Normal,
    };
    runtime
        .reader()
        .outbox(&destination, 0, usize::MAX)
        .expect("the store can be read")
        .len()
}

fn other_tenant() -> TenantId {
    TenantId::new("zeta").expect("a valid name")
}

/// Creates an upstream that charges for one tenant, or for all.
fn charges<F>(
    tenant: Option<TenantId>,
    policy: Policy,
    gate: &Arc<Semaphore>,
    respond: F,
) -> Upstream
where
    F: Fn(&orlog_effect::FunctionCall) -> Result<Value, ProviderError>
        + Clone
        + Send
        + Sync
        + 'static,
{
    let gate = Arc::clone(gate);
    let function = FunctionProvider::new().effect("payments.charge", move |call| {
        let (gate, respond) = (Arc::clone(&gate), respond.clone());
        async move {
            gate.acquire().await.expect("it is never closed").forget();
            respond(&call)
        }
    });
    function
        .upstream("charges", policy)
        .for_tenants(tenant.map(|tenant| BTreeSet::from([tenant])))
}

/// Returns the scans of the tables `outbox` and `timer` since the store was opened.
fn scans(runtime: &TestRuntime) -> u64 {
    let stats = runtime.reader().stats();
    let tables = stats
        .scans
        .iter()
        .filter(|(table, _)| ["outbox", "timer"].contains(table));
    tables.map(|(_, scans)| scans).sum()
}

/// Requirements: E5.
#[tokio::test]
async fn commits_cause_no_scan_of_the_outbox_and_the_timers() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let (config, upstreams) = config(&home);
    let runtime = config.start(&upstreams).await;
    runtime.wait_until_ended(&place(&runtime, 0..5).await).await;
    let before = (scans(&runtime), runtime.reader().position());
    for number in 5..55 {
        runtime
            .wait_until_ended(&place(&runtime, number..number + 1).await)
            .await;
    }
    let commits = runtime.reader().position() - before.1;
    assert!(commits >= 50, "{commits} commits");
    assert_eq!(scans(&runtime) - before.0, 0, "scans in {commits} commits");
    runtime.stop().await;
}

#[tokio::test]
async fn overflow_of_the_memory_falls_back_to_the_store() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let (mut config, upstreams) = config(&home);
    config.limits.max_fresh_rows = 1;
    let runtime = config.start(&upstreams).await;
    let before = scans(&runtime);
    let keys = place(&runtime, 0..200).await;
    runtime.wait_until_ended(&keys).await;
    assert!(scans(&runtime) > before, "no overflow");
    for key in &keys {
        assert_eq!(
            runtime.upstreams.executed_for(key),
            ["reserve", "charge", "ship", "notify"]
        );
    }
    runtime.stop().await;
}

/// Requirements: R12.
#[tokio::test]
async fn tenant_with_a_stuck_upstream_does_not_delay_another_tenant() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let (mut config, upstreams) = config(&home);
    config.limits.max_in_flight_per_window = 8;
    let closed = Arc::new(Semaphore::new(0));
    let stuck = charges(Some(tenant()), Policy::in_process(), &closed, |_| {
        Ok(Value::Null)
    });
    config.more_upstreams = vec![stuck];
    let runtime = config.start(&upstreams).await;
    place(&runtime, 0..100).await;
    runtime
        .wait_until("the first tenant waits", |runtime| {
            charges_in_outbox(runtime, tenant()) == 100
        })
        .await;
    let others = place_for(&runtime, &other_tenant(), 0..30, &json!({})).await;
    let is_done = |key: &InstanceKey| upstreams.executed_for(key).len() == 4;
    runtime
        .wait_until("the other tenant is done", |_| others.iter().all(is_done))
        .await;
    assert_eq!(charges_in_outbox(&runtime, tenant()), 100);
    runtime.crash().await;
}

/// Provider that counts the items of each tenant that the relay has handed over.
struct CountHandovers {
    provider: Arc<dyn Provider>,
    handovers: Arc<Mutex<BTreeMap<TenantId, usize>>>,
}

#[async_trait::async_trait]
impl Provider for CountHandovers {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        self.provider.execute(item, attempt).await
    }

    /// Asked once for each item that arrives. The answer makes the item wait for its permit at once.
    fn completes_at_once(&self, item: &WorkItem) -> bool {
        *self
            .handovers
            .lock()
            .entry(item.instance.tenant.clone())
            .or_default() += 1;
        true
    }
}

#[tokio::test]
async fn tenants_share_an_upstream_in_turn() {
    const WINDOW: usize = 16;
    let home = tempfile::tempdir().expect("a directory can be created");
    let (mut config, upstreams) = config(&home);
    config.limits.max_in_flight_per_window = WINDOW;
    let (gate, calls) = (
        Arc::new(Semaphore::new(0)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let seen = Arc::clone(&calls);
    let (one, both) = (
        Policy {
            max_concurrency: 1,
            ..Policy::in_process()
        },
        BTreeSet::from([tenant(), other_tenant()]),
    );
    let mut shared = charges(None, one, &gate, move |call| {
        seen.lock().push(call.instance.tenant.clone());
        Ok(Value::Null)
    });
    let handovers = Arc::new(Mutex::new(BTreeMap::new()));
    shared.provider = Arc::new(CountHandovers {
        provider: shared.provider,
        handovers: Arc::clone(&handovers),
    });
    config.more_upstreams = vec![shared.for_tenants(Some(both))];
    let runtime = config.start(&upstreams).await;
    let first = place(&runtime, 0..200).await;
    runtime
        .wait_until("the first tenant waits", |runtime| {
            charges_in_outbox(runtime, tenant()) == 200
        })
        .await;
    let second = place_for(&runtime, &other_tenant(), 0..20, &json!({})).await;
    // The windows of both tenants are full, or have all items.
    let calls_of = |tenant: &TenantId| {
        calls
            .lock()
            .iter()
            .filter(|called| *called == tenant)
            .count()
    };
    let is_full = |tenant: &TenantId, items: usize| {
        handovers.lock().get(tenant).copied() == Some((calls_of(tenant) + WINDOW).min(items))
    };
    let both_are_full = || is_full(&tenant(), 200) && is_full(&other_tenant(), 20);
    while calls_of(&other_tenant()) < 20 {
        runtime
            .wait_until("items of both wait for a permit", |_| both_are_full())
            .await;
        let before = calls.lock().len();
        gate.add_permits(1);
        runtime
            .wait_until("a call was made", |_| calls.lock().len() > before)
            .await;
    }
    // One call for each call of the other tenant, and the one that started before.
    let last = calls.lock().len();
    assert!(
        last <= 2 * 20 + 1,
        "the last of 20 calls is number {last} of 220"
    );
    gate.add_permits(220);
    runtime.wait_until_ended(&[first, second].concat()).await;
    runtime.stop().await;
}

#[tokio::test]
async fn items_that_wait_for_a_retry_leave_their_places_to_others() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let (mut config, upstreams) = config(&home);
    config.limits.max_in_flight_per_window = 4;
    let open = Arc::new(Semaphore::new(1_000));
    let hour = Backoff {
        initial: TIMEOUT / 2,
        max: TIMEOUT / 2,
        multiplier: 1,
    };
    let policy = Policy {
        backoff: hour,
        max_attempts: None,
        ..Policy::in_process()
    };
    let flaky = charges(
        Some(tenant()),
        policy,
        &open,
        |call| match call.payload["plan"]["charge"].as_str() {
            Some("down") => Err(ProviderError::unavailable("down", "it is down")),
            _ => Ok(Value::Null),
        },
    );
    config.more_upstreams = vec![flaky];
    let runtime = config.start(&upstreams).await;
    place_for(&runtime, &tenant(), 0..12, &json!({ "charge": "down" })).await;
    runtime
        .wait_until("each order had one attempt", |_| {
            open.available_permits() == 1_000 - 12
        })
        .await;
    let healthy = place_for(&runtime, &tenant(), 12..20, &json!({})).await;
    let is_done = |key: &InstanceKey| {
        upstreams
            .executed_for(key)
            .last()
            .is_some_and(|tag| tag == "notify")
    };
    runtime
        .wait_until("the other orders are done", |_| healthy.iter().all(is_done))
        .await;
    assert_eq!(charges_in_outbox(&runtime, tenant()), 12);
    runtime.crash().await;
}

/// Orders whose instances belong to the first of two shards.
fn numbers_of_the_first_shard(runtime: &TestRuntime, count: usize) -> Vec<usize> {
    let is_first =
        |number: &usize| runtime.slots().slot_of(&order_key(&tenant(), *number)).0 < SLOTS / 2;
    (0..).filter(is_first).take(count).collect()
}

#[tokio::test]
async fn released_shard_starts_no_attempt() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let mut config = TestRuntimeConfig::new(home.path().to_owned(), vec![order(TIMEOUT)], time);
    config.shards = 2;
    // Each attempt of the first orders fails, and is repeated after half an hour. The attempts of the
    // others wait for the gate, one at a time.
    let (gate, attempts) = (
        Arc::new(Semaphore::new(20)),
        Arc::new(Mutex::new(Vec::new())),
    );
    let half_hour = Backoff {
        initial: TIMEOUT / 2,
        max: TIMEOUT / 2,
        multiplier: 1,
    };
    let policy = Policy {
        backoff: half_hour,
        max_attempts: None,
        max_concurrency: 1,
        ..Policy::in_process()
    };
    let (entered, opened) = (Arc::clone(&attempts), Arc::clone(&gate));
    let function = FunctionProvider::new().effect("payments.charge", move |call| {
        entered.lock().push(call.idempotency_key);
        let opened = Arc::clone(&opened);
        async move {
            opened.acquire().await.expect("it is never closed").forget();
            match call.payload["plan"]["charge"].as_str() {
                Some("down") => Err(ProviderError::unavailable("down", "it is down")),
                _ => Ok(Value::Null),
            }
        }
    });
    let upstream = function
        .upstream("charges", policy)
        .for_tenants(Some(BTreeSet::from([tenant()])));
    config.more_upstreams = vec![upstream];
    let runtime = config.start(&upstreams).await;
    let numbers = numbers_of_the_first_shard(&runtime, 50);
    let count = || attempts.lock().len();
    for (nth, number) in numbers.iter().enumerate() {
        let plan = if nth < 20 {
            json!({ "charge": "down" })
        } else {
            json!({})
        };
        let key = order_key(&tenant(), *number);
        runtime.publish(&order_placed(&key, &plan, START)).await;
        if nth == 19 {
            runtime
                .wait_until("each of the first had an attempt", |_| count() == 20)
                .await;
        }
    }
    runtime
        .wait_until("one attempt runs, 29 wait", |runtime| {
            count() == 21 && charges_in_outbox(runtime, tenant()) == 50
        })
        .await;
    let released = runtime
        .runtime
        .release_shard(0, Duration::from_millis(50))
        .await;
    released
        .expect("the shard ran here")
        .close()
        .await
        .expect("the store is closed");
    gate.add_permits(1_000);
    clock.advance(2 * TIMEOUT);
    let is_idle =
        |upstream: &UpstreamStatus| upstream.upstream != "charges" || upstream.in_flight == 0;
    runtime
        .wait_until("no attempt waits or runs", |runtime| {
            runtime.catalog.upstream_statuses().iter().all(is_idle) && clock.sleepers() == 0
        })
        .await;
    assert_eq!(count(), 21, "attempts after the release");
    runtime.stop().await;
}

#[tokio::test]
async fn attempt_in_flight_ends_within_the_handover_time() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let (mut config, upstreams) = config(&home);
    config.shards = 2;
    let gate = Arc::new(Semaphore::new(0));
    config.more_upstreams = vec![charges(Some(tenant()), Policy::in_process(), &gate, |_| {
        Ok(Value::Null)
    })];
    let runtime = config.start(&upstreams).await;
    let key = order_key(&tenant(), numbers_of_the_first_shard(&runtime, 1)[0]);
    runtime
        .publish(&order_placed(&key, &json!({}), START))
        .await;
    let is_running =
        |upstream: &UpstreamStatus| upstream.upstream == "charges" && upstream.in_flight == 1;
    let runs = |runtime: &TestRuntime| runtime.catalog.upstream_statuses().iter().any(is_running);
    runtime.wait_until("the attempt runs", runs).await;
    let reader = runtime.reader();
    let release = runtime.runtime.release_shard(0, WAIT_TIMEOUT);
    let result = async {
        let mut commits = reader.watch();
        gate.add_permits(1);
        commits.changed().await.expect("the result is stored");
    };
    let (released, ()) = tokio::join!(release, result);
    released
        .expect("the shard ran here")
        .close()
        .await
        .expect("the store is closed");
    runtime.stop().await;
}

/// Counts the commits of timers.
#[derive(Default)]
struct TimerCommits(AtomicU64);

impl CommitObserver for TimerCommits {
    fn on_commit(&self, commit: &Commit) {
        let by_timer = commit
            .history
            .as_ref()
            .is_some_and(|entry| entry.origin.kind == Some(InputKind::Timer));
        self.0.fetch_add(u64::from(by_timer), Ordering::SeqCst);
    }
}

/// Returns the number of armed timers.
fn armed(runtime: &TestRuntime) -> usize {
    let armed = runtime
        .reader()
        .timers_armed()
        .expect("the store can be read");
    usize::try_from(armed).expect("it fits")
}

/// Starts orders whose first step waits for its timeout.
async fn place_waiting(runtime: &TestRuntime, count: usize) {
    let plan = json!({ "reserve": "silent" });
    for first in (0..count).step_by(CHUNK) {
        let end = count.min(first + CHUNK);
        place_for(runtime, &tenant(), first..end, &plan).await;
        let waits = |runtime: &TestRuntime| armed(runtime) == end && runtime.outbox_depth() == 0;
        runtime.wait_until("each order waits", waits).await;
    }
}

/// Timers that became due while no process ran fire in order, a few at a time, and are read once.
async fn fire_after_an_outage(count: usize, firing: usize) {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let mut config = TestRuntimeConfig::new(home.path().to_owned(), vec![order(TIMEOUT)], time);
    let runtime = config.start(&upstreams).await;
    place_waiting(&runtime, count).await;
    runtime.stop().await;
    clock.advance(2 * TIMEOUT);
    let commits = Arc::new(TimerCommits::default());
    config.observer = Some(Arc::clone(&commits) as Arc<dyn CommitObserver>);
    config.limits.max_firing_timers = firing;
    let started = std::time::Instant::now();
    let runtime = config.start(&upstreams).await;
    let (most, live) = (AtomicU64::new(0), AtomicI64::new(0));
    for left in (0..count).step_by(CHUNK).rev() {
        let fired = |runtime: &TestRuntime| {
            let metrics = runtime.runtime.metrics();
            let firing = metrics
                .timers_fired()
                .saturating_sub(commits.0.load(Ordering::SeqCst));
            most.fetch_max(firing, Ordering::SeqCst);
            live.fetch_max(metrics.live_instances(), Ordering::SeqCst);
            commits.0.load(Ordering::SeqCst) >= (count - left) as u64
        };
        runtime.wait_until("the timers fire", fired).await;
    }
    let (most, live) = (most.into_inner(), live.into_inner());
    let stats = runtime.reader().stats();
    let scans = stats
        .scans
        .iter()
        .find(|(table, _)| *table == "timer")
        .map_or(0, |(_, scans)| *scans);
    let took = started.elapsed();
    println!("{count} timers in {took:?}: {most} at once, {live} live instances, {scans} scans");
    assert!(most <= firing as u64, "{most} timers at once");
    assert!(
        scans <= count as u64 / 1024 + 2,
        "{scans} scans for {count} timers"
    );
    assert_eq!(runtime.runtime.metrics().timers_fired(), count as u64);
    runtime.stop().await;
}

/// Requirements: R11.
#[tokio::test]
async fn due_timers_after_an_outage_fire_a_few_at_a_time_and_are_read_once() {
    fire_after_an_outage(1_200, 64).await;
}

#[tokio::test]
#[ignore = "long; make stress"]
async fn due_timers_after_an_outage_fire_a_few_at_a_time_and_are_read_once_long() {
    fire_after_an_outage(400_000, 1_024).await;
}

/// Requirements: R11.
#[tokio::test]
async fn clock_set_back_delays_no_timer() {
    let home = tempfile::tempdir().expect("a directory can be created");
    let clock = SimClock::new(START);
    let upstreams = FakeUpstreams::new(Arc::clone(&clock) as Arc<dyn Clock>, 1);
    let time = Arc::clone(&clock) as Arc<dyn Clock>;
    let config = TestRuntimeConfig::new(home.path().to_owned(), vec![order(TIMEOUT)], time);
    let runtime = config.start(&upstreams).await;
    place_for(&runtime, &tenant(), 0..1, &json!({ "reserve": "silent" })).await;
    clock.due_within(TIMEOUT).await;
    clock.set_back(Duration::from_hours(24));
    // Armed after the clock was set: due in an hour of the new time.
    place_for(&runtime, &tenant(), 1..2, &json!({ "reserve": "silent" })).await;
    runtime
        .wait_until("both wait", |runtime| {
            armed(runtime) == 2 && runtime.outbox_depth() == 0
        })
        .await;
    let second = Duration::from_secs(1);
    clock.advance(TIMEOUT.saturating_sub(second));
    assert_eq!(runtime.runtime.metrics().timers_fired(), 0);
    clock.advance(second);
    runtime
        .wait_until("each timer has fired", |runtime| armed(runtime) == 0)
        .await;
    runtime.stop().await;
}
