//! Shadows of a node: differences, what a candidate never does, samples, ends, promotion, kills, shards, and the command line.
//!
//! Size: tables of invalid shadows and their messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_effect::{FunctionProvider, Policy};
use orlog_model::{CorrelationId, InstanceKey, SagaName, SampleRate, TenantId};
use orlog_testkit::wait::until;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::harness::http::{client, send};
use crate::harness::node::{Node, NodeBuilder};
use crate::harness::process::{Process, orlog, run};

const LIVE: &str = "
saga: order
version: 1
correlate: orderId
start: OrderPlaced
vars: { orderId: =event.orderId, total: =event.total, card: =event.card }
steps:
  - id: charge
    do: { effect: payments.charge, data: { amount: =vars.total, card: =vars.card } }
    undo: { effect: payments.refund, data: { amount: =vars.total } }
  - id: check
    when: vars.total > 1000
    do: { effect: payments.check, data: {} }
  - { id: ship, do: { event: Shipped } }
completed: { fact: OrderCompleted, data: { total: =vars.total } }
";

/// Number of calls by effect.
type Calls = Arc<Mutex<BTreeMap<&'static str, usize>>>;

fn builder() -> (NodeBuilder, Calls) {
    let calls = Calls::default();
    let mut payments = FunctionProvider::new();
    for effect in ["payments.charge", "payments.refund", "payments.check"] {
        let calls = Arc::clone(&calls);
        payments = payments.effect(effect, move |_| {
            *calls.lock().entry(effect).or_default() += 1;
            async { Ok(json!({ "id": 7 })) }
        });
    }
    (
        NodeBuilder::new()
            .definition("order", LIVE)
            .upstream(payments.upstream("payments", Policy::default())),
        calls,
    )
}

#[track_caller]
fn candidate(replacements: &[(&str, &str)]) -> String {
    replacements.iter().fold(
        LIVE.replace("version: 1", "version: 2"),
        |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        },
    )
}

fn body(text: &str) -> Value {
    json!({ "file": { "name": "order.saga.yaml", "text": text }, "user": "ada" })
}

/// Starts a shadow, and waits until it records.
async fn shadow(node: &Node, body: &Value) {
    node.post("/v1/shadows", body).await.ok();
    node.until("", "/v1/shadows/order", |shadow| {
        shadow["recording"] == true
    })
    .await;
}

fn order(number: usize, total: usize) -> Value {
    json!({ "orderId": format!("o-{number}"), "total": total, "card": "4242-1111" })
}

fn signal(kind: &str) -> Value {
    json!({ "type": kind })
}

/// Places an order for each total.
async fn place(node: &Node, totals: &[usize]) {
    for (number, total) in totals.iter().enumerate() {
        node.post("/v1/sagas/order", &order(number, *total))
            .await
            .ok();
    }
    let paid = "/v1/sagas?saga=order&limit=1000&filter=waits.exists(w,w.kind=='event')";
    node.until("", paid, |page| {
        page["items"].as_array().unwrap().len() == totals.len()
    })
    .await;
}

async fn ship(node: &Node, count: usize) {
    for number in 0..count {
        node.post(
            &format!("/v1/sagas/order/o-{number}/signal"),
            &signal("Shipped"),
        )
        .await
        .ok();
    }
}

async fn until_compared(node: &Node, count: u64) -> Value {
    node.until("", "/v1/shadows/order", |shadow| {
        let skipped = shadow["skipped"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_u64)
            .sum::<u64>();
        shadow["compared"].as_u64().unwrap() + skipped == count
    })
    .await
}

