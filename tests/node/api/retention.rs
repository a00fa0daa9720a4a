//! Retention: expired rows are purged, and no others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use orlog::config::{Config, RetentionPeriod, SagaRetention, TenantRetention};
use orlog::retention::PurgeResult;
use orlog_model::{CorrelationId, InstanceKey, SagaName, TenantId};
use orlog_testkit::WAIT_TIMEOUT;
use serde_json::{Value, json};

use crate::api::node::{Node, event, placed};

const SHORT: RetentionPeriod = RetentionPeriod::For(Duration::from_millis(1));

/// Sets an event retention of one millisecond and disables automatic passes.
fn forgetful(config: &mut Config) {
    config.store.dedupe_window = Duration::from_millis(1);
    config.retention.instances = SHORT;
    config.retention.interval = Duration::from_hours(1);
    // A pass finds instances that are flushed.
    config.store.memtable_max_age = Duration::from_millis(1);
}

fn key(tenant: &str, id: &str) -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new(tenant).unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new(id).unwrap(),
    }
}

/// Completes an order and waits until its actor is passivated.
async fn completed(node: &Node, tenant: &str, id: &str) {
    node.order(tenant, id, 5, "running").await;
    let shipped = event(
        &format!("shipped-{id}"),
        "Shipped",
        &json!({ "orderId": id }),
    );
    let response = node
        .ask(
            axum::http::Method::POST,
            tenant,
            "/v1/events",
            shipped.to_string(),
        )
        .await;
    assert_eq!(response.status, StatusCode::ACCEPTED, "{response:?}");
    let path = format!("/v1/sagas/order/{id}");
    node.until(tenant, &path, |order| order["status"] == "completed")
        .await;
}

/// Purges until no row is due; live and one-millisecond-old instances wait for the next pass.
async fn purged(node: &Node, instances: u64) -> PurgeResult {
    let mut all = PurgeResult::default();
    let whole = async {
        while all.instances < instances {
            let purged = node.app.services.retention.purge().await.unwrap();
            all.instances += purged.instances;
            all.tasks += purged.tasks;
            all.dead_letters += purged.dead_letters;
            tokio::task::yield_now().await;
        }
    };
    assert!(
        tokio::time::timeout(WAIT_TIMEOUT, whole).await.is_ok(),
        "{all:?}"
    );
    all
}

