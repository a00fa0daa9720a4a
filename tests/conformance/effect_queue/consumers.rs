//! Consumers of jobs of nodes with different tenants: no node takes the jobs of another one, and none delivers a job twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orlog_actors::{RestartIntensity, WorkerPool, WorkerPoolConfig};
use orlog_bus::effect_queue::{JobBacklog, JobSubscription, SubscriptionState};
use orlog_bus::nats::{ConsumerLayout, arrange_consumers};
use orlog_model::{EffectName, TenantId, WorkItem};
use serde_json::{Value, json};

use super::workers::{CallCounter, doing, workers_with};
use crate::effect_queue::fixture::{
    COMMANDS, QueueFixture, api, command, create_stream, effect_of, in_time, item_of, until,
};

const ACME: &str = "tenant.acme.effect.a%2Eb.*";
const BETA: &str = "tenant.beta.effect.a%2Eb.*";
const SHARED: &str = "effect-a%2Eb";

fn tenants(names: &[&str]) -> Arc<BTreeSet<TenantId>> {
    let tenants = names.iter().map(|name| TenantId::new(*name).unwrap());
    Arc::new(tenants.collect())
}

/// Starts workers of a node that serves these tenants; without any, of a node that serves all.
async fn workers(fixture: &QueueFixture, served: &[&str], calls: &CallCounter) -> WorkerPool {
    let config = WorkerPoolConfig {
        node: "worker".to_owned(),
        max_in_flight: 8,
        ack_wait: Duration::from_secs(30),
        tenants: (!served.is_empty()).then(|| tenants(served)),
        intensity: RestartIntensity::default(),
    };
    workers_with(fixture, doing("a.b", calls, "worker"), config).await
}

async fn enqueue(fixture: &QueueFixture, item: &WorkItem) {
    let command = command(item, 1);
    fixture.queue.enqueue(command, true).await.unwrap();
}

/// Creates the consumer of all workers as earlier versions did, with the filters of a node.
async fn create_shared(fixture: &QueueFixture, filters: &[&str]) {
    put_shared(fixture, filters, "create").await;
}

async fn put_shared(fixture: &QueueFixture, filters: &[&str], action: &str) {
    put_limited(fixture, filters, action, json!({})).await;
}

/// Creates or updates the consumer of all workers with limits of its requests.
async fn put_limited(fixture: &QueueFixture, filters: &[&str], action: &str, mut config: Value) {
    let settings = json!({
        "durable_name": SHARED, "name": SHARED, "ack_policy": "explicit",
        "ack_wait": 30_000_000_000_u64, "max_ack_pending": 65_536, "deliver_policy": "all",
        "replay_policy": "instant", "filter_subjects": filters,
    });
    let settings = settings.as_object().cloned().unwrap();
    config.as_object_mut().unwrap().extend(settings);

    let request = json!({
        "stream_name": "WORKFLOW_COMMANDS",
        "action": action,
        "config": config,
    });
    let operation = format!("CONSUMER.CREATE.WORKFLOW_COMMANDS.{SHARED}");
    until(async || api(&fixture.connection, &operation, request.clone()).await).await;
}

