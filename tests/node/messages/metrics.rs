//! Metrics of messages.

use std::collections::BTreeSet;

use orlog_testkit::wait::until;

use super::*;
use crate::signer::Signer;

async fn metrics(node: &Node) -> BTreeSet<String> {
    node.get("/metrics")
        .await
        .text
        .lines()
        .map(ToOwned::to_owned)
        .collect()
}

async fn until_metric(node: &Node, line: &str) {
    until(line, async || {
        metrics(node).await.contains(line).then_some(())
    })
    .await;
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn messages_are_counted_by_type_and_final_status_and_undelivered_ones_are_visible() {
    let peer = orlog::config::PeerConfig {
        address: "http://127.0.0.1:1".parse().unwrap(),
        keys: Signer::new().actor("", "").keys,
    };
    let node =
        builder().config(|config| drop(config.peers.insert("away.example".parse().unwrap(), peer)));
    let node = node.start().await;
    let found = metrics(&node).await;
    for line in [
        "orlog_messages_sent_total{type=\"mail\"} 0",
        "orlog_messages_received_total{type=\"job\"} 0",
        "orlog_messages_ended_total{box=\"in\",type=\"chat\",status=\"error\"} 0",
        "orlog_messages_undelivered 0",
    ] {
        assert!(found.contains(line), "{line}: {found:#?}");
    }
    for _ in 0..2 {
        send(&node, "a", "m-1", &job("b@one")).await.ok();
        until_status(&node, "a", "m-1", "processed").await;
    }
    send(&node, "a", "m-2", &chat("b@one", "t", "how many?"))
        .await
        .ok();
    let question = node
        .until("b", "/v1/messages?type=chat", |page| {
            page["items"][0]["id"].is_string()
        })
        .await;
    let id = &question["items"][0]["id"];
    change(&node, "b", id, "reject", &json!({ "reason": "busy" }))
        .await
        .ok();
    until_status(&node, "a", "m-2", "error").await;
    send(&node, "a", "m-3", &chat("b@away.example", "t", "hello?"))
        .await
        .ok();
    let found = metrics(&node).await;
    for line in [
        "orlog_messages_sent_total{type=\"job\"} 1",
        "orlog_messages_sent_total{type=\"chat\"} 2",
        "orlog_messages_received_total{type=\"job\"} 1",
        "orlog_messages_received_total{type=\"chat\"} 1",
        "orlog_messages_ended_total{box=\"out\",type=\"job\",status=\"processed\"} 1",
        "orlog_messages_ended_total{box=\"in\",type=\"job\",status=\"processed\"} 1",
        "orlog_messages_ended_total{box=\"out\",type=\"chat\",status=\"error\"} 1",
        "orlog_messages_ended_total{box=\"in\",type=\"chat\",status=\"error\"} 1",
        "orlog_messages_undelivered 1",
    ] {
        assert!(found.contains(line), "{line}: {found:#?}");
    }
    until("the age of the message", async || {
        let found = metrics(&node).await;
        let age = found
            .iter()
            .find_map(|line| line.strip_prefix("orlog_messages_undelivered_oldest_age_seconds "));
        age.and_then(|age| age.parse::<f64>().ok())
            .filter(|age| *age > 0.0)
    })
    .await;
    change(&node, "a", &json!("m-3"), "cancel", &json!({}))
        .await
        .ok();
    until_metric(
        &node,
        "orlog_messages_ended_total{box=\"out\",type=\"chat\",status=\"error\"} 2",
    )
    .await;
    until_metric(&node, "orlog_messages_undelivered 0").await;
    node.stop().await;
}
