//! Batches of a node: instructions, filters, speed, canary, pause, stop, kills, shards, rights, and the command line.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Method, Request};
use orlog_effect::{FunctionProvider, Policy, ProviderError};
use orlog_model::{TenantId, Timestamp};
use orlog_testkit::SimClock;
use orlog_testkit::wait::{until, until_ok, within};
use serde_json::{Value, json};

use crate::harness::http::{client, send};
use crate::harness::node::{Node, NodeBuilder};
use crate::harness::process::{Process, orlog, run};

/// A saga that records its notes, and whose compensation can fail.
const ORDER: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId, total: =event.total, notes: '=[]' }
on:
  - event: Noted
    save: { notes: '=vars.notes + [event.n]' }
steps:
  - { id: pay, do: { effect: bank.pay }, undo: { effect: bank.refund } }
  - { id: finish, do: { event: Finished } }
";

/// Returns a builder of a node, and whether refunds fail.
fn builder() -> (NodeBuilder, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let fails_now = Arc::clone(&fails);
    let bank = FunctionProvider::new()
        .effect("bank.pay", |_| async { Ok(json!({})) })
        .effect("bank.refund", move |_| {
            let fails = fails_now.load(Ordering::Acquire);
            async move {
                if fails {
                    Err(ProviderError::permanent("closed", "the bank is closed"))
                } else {
                    Ok(json!({}))
                }
            }
        });
    (
        NodeBuilder::new()
            .definition("order", ORDER)
            .upstream(bank.upstream("bank", Policy::default())),
        fails,
    )
}

/// Starts orders; each is paid and waits for its end. The total of an order is its number.
async fn place(node: &Node, numbers: std::ops::Range<u32>) {
    for number in numbers.clone() {
        let order = json!({ "orderId": format!("o-{number:03}"), "total": number });
        node.post("/v1/sagas/order", &order).await.ok();
    }
    let count = numbers.len();
    let waiting = "/v1/sagas?saga=order&limit=1000&filter=waits.exists(w,w.kind=='event')";
    node.until("", waiting, |page| {
        page["items"].as_array().unwrap().len() >= count
    })
    .await;
}

async fn create(node: &Node, body: &Value) -> String {
    let created = node.post("/v1/batches", body).await.ok();
    created["id"].as_str().unwrap().to_owned()
}

/// Creates a batch and waits for its end.
async fn complete(node: &Node, body: &Value) -> Value {
    let id = create(node, body).await;
    until_status(node, &id, "completed").await
}

async fn until_status(node: &Node, id: &str, status: &str) -> Value {
    node.until("", &format!("/v1/batches/{id}"), |batch| {
        batch["status"] == status
    })
    .await
}

/// Returns the status of each order; `paused` if it is paused.
async fn statuses(node: &Node) -> BTreeMap<String, String> {
    let page = node.get("/v1/sagas?saga=order&limit=1000").await.ok();
    let status = |item: &Value| {
        if item["paused"] == true {
            json!("paused")
        } else {
            item["status"].clone()
        }
    };
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (text(&item["correlation"]), text(&status(item))))
        .collect()
}

/// Waits until the orders have these statuses.
async fn until_orders(node: &Node, expected: &[(&str, &str)]) {
    let expected: BTreeMap<_, _> = expected
        .iter()
        .map(|(id, status)| ((*id).to_owned(), (*status).to_owned()))
        .collect();
    let reached = async || {
        let found = statuses(node).await;
        if found == expected {
            Ok(())
        } else {
            Err(format!("{found:?}"))
        }
    };
    until_ok("the statuses of the orders", reached).await;
}