async fn consumer_names(fixture: &QueueFixture) -> BTreeSet<String> {
    let operation = "CONSUMER.NAMES.WORKFLOW_COMMANDS";
    let names = until(async || api(&fixture.connection, operation, json!({})).await).await;
    let names = names["consumers"].as_array().cloned().unwrap_or_default();
    names
        .iter()
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

/// Waits until the pool does not receive the jobs of a group, and returns why.
async fn conflict(pool: &WorkerPool) -> String {
    until(async || {
        let mut states = pool.subscriptions().into_values();
        states.find_map(|state| match state {
            SubscriptionState::Conflict(reason) => Some(reason),
            SubscriptionState::Opening(_) | SubscriptionState::Open { .. } => None,
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_of_different_tenants_receive_the_jobs_of_their_tenants() {
    let fixture = QueueFixture::one().await;
    let acme_calls = CallCounter::default();
    let beta_calls = CallCounter::default();
    let acme = workers(&fixture, &["", "acme"], &acme_calls).await;
    until(async || acme.failing_subscription().is_none().then_some(())).await;
    let beta = workers(&fixture, &["", "beta"], &beta_calls).await;
    until(async || beta.failing_subscription().is_none().then_some(())).await;

    let items: Vec<WorkItem> = (1..=10)
        .flat_map(|number| {
            [
                item_of("acme", "a.b", number),
                item_of("beta", "a.b", 100 + number),
            ]
        })
        .collect();
    for item in &items {
        enqueue(&fixture, item).await;
    }
    for item in &items {
        fixture.result_message(item).await;
    }
    let expected = |tenant: &str| -> BTreeMap<_, _> {
        let own = items
            .iter()
            .filter(|item| item.instance.tenant.as_str() == tenant);
        own.map(|item| (item.id, 1)).collect()
    };
    assert_eq!(acme_calls.all(), expected("acme"));
    assert_eq!(beta_calls.all(), expected("beta"));
    acme.stop().await;
    beta.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_job_of_a_tenant_that_a_list_gains_is_executed() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let first = item_of("acme", "a.b", 1);
    let waiting = item_of("beta", "a.b", 2);
    let pool = workers(&fixture, &["", "acme"], &calls).await;
    enqueue(&fixture, &first).await;
    fixture.result_message(&first).await;
    enqueue(&fixture, &waiting).await;
    assert!(pool.drain(Duration::from_secs(30)).await);
    pool.stop().await;

    let pool = workers(&fixture, &["", "acme", "beta"], &calls).await;
    fixture.result_message(&waiting).await;
    assert_eq!(
        calls.all(),
        BTreeMap::from([(first.id, 1), (waiting.id, 1)])
    );
    pool.stop().await;
}

/// A filter that grows does not bring back what its consumer has passed.
#[tokio::test(flavor = "multi_thread")]
async fn command_that_a_consumer_has_passed_is_not_pending() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    create_shared(&fixture, &[ACME]).await;
    let pool = workers(&fixture, &["acme"], &calls).await;
    let first = item_of("acme", "a.b", 1);
    enqueue(&fixture, &first).await;
    fixture.result_message(&first).await;
    let passed = item_of("beta", "a.b", 2);
    let effect = &effect_of(&passed).name;
    let enqueued = fixture.queue.enqueue(command(&passed, 1), true).await;
    let enqueued = enqueued.unwrap();
    assert!(
        fixture.queue.is_pending(effect, &enqueued).await.unwrap(),
        "no consumer delivers it: it waits for a worker"
    );

    put_shared(&fixture, &[ACME, BETA], "update").await;
    // Its worker acknowledges the first job after it has published the result.
    until(async || {
        let is_pending = fixture.queue.is_pending(effect, &enqueued).await.ok()?;
        (!is_pending).then_some(())
    })
    .await;
    pool.stop().await;
}

/// The server rejects a request that exceeds the limits of its consumer.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_requested_within_the_limits_of_the_consumer() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let limits = json!({ "max_batch": 1, "max_expires": 1_000_000_000_u64 });
    put_limited(&fixture, &[ACME], "create", limits).await;
    let pool = workers(&fixture, &["acme"], &calls).await;

    let items: Vec<_> = (1..=3)
        .map(|number| item_of("acme", "a.b", number))
        .collect();
    for item in &items {
        enqueue(&fixture, item).await;
    }
    for item in &items {
        fixture.result_message(item).await;
    }
    pool.stop().await;
}

/// Health reports it: see `Connection::read_failure`.
#[tokio::test(flavor = "multi_thread")]
async fn jobs_that_are_not_received_are_a_failure_of_the_connection() {
    let fixture = QueueFixture::one().await;
    let mut jobs = fixture.queue.subscribe_jobs(JobSubscription {
        effect: EffectName::new("a.b").unwrap(),
        tenant: None,
        served: Arc::default(),
        ack_wait: Duration::from_secs(30),
    });
    let mut state = jobs.state();
    let receiving = tokio::spawn(async move { jobs.next(1).await });
    let is_open = |state: &SubscriptionState| matches!(state, SubscriptionState::Open { .. });
    in_time(state.wait_for(is_open)).await.unwrap();
    assert_eq!(fixture.connection.read_failure(), None);

    let deletion = "STREAM.DELETE.WORKFLOW_COMMANDS";
    until(async || api(&fixture.connection, deletion, json!({})).await).await;
    let failure = until(async || fixture.connection.read_failure()).await;
    assert!(
        failure.starts_with("jobs of a.b are not received: "),
        "{failure}"
    );

    create_stream(&fixture.connection, &COMMANDS, 1).await;
    until(async || {
        let failure = fixture.connection.read_failure();
        failure.is_none().then_some(())
    })
    .await;
    receiving.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_of_an_earlier_version_is_used_while_its_tenants_are_served() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    create_shared(&fixture, &[ACME, BETA]).await;
    let pool = workers(&fixture, &["acme", "beta", "gamma"], &calls).await;
    let items = [
        item_of("acme", "a.b", 1),
        item_of("beta", "a.b", 2),
        item_of("gamma", "a.b", 3),
    ];
    for item in &items {
        enqueue(&fixture, item).await;
        fixture.result_message(item).await;
    }
    let expected = BTreeSet::from([SHARED.to_owned(), format!("{SHARED}@gamma")]);
    assert_eq!(consumer_names(&fixture).await, expected);
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn conflicting_consumers_are_reported_until_an_operator_replaces_them() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let all = workers(&fixture, &[], &calls).await;
    until(async || all.failing_subscription().is_none().then_some(())).await;
    let listed = workers(&fixture, &["acme"], &calls).await;
    let reason = conflict(&listed).await;
    assert!(reason.contains(SHARED), "{reason}");
    let failing = listed.failing_subscription().unwrap();
    assert!(failing.contains("a.b of tenant acme"), "{failing}");
    let before = item_of("acme", "a.b", 1);
    enqueue(&fixture, &before).await;
    fixture.result_message(&before).await;

    let layout = ConsumerLayout {
        tenants: Some(tenants(&["acme"])),
        ack_wait: Duration::from_secs(30),
    };
    let found = arrange_consumers(&fixture.connection, &layout, true).await;
    let found = found.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    let rejected = found[0].rejected.as_deref().unwrap_or_default();
    assert!(rejected.contains("stop all effect nodes"), "{found:?}");
    let unchanged = BTreeSet::from([SHARED.to_owned()]);
    assert_eq!(consumer_names(&fixture).await, unchanged);

    all.drain(Duration::from_secs(30)).await;
    all.stop().await;
    until(async || {
        let found = arrange_consumers(&fixture.connection, &layout, true).await;
        found
            .ok()?
            .iter()
            .all(|found| found.rejected.is_none())
            .then_some(())
    })
    .await;
    // The filters of the former consumer name the default tenant, whose waiting jobs are kept.
    let replaced = BTreeSet::from([format!("{SHARED}@%"), format!("{SHARED}@acme")]);
    assert_eq!(consumer_names(&fixture).await, replaced);

    // The node that waited continues, and receives only what was not acknowledged before.
    let after = item_of("acme", "a.b", 2);
    enqueue(&fixture, &after).await;
    fixture.result_message(&after).await;
    assert_eq!(listed.failing_subscription(), None);
    assert_eq!(calls.all(), BTreeMap::from([(before.id, 1), (after.id, 1)]));

    // A node of all tenants conflicts with the consumers of single ones.
    let all = workers(&fixture, &[], &calls).await;
    let reason = conflict(&all).await;
    assert!(reason.contains("@acme"), "{reason}");
    listed.drain(Duration::from_secs(30)).await;
    listed.stop().await;
    let layout = ConsumerLayout {
        tenants: None,
        ..layout
    };
    until(async || {
        let found = arrange_consumers(&fixture.connection, &layout, true).await;
        found
            .ok()?
            .iter()
            .all(|found| found.rejected.is_none())
            .then_some(())
    })
    .await;
    assert_eq!(consumer_names(&fixture).await, unchanged);
    until(async || all.failing_subscription().is_none().then_some(())).await;
    all.stop().await;
}

/// Nodes with another `ack_wait` use the value of the consumer, so that no job in progress is delivered again.
#[tokio::test(flavor = "multi_thread")]
async fn other_settings_of_a_consumer_are_reported_and_applied_by_an_operator() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let layout = ConsumerLayout {
        tenants: None,
        ack_wait: Duration::from_secs(7),
    };
    let pool = workers(&fixture, &[], &calls).await;
    until(async || pool.failing_subscription().is_none().then_some(())).await;
    let found = arrange_consumers(&fixture.connection, &layout, false).await;
    let found = found.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].field.contains("ack_wait is 30s, expected 7s"),
        "{found:?}"
    );

    let changed = arrange_consumers(&fixture.connection, &layout, true).await;
    assert_eq!(changed.unwrap(), found);
    let left = arrange_consumers(&fixture.connection, &layout, false).await;
    assert_eq!(left.unwrap(), []);
    pool.stop().await;

    let pool = workers(&fixture, &[], &calls).await;
    let difference = until(async || {
        let mut states = pool.subscriptions().into_values();
        states.find_map(|state| match state {
            SubscriptionState::Open { difference, .. } => difference,
            SubscriptionState::Opening(_) | SubscriptionState::Conflict(_) => None,
        })
    })
    .await;
    assert_eq!(difference, "ack_wait is 7s, expected 30s");
    pool.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backlog_of_a_consumer_is_reported() {
    let fixture = QueueFixture::one().await;
    let calls = CallCounter::default();
    let pool = workers(&fixture, &["acme"], &calls).await;
    let name = format!("{SHARED}@acme");
    until(async || pool.failing_subscription().is_none().then_some(())).await;
    let first = item_of("acme", "a.b", 1);
    enqueue(&fixture, &first).await;
    fixture.result_message(&first).await;
    assert!(pool.drain(Duration::from_secs(30)).await);

    let empty = until(async || {
        let backlog = fixture.queue.backlog(&name).await.ok()?;
        (backlog.in_flight == 0).then_some(backlog)
    })
    .await;
    assert_eq!(empty, JobBacklog::default());
    for number in 2..=4 {
        enqueue(&fixture, &item_of("acme", "a.b", number)).await;
    }
    enqueue(&fixture, &item_of("beta", "a.b", 5)).await;
    let waiting = until(async || {
        let consumers = pool.consumers().await;
        let backlog = consumers
            .into_iter()
            .find_map(|consumer| consumer.backlog)?;
        (backlog.waiting == 3).then_some(backlog)
    })
    .await;
    assert_eq!(waiting.in_flight, 0);
    assert!(waiting.oldest.is_some());
    pool.stop().await;
}