fn kinds(shadow: &Value) -> BTreeMap<String, u64> {
    let differences = shadow["differences"].as_array().unwrap().iter();
    differences
        .map(|one| {
            (
                one["kind"].as_str().unwrap().to_owned(),
                one["count"].as_u64().unwrap(),
            )
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_are_reported_and_the_candidate_performs_nothing() {
    let (builder, calls) = builder();
    let builder = builder.config(|config| {
        config.redact = serde_json::from_value(json!({ "fields": ["card"] })).unwrap();
    });
    let node = builder.start().await;
    place(&node, &[1]).await;
    // Another payload for totals from 10, another effect from 100, and another card number, which is redacted.
    let text = candidate(&[
        (
            "amount: =vars.total, card: =vars.card",
            "amount: '=vars.total < 10 ? vars.total : vars.total + 1', card: '=vars.card + \"-x\"'",
        ),
        ("vars.total > 1000", "vars.total > 100"),
    ]);
    shadow(&node, &body(&text)).await;
    let before = node.get("/v1/sagas?saga=order").await.ok()["items"]
        .as_array()
        .unwrap()
        .len();
    for (number, total) in [(10, 5), (11, 20), (12, 30), (13, 500)] {
        node.post("/v1/sagas/order", &order(number, total))
            .await
            .ok();
    }
    let paid = "/v1/sagas?saga=order&limit=1000&filter=waits.exists(w,w.kind=='event')";
    node.until("", paid, |page| {
        page["items"].as_array().unwrap().len() == before + 4
    })
    .await;
    // An instance that started before the shadow is not compared.
    for number in [0, 10, 11, 12, 13] {
        node.post(
            &format!("/v1/sagas/order/o-{number}/signal"),
            &signal("Shipped"),
        )
        .await
        .ok();
    }
    let report = until_compared(&node, 4).await;
    assert_eq!(
        (&report["equal"], &report["different"], &report["skipped"]),
        (&json!(0), &json!(4), &json!({})),
        "{report}"
    );
    let expected = BTreeMap::from([
        (
            "step charge: payload of payments.charge differs at .amount".to_owned(),
            3,
        ),
        (
            "step charge: payload of payments.charge differs at .card".to_owned(),
            4,
        ),
        (
            "step check: calls payments.check, the live instance does not".to_owned(),
            1,
        ),
    ]);
    assert_eq!(kinds(&report), expected, "{report}");
    assert!(!report.to_string().contains("4242"), "{report}");
    let amount = report["differences"]
        .as_array()
        .unwrap()
        .iter()
        .find(|one| one["kind"].as_str().unwrap().ends_with(".amount"))
        .unwrap();
    assert_eq!(
        (
            &amount["live"],
            &amount["candidate"],
            &amount["instances"][0]
        ),
        (&json!(20), &json!(21), &json!("/v1/sagas/order/o-11"))
    );
    // Each live order is charged once, and nothing else happened.
    assert_eq!(*calls.lock(), BTreeMap::from([("payments.charge", 5)]));
    let orders = node.get("/v1/sagas?saga=order&limit=100").await.ok();
    assert!(
        orders["items"]
            .as_array()
            .unwrap()
            .iter()
            .all(|order| order["status"] == "completed"),
        "{orders}"
    );
    let letters = node.get("/v1/dead-letters").await.ok();
    assert_eq!(letters["items"], json!([]));
    node.post("/v1/shadows/order/stop", &json!({})).await.ok();
    node.until("", "/v1/shadows/order", |shadow| {
        shadow["status"] == "stopped"
    })
    .await;
    // After the end, inputs are not recorded, and the report remains.
    node.post("/v1/sagas/order", &order(20, 20)).await.ok();
    assert_eq!(kinds(&node.get("/v1/shadows/order").await.ok()), expected);
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_candidate_is_promoted_and_ends_its_shadow() {
    let (builder, _) = builder();
    let node = builder.start().await;
    shadow(&node, &body(&candidate(&[]))).await;
    let rejected = node
        .post("/v1/shadows/order/promote", &json!({}))
        .await
        .rejected(409, "OR0084");
    assert!(rejected.contains("no instance was compared"), "{rejected}");
    place(&node, &[5, 2000]).await;
    ship(&node, 2).await;
    let report = until_compared(&node, 2).await;
    assert_eq!(
        (&report["equal"], &report["differences"]),
        (&json!(2), &json!([])),
        "{report}"
    );
    let plan = node
        .post("/v1/shadows/order/promote", &json!({ "user": "ada" }))
        .await
        .ok();
    assert_eq!(
        (&plan["dry_run"], &plan["changed"][0]["version"]),
        (&json!(false), &json!(2)),
        "{plan}"
    );
    node.until("", "/v1/shadows/order", |shadow| {
        shadow["status"] == "promoted"
    })
    .await;
    node.post(
        "/v1/sagas/order",
        &json!({ "orderId": "new", "total": 1, "card": "" }),
    )
    .await
    .ok();
    assert_eq!(
        node.get("/v1/sagas/order/new").await.ok()["definition"]["version"],
        2
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn differences_must_be_accepted_and_another_deployment_supersedes_the_shadow() {
    let (builder, _) = builder();
    let node = builder.start().await;
    let text = candidate(&[("fact: OrderCompleted", "fact: OrderDone")]);
    shadow(&node, &body(&text)).await;
    place(&node, &[5]).await;
    ship(&node, 1).await;
    let report = until_compared(&node, 1).await;
    assert!(
        kinds(&report).contains_key("fact OrderDone: only from the candidate"),
        "{report}"
    );
    let rejected = node
        .post("/v1/shadows/order/promote", &json!({}))
        .await
        .rejected(409, "OR0084");
    assert!(
        rejected.contains("1 of 1 compared instances differ"),
        "{rejected}"
    );
    assert!(rejected.contains("--accept-differences"), "{rejected}");
    let third = LIVE.replace("version: 1", "version: 3");
    let bundle = json!({ "files": [{ "name": "order.saga.yaml", "text": third }] });
    node.post("/admin/deploy", &bundle).await.ok();
    node.until("", "/v1/shadows/order", |shadow| {
        shadow["status"] == "superseded"
    })
    .await;
    let accepting = json!({ "accept_differences": true });
    let rejected = node
        .post("/v1/shadows/order/promote", &accepting)
        .await
        .rejected(409, "OR0084");
    assert!(rejected.contains("start a new shadow"), "{rejected}");
    // A new shadow replaces the ended one; a lower version is a decision of its own.
    shadow(&node, &body(&text)).await;
    assert_eq!(
        node.get("/v1/shadows/order").await.ok()["live"]["version"],
        3
    );
    let downgrade = node
        .post("/v1/shadows/order/promote", &accepting)
        .await
        .rejected(422, "OR0017");
    assert!(downgrade.contains("error"), "{downgrade}");
    let accepting = json!({ "accept_differences": true, "allow_downgrade": true });
    node.post("/v1/shadows/order/promote", &accepting)
        .await
        .ok();
    node.until("", "/v1/shadows/order", |shadow| {
        shadow["status"] == "promoted"
    })
    .await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn candidate_that_fails_leaves_live_instances_alone() {
    let (builder, calls) = builder();
    let node = builder.start().await;
    shadow(
        &node,
        &body(&candidate(&[(
            "total: =event.total,",
            "total: '=event.total / 0',",
        )])),
    )
    .await;
    place(&node, &[5]).await;
    ship(&node, 1).await;
    let report = until_compared(&node, 1).await;
    assert_eq!(report["different"], 1, "{report}");
    let kinds: Vec<_> = kinds(&report).into_keys().collect();
    assert_eq!(
        kinds,
        ["control request start: does not start the candidate"],
        "{report}"
    );
    assert!(
        report["differences"][0]["candidate"]
            .as_str()
            .unwrap()
            .contains("division by zero"),
        "{report}"
    );
    assert_eq!(
        node.get("/v1/sagas/order/o-0").await.ok()["status"],
        "completed"
    );
    assert_eq!(*calls.lock(), BTreeMap::from([("payments.charge", 1)]));
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_that_only_the_candidate_consumes_is_read_from_the_bus() {
    let (builder, _) = builder();
    let node = builder.start().await;
    let text = candidate(&[("do: { event: Shipped }", "do: { event: Delivered }")]);
    shadow(&node, &body(&text)).await;
    place(&node, &[5]).await;
    let event = |kind: &str| json!({ "specversion": "1.0", "id": kind, "source": "urn:shop", "type": kind, "data": { "orderId": "o-0" } });
    node.post("/v1/events", &event("Delivered")).await.ok();
    node.post("/v1/events", &event("Shipped")).await.ok();
    let report = until_compared(&node, 1).await;
    let kinds: Vec<_> = kinds(&report).into_keys().collect();
    assert_eq!(
        kinds,
        ["event Shipped: not consumed"],
        "it completed by the other event: {report}"
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_ends_by_itself_and_compares_what_has_not_ended() {
    let (builder, _) = builder();
    let node = builder.start().await;
    let mut request = body(&candidate(&[("amount: =vars.total,", "amount: 0,")]));
    request["for"] = json!("4s");
    shadow(&node, &request).await;
    place(&node, &[5, 6]).await;
    node.post("/v1/sagas/order/o-0/signal", &signal("Shipped"))
        .await
        .ok();
    let report = node
        .until("", "/v1/shadows/order", |shadow| {
            shadow["status"] == "completed"
        })
        .await;
    assert_eq!(
        (&report["different"], &report["unfinished"]),
        (&json!(2), &json!(1)),
        "{report}"
    );
    assert_eq!(
        (&report["recording"], &report["skipped"]),
        (&json!(false), &json!({}))
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sample_is_a_stable_choice_of_the_instances() {
    let (builder, _) = builder();
    let node = builder.start().await;
    let mut request = body(&candidate(&[]));
    request["sample"] = json!("30%");
    shadow(&node, &request).await;
    place(&node, &[5; 40]).await;
    ship(&node, 40).await;
    let rate: SampleRate = "30%".parse().unwrap();
    let key = |number: usize| InstanceKey {
        tenant: TenantId::default_tenant(),
        saga: SagaName::new("order").unwrap(),
        correlation: CorrelationId::new(format!("o-{number}")).unwrap(),
    };
    let sampled = (0..40)
        .filter(|number| rate.includes(&key(*number)))
        .count() as u64;
    assert!((5..25).contains(&sampled), "{sampled}");
    let report = until_compared(&node, sampled).await;
    assert_eq!(report["equal"], sampled, "{report}");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn invalid_shadow_is_rejected_with_its_reason() {
    let (builder, _) = builder();
    let node = builder.start().await;
    let text = candidate(&[]);
    let check = async |change: &dyn Fn(&mut Value), status: u16, code: &str, reason: &str| {
        let mut request = body(&text);
        change(&mut request);
        let detail = node
            .post("/v1/shadows", &request)
            .await
            .rejected(status, code);
        assert!(detail.contains(reason), "{reason}: {detail}");
    };
    check(
        &|body| body["sample"] = json!("10"),
        422,
        "OR0002",
        "for example 10%",
    )
    .await;
    check(
        &|body| body["sample"] = json!("0%"),
        422,
        "OR0002",
        "above 0%",
    )
    .await;
    check(
        &|body| body["for"] = json!("0s"),
        422,
        "OR0002",
        "1s to 30d",
    )
    .await;
    check(
        &|body| body["for"] = json!("31d"),
        422,
        "OR0002",
        "1s to 30d",
    )
    .await;
    check(
        &|body| body["for"] = json!("soon"),
        422,
        "OR0002",
        "for example 1h",
    )
    .await;
    check(
        &|body| body["max_instances"] = json!(0),
        422,
        "OR0002",
        "1 to 100000",
    )
    .await;
    check(
        &|body| body["file"]["name"] = json!("../order.saga.yaml"),
        422,
        "OR0002",
        "without a directory",
    )
    .await;
    check(
        &|body| body["file"]["base64"] = json!("AA=="),
        422,
        "OR0002",
        "either text or base64",
    )
    .await;
    check(
        &|body| body["file"]["text"] = json!("x".repeat(300 << 10)),
        422,
        "OR0002",
        "at most 262144",
    )
    .await;
    check(
        &|body| body["file"]["text"] = json!("saga: order\nversion: 2\n"),
        422,
        "OR0017",
        "error",
    )
    .await;
    let unknown = text.replace("payments.charge", "bank.charge");
    check(
        &|body| body["file"]["text"] = json!(unknown),
        422,
        "OR0017",
        "error",
    )
    .await;
    check(
        &|body| body["file"]["text"] = json!(LIVE),
        409,
        "OR0083",
        "is the active definition",
    )
    .await;
    let other = text
        .replace("saga: order", "saga: other")
        .replace("OrderPlaced", "OtherPlaced");
    check(
        &|body| body["file"]["text"] = json!(other),
        409,
        "OR0083",
        "nothing to compare with",
    )
    .await;
    node.get("/v1/shadows/order").await.rejected(404, "OR0082");
    node.post("/v1/shadows/order/stop", &json!({}))
        .await
        .rejected(404, "OR0082");
    node.post("/v1/shadows/order/promote", &json!({}))
        .await
        .rejected(404, "OR0082");
    shadow(&node, &body(&text)).await;
    check(&|_| (), 409, "OR0083", "orlog shadow stop order").await;
    let list = node.get("/v1/shadows").await.ok();
    assert_eq!(
        (
            list["items"].as_array().unwrap().len(),
            &list["items"][0]["saga"]
        ),
        (1, &json!("order"))
    );
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_saga_requests_a_page() {
    let forged = "
saga: forged
version: 1
correlate: id
start: Forged
vars: { id: =event.id }
steps:
  - { id: page, do: { effect: orlog.shadow.page, data: { task: { type: end } } } }
";
    let (builder, _) = builder();
    let node = builder.definition("forged", forged).start().await;
    node.post("/v1/sagas/forged", &json!({ "id": "f" }))
        .await
        .ok();
    let failed = node
        .until("", "/v1/sagas/forged/f", |saga| saga["status"] == "failed")
        .await;
    assert!(
        failed
            .to_string()
            .contains("only a shadow can request this effect"),
        "{failed}"
    );
    let start = json!({ "type": "orlog.shadow.stop" });
    assert!(
        node.post("/v1/sagas/orlog.shadow/order/signal", &start)
            .await
            .status
            .is_client_error()
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

#[tokio::test(flavor = "multi_thread")]
async fn shadow_compares_the_instances_of_all_shards() {
    let (builder, _) = builder();
    let builder = builder.config(|config| {
        (config.shards, config.tenants.key_sharded) = (4, vec![TenantId::default_tenant()]);
    });
    let node = builder.start().await;
    let url = node.serve().await;
    node.post("/v1/shadows", &body(&candidate(&[]))).await.ok();
    let path = format!("{url}/v1/shadows/order");
    poll(&path, |shadow| shadow["recording"] == true).await;
    for number in 0..20 {
        node.post("/v1/sagas/order", &order(number, 5)).await.ok();
        let paid = |order: &Value| order["waits"].to_string().contains("Shipped");
        poll(&format!("{url}/v1/sagas/order/o-{number}"), paid).await;
    }
    ship(&node, 20).await;
    let report = poll(&path, |shadow| shadow["compared"] == 20).await;
    assert_eq!(report["equal"], 20, "{report}");
    node.post("/v1/shadows/order/stop", &json!({})).await.ok();
    poll(&path, |shadow| shadow["status"] == "stopped").await;
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_of_a_killed_node_continues_and_counts_every_instance_once() {
    const ORDERS: usize = 12;
    let dir = tempfile::tempdir().unwrap();
    let definitions = dir.path().join("definitions");
    std::fs::create_dir(&definitions).unwrap();
    std::fs::write(definitions.join("order.saga.yaml"), LIVE).unwrap();
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
    let path = |node: &Process| format!("{}/v1/shadows/order", node.url);
    post(
        &node,
        "/v1/shadows",
        body(&candidate(&[("amount: =vars.total,", "amount: 0,")])),
    )
    .await;
    poll(&path(&node), |shadow| shadow["recording"] == true).await;
    let ship = async |node: &Process, number: usize| {
        let paid = |order: &Value| order["waits"].to_string().contains("Shipped");
        poll(&format!("{}/v1/sagas/order/o-{number}", node.url), paid).await;
        post(
            node,
            &format!("/v1/sagas/order/o-{number}/signal"),
            signal("Shipped"),
        )
        .await;
    };
    for number in 0..ORDERS {
        post(&node, "/v1/sagas/order", order(number, 5)).await;
        if number < ORDERS / 2 {
            ship(&node, number).await;
        }
    }
    // The recorded instances are compared after the kill, and those that continue afterwards.
    node.kill();
    node = start();
    let page = async |node: &Process| {
        let history = poll(&format!("{}/v1/sagas/orlog.shadow/order", node.url), |_| {
            true
        })
        .await;
        history["version"].as_u64().unwrap()
    };
    let version = page(&node).await;
    poll(
        &format!("{}/v1/sagas/orlog.shadow/order", node.url),
        |shadow| shadow["version"].as_u64().unwrap() > version + 1,
    )
    .await;
    for number in ORDERS / 2..ORDERS {
        ship(&node, number).await;
    }
    let total = |shadow: &Value| {
        let skipped = shadow["skipped"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_u64)
            .sum::<u64>();
        shadow["compared"].as_u64().unwrap() + skipped
    };
    let report = poll(&path(&node), |shadow| total(shadow) >= ORDERS as u64).await;
    assert_eq!(total(&report), ORDERS as u64, "{report}");
    assert!(
        report["different"].as_u64().unwrap() >= ORDERS as u64 / 2,
        "{report}"
    );
    node.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_start_report_and_promote() {
    let (builder, _) = builder();
    let node = builder.start().await;
    let url = node.serve().await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("order.saga.yaml");
    std::fs::write(&file, candidate(&[("amount: =vars.total,", "amount: 0,")])).unwrap();
    let command =
        async |args: &[&str]| run(orlog(&[&["shadow"], args, &["--url", &url]].concat())).await;
    let (code, _, error) = command(&["start", file.to_str().unwrap(), "--sample", "ten"]).await;
    assert!(
        code != 0 && error.contains("for example 10%"),
        "{code} {error}"
    );
    let (code, output, error) =
        command(&["start", dir.path().to_str().unwrap(), "--for", "10m"]).await;
    assert_eq!(code, 0, "{error}");
    assert!(
        output.contains("order: running") && error.contains("orlog shadow report order"),
        "{output}{error}"
    );
    let (code, _, error) = command(&["start", dir.path().to_str().unwrap()]).await;
    assert!(
        code == 1 && error.contains("orlog shadow stop order"),
        "{code} {error}"
    );
    node.until("", "/v1/shadows/order", |shadow| {
        shadow["recording"] == true
    })
    .await;
    let (code, _, error) = command(&["report", "order", "--fail-on-difference"]).await;
    assert!(
        code == 1 && error.contains("no instance was compared"),
        "{code} {error}"
    );
    place(&node, &[5]).await;
    ship(&node, 1).await;
    until_compared(&node, 1).await;
    let (code, output, error) = command(&["report", "order", "--fail-on-difference"]).await;
    assert!(
        code == 1 && error.contains("1 of 1 compared instances differ"),
        "{code} {error}"
    );
    for line in [
        "1 x  step charge: payload of payments.charge differs at .amount",
        "     - 5",
        "     + 0",
        "instances: o-0",
        "1 instances: 0 equal, 1 different",
    ] {
        assert!(output.contains(line), "{line}: {output}");
    }
    let (code, output, _) = command(&["report", "order", "--output", "json"]).await;
    let json: Value = serde_json::from_str(&output).unwrap();
    assert_eq!((code, &json["differences"][0]["count"]), (0, &json!(1)));
    let (code, output, _) = command(&["list"]).await;
    assert!(code == 0 && output.contains("1 -> 2"), "{output}");
    let (code, _, error) = command(&["promote", "order"]).await;
    assert!(
        code == 4 && error.contains("--accept-differences"),
        "{code} {error}"
    );
    let (code, output, error) = command(&["promote", "order", "--accept-differences"]).await;
    assert!(code == 0 && output.contains("is active"), "{output}{error}");
    let (code, output, _) = command(&["report", "order", "--wait"]).await;
    assert!(code == 0 && output.contains("order: promoted"), "{output}");
    node.stop().await;
}