/// The node executes the pages of batches itself: they are neither an effect nor an upstream of the user.
#[tokio::test(flavor = "multi_thread")]
async fn node_information_omits_the_effects_of_built_in_sagas() {
    let node = builder().0.start().await;
    let info = node.get("/info").await.ok();
    let names = |list: &Value| -> Vec<_> {
        list.as_array()
            .unwrap()
            .iter()
            .map(|it| it["name"].clone())
            .collect()
    };
    assert_eq!(names(&info["upstreams"]), [json!("bank")]);
    assert_eq!(
        info["effects"],
        json!({ "bank.pay": "bank", "bank.refund": "bank" })
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_instruction_reaches_the_matching_instances() {
    let (builder, refunds_fail) = builder();
    let node = builder.start().await;
    place(&node, 0..4).await;
    let batch = |action: &str| json!({ "saga": "order", "action": { "type": action }, "user": "ada", "reason": "test" });
    let paused = complete(&node, &batch("pause")).await;
    assert_eq!(
        (&paused["matched"], &paused["done"], &paused["counted"]),
        (&json!(4), &json!(4), &json!(true))
    );
    let all = |status: &'static str| ["o-000", "o-001", "o-002", "o-003"].map(|id| (id, status));
    until_orders(&node, &all("paused")).await;
    complete(&node, &batch("resume")).await;
    until_orders(&node, &all("running")).await;
    // A filter, and a signal that ends its instance.
    let mut signal = batch("signal");
    signal["filter"] = json!("vars.total < 1");
    signal["action"]["signal"] = json!("Finished");
    let signalled = complete(&node, &signal).await;
    assert_eq!(
        (&signalled["matched"], &signalled["done"]),
        (&json!(1), &json!(1))
    );
    // Two statuses: the cancelled ones fail to refund and become stuck.
    refunds_fail.store(true, Ordering::Release);
    let mut cancel = batch("cancel");
    cancel["status"] = json!(["running", "completed"]);
    let cancelled = complete(&node, &cancel).await;
    assert_eq!(
        (&cancelled["done"], &cancelled["skipped"]),
        (&json!(3), &json!(1))
    );
    let skip = &cancelled["skips"][0];
    assert_eq!(
        (&skip["correlation"], &skip["instance"]),
        (&json!("o-000"), &json!("/v1/sagas/order/o-000"))
    );
    assert!(
        skip["reason"].as_str().unwrap().contains("it has ended"),
        "{skip}"
    );
    let stuck = [
        ("o-000", "completed"),
        ("o-001", "stuck"),
        ("o-002", "stuck"),
        ("o-003", "stuck"),
    ];
    until_orders(&node, &stuck).await;
    let with = |action: &str, prefix: &str| {
        let mut batch = batch(action);
        (batch["status"], batch["prefix"]) = (json!(["stuck"]), json!(prefix));
        batch
    };
    assert_eq!(complete(&node, &with("skip", "o-001")).await["done"], 1);
    assert_eq!(
        complete(&node, &with("force_complete", "o-002")).await["done"],
        1
    );
    refunds_fail.store(false, Ordering::Release);
    assert_eq!(complete(&node, &with("retry", "o-")).await["done"], 1);
    node.until("", "/v1/sagas/order/o-003", |order| {
        order["status"] == "cancelled"
    })
    .await;
    let order = node.get("/v1/sagas/order/o-003").await.ok();
    let notes = order["history"]["items"].to_string();
    assert!(
        notes.contains("cancel by ada: batch ") && notes.contains(": test"),
        "{notes}"
    );
    node.stop().await;
}

/// A cancel moves instances from the first status to the second one, between the pages.
#[tokio::test(flavor = "multi_thread")]
async fn instances_that_change_their_status_are_neither_missed_nor_repeated() {
    const ORDERS: u32 = 130;
    let (builder, _) = builder();
    let node = builder.start().await;
    place(&node, 0..ORDERS).await;
    let body = |status: &str, action: &str| json!({ "saga": "order", "status": [status], "action": { "type": action }, "rate": 100 });
    let mut several = body("running", "cancel");
    several["status"] = json!(["running", "compensating", "cancelled"]);
    for body in [body("running", "pause"), body("running", "resume"), several] {
        let batch = complete(&node, &body).await;
        assert_eq!(
            (&batch["matched"], &batch["done"], &batch["skipped"]),
            (&json!(ORDERS), &json!(ORDERS), &json!(0)),
            "{batch}"
        );
    }
    let cancelled = complete(&node, &body("cancelled", "cancel")).await;
    assert_eq!(
        (&cancelled["done"], &cancelled["skipped"]),
        (&json!(0), &json!(ORDERS)),
        "{cancelled}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_migrates_instances_and_requires_their_definition() {
    let (builder, _) = builder();
    let node = builder.start().await;
    place(&node, 0..3).await;
    let newer = ORDER.replace("version: 1", "version: 2");
    std::fs::write(node.definitions().join("order.saga.yaml"), newer).unwrap();
    node.post("/admin/reload", &json!({})).await.ok();
    let body = json!({ "saga": "order", "action": { "type": "migrate" }, "filter": "definition.version == 1" });
    let mut dry_run = body.clone();
    dry_run["dry_run"] = json!(true);
    let result = node.post("/v1/batches", &dry_run).await.ok();
    assert_eq!(
        (&result["matched"], &result["not_applicable"]),
        (&json!(3), &json!(0))
    );
    let migrated = complete(&node, &body).await;
    assert_eq!(
        (&migrated["done"], &migrated["action"]["version"]),
        (&json!(3), &json!(2))
    );
    let order = node.get("/v1/sagas/order/o-001").await.ok();
    assert_eq!(order["definition"]["version"], 2);
    let unknown = json!({ "saga": "order", "action": { "type": "migrate", "to": "7" } });
    node.post("/v1/batches", &unknown).await.problem("OR0016");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn dry_run_changes_nothing_and_names_what_would_be_skipped() {
    let (builder, _) = builder();
    let node = builder.start().await;
    place(&node, 0..30).await;
    node.post("/v1/sagas/order/o-004/pause", &json!({}))
        .await
        .ok();
    let before = statuses(&node).await;
    let body = json!({ "saga": "order", "action": { "type": "cancel" }, "filter": "vars.total >= 4", "dry_run": true });
    let result = node.post("/v1/batches", &body).await.ok();
    assert_eq!(
        (
            &result["matched"],
            &result["exact"],
            &result["not_applicable"]
        ),
        (&json!(26), &json!(true), &json!(1))
    );
    let items = result["items"].as_array().unwrap();
    assert_eq!(
        (items.len(), &items[0]["correlation"]),
        (20, &json!("o-004"))
    );
    assert_eq!(
        (&items[0]["not_applicable"], &items[1]["not_applicable"]),
        (&json!("resume it first"), &Value::Null)
    );
    assert_eq!(node.get("/v1/batches").await.ok()["items"], json!([]));
    assert_eq!(statuses(&node).await, before);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn canary_and_rate_bound_the_instructions() {
    let clock = SimClock::new(Timestamp::parse("2027-03-01T00:30:00Z").unwrap());
    let (builder, _) = builder();
    let node = builder
        .overrides(|overrides| overrides.clock = Some(Arc::clone(&clock) as _))
        .start()
        .await;
    place(&node, 0..7).await;
    let instruction = json!({ "type": "signal", "signal": "Noted", "data": { "n": 1 } });
    let body = json!({ "id": "b", "saga": "order", "action": instruction, "rate": 2, "canary": 1 });
    create(&node, &body).await;
    let waiting = until_status(&node, "b", "awaiting_approval").await;
    assert_eq!(
        (&waiting["done"], &waiting["canary_instances"]),
        (&json!(1), &json!(["o-000"]))
    );
    clock.advance(Duration::from_hours(1));
    assert_eq!(
        node.get("/v1/batches/b").await.ok()["done"],
        1,
        "it waits for the approval"
    );
    node.post(
        "/v1/batches/b/resume",
        &json!({ "user": "ada", "reason": "the canary is fine" }),
    )
    .await
    .ok();
    for done in [3, 5] {
        node.until("", "/v1/batches/b", |batch| batch["done"] == done)
            .await;
        clock.advance(Duration::from_millis(999));
        let timers = node.get("/v1/timers").await.ok();
        assert_eq!(timers["items"][0]["name"], "next", "{timers}");
        assert_eq!(node.get("/v1/batches/b").await.ok()["done"], done);
        clock.advance(Duration::from_millis(1));
    }
    node.until("", "/v1/batches/b", |batch| batch["done"] == 7)
        .await;
    clock.advance(Duration::from_secs(1));
    let completed = until_status(&node, "b", "completed").await;
    assert_eq!(
        (&completed["done"], &completed["matched"]),
        (&json!(7), &json!(7))
    );
    let history = node.get("/v1/sagas/orlog.batch/b").await.ok()["history"]["items"].to_string();
    assert!(
        history.contains("by ada: the canary is fine; approved"),
        "{history}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_is_paused_resumed_and_stopped_and_continues_after_a_restart() {
    let clock = SimClock::new(Timestamp::parse("2027-03-01T00:30:00Z").unwrap());
    let (first, _) = builder();
    let with_clock = |builder: NodeBuilder| {
        builder.overrides(|overrides| overrides.clock = Some(Arc::clone(&clock) as _))
    };
    let node = with_clock(first).start().await;
    place(&node, 0..6).await;
    let instruction = json!({ "type": "signal", "signal": "Noted", "data": { "n": 1 } });
    create(
        &node,
        &json!({ "id": "b", "saga": "order", "action": instruction, "rate": 1 }),
    )
    .await;
    node.until("", "/v1/batches/b", |batch| batch["done"] == 1)
        .await;
    let paused = node.post("/v1/batches/b/pause", &json!({})).await.ok();
    assert_eq!(paused["status"], "paused");
    let dir = node.stop().await;
    clock.advance(Duration::from_mins(1));
    let bank = FunctionProvider::new().effect("bank.pay", |_| async { Ok(json!({})) });
    let second = NodeBuilder::on(dir).upstream(
        bank.effect("bank.refund", |_| async { Ok(json!({})) })
            .upstream("bank", Policy::default()),
    );
    let node = with_clock(second).start().await;
    assert_eq!(node.get("/v1/batches/b").await.ok()["status"], "paused");
    assert_eq!(
        node.post("/v1/batches/b/resume", &json!({})).await.ok()["status"],
        "running"
    );
    node.until("", "/v1/batches/b", |batch| batch["done"] == 2)
        .await;
    let stopped = node.post("/v1/batches/b/stop", &json!({})).await.ok();
    assert_eq!(
        (&stopped["status"], &stopped["done"]),
        (&json!("stopped"), &json!(2))
    );
    clock.advance(Duration::from_mins(1));
    let detail = node
        .post("/v1/batches/b/resume", &json!({}))
        .await
        .rejected(409, "OR0013");
    assert!(detail.contains("the batch is stopped"), "{detail}");
    let noted = node
        .get("/v1/sagas?saga=order&filter=size(vars.notes)==1")
        .await
        .ok();
    assert_eq!(noted["items"].as_array().unwrap().len(), 2);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_idempotent_validated_and_separate_for_each_tenant() {
    let (builder, _) = builder();
    let node = builder.start().await;
    let send = async |key: &str, tenant: &str, body: &Value| {
        let request = Request::post("/v1/batches").header("content-type", "application/json");
        let request = request
            .header("idempotency-key", key)
            .header("x-tenant-id", tenant);
        node.send(request.body(Body::from(body.to_string())).unwrap())
            .await
    };
    let cancel = json!({ "saga": "order", "action": { "type": "cancel" } });
    let first = send("b-1", "acme", &cancel).await;
    assert_eq!(
        (first.status.as_u16(), &first.headers["location"]),
        (202, &"/v1/batches/b-1".parse().unwrap())
    );
    assert_eq!(
        send("b-1", "acme", &cancel).await.ok()["created_at"],
        first.json()["created_at"]
    );
    let other = json!({ "saga": "order", "action": { "type": "pause" } });
    send("b-1", "acme", &other).await.rejected(409, "OR0081");
    send("b-1", "other", &other).await.ok();
    let list = node
        .ask(Method::GET, "acme", "/v1/batches", Body::empty())
        .await
        .ok();
    assert_eq!(
        (
            list["items"].as_array().unwrap().len(),
            &list["items"][0]["action"]["type"]
        ),
        (1, &json!("cancel"))
    );
    node.get("/v1/batches/b-1").await.problem("OR0080");
    node.ask(Method::POST, "third", "/v1/batches/b-1/stop", "{}")
        .await
        .problem("OR0080");

    let rejected = async |change: &dyn Fn(&mut Value), code: &str| {
        let mut body = cancel.clone();
        change(&mut body);
        node.post("/v1/batches", &body).await.problem(code)
    };
    let detail = rejected(&|body| body["saga"] = json!("ordr"), "OR0016").await;
    assert_eq!(
        detail,
        "saga \"ordr\" has no definition; did you mean `order`?"
    );
    rejected(&|body| body["saga"] = json!("orlog.batch"), "OR0008").await;
    assert!(
        rejected(&|body| body["rate"] = json!(0), "OR0002")
            .await
            .contains("1 to 1000 instances per second")
    );
    rejected(&|body| body["canary"] = json!(101), "OR0002").await;
    rejected(&|body| body["filter"] = json!("vars.total >"), "OR0008").await;
    rejected(&|body| body["filter"] = json!(""), "OR0008").await;
    assert!(
        rejected(&|body| body["prefix"] = json!(""), "OR0002")
            .await
            .contains("prefix is empty")
    );
    assert!(
        rejected(&|body| body["status"] = json!([]), "OR0002")
            .await
            .contains("status is empty")
    );
    rejected(&|body| body["action"]["type"] = json!("drop"), "OR0002").await;
    rejected(&|body| body["action"]["signal"] = json!("x"), "OR0002").await;
    rejected(&|body| body["status"] = json!(["stuk"]), "OR0002").await;
    rejected(&|body| body["id"] = json!("x".repeat(101)), "OR0008").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn filter_that_fails_for_all_instances_ends_without_an_instruction() {
    let (builder, _) = builder();
    let node = builder.start().await;
    place(&node, 0..2).await;
    let body =
        json!({ "saga": "order", "action": { "type": "cancel" }, "filter": "vars.missing > 1" });
    let batch = complete(&node, &body).await;
    assert_eq!(
        (&batch["matched"], &batch["done"], &batch["filter_errors"]),
        (&json!(0), &json!(0), &json!(2))
    );
    assert!(batch["first_filter_error"].is_string(), "{batch}");
    let id = create(
        &node,
        &json!({ "saga": "order", "action": { "type": "cancel" }, "filter": "vars.total" }),
    )
    .await;
    let failed = until_status(&node, &id, "failed").await;
    assert!(
        failed["error"]
            .as_str()
            .unwrap()
            .contains("must be true or false"),
        "{failed}"
    );
    until_orders(&node, &[("o-000", "running"), ("o-001", "running")]).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_reaches_all_shards_of_a_key_sharded_tenant() {
    let (builder, _) = builder();
    let builder = builder.config(|config| {
        (config.shards, config.tenants.key_sharded) = (4, vec![TenantId::default_tenant()]);
    });
    let node = builder.start().await;
    let url = node.serve().await;
    for number in 0..40 {
        let order = json!({ "orderId": format!("o-{number:03}"), "total": number });
        node.post("/v1/sagas/order", &order).await.ok();
    }
    let instruction = json!({ "type": "signal", "signal": "Noted", "data": { "n": 1 } });
    let body =
        json!({ "id": "b", "saga": "order", "action": instruction, "rate": 1000, "canary": 3 });
    create(&node, &body).await;
    poll(&format!("{url}/v1/batches/b"), |batch| {
        batch["status"] == "awaiting_approval"
    })
    .await;
    node.post("/v1/batches/b/resume", &json!({})).await.ok();
    let batch = poll(&format!("{url}/v1/batches/b"), |batch| {
        batch["status"] == "completed"
    })
    .await;
    assert_eq!(
        (&batch["matched"], &batch["done"]),
        (&json!(40), &json!(40))
    );
    assert_eq!(once_noted(&url, "").await, 40);
    let pages = node
        .get("/v1/sagas?saga=orlog.batch.page&limit=1000")
        .await
        .ok();
    let pages = pages["items"].as_array().unwrap();
    assert!(
        pages.len() >= 6 && pages.iter().all(|page| page["status"] == "completed"),
        "{pages:?}"
    );
    node.stop().await;
}

/// Repeats a request until the response matches.
async fn poll(url: &str, fits: impl Fn(&Value) -> bool) -> Value {
    let http = client();
    until(url, async || {
        let response = send(&http, "GET", url.to_owned(), &[], None).await;
        Some(response).filter(|response| response.status.is_success() && fits(&response.json()))
    })
    .await
    .json()
}

/// Returns the number of orders with exactly one note, and asserts that no order has several.
async fn once_noted(url: &str, tenant: &str) -> usize {
    let http = client();
    let count = async |filter: &str| {
        let url = format!("{url}/v1/sagas?saga=order&limit=1000&filter={filter}");
        let page = send(&http, "GET", url, &[("x-tenant-id", tenant)], None)
            .await
            .ok();
        page["items"].as_array().unwrap().len()
    };
    assert_eq!(
        count("size(vars.notes)%3E1").await,
        0,
        "no order is noted twice"
    );
    count("size(vars.notes)==1").await
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_node_continues_and_instructs_each_instance_once() {
    const ORDERS: usize = 120;
    const KILLS: usize = 3;
    let dir = tempfile::tempdir().unwrap();
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    std::fs::write(definitions.join("order.saga.yaml"), ORDER).unwrap();
    let [data, definitions] =
        [dir.path().join("data"), definitions].map(|path| path.display().to_string());
    let start = || Process::start(&["--data-dir", &data, "--definitions-dir", &definitions]);
    let mut node = start();
    let http = client();
    let post = async |node: &Process, path: &str, body: Value| {
        send(
            &http,
            "POST",
            format!("{}{path}", node.url),
            &[],
            Some(&body),
        )
        .await
        .ok()
    };
    for number in 0..ORDERS {
        post(
            &node,
            "/v1/sagas/order",
            json!({ "orderId": format!("o-{number:03}"), "total": number }),
        )
        .await;
    }
    let instruction = json!({ "type": "signal", "signal": "Noted", "data": { "n": 1 } });
    post(
        &node,
        "/v1/batches",
        json!({ "id": "b", "saga": "order", "action": instruction, "rate": 40 }),
    )
    .await;
    for kill in 0..KILLS {
        // In each run, a page ends and the next one is killed at another point.
        let done = (kill * ORDERS / (KILLS + 1)) as u64;
        poll(&format!("{}/v1/batches/b", node.url), |batch| {
            batch["done"].as_u64() > Some(done)
        })
        .await;
        node.kill();
        node = start();
    }
    let batch = poll(&format!("{}/v1/batches/b", node.url), |batch| {
        batch["status"] == "completed"
    })
    .await;
    assert_eq!(
        (&batch["matched"], &batch["done"]),
        (&json!(ORDERS), &json!(ORDERS)),
        "{batch}"
    );
    assert_eq!(once_noted(&node.url, "").await, ORDERS);
    node.stop();
}

/// A page that a crash interrupts has reached some of its instances.
#[tokio::test(flavor = "multi_thread")]
async fn repeated_page_counts_the_instances_that_it_has_reached() {
    let (builder, _) = builder();
    let node = builder.start().await;
    place(&node, 0..3).await;
    let before = json!({ "id": "batch:b", "type": "Noted", "data": { "n": 0 } });
    node.post("/v1/sagas/order/o-001/signal", &before)
        .await
        .ok();
    let instruction = json!({ "type": "signal", "signal": "Noted", "data": { "n": 1 } });
    let batch = complete(
        &node,
        &json!({ "id": "b", "saga": "order", "action": instruction }),
    )
    .await;
    assert_eq!(
        (&batch["done"], &batch["skipped"]),
        (&json!(3), &json!(0)),
        "{batch}"
    );
    for (order, notes) in [
        ("o-000", json!([1])),
        ("o-001", json!([0])),
        ("o-002", json!([1])),
    ] {
        let order = node.get(&format!("/v1/sagas/order/{order}")).await.ok();
        assert_eq!(order["state"]["vars"]["notes"], notes);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_saga_and_no_signal_acts_as_a_batch() {
    let forged = "
saga: forged
version: 1
correlate: id
start: Forged
vars: { id: =event.id }
steps:
  - id: page
    do: { effect: orlog.batch.page, data: { selection: { saga: order }, task: { type: apply, action: { type: cancel }, user: root, reason: x, instances: [o-000] } } }
";
    let child = forged
        .replace("saga: forged", "saga: parent")
        .replace("start: Forged", "start: Parented");
    let child = child.replace("effect: orlog.batch.page", "saga: orlog.batch.page");
    let (builder, _) = builder();
    let node = builder
        .definition("forged", forged)
        .definition("parent", &child)
        .start()
        .await;
    place(&node, 0..1).await;
    node.post("/v1/sagas/forged", &json!({ "id": "f" }))
        .await
        .ok();
    let failed = node
        .until("", "/v1/sagas/forged/f", |saga| saga["status"] == "failed")
        .await;
    assert!(
        failed["last_error"]
            .to_string()
            .contains("only a batch can request this effect"),
        "{failed}"
    );
    node.post("/v1/sagas/parent", &json!({ "id": "p" }))
        .await
        .ok();
    let failed = node
        .until("", "/v1/sagas/parent/p", |saga| saga["status"] == "failed")
        .await;
    assert!(
        failed["last_error"]
            .to_string()
            .contains("only a batch can request this effect"),
        "{failed}"
    );
    let signal = json!({ "type": "orlog.batch.create", "data": {
        "selection": { "saga": "order" }, "action": { "type": "cancel" }, "rate": 1,
    }});
    let detail = node
        .post("/v1/sagas/orlog.batch/b/signal", &signal)
        .await
        .problem("OR0008");
    assert!(detail.contains("built-in saga"), "{detail}");
    node.post("/v1/sagas/orlog.batch.page", &json!({}))
        .await
        .problem("OR0003");
    until_orders(&node, &[("o-000", "running")]).await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_creates_watches_and_controls_batches() {
    let (builder, _) = builder();
    let node = builder.start().await;
    place(&node, 0..5).await;
    let url = node.serve().await;
    let command = async |args: &[&str]| {
        let args: Vec<_> = ["batch"]
            .iter()
            .chain(args)
            .chain(&["--url", &url])
            .copied()
            .collect();
        within("the command", run(orlog(&args))).await
    };
    let selection = [
        "create",
        "cancel",
        "--saga",
        "order",
        "--filter",
        "vars.total > 2",
    ];
    let dry_run = [&selection[..], &["--dry-run"]].concat();
    let (code, out, err) = command(&dry_run).await;
    assert!(
        code == 0 && out.contains("o-003") && !out.contains("o-002"),
        "{out}{err}"
    );
    assert!(
        out.contains("cancel: 2 instances match, 0 would be skipped; dry run: no changes made"),
        "{out}"
    );
    let watch = [
        &selection[..],
        &["--id", "b-1", "--reason", "recall", "--watch"],
    ]
    .concat();
    let (code, out, err) = command(&watch).await;
    assert!(
        code == 0 && out.contains("b-1: completed") && out.contains("done 2, skipped 0, failed 0"),
        "{out}{err}"
    );
    assert!(err.contains("2 of 2: 2 done, 0 skipped, 0 failed"), "{err}");
    let canary = [
        "create",
        "signal",
        "--saga",
        "order",
        "--all",
        "--type",
        "Noted",
        "--data",
        "{\"n\":1}",
        "--canary",
        "1",
        "--id",
        "b-2",
        "--watch",
    ];
    let (code, out, err) = command(&canary).await;
    assert!(
        code == 0 && out.contains("b-2: awaiting_approval"),
        "{out}{err}"
    );
    assert!(err.contains("orlog batch resume b-2"), "{err}");
    let (_, out, _) = command(&["stop", "b-2", "--reason", "no"]).await;
    assert!(out.contains("b-2: stopped"), "{out}");
    let (code, _, err) = command(&["resume", "b-2"]).await;
    assert!(
        code == 4 && err.contains("the batch is stopped"),
        "{code} {err}"
    );
    let (code, _, err) = command(&["show", "b-2", "--watch"]).await;
    assert!(
        code == 4 && err.contains("the batch was stopped"),
        "{code} {err}"
    );
    let (_, out, _) = command(&["list"]).await;
    assert!(
        out.contains("b-1") && out.contains("2/2") && out.contains("cancel"),
        "{out}"
    );
    let (code, _, err) = command(&["show", "b-9"]).await;
    assert!(
        code == 3 && err.contains("no batch \"b-9\""),
        "{code} {err}"
    );
    let (code, _, err) = command(&["create", "cancel", "--saga", "order"]).await;
    assert!(
        code == 2 && err.contains("would cancel all instances of order; add a filter, or --all"),
        "{err}"
    );
    let (code, _, err) = command(&["create", "signal", "--saga", "order"]).await;
    assert!(code == 2 && err.contains("--type"), "{code} {err}");
    node.stop().await;
}
