//! Effects behind PgBouncer in transaction mode: each transaction can run on another connection of
//! the server, which other clients use as well.

use std::str::FromStr as _;
use std::sync::Arc;

use orlog_effect::TransientCause;
use orlog_testkit::servers::{self, TestServer};
use orlog_testkit::wait::until;
use serde_json::{Value, json};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::task::JoinSet;

use super::{Database, perform, troubled};

/// Empty database with its pooler. PgBouncer rejects the parameter `options` of the other tests, so
/// it has no schema of its own.
struct Pooled {
    database: Database,
    url: String,
    _pooler: TestServer,
}

async fn pooled() -> Pooled {
    let server = servers::postgres();
    let name = format!("d{}", uuid::Uuid::new_v4().simple());
    let direct = format!("postgres://orlog@127.0.0.1:{}/postgres", server.port);
    let mut connection = PgConnection::connect(&direct).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(format!("CREATE DATABASE {name}")))
        .execute(&mut connection)
        .await
        .unwrap();

    let pooler = servers::pgbouncer();
    let url = format!("postgres://orlog@127.0.0.1:{}/{name}", pooler.port);
    Pooled {
        database: Database {
            dialect: "postgres",
            url: server.secret(&url),
            _dir: None,
        },
        url,
        _pooler: pooler,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn effects_of_two_nodes_work_behind_a_transaction_pooler() {
    let Pooled {
        database, _pooler, ..
    } = pooled().await;
    database
        .run("CREATE TYPE mood AS ENUM ('fine', 'ill')")
        .await;
    database
        .run("CREATE TABLE seen (id bigint PRIMARY KEY, kind text NOT NULL, mood mood NOT NULL)")
        .await;
    let insert = |kind: &str| {
        let sql = format!("INSERT INTO seen VALUES (:id, '{kind}', :mood) RETURNING kind, mood");
        json!({ "statement": sql, "answer": "row" })
    };
    // Equal numbers and types of parameters: a statement of another client would be executed.
    let effects = json!({ "x.a": insert("a"), "x.b": insert("b"), "x.c": insert("c") });
    let nodes = [
        Arc::new(database.upstream(&effects)),
        Arc::new(database.upstream(&effects)),
    ];

    let mut attempts = JoinSet::new();
    for number in 0..24_usize {
        let node = Arc::clone(&nodes[number % 2]);
        let kind = ["a", "b", "c"][number * 7 / 2 % 3];
        attempts.spawn(async move {
            let payload = json!({ "id": number, "mood": "fine" });
            let done = perform(&node, &format!("x.{kind}"), number as u128, payload).await;
            assert_eq!(
                done.unwrap().payload,
                json!({ "kind": kind, "mood": "fine" })
            );
        });
    }
    attempts.join_all().await;

    assert_eq!(database.markers().await, json!(24));
    let named = database
        .run("SELECT count(*) AS n FROM pg_prepared_statements")
        .await;
    assert_eq!(named[0]["n"], json!(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn names_of_another_client_of_the_pooler_are_retried_and_never_executed() {
    let Pooled {
        database,
        url,
        _pooler,
    } = pooled().await;
    database.stock(9).await;
    // Both connections of the pooler to the server get the name that the driver uses first.
    let mut clients = Vec::new();
    for _ in 0..2 {
        let options = PgConnectOptions::from_str(&url).unwrap();
        let mut client = PgConnection::connect_with(&options.extra_float_digits(None))
            .await
            .unwrap();
        let sql = "BEGIN; PREPARE sqlx_s_1 AS DELETE FROM stock";
        sqlx::raw_sql(sql).execute(&mut client).await.unwrap();
        clients.push(client);
    }
    for client in &mut clients {
        sqlx::raw_sql("COMMIT").execute(client).await.unwrap();
    }

    let upstream = database.upstream(&json!({
        "x.look": { "statement": "SELECT free FROM stock", "marker": false, "answer": "row" },
    }));
    let first = perform(&upstream, "x.look", 1, json!({})).await;
    assert_eq!(troubled(first, TransientCause::Throttled).0, "42P05");
    // Each connection of the node uses this name once.
    let found = until("an attempt with another name", async || {
        match perform(&upstream, "x.look", 1, json!({})).await {
            Ok(reply) => Some(reply.payload),
            other => {
                troubled(other, TransientCause::Throttled);
                None
            }
        }
    })
    .await;
    assert_eq!(found, json!({ "free": 9 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_attempt_ends_its_statement_behind_a_pooler() {
    let Pooled {
        database, _pooler, ..
    } = pooled().await;
    let upstream = Arc::new(database.upstream(&json!({
        "x.slow": { "statement": "SELECT pg_sleep(3600)", "marker": false },
    })));
    let sleeping = async || -> Option<Value> {
        let rows = database
            .run("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE '%pg_sleep(3600)%' AND pid <> pg_backend_pid()")
            .await;
        rows.get(0).cloned()
    };

    let own = Arc::clone(&upstream);
    let attempt = tokio::spawn(async move { perform(&own, "x.slow", 1, json!({})).await });
    until("the statement runs", &sleeping).await;
    attempt.abort();
    until("the statement has ended", async || {
        sleeping().await.is_none().then_some(())
    })
    .await;
}
