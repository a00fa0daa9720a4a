//! What was kept long enough is forgotten, and nothing else.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use orlog::app::Purged;
use orlog::config::{Config, SagaRetention, TenantRetention, Window};
use orlog_model::{CorrelationId, InstanceKey, SagaName, TenantId};
use serde_json::{Value, json};

use crate::node::{Node, PATIENCE, event, placed};

const SHORT: Window = Window::For(Duration::from_millis(1));

/// Events are remembered for a millisecond, and nothing is looked for by itself.
fn forgetful(config: &mut Config) {
    config.store.dedupe_window = Duration::from_millis(1);
    config.retention.instances = SHORT;
    config.retention.every = Duration::from_hours(1);
}

fn key(tenant: &str, id: &str) -> InstanceKey {
    InstanceKey {
        tenant: TenantId::new(tenant).unwrap(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new(id).unwrap(),
    }
}

/// An order that is completed, and left alone by its actor.
async fn completed(node: &Node, tenant: &str, id: &str) {
    node.order(tenant, id, 5, "running").await;
    let shipped = event(&format!("shipped-{id}"), "Shipped", &json!({ "orderId": id }));
    let answer = node.ask(axum::http::Method::POST, tenant, "/v1/events", shipped.to_string()).await;
    assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
    let path = format!("/v1/sagas/order/{id}");
    node.until(tenant, &path, |order| order["status"] == "completed").await;
}

/// Purges until nothing more is to be done: what is live, or a millisecond old, is left for the next time.
async fn purged(node: &Node, instances: u64) -> Purged {
    let mut all = Purged::default();
    let whole = async {
        while all.instances < instances {
            let purged = node.app.purge().await.unwrap();
            all.instances += purged.instances;
            all.tasks += purged.tasks;
            all.dead_letters += purged.dead_letters;
            tokio::task::yield_now().await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, whole).await.is_ok(), "{all:?}");
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_ended_goes_and_what_goes_on_stays() {
    let node = Node::start_with(forgetful).await;
    node.refunds.store(false, Ordering::SeqCst);
    completed(&node, "", "done").await;
    node.order("", "declined", 5000, "failed").await;
    node.order("", "running", 5, "running").await;
    node.order("", "paused", 5, "running").await;
    node.post("/v1/sagas/order/paused/pause", &json!({})).await.ok();
    node.order("", "stuck", 5, "running").await;
    node.post("/v1/sagas/order/stuck/cancel", &json!({})).await.ok();
    node.until("", "/v1/sagas/order/stuck", |order| order["status"] == "stuck").await;
    assert_eq!(purged(&node, 2).await.instances, 2);
    assert_eq!(node.app.purge().await.unwrap(), Purged::default());
    let left = node.get("/v1/sagas").await.ok();
    let mut left: Vec<_> =
        left["items"].as_array().unwrap().iter().map(|item| item["correlation"].clone()).collect();
    left.sort_by_key(ToString::to_string);
    assert_eq!(left, ["paused", "running", "stuck"]);
    let history = node.get("/v1/inspect/history").await.ok();
    assert!(!history.to_string().contains("done"), "{history:#}");
    node.get("/v1/sagas/order/done").await.problem("OR0011");
    let metrics = node.get("/metrics").await.text;
    assert!(metrics.contains("orlog_instances_purged_total 2"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn windows_differ_by_tenant_and_by_saga() {
    let node = Node::start_with(|config| {
        forgetful(config);
        config.retention.instances = Window::ForEver;
        let acme = TenantRetention { instances: Some(SHORT), dead_letters: None };
        config.retention.tenants = BTreeMap::from([(TenantId::new("acme").unwrap(), acme)]);
        let beta = TenantRetention { instances: None, dead_letters: Some(SHORT) };
        config.retention.tenants.insert(TenantId::new("beta").unwrap(), beta);
    })
    .await;
    for tenant in ["", "acme", "beta"] {
        completed(&node, tenant, "o-1").await;
        // Without the identifier it cannot be brought to any instance.
        let lost = event("lost", "Shipped", &json!({}));
        let answer = node.ask(axum::http::Method::POST, tenant, "/v1/events", lost.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        let one = |letters: &Value| letters["items"].as_array().is_some_and(|items| items.len() == 1);
        node.until(tenant, "/v1/dead-letters", one).await;
    }
    let all = purged(&node, 1).await;
    assert_eq!((all.instances, all.dead_letters), (1, 1));
    for (tenant, is_there) in [("", true), ("acme", false), ("beta", true)] {
        let reader = node.app.runtime.readers().next().unwrap();
        assert_eq!(reader.instance(&key(tenant, "o-1")).unwrap().is_some(), is_there, "{tenant}");
    }
    // The longer of the two windows holds.
    let mut kept = node.app.config.retention.clone();
    let saga = SagaName::new("order").unwrap();
    kept.sagas.insert(saga.clone(), SagaRetention { instances: Some(Window::ForEver) });
    assert_eq!(kept.of_instance(&TenantId::new("acme").unwrap(), &saga), Window::ForEver);
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_looked_now_and_then_without_being_asked() {
    let node = Node::start_with(|config| {
        forgetful(config);
        config.retention.every = Duration::from_millis(5);
    })
    .await;
    for id in ["a", "b"] {
        // What became of it is not asked: it may be gone before.
        let answer = node.post("/v1/events", &placed(id, 5000)).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
    }
    let is_empty = |found: &Value| found["items"].as_array().is_some_and(Vec::is_empty);
    let two = |text: &str| text.contains("orlog_instances_purged_total 2");
    let gone = async {
        while !two(&node.get("/metrics").await.text) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.unwrap();
    node.until("", "/v1/sagas", is_empty).await;
    node.app.stop().await.unwrap();
}

/// The same instances begin, end and are forgotten again and again, while others look: no life has a part of another's history.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_instance_that_begins_while_it_is_forgotten_begins_whole() {
    let node = Arc::new(Node::start_with(forgetful).await);
    let (ended, mut lives) = (Arc::new(AtomicBool::new(false)), 0_u64);
    let purging = {
        let (node, ended) = (Arc::clone(&node), Arc::clone(&ended));
        tokio::spawn(async move {
            let mut purged = 0;
            while !ended.load(Ordering::Acquire) {
                purged += node.app.purge().await.unwrap().instances;
            }
            purged
        })
    };
    for life in 0..150 {
        for id in ["x", "y", "z"] {
            let begun = event(
                &format!("{id}-{life}"),
                "OrderPlaced",
                &json!({ "orderId": id, "total": if life % 3 == 0 { 5 } else { 5000 } }),
            );
            assert_eq!(node.post("/v1/events", &begun).await.status, StatusCode::ACCEPTED);
            if life % 3 == 0 {
                let shipped = event(&format!("s-{id}-{life}"), "Shipped", &json!({ "orderId": id }));
                assert_eq!(node.post("/v1/events", &shipped).await.status, StatusCode::ACCEPTED);
            }
            lives += 1;
        }
        let reader = node.app.runtime.readers().next().unwrap();
        for id in ["x", "y", "z"] {
            whole(&reader, &key("", id));
        }
    }
    ended.store(true, Ordering::Release);
    let purged = purging.await.unwrap();
    println!("{lives} starts, {purged} times forgotten");
    assert!(purged > 10, "{purged}");
}

/// The history of an instance that is there begins with its first transition and has no gap.
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

/// What a pass costs on a million instances, half of them over: `cargo test --test api a_million -- --ignored --nocapture`.
#[test]
#[ignore = "long; figures, by hand"]
fn a_million_instances_are_gone_through() {
    use orlog_model::{Change, Commit, Timestamp};
    use orlog_store::{Bookmark, Durability, Options, PURGED_AT_ONCE};

    const MANY: usize = 1_000_000;
    let home = tempfile::tempdir().unwrap();
    let durability = Durability::Interval(Duration::from_millis(50));
    let options = Options { durability, ..Options::default() };
    let (mut writer, reader) = orlog_store::open(home.path(), options).unwrap();
    let at = Timestamp::from_millis(1_700_000_000_000);
    let begun = std::time::Instant::now();
    for group in 0..MANY / 1000 {
        let changes = (0..1000).map(|n| {
            let key = key("acme", &format!("order-{}", group * 1000 + n));
            let (instance, history) = crate::retention::sample(n % 2 == 0, at);
            let commit =
                Commit { instance: Some(instance), history: Some(history), ..Commit::empty(key, at) };
            Change::Apply(Box::new(commit))
        });
        writer.commit(&changes.collect::<Vec<_>>(), at).unwrap();
    }
    writer.flush().unwrap();
    println!("filled in {:?}, {} bytes", begun.elapsed(), reader.stats().tables_bytes);
    for round in ["nothing due", "again"] {
        let (begun, mut from, mut longest) =
            (std::time::Instant::now(), Some(Bookmark::default()), Duration::ZERO);
        while let Some(at) = from {
            let one = std::time::Instant::now();
            from = reader.sweep_instances(&at, (64, 2048), |_, _| false).unwrap().next;
            longest = longest.max(one.elapsed());
        }
        println!("{round}: gone through in {:?}, the longest go {longest:?}", begun.elapsed());
    }
    let (begun, mut from, mut took, mut purged) =
        (std::time::Instant::now(), Some(Bookmark::default()), Vec::new(), 0);
    while let Some(place) = from {
        let stretch = reader.sweep_instances(&place, (64, 2048), |_, instance| instance.is_over()).unwrap();
        purged += stretch.found.len();
        let changes = stretch.found.into_iter().map(|(key, version)| Change::PurgeInstance { key, version });
        let one = std::time::Instant::now();
        writer.commit(&changes.collect::<Vec<_>>(), at).unwrap();
        took.push(one.elapsed());
        from = stretch.next;
    }
    took.sort();
    assert!(PURGED_AT_ONCE > 1 && purged == MANY / 2);
    let (half, rare) = (took[took.len() / 2], took[took.len() * 99 / 100]);
    println!("{purged} purged in {:?}; a commit of 64: median {half:?}, p99 {rare:?}", begun.elapsed());
}

/// A snapshot of a usual size, and a line of history.
fn sample(over: bool, at: orlog_model::Timestamp) -> (orlog_model::Instance, orlog_model::Record) {
    use orlog_model::{EventId, Instance, ProgramRef, Record, Status};

    let status = if over { Status::Completed } else { Status::Running };
    let instance = Instance {
        program: ProgramRef { saga: SagaName::new("order").unwrap(), version: 1, hash: [7; 16] },
        version: 1,
        status,
        paused: false,
        state: vec![b'x'; 300],
        waits: Vec::new(),
        timers: Vec::new(),
        open: Vec::new(),
        reference: None,
        last_input: EventId::new("e").unwrap(),
        last_error: None,
        node: "node-1".to_owned(),
        trace: None,
        created_at: at,
        updated_at: at,
        tasks: Vec::new(),
        parent: None,
    };
    let record = Record {
        version: 1,
        at,
        input: EventId::new("e").unwrap(),
        label: "OrderPlaced".to_owned(),
        note: "charge: asked".to_owned(),
        status,
        work: Vec::new(),
        origin: orlog_model::Origin::default(),
    };
    (instance, record)
}
