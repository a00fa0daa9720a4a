//! Sagas behind nginx and HAProxy: a step whose effect was executed is compensated, whatever the proxy
//! answers.

use orlog_testkit::faulty_upstream::{End, FaultyUpstream, HttpProxy};
use serde_json::json;

use crate::effects::node::Dirs;

const COMPENSATED: &str = r"
saga: payment
version: 1
correlate: orderId
start: PaymentAsked
vars: { order: =event }
steps:
  - id: charge
    do: { effect: pay.charge, data: =vars.order }
    undo: { effect: pay.refund, data: =vars.order }
";

/// Runs a saga behind a proxy, and checks that its charge is refunded.
async fn check_compensated(proxy: HttpProxy, ends: &'static [End]) {
    let faulty = FaultyUpstream::http(0, ends).await;
    let running = proxy.start(faulty.port);
    let config = format!(
        "base_url = \"http://127.0.0.1:{}\"\nmax_attempts = 2\n\
         backoff = {{ initial = \"1ms\", max = \"1ms\" }}\n\
         [effects.\"pay.charge\"]\npath = \"/charge\"\n\
         [effects.\"pay.refund\"]\npath = \"/refund\"\n",
        running.port
    );
    let dirs = Dirs::new(&[("pay", &config)]);
    dirs.define("payment", COMPENSATED);
    let node = dirs.start().await;

    node.pay("", "o-1", json!({ "amount": 7 })).await;
    let saga = node.end("", "o-1").await;
    let step = &saga["state"]["steps"][0]["state"];
    assert_eq!(
        (saga["status"].as_str(), step.as_str()),
        (Some("failed"), Some("compensated")),
        "{proxy:?}, {ends:?}: {saga:#}"
    );
    // Both attempts have one idempotency key, so that one refund compensates them.
    assert_eq!(faulty.charges(), 2, "{proxy:?}, {ends:?}");
    assert_eq!(faulty.refunds(), 1, "{proxy:?}, {ends:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn executed_step_behind_a_proxy_is_compensated() {
    for proxy in HttpProxy::ALL {
        for ends in [&[End::Closed][..], &[End::Silence]] {
            check_compensated(proxy, ends).await;
        }
    }
}

/// The rejection of a later attempt says nothing about the earlier one.
#[tokio::test(flavor = "multi_thread")]
async fn executed_step_whose_next_attempt_is_rejected_is_compensated() {
    for ends in [
        &[End::Closed, End::Status(404)][..],
        &[End::Closed, End::Status(409)],
        &[End::Silence, End::Status(401)],
    ] {
        check_compensated(HttpProxy::Nginx, ends).await;
    }
}
