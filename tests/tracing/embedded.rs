//! One process: from the request to the end of the saga, with timers, workers outside and a restart in between.

use std::sync::Arc;

use orlog_testkit::otlp_collector::Collector;
use serde_json::json;

use crate::fixture::{CALLER, TRACE, attribute, caller, check_line, named, node, one, publish, say, until};
use crate::http_upstream::Shop;
use crate::node::Folders;

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

fn pay(shop: &Shop) -> String {
    format!(
        "base_url = {:?}\nbackoff = {{ first = \"1ms\" }}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_and_all_that_comes_of_it_are_one_tree() {
    let (collector, shop) = (Arc::new(Collector::new()), Shop::open().await);
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    folders.define("payment", TELLING);
    let node = node(&folders, &collector.url, |_| {}).await;
    shop.answers(503, &[], "{}");
    publish(&node, "PaymentAsked", "o-1", Some(&caller("01"))).await;
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
    let spans = until(&collector, &["publish Paid", "work pay.charge"]).await;

    let (request, ingest) = (one(&spans, "POST /v1/events"), one(&spans, "ingest PaymentAsked"));
    let (begun, work) = (one(&spans, "payment PaymentAsked"), one(&spans, "work pay.charge"));
    let [failed, done] = named(&spans, "pay.charge")[..] else { panic!("two attempts") };
    let (ended, told) = (one(&spans, "payment succeeded"), one(&spans, "publish Paid"));
    assert_eq!((request.trace.as_str(), request.parent.as_str()), (TRACE, CALLER));
    check_line(&spans, &[request, ingest, begun, work, failed]);
    check_line(&spans, &[work, done, ended, told]);

    assert_eq!([request.kind, ingest.kind, begun.kind, work.kind, done.kind, told.kind], [2, 5, 1, 1, 3, 4]);
    assert_eq!(attribute(request, "http.response.status_code"), "202");
    assert_eq!(attribute(request, "url.path"), "/v1/events");
    assert_eq!(attribute(ingest, "messaging.message.id"), "PaymentAsked-o-1");
    for span in [begun, work, failed, done, ended] {
        let of = ["orlog.tenant", "orlog.saga", "orlog.correlation"].map(|name| attribute(span, name));
        assert_eq!(of, ["acme", "payment", "o-1"], "{}", span.name);
    }
    assert_eq!((attribute(begun, "orlog.version"), attribute(ended, "orlog.status")), ("1", "completed"));
    assert_eq!((attribute(failed, "orlog.attempt"), attribute(failed, "orlog.ending")), ("1", "down"));
    assert_eq!((failed.error.as_deref(), &done.error, &work.error), (Some("down"), &None, &None));
    assert_eq!((attribute(work, "orlog.attempts"), attribute(work, "orlog.verdict")), ("2", "succeeded"));
    assert_eq!(begun.events, ["decided"]);

    // The upstream was told the spans of the attempts, and whose they are.
    let asked = shop.asked();
    for (asked, attempt) in asked.iter().zip([failed, done]) {
        assert_eq!(asked.header("traceparent"), format!("00-{TRACE}-{}-01", attempt.span));
        assert_eq!(asked.header("baggage"), "tenant=acme");
    }

    // A commit joins what was decided for many; the links go both ways.
    for transition in [begun, ended] {
        let (trace, span, what) = &transition.links[0];
        assert_eq!(what, "commit");
        let commit = spans.iter().find(|commit| commit.span == *span && commit.trace == *trace).unwrap();
        assert_eq!((commit.name.as_str(), commit.parent.as_str()), ("commit", ""));
        let back = (transition.trace.clone(), transition.span.clone(), "transition".to_owned());
        assert!(commit.links.contains(&back), "{:?}", commit.links);
    }
    let shown = node.until("acme", "/v1/sagas/payment/o-1", |_| true).await;
    assert_eq!(shown["trace_id"], TRACE);
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_goes_on_in_the_trace_of_the_transition_that_armed_it() {
    let (collector, shop) = (Arc::new(Collector::new()), Shop::open().await);
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    folders.define("waiting", WAITING);
    let node = node(&folders, &collector.url, |_| {}).await;
    publish(&node, "WaitAsked", "o-1", Some(&caller("01"))).await;
    assert_eq!(node.end_of("acme", "waiting", "o-1").await["status"], "completed");
    let spans = until(&collector, &["waiting succeeded"]).await;
    let armed = one(&spans, "waiting WaitAsked");
    let timer = spans.iter().find(|span| span.name.starts_with("timer ")).expect("a timer has a span");
    let fired = spans.iter().find(|span| span.parent == timer.span).expect("it led to a transition");
    check_line(&spans, &[armed, timer, fired]);
    let link = (armed.trace.clone(), armed.span.clone(), "armed".to_owned());
    assert_eq!((armed.trace.as_str(), &timer.links), (TRACE, &vec![link]));
    assert!(timer.lasted.0 >= armed.lasted.0 + 40_000_000, "it begins when it was due");
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn work_goes_on_in_its_trace_after_a_restart_and_through_a_worker_outside() {
    let collector = Arc::new(Collector::new());
    let folders = Folders::new(&[("pay", "kind = \"worker\"\neffects = [\"pay.charge\"]\n")]);
    let first = node(&folders, &collector.url, |_| {}).await;
    publish(&first, "PaymentAsked", "o-1", Some(&caller("01"))).await;
    let claim = json!({ "effects": ["pay.charge"], "worker": "w-1", "wait_seconds": 20 });
    let lost = say(&first, "/v1/work/claim", &claim).await["jobs"][0].clone();
    let folders = first.stop().await;

    let node = node(&folders, &collector.url, |_| {}).await;
    let job = say(&node, "/v1/work/claim", &claim).await["jobs"][0].clone();
    assert_eq!(job["job"], lost["job"]);
    // Another attempt, in the same trace.
    assert_ne!(job["traceparent"], lost["traceparent"]);
    let given = job["traceparent"].as_str().unwrap();
    assert!(given.contains(TRACE), "{given}");
    let own = "00000000000000ab";
    let result = json!({
        "claim": job["claim"], "result": "succeeded", "traceparent": format!("00-{TRACE}-{own}-01"),
    });
    let path = format!("/v1/work/jobs/{}/result", job["job"].as_str().unwrap());
    say(&node, &path, &result).await;
    assert_eq!(node.end("acme", "o-1").await["status"], "completed");
    let spans = until(&collector, &["payment succeeded", "work pay.charge"]).await;
    let attempt = named(&spans, "pay.charge").into_iter().find(|span| given.contains(&span.span)).unwrap();
    let link = (TRACE.to_owned(), own.to_owned(), "answered".to_owned());
    assert_eq!(attempt.links, [link]);
    // The next transition goes on from the worker's own span, which this collector does not know.
    assert_eq!(one(&spans, "payment succeeded").parent, own);
    check_line(&spans, &[one(&spans, "payment PaymentAsked"), one(&spans, "work pay.charge"), attempt]);
    node.app.stop().await.unwrap();
}
