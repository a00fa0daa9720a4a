//! Pages of many messages, and of large ones.

use axum::http::Method;

use super::nodes::{Identity, unused_address};
use super::{chat, send};
use crate::harness::node::Node;

/// Starts a node whose messages for the node `b` wait.
async fn start() -> Node {
    let (b, address) = (Identity::new(), unused_address().await);
    Identity::new()
        .builder("a")
        .config(|config| b.join(config, "b", &address))
        .start()
        .await
}

/// Sends messages with the same body, and returns their ids in order.
async fn send_many(node: &Node, count: usize, body: &str) -> Vec<String> {
    let ids: Vec<_> = (0..count).map(|number| format!("m-{number:02}")).collect();
    for id in &ids {
        send(node, "shop", id, &chat("shop@b", "t", body))
            .await
            .ok();
    }
    ids
}

/// Returns the ids of all pages of a list.
async fn pages(node: &Node, query: &str) -> Vec<Vec<String>> {
    let (mut pages, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/messages?{query}{cursor}");
        let page = node.ask(Method::GET, "shop", &path, "").await.ok();
        let items = page["items"].as_array().unwrap().iter();
        pages.push(
            items
                .map(|message| message["id"].as_str().unwrap().to_owned())
                .collect(),
        );
        let Some(next) = page["next_cursor"].as_str() else {
            return pages;
        };
        cursor = format!("&cursor={next}");
    }
}

/// Requirements: F6.
#[tokio::test(flavor = "multi_thread")]
async fn pages_of_many_messages_have_each_one_once() {
    let node = start().await;
    let sent = send_many(&node, 40, "x").await;
    for query in [
        "box=out",
        "box=out&status=dispatched",
        "box=out&type=chat",
        "thread=t",
    ] {
        for (limit, count) in [(100, 1), (17, 3)] {
            let found = pages(&node, &format!("{query}&limit={limit}")).await;
            assert_eq!(found.len(), count, "{query} {limit}: {found:?}");
            assert!(
                found.iter().all(|page| page.len() <= limit),
                "{query} {limit}: {found:?}"
            );
            let mut all = found.concat();
            all.sort_unstable();
            assert_eq!(all, sent, "{query} {limit}");
        }
    }
    assert!(pages(&node, "box=out&type=job").await.concat().is_empty());
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn page_of_large_messages_is_short() {
    let node = start().await;
    let sent = send_many(&node, 50, &"x".repeat(250_000)).await;
    let found = pages(&node, "box=out&limit=100").await;
    assert!(found.len() > 1 && found[0].len() >= 16, "{found:?}");
    let mut all = found.concat();
    all.sort_unstable();
    assert_eq!(all, sent);
    node.stop().await;
}
