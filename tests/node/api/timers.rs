//! Due timers, page by page.

use axum::body::Body;
use axum::http::Method;
use orlog_model::TenantId;
use serde_json::Value;

use crate::api::node::Node;

#[tokio::test(flavor = "multi_thread")]
async fn timers_are_listed_by_due_time_and_cursors_leak_no_tenant() {
    let node = Node::start_with(|config| {
        config.shards = 3;
        config.tenants.key_sharded = vec![TenantId::new("acme").unwrap()];
        // Two per shard: most pages end among the timers of other tenants.
        config.http.scan_limit = 6;
    })
    .await;
    for number in 0..6 {
        for tenant in ["acme", "aaa", "other"] {
            node.order(tenant, &format!("{tenant}-{number}"), 5, "running")
                .await;
        }
    }
    for tenant in ["acme", "aaa", "other"] {
        let (mut found, mut pages, mut next) = (Vec::new(), 0, None::<String>);
        loop {
            let cursor = next
                .map(|next| format!("&cursor={next}"))
                .unwrap_or_default();
            let path = format!("/v1/timers?limit=4{cursor}");
            let page = node
                .ask(Method::GET, tenant, &path, Body::empty())
                .await
                .ok();
            let items = page["items"].as_array().unwrap();
            assert!(
                items.len() <= 4 && page["scanned"].as_u64().unwrap() <= 6,
                "{page}"
            );
            found.extend(items.clone());
            pages += 1;
            let Some(cursor) = page["next_cursor"].as_str() else {
                break;
            };
            for other in ["acme", "aaa", "other"]
                .into_iter()
                .filter(|other| *other != tenant)
            {
                let bytes = other
                    .bytes()
                    .map(|byte| format!("{byte:02x}"))
                    .collect::<Vec<_>>()
                    .concat();
                assert!(
                    !cursor.contains(&bytes),
                    "{tenant} receives {other}: {cursor}"
                );
            }
            next = Some(cursor.to_owned());
        }
        assert!(pages > 2, "{pages}");
        assert!(
            found.is_sorted_by_key(|timer| timer["due"].as_str().unwrap().to_owned()),
            "{found:?}"
        );
        let mut ids: Vec<_> = found
            .iter()
            .map(|timer| timer["correlation"].as_str().unwrap())
            .collect();
        ids.sort_unstable();
        assert_eq!(
            ids,
            (0..6)
                .map(|number| format!("{tenant}-{number}"))
                .collect::<Vec<_>>()
        );
    }
    let empty = node
        .ask(Method::GET, "empty", "/v1/timers?limit=1000", Body::empty())
        .await
        .ok();
    assert_eq!(empty["items"], Value::Array(Vec::new()));
    node.get("/v1/timers?cursor=xyz").await.problem("OR0008");
}
