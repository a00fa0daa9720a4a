//! Sampling of traces, and the behavior without a collector.

use std::sync::Arc;

use orlog_testkit::otlp_collector::OtlpCollector;

use super::fixture::{TRACE, caller, named, node, one, publish, until};
use crate::effects::http_upstream::HttpUpstream;
use crate::effects::node::Dirs;

fn pay(shop: &HttpUpstream) -> String {
    format!(
        "base_url = {:?}\n[effects.\"pay.charge\"]\npath = \"/charge\"\n",
        shop.url
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn untraced_event_starts_a_trace_at_ratio_one() {
    let (collector, shop) = (Arc::new(OtlpCollector::new()), HttpUpstream::open().await);
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let node = node(&dirs, &collector.url, |_| {}).await;
    publish(&node, "PaymentAsked", "o-1", None).await;
    node.end("acme", "o-1").await;
    let spans = until(&collector, &["payment succeeded"]).await;
    let root = one(&spans, "POST /v1/events");
    assert_eq!(root.parent, "");
    assert_eq!(one(&spans, "payment succeeded").trace, root.trace);
    assert!(
        shop.received()[0]
            .header("traceparent")
            .contains(&root.trace)
    );
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ratio_zero_follows_only_sampled_parents() {
    let (collector, shop) = (Arc::new(OtlpCollector::new()), HttpUpstream::open().await);
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    let node = node(&dirs, &collector.url, |config| {
        config.telemetry.sample_ratio = 0.0;
    })
    .await;
    publish(&node, "PaymentAsked", "o-1", None).await;
    node.end("acme", "o-1").await;
    publish(&node, "PaymentAsked", "o-2", Some(&caller("00"))).await;
    node.end("acme", "o-2").await;
    publish(&node, "PaymentAsked", "o-3", Some(&caller("01"))).await;
    node.end("acme", "o-3").await;
    let spans = until(&collector, &["payment succeeded"]).await;
    assert_eq!(named(&spans, "payment PaymentAsked").len(), 1);
    assert!(
        spans
            .iter()
            .filter(|span| span.name != "commit")
            .all(|span| span.trace == TRACE)
    );
    // Upstreams receive the unsampled flag, so that they start no traces of their own.
    let received = shop.received();
    let flags = |n: usize| {
        received[n]
            .header("traceparent")
            .rsplit('-')
            .next()
            .unwrap()
            .to_owned()
    };
    assert_eq!([flags(0), flags(1), flags(2)], ["00", "00", "01"]);
    assert!(received[1].header("traceparent").contains(TRACE));
    node.app.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn unreachable_collector_drops_and_counts_spans() {
    let shop = HttpUpstream::open().await;
    let dirs = Dirs::new(&[("pay", &pay(&shop))]);
    // No process listens on a port that was free a moment ago.
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let node = node(&dirs, &format!("http://{unused_address}"), |config| {
        config.telemetry.queue_size = 4;
    })
    .await;
    for order in 0..40 {
        publish(&node, "PaymentAsked", &format!("o-{order}"), None).await;
    }
    for order in 0..40 {
        assert_eq!(
            node.end("acme", &format!("o-{order}")).await["status"],
            "completed"
        );
    }
    let metrics = node.get("/metrics").await;
    let metrics = metrics.as_str().unwrap();
    let dropped = metrics
        .lines()
        .find_map(|line| line.strip_prefix("orlog_telemetry_spans_dropped_total "));
    let dropped: u64 = dropped.expect("it is counted").parse().unwrap();
    assert!(dropped > 0, "{metrics}");
    assert!(
        metrics.contains("orlog_telemetry_spans_sent_total 0"),
        "{metrics}"
    );
    node.app.stop().await.unwrap();
}
