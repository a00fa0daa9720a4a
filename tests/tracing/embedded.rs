//! One process: from the request to the end of the saga, with timers, external workers and a restart in
//! between.

use std::sync::Arc;

use orlog_testkit::otlp_collector::OtlpCollector;
use serde_json::json;

use super::fixture::{
    CALLER, TRACE, attribute, caller, check_line, named, node, one, post, publish, until,
};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

const WAITING: &str = r"
saga: waiting
version: 1
correlate: orderId
start: WaitAsked
steps:
  - id: rest
    do: { wait: 50ms }
  - id: charge
    do: { effect: pay.charge }
";

const TELLING: &str = r"
saga: payment
version: 1
correlate: orderId
start: PaymentAsked
steps:
  - id: charge
    do: { effect: pay.charge }
completed: Paid
";

fn pay(shop: &HttpUpstream) -> String {
    format!(
        "base_url = {:?}\nbackoff = {{ initial = \"1ms\" }}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    )
}

/// Requirements: R17.
#[tokio::test(flavor = "multi_thread")]
async fn request_and_its_consequences_form_one_trace() {
    let (collector, shop) = (Arc::new(OtlpCollector::new()), HttpUpstream::open().await);
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    dirs.define("payment", TELLING);
    let node = node(&dirs, &collector.url, |_| {}).await;
    shop.script(503, &[], "{}");
    publish(&node, "PaymentAsked", "o-1", Some(&caller("01"))).await;
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
    let spans = until(&collector, &["publish Paid", "execute pay.charge"]).await;

    let (request, ingest) = (
        one(&spans, "POST /v1/events"),
        one(&spans, "ingest PaymentAsked"),
    );
    let (started, work) = (
        one(&spans, "payment PaymentAsked"),
        one(&spans, "execute pay.charge"),
    );
    let [failed, done] = named(&spans, "pay.charge")[..] else {
        panic!("two attempts")
    };
    let (ended, published) = (
        one(&spans, "payment succeeded"),
        one(&spans, "publish Paid"),
    );
    assert_eq!(
        (request.trace.as_str(), request.parent.as_str()),
        (TRACE, CALLER)
    );
    check_line(&spans, &[request, ingest, started, work, failed]);
    check_line(&spans, &[work, done, ended, published]);

    assert_eq!(
        [
            request.kind,
            ingest.kind,
            started.kind,
            work.kind,
            done.kind,
            published.kind
        ],
        [2, 5, 1, 1, 3, 4]
    );
    assert_eq!(attribute(request, "http.response.status_code"), "202");
    assert_eq!(attribute(request, "url.path"), "/v1/events");
    assert_eq!(attribute(request, "url.scheme"), "http");
    assert_eq!(
        attribute(ingest, "messaging.message.id"),
        "PaymentAsked-o-1"
    );
    for span in [started, work, failed, done, ended] {
        let of =
            ["orlog.tenant", "orlog.saga", "orlog.correlation"].map(|name| attribute(span, name));
        assert_eq!(of, ["acme", "payment", "o-1"], "{}", span.name);
    }
    assert_eq!(
        (
            attribute(started, "orlog.instance.version"),
            attribute(ended, "orlog.instance.status")
        ),
        ("1", "completed")
    );
    assert_eq!(
        (
            attribute(failed, "orlog.attempt.number"),
            attribute(failed, "orlog.attempt.outcome")
        ),
        ("1", "unavailable")
    );
    assert_eq!(
        (failed.error.as_deref(), &done.error, &work.error),
        (Some("unavailable"), &None, &None)
    );
    assert_eq!(
        (
            attribute(work, "orlog.attempt.count"),
            attribute(work, "orlog.outcome")
        ),
        ("2", "succeeded")
    );
    assert_eq!(started.events, ["decided"]);

    // The upstream received the spans of the attempts and their tenant.
    let received = shop.received();
    for (received, attempt) in received.iter().zip([failed, done]) {
        assert_eq!(
            received.header("traceparent"),
            format!("00-{TRACE}-{}-01", attempt.span)
        );
        assert_eq!(received.header("baggage"), "tenant=acme");
    }

    // A group commit contains transitions of several instances; the links exist in both directions.
    for transition in [started, ended] {
        let (trace, span, label) = &transition.links[0];
        assert_eq!(label, "commit");
        let commit = spans
            .iter()
            .find(|commit| commit.span == *span && commit.trace == *trace)
            .unwrap();
        assert_eq!(
            (commit.name.as_str(), commit.parent.as_str()),
            ("commit", "")
        );
        let back = (
            transition.trace.clone(),
            transition.span.clone(),
            "transition".to_owned(),
        );
        assert!(commit.links.contains(&back), "{:?}", commit.links);
    }
    let instance = node.until("acme", "/v1/sagas/payment/o-1", |_| true).await;
    assert_eq!(instance["trace_id"], TRACE);
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn timer_span_continues_the_arming_trace() {
    let (collector, shop) = (Arc::new(OtlpCollector::new()), HttpUpstream::open().await);
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    dirs.define("waiting", WAITING);
    let node = node(&dirs, &collector.url, |_| {}).await;
    publish(&node, "WaitAsked", "o-1", Some(&caller("01"))).await;
    assert_eq!(
        node.end_of("acme", "waiting", "o-1").await["status"],
        "completed"
    );
    let spans = until(&collector, &["waiting succeeded"]).await;
    let armed = one(&spans, "waiting WaitAsked");
    let timer = spans
        .iter()
        .find(|span| span.name.starts_with("timer "))
        .expect("a timer has a span");
    let fired = spans
        .iter()
        .find(|span| span.parent == timer.span)
        .expect("it led to a transition");
    check_line(&spans, &[armed, timer, fired]);
    let link = (
        armed.trace.clone(),
        armed.span.clone(),
        "armed_by".to_owned(),
    );
    assert_eq!((armed.trace.as_str(), &timer.links), (TRACE, &vec![link]));
    assert!(
        timer.duration.0 >= armed.duration.0 + 40_000_000,
        "it begins when it was due"
    );
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn trace_continues_across_restart_and_external_worker() {
    let collector = Arc::new(OtlpCollector::new());
    // The worker of the first node is lost, too: its claim ends.
    let upstream = "kind = \"worker\"\neffects = [\"pay.charge\"]\nclaim_ttl = \"1s\"\n";
    let dirs = Dirs::new(&[("pay", upstream)]);
    let first = node(&dirs, &collector.url, |_| {}).await;
    publish(&first, "PaymentAsked", "o-1", Some(&caller("01"))).await;
    let claim = json!({ "effects": ["pay.charge"], "worker": "w-1", "wait_seconds": 20 });
    let lost = post(&first, "/v1/work/claim", &claim).await["jobs"][0].clone();
    // The exporter of this node ends with it, without the spans of its last batch.
    drop(until(&collector, &["payment PaymentAsked"]).await);
    let dirs = first.stop().await;

    let node = node(&dirs, &collector.url, |_| {}).await;
    let job = post(&node, "/v1/work/claim", &claim).await["jobs"][0].clone();
    assert_eq!(job["job"], lost["job"]);
    // Another attempt in the same trace.
    assert_ne!(job["traceparent"], lost["traceparent"]);
    let traceparent = job["traceparent"].as_str().unwrap();
    assert!(traceparent.contains(TRACE), "{traceparent}");
    let own = "00000000000000ab";
    let result = json!({
        "claim": job["claim"], "result": "succeeded", "traceparent": format!("00-{TRACE}-{own}-01"),
    });
    let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
    post(&node, &path, &result).await;
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
    let spans = until(&collector, &["payment succeeded", "execute pay.charge"]).await;
    let attempt = named(&spans, "pay.charge")
        .into_iter()
        .find(|span| traceparent.contains(&span.span))
        .unwrap();
    let link = (TRACE.to_owned(), own.to_owned(), "remote".to_owned());
    assert_eq!(attempt.links, [link]);
    // The next transition continues from the worker's own span, which this collector does not receive.
    assert_eq!(one(&spans, "payment succeeded").parent, own);
    check_line(
        &spans,
        &[
            one(&spans, "payment PaymentAsked"),
            one(&spans, "execute pay.charge"),
            attempt,
        ],
    );
    node.app.stop().await.unwrap();
}