/// Requirements: E10.
#[tokio::test(flavor = "multi_thread")]
async fn ended_instances_are_purged_and_active_ones_stay() {
    let node = Node::start_with(forgetful).await;
    node.refunds.store(false, Ordering::SeqCst);
    completed(&node, "", "done").await;
    node.order("", "declined", 5000, "failed").await;
    node.order("", "running", 5, "running").await;
    node.order("", "paused", 5, "running").await;
    node.post("/v1/sagas/order/paused/pause", &json!({}))
        .await
        .ok();
    node.order("", "stuck", 5, "running").await;
    node.post("/v1/sagas/order/stuck/cancel", &json!({}))
        .await
        .ok();
    node.until("", "/v1/sagas/order/stuck", |order| {
        order["status"] == "stuck"
    })
    .await;
    assert_eq!(purged(&node, 2).await.instances, 2);
    assert_eq!(
        node.app.services.retention.purge().await.unwrap(),
        PurgeResult::default()
    );
    let remaining = node.get("/v1/sagas").await.ok();
    let mut remaining: Vec<_> = remaining["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["correlation"].clone())
        .collect();
    remaining.sort_by_key(ToString::to_string);
    assert_eq!(remaining, ["paused", "running", "stuck"]);
    let history = node.get("/v1/inspect/history").await.ok();
    assert!(!history.to_string().contains("done"), "{history:#}");
    node.get("/v1/sagas/order/done").await.problem("OR0011");
    let metrics = node.get("/metrics").await.text;
    assert!(
        metrics.contains("orlog_instances_purged_total 2"),
        "{metrics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn retention_periods_apply_per_tenant_and_saga() {
    let node = Node::start_with(|config| {
        forgetful(config);
        config.retention.instances = RetentionPeriod::Forever;
        let acme = TenantRetention {
            instances: Some(SHORT),
            dead_letters: None,
        };
        config.retention.tenants = BTreeMap::from([(TenantId::new("acme").unwrap(), acme)]);
        let beta = TenantRetention {
            instances: None,
            dead_letters: Some(SHORT),
        };
        config
            .retention
            .tenants
            .insert(TenantId::new("beta").unwrap(), beta);
    })
    .await;
    for tenant in ["", "acme", "beta"] {
        completed(&node, tenant, "o-1").await;
        // Without the correlation id it cannot be delivered to an instance.
        let lost = event("lost", "Shipped", &json!({}));
        let response = node
            .ask(
                axum::http::Method::POST,
                tenant,
                "/v1/events",
                lost.to_string(),
            )
            .await;
        assert_eq!(response.status, StatusCode::ACCEPTED);
        let one = |dead_letters: &Value| {
            dead_letters["items"]
                .as_array()
                .is_some_and(|items| items.len() == 1)
        };
        node.until(tenant, "/v1/dead-letters", one).await;
    }
    let all = purged(&node, 1).await;
    assert_eq!((all.instances, all.dead_letters), (1, 1));
    for (tenant, is_there) in [("", true), ("acme", false), ("beta", true)] {
        let reader = node.app.runtime.readers().next().unwrap();
        assert_eq!(
            reader.instance(&key(tenant, "o-1")).unwrap().is_some(),
            is_there,
            "{tenant}"
        );
    }
    // The longer of the two windows applies.
    let mut retention = node.app.config.retention.clone();
    let saga = SagaName::new("order").unwrap();
    retention.sagas.insert(
        saga.clone(),
        SagaRetention {
            instances: Some(RetentionPeriod::Forever),
        },
    );
    assert_eq!(
        retention.for_instance(&TenantId::new("acme").unwrap(), &saga),
        RetentionPeriod::Forever
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_runs_periodically() {
    let node = Node::start_with(|config| {
        forgetful(config);
        config.retention.interval = Duration::from_millis(5);
    })
    .await;
    for id in ["a", "b"] {
        // Its state is not read, because the instance may be purged before.
        let response = node.post("/v1/events", &placed(id, 5000)).await;
        assert_eq!(response.status, StatusCode::ACCEPTED);
    }
    let is_empty = |found: &Value| found["items"].as_array().is_some_and(Vec::is_empty);
    let two = |text: &str| text.contains("orlog_instances_purged_total 2");
    let all_purged = async {
        while !two(&node.get("/metrics").await.text) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(WAIT_TIMEOUT, all_purged)
        .await
        .unwrap();
    node.until("", "/v1/sagas", is_empty).await;
    node.app.stop().await.unwrap();
}

/// Starts, ends and purges the same instances repeatedly with concurrent readers. No run contains
/// history entries of another run.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn instance_started_during_its_purge_starts_clean() {
    let node = Arc::new(Node::start_with(forgetful).await);
    let (ended, mut runs) = (Arc::new(AtomicBool::new(false)), 0_u64);
    let purging = {
        let (node, ended) = (Arc::clone(&node), Arc::clone(&ended));
        tokio::spawn(async move {
            let mut purged = 0;
            while !ended.load(Ordering::Acquire) {
                purged += node.app.services.retention.purge().await.unwrap().instances;
            }
            purged
        })
    };
    for run in 0..150 {
        for id in ["x", "y", "z"] {
            let started = event(
                &format!("{id}-{run}"),
                "OrderPlaced",
                &json!({ "orderId": id, "total": if run % 3 == 0 { 5 } else { 5000 } }),
            );
            assert_eq!(
                node.post("/v1/events", &started).await.status,
                StatusCode::ACCEPTED
            );
            if run % 3 == 0 {
                let shipped = event(
                    &format!("s-{id}-{run}"),
                    "Shipped",
                    &json!({ "orderId": id }),
                );
                assert_eq!(
                    node.post("/v1/events", &shipped).await.status,
                    StatusCode::ACCEPTED
                );
            }
            runs += 1;
        }
        let reader = node.app.runtime.readers().next().unwrap();
        for id in ["x", "y", "z"] {
            whole(&reader, &key("", id));
        }
    }
    ended.store(true, Ordering::Release);
    let purged = purging.await.unwrap();
    println!("{runs} starts, {purged} times forgotten");
    assert!(purged > 10, "{purged}");
}

/// Asserts that the history of an existing instance starts with its first transition and has no gap.
#[track_caller]
fn whole(reader: &orlog_store::Reader, key: &InstanceKey) {
    for _ in 0..100 {
        let before = reader.instance(key).unwrap();
        let history = reader.history(key, 0, usize::MAX).unwrap();
        if before != reader.instance(key).unwrap() {
            continue;
        }
        let versions: Vec<_> = history.iter().map(|record| record.version).collect();
        let expected: Vec<_> = (1..=before.map_or(0, |instance| instance.version)).collect();
        assert_eq!(versions, expected, "{key}");
        return;
    }
}

/// Measures a pass over a million instances, half of them ended:
/// `cargo test --test node a_million -- --ignored --nocapture`.
#[test]
#[ignore = "long; figures, by hand"]
fn purge_scans_a_million_instances() {
    use orlog_model::{Change, Commit, Timestamp};
    use orlog_store::{Durability, Options, PURGE_BATCH, SweepCursor};

    const MANY: usize = 1_000_000;
    let home = tempfile::tempdir().unwrap();
    let durability = Durability::Interval(Duration::from_millis(50));
    let options = Options {
        durability,
        ..Options::default()
    };
    let (mut writer, reader) = orlog_store::open(home.path(), options).unwrap();
    let at = Timestamp::from_millis(1_700_000_000_000);
    let started = std::time::Instant::now();
    for group in 0..MANY / 1000 {
        let changes = (0..1000).map(|n| {
            let key = key("acme", &format!("order-{}", group * 1000 + n));
            let (instance, history) = crate::api::retention::sample(n % 2 == 0, at);
            let commit = Commit {
                instance: Some(Arc::new(instance)),
                history: Some(history),
                ..Commit::empty(key, at)
            };
            Change::Apply(Box::new(commit))
        });
        writer.commit(&changes.collect::<Vec<_>>(), at).unwrap();
    }
    writer.flush().unwrap();
    println!(
        "filled in {:?}, {} bytes",
        started.elapsed(),
        reader.stats().tables_bytes
    );
    for round in ["nothing due", "again"] {
        let (started, mut from, mut longest) = (
            std::time::Instant::now(),
            Some(SweepCursor::default()),
            Duration::ZERO,
        );
        while let Some(at) = from {
            let one = std::time::Instant::now();
            from = reader.sweep_ended(&at, 64, 2048, |_, _| None).unwrap().next;
            longest = longest.max(one.elapsed());
        }
        println!(
            "{round}: gone through in {:?}, the longest go {longest:?}",
            started.elapsed()
        );
    }
    let (started, mut from, mut took, mut purged) = (
        std::time::Instant::now(),
        Some(SweepCursor::default()),
        Vec::new(),
        0,
    );
    while let Some(cursor) = from {
        let stretch = reader
            .sweep_ended(&cursor, 64, 2048, |_, _| Some(Timestamp::MAX))
            .unwrap();
        purged += stretch.found.len();
        let changes = stretch
            .found
            .into_iter()
            .map(|(key, version)| Change::PurgeInstance { key, version });
        let one = std::time::Instant::now();
        writer.commit(&changes.collect::<Vec<_>>(), at).unwrap();
        took.push(one.elapsed());
        from = stretch.next;
    }
    took.sort();
    assert!(PURGE_BATCH > 1 && purged == MANY / 2);
    let (half, rare) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!(
        "{purged} purged in {:?}; a commit of 64: median {half:?}, p99 {rare:?}",
        started.elapsed()
    );
}

/// Returns a snapshot of typical size and a history entry.
fn sample(
    over: bool,
    at: orlog_model::Timestamp,
) -> (orlog_model::Instance, orlog_model::HistoryEntry) {
    use orlog_model::{DefinitionRef, EventId, HistoryEntry, Instance, Status};

    let status = if over {
        Status::Completed
    } else {
        Status::Running
    };
    let instance = Instance {
        definition: DefinitionRef {
            saga: SagaName::new("order").unwrap(),
            version: 1,
            hash: [7; 16],
        },
        version: 1,
        status,
        paused: false,
        state: vec![b'x'; 300],
        waits: Vec::new(),
        timers: Vec::new(),
        pending_work: Vec::new(),
        reference: None,
        run_id: uuid::Uuid::nil(),
        users: None,
        result: None,
        last_input: EventId::new("e").unwrap(),
        last_error: None,
        node: "node-1".into(),
        trace: None,
        created_at: at,
        updated_at: at,
        tasks: Vec::new(),
        parent: None,
    };
    let record = HistoryEntry {
        version: 1,
        at,
        input_id: EventId::new("e").unwrap(),
        input_label: "OrderPlaced".into(),
        note: "charge: asked".to_owned(),
        status,
        work: Vec::new(),
        origin: orlog_model::InputOrigin::default(),
        payloads: orlog_model::RecordedPayloads::default(),
        failure: None,
        input: None,
    };
    (instance, record)
}
