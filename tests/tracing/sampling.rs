//! Which traces are kept, and what happens where nobody takes them.

use std::sync::Arc;

use orlog_testkit::otlp_collector::Collector;

use crate::fixture::{TRACE, caller, named, node, one, publish, until};
use crate::http_upstream::Shop;
use crate::node::Folders;

fn pay(shop: &Shop) -> String {
    format!("base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n", shop.url)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_without_a_trace_begins_one_where_all_are_kept() {
    let (collector, shop) = (Arc::new(Collector::new()), Shop::open().await);
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    let node = node(&folders, &collector.url, |_| {}).await;
    publish(&node, "PaymentAsked", "o-1", None).await;
    node.end("acme", "o-1").await;
    let spans = until(&collector, &["payment succeeded"]).await;
    let root = one(&spans, "POST /v1/events");
    assert_eq!(root.parent, "");
    assert_eq!(one(&spans, "payment succeeded").trace, root.trace);
    assert!(shop.asked()[0].header("traceparent").contains(&root.trace));
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_none_is_kept_only_what_others_keep_is_followed() {
    let (collector, shop) = (Arc::new(Collector::new()), Shop::open().await);
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    let node = node(&folders, &collector.url, |config| config.telemetry.sample_ratio = 0.0).await;
    publish(&node, "PaymentAsked", "o-1", None).await;
    node.end("acme", "o-1").await;
    publish(&node, "PaymentAsked", "o-2", Some(&caller("00"))).await;
    node.end("acme", "o-2").await;
    publish(&node, "PaymentAsked", "o-3", Some(&caller("01"))).await;
    node.end("acme", "o-3").await;
    let spans = until(&collector, &["payment succeeded"]).await;
    assert_eq!(named(&spans, "payment PaymentAsked").len(), 1);
    assert!(spans.iter().filter(|span| span.name != "commit").all(|span| span.trace == TRACE));
    // Upstreams are told that nobody keeps it, so that they do not begin traces of their own.
    let asked = shop.asked();
    let flags = |n: usize| asked[n].header("traceparent").rsplit('-').next().unwrap().to_owned();
    assert_eq!([flags(0), flags(1), flags(2)], ["00", "00", "01"]);
    assert!(asked[1].header("traceparent").contains(TRACE));
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_collector_that_is_away_holds_nobody_up_and_what_is_lost_is_counted() {
    let shop = Shop::open().await;
    let folders = Folders::new(&[("pay", &pay(&shop))]);
    // Nobody listens at a port that was free a moment ago.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = node(&folders, &format!("http://{nobody}"), |config| config.telemetry.queue = 4).await;
    for order in 0..40 {
        publish(&node, "PaymentAsked", &format!("o-{order}"), None).await;
    }
    for order in 0..40 {
        assert_eq!(node.end("acme", &format!("o-{order}")).await["status"], "completed");
    }
    let metrics = node.get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    let dropped = metrics.lines().find_map(|line| line.strip_prefix("orlog_telemetry_spans_dropped_total "));
    let dropped: u64 = dropped.expect("it is counted").parse().unwrap();
    assert!(dropped > 0, "{metrics}");
    assert!(metrics.contains("orlog_telemetry_spans_sent_total 0"), "{metrics}");
    node.app.stop().await.unwrap();
}
