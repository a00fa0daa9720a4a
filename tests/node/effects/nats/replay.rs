//! Replay over NATS: effect results are stored on the bus, so effects are not executed again.

use axum::http::{Method, StatusCode};
use orlog::config::Role;
use orlog_testkit::nats_server::NatsServer;
use serde_json::json;

use super::{count, node, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

/// Another definition of the same name, with two charges instead of one.
const TWICE: &str = r"
saga: payment
version: 2
correlate: orderId
start: PaymentAsked
vars: { order: =event }
steps:
  - id: charge
    do: { effect: pay.charge, data: =vars.order }
    ok: Charged
    fail: Declined
  - id: tip
    when: =vars.order.tip > 0
    do: { effect: pay.charge, data: { amount: =vars.order.tip } }
";

#[tokio::test(flavor = "multi_thread")]
async fn replay_reuses_results_of_other_processes() {
    replay_reuses_results(Role::Saga).await;
}

/// Requirements: R9, R15.
#[tokio::test(flavor = "multi_thread")]
async fn replay_reuses_results_of_the_own_process() {
    replay_reuses_results(Role::Combined).await;
}

async fn replay_reuses_results(role: Role) {
    let server = NatsServer::start();
    let shop = HttpUpstream::open().await;
    let pay = format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    );
    let dirs = Dirs::new(&[("pay", &pay)]);
    let sagas = node(&server, &dirs, role, |_| {}).await;
    let effects = match role {
        Role::Saga => Some(node(&server, &dirs, Role::Effect, |_| {}).await),
        Role::Combined | Role::Effect => None,
    };
    for (order, tip) in [("o-1", 0), ("o-2", 3)] {
        sagas
            .pay("acme", order, json!({ "amount": 7, "tip": tip }))
            .await;
        assert_eq!(sagas.end("acme", order).await["status"], "completed");
    }
    dirs.define("payment", TWICE);
    assert_eq!(sagas.reload().await.0, StatusCode::OK);
    let order = |work| json!({ "saga": "payment", "from": "2020-01-01T00:00:00Z", "work": work });
    let (status, replay) = sagas
        .ask(Method::POST, "acme", "/v1/replays", &order("suppress"))
        .await;
    assert_eq!(status, StatusCode::OK, "{replay}");
    let items = replay["items"].as_array().unwrap();
    assert_eq!(
        (&items[0]["result"], &items[0]["after"]),
        (&json!("replaced"), &json!("completed")),
        "{replay}"
    );
    assert_eq!(items[1]["result"], "skipped", "{replay}");
    assert!(
        items[1]["reason"]
            .as_str()
            .unwrap()
            .contains("wait for tip"),
        "{replay}"
    );
    assert_eq!(shop.received().len(), 2);

    let (_, replay) = sagas
        .ask(Method::POST, "acme", "/v1/replays", &order("emit"))
        .await;
    assert_eq!(
        replay["counts"],
        json!({ "created": 0, "replaced": 1, "redelivered": 0, "unchanged": 1, "skipped": 0 }),
        "{replay}"
    );
    assert_eq!(
        replay["items"][1]["work"], 2,
        "the fact of the charge, and the tip"
    );
    assert_eq!(sagas.end("acme", "o-2").await["status"], "completed");
    assert_eq!(shop.received().len(), 3);
    // No process publishes the result of another one again. The node of the instance publishes the charges with their
    // facts; the tip has none.
    let results = "tenant.acme.effect_result.pay%2Echarge.*";
    let expected = if role == Role::Saga { 3 } else { 1 };
    until(async || (count(&server, "WORKFLOW_EVENTS", results).await == expected).then_some(()))
        .await;
    if let Some(effects) = effects {
        effects.app.stop().await.unwrap();
    }
    sagas.app.stop().await.unwrap();
}
