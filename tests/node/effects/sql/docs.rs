//! Tests of the examples in docs/providers/sql.md.

use axum::http::{Method, StatusCode};
use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use serde_json::{Value, json};

use super::postgres;
use crate::effects::docs::{block, with};
use crate::effects::node::Dirs;

#[tokio::test(flavor = "multi_thread")]
async fn documented_example_works() {
    let database = postgres().await;
    for statement in block("sql.md", "stock.sql")
        .split(';')
        .filter(|text| !text.trim().is_empty())
    {
        database.run(statement).await;
    }
    database.run("INSERT INTO stock VALUES ('kettle', 3)").await;
    let config = with(
        &block("sql.md", "stock.toml"),
        "env:STOCK_DATABASE_URL",
        &database.url,
    );
    let dirs = Dirs::new(&[("stock", &config)]);
    dirs.define("reservation", &block("sql.md", "reservation.saga.yaml"));
    std::fs::remove_file(dirs.path("definitions").join("payment.saga.yaml")).unwrap();
    let node = dirs.start().await;
    for (order, qty) in [("o-1", 2), ("o-2", 2), ("o-3", 1)] {
        let data = json!({ "orderId": order, "item": { "sku": "kettle" }, "qty": qty });
        let event = json!({
            "specversion": "1.0", "id": order, "source": "urn:test", "type": "OrderPlaced", "data": data,
        });
        let (status, response) = node.ask(Method::POST, "", "/v1/events", &event).await;
        assert_eq!(status, StatusCode::ACCEPTED, "{response}");
        let saga = node.end_of("", "reservation", order).await;
        if order == "o-2" {
            assert!(
                saga["status"] == "failed" && saga.to_string().contains("out_of_stock"),
                "{saga}"
            );
        } else {
            assert_eq!(saga["status"], "completed", "{saga}");
            assert!(saga["state"]["vars"]["reservation"].is_number(), "{saga}");
        }
    }
    let remaining = database
        .run("SELECT free, (SELECT count(*) FROM reserved) AS reserved FROM stock")
        .await;
    assert_eq!(remaining, json!([{ "free": 0, "reserved": 2 }]));
    assert_eq!(
        database
            .run("SELECT DISTINCT effect FROM orlog_effect")
            .await,
        json!([{ "effect": "stock.reserve" }])
    );
    let info: Value = node.get("/info").await;
    assert!(info.to_string().contains("stock"), "{info}");
}

#[tokio::test(flavor = "multi_thread")]
async fn documented_tables_match() {
    let tables = block("sql.md", "orlog_effect.sql");
    for database in super::databases().await {
        let title = match database.dialect {
            "postgres" => "-- PostgreSQL",
            "mysql" => "-- MySQL",
            _ => "-- SQLite",
        };
        let own = tables
            .split(title)
            .nth(1)
            .unwrap()
            .split(';')
            .next()
            .unwrap();
        database.run(own).await;
        database.stock(4).await;
        let take = json!({ "x.take": { "statement": "UPDATE stock SET free = free - 1", "answer": "count" } });
        let config = json!({ "database": database.dialect, "url": database.url, "effects": take });
        let config: orlog_effect::providers::sql::SqlConfig =
            serde_json::from_value(config).unwrap();
        let upstream = config.upstream(UpstreamSite::new("shop")).unwrap();
        for _ in 0..2 {
            let done = super::perform(&upstream, "x.take", 1, json!({}))
                .await
                .unwrap();
            assert_eq!(done.payload, json!({ "count": 1 }));
        }
        assert_eq!(database.free().await, json!(3));
    }
}
