//! SQL provider against real databases: SQLite always, PostgreSQL and MariaDB if they are installed.

mod connection_loss;
mod docs;
mod errors;
mod failover;
mod pooler;
mod types;

use std::sync::Arc;
use std::time::Duration;

use orlog_effect::config::{UpstreamConfig as _, UpstreamSite};
use orlog_effect::providers::sql::SqlConfig;
use orlog_effect::{Attempt, Probe, ProbeResult, ProviderError, Reply, TransientCause, Upstream};
use orlog_model::{EffectName, Work, WorkItem};
use orlog_testkit::provider_suite::{START, item};
use orlog_testkit::servers;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

/// Probe of an attempt in doubt.
pub(crate) const PROBE: Probe = Probe {
    timeout: Duration::from_secs(20),
    at: START,
};

/// Empty database.
pub(crate) struct Database {
    pub(crate) dialect: &'static str,
    /// URL in the configuration.
    pub(crate) url: String,
    _dir: Option<TempDir>,
}

pub(crate) fn sqlite() -> Database {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("shop.db");
    std::fs::write(&path, "").unwrap();
    Database {
        dialect: "sqlite",
        url: format!("sqlite://{}", path.display()),
        _dir: Some(dir),
    }
}

pub(crate) async fn postgres() -> Database {
    let server = servers::postgres();
    let schema = format!("s{}", uuid::Uuid::new_v4().simple());
    let url = format!("postgres://orlog@127.0.0.1:{}/postgres", server.port);
    let whole = Database {
        dialect: "postgres",
        url: server.secret(&url),
        _dir: None,
    };
    whole.run(&format!("CREATE SCHEMA {schema}")).await;
    let url = server.secret(&format!("{url}?options[search_path]={schema}"));
    Database {
        dialect: "postgres",
        url,
        _dir: None,
    }
}

async fn mariadb() -> Database {
    let server = servers::mariadb();
    let schema = format!("s{}", uuid::Uuid::new_v4().simple());
    let url = format!("mysql://orlog@127.0.0.1:{}/", server.port);
    let whole = Database {
        dialect: "mysql",
        url: server.secret(&format!("{url}mysql")),
        _dir: None,
    };
    whole.run(&format!("CREATE DATABASE {schema}")).await;
    Database {
        dialect: "mysql",
        url: server.secret(&format!("{url}{schema}")),
        _dir: None,
    }
}

/// Returns one database of each kind.
async fn databases() -> [Database; 3] {
    [sqlite(), postgres().await, mariadb().await]
}

impl Database {
    fn plain_url(&self) -> String {
        std::fs::read_to_string(self.url.strip_prefix("file:").unwrap()).unwrap()
    }

    /// Returns the database as it is reached over another port.
    fn at_port(&self, server_port: u16, port: u16) -> Self {
        let url = self
            .plain_url()
            .replace(&format!(":{server_port}/"), &format!(":{port}/"));
        Self {
            dialect: self.dialect,
            url: servers::postgres().secret(&url),
            _dir: None,
        }
    }

    pub(crate) fn upstream(&self, effects: &Value) -> Upstream {
        let config = json!({
            "database": self.dialect, "url": self.url, "create_marker": true, "max_rows": 50,
            "attempt_timeout": "20s", "effects": effects,
        });
        let config: SqlConfig = serde_json::from_value(config).unwrap();
        config.upstream(UpstreamSite::new("shop")).unwrap()
    }

    /// Returns the result of a single statement.
    pub(crate) async fn run(&self, statement: &str) -> Value {
        let upstream =
            self.upstream(&json!({ "x.run": { "statement": statement, "marker": false } }));
        let done = perform(&upstream, "x.run", 1, json!({})).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error:?}"))
            .payload["rows"]
            .clone()
    }

    async fn stock(&self, free: u32) {
        self.run(
            "CREATE TABLE stock (sku varchar(40) PRIMARY KEY, free int NOT NULL CHECK (free >= 0))",
        )
        .await;
        self.run("CREATE TABLE reserved (order_id varchar(40) PRIMARY KEY, qty int NOT NULL)")
            .await;
        self.run(&format!("INSERT INTO stock VALUES ('kettle', {free})"))
            .await;
    }

    async fn free(&self) -> Value {
        self.run("SELECT free FROM stock").await[0]["free"].clone()
    }

    async fn markers(&self) -> Value {
        let rows = self.run("SELECT count(*) AS n FROM orlog_effect").await;
        rows[0]["n"].clone()
    }
}

pub(crate) fn order(effect: &str, number: u128, payload: Value) -> WorkItem {
    let mut item = item(&EffectName::new(effect).unwrap(), number);
    if let Work::Effect(effect) = &mut item.work {
        effect.payload = payload;
    }
    item
}

pub(crate) async fn perform(
    upstream: &Upstream,
    effect: &str,
    number: u128,
    payload: Value,
) -> Result<Reply, ProviderError> {
    let attempt = Attempt {
        number: 1,
        timeout: Duration::from_secs(20),
        at: START,
        in_doubt: false,
    };
    upstream
        .provider
        .execute(&order(effect, number, payload), attempt)
        .await
}

#[track_caller]
pub(crate) fn failed(result: Result<Reply, ProviderError>, code: &str) -> String {
    let Err(ProviderError::Permanent { failure, .. }) = result else {
        panic!("it is not final: {result:?}")
    };
    assert_eq!(failure.code, code, "{}", failure.message);
    failure.message
}

#[track_caller]
pub(crate) fn troubled(
    result: Result<Reply, ProviderError>,
    expected: TransientCause,
) -> (String, String) {
    let Err(ProviderError::Transient {
        failure, trouble, ..
    }) = result
    else {
        panic!("no trouble: {result:?}")
    };
    assert_eq!(trouble, expected, "{failure}");
    (failure.code, failure.message)
}

fn reserve() -> Value {
    json!({ "stock.reserve": {
        "statements": [
            {
                "sql": "UPDATE stock SET free = free - :qty WHERE sku = :item.sku AND free >= :qty -- :not",
                "expect": { "rows": 1, "otherwise": "out_of_stock", "event": "OutOfStock" },
            },
            { "sql": "INSERT INTO reserved (order_id, qty) VALUES (:order, :qty)" },
        ],
        "params": { "order": "{@correlation}" },
        "answer": "count",
    } })
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_duplicate_deliveries_execute_once() {
    for database in databases().await {
        database.stock(10).await;
        let upstream = Arc::new(database.upstream(&reserve()));
        let mut deliveries = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let upstream = Arc::clone(&upstream);
            let payload = json!({ "qty": 2, "item": { "sku": "kettle" } });
            deliveries.spawn(async move { perform(&upstream, "stock.reserve", 1, payload).await });
        }
        for result in deliveries.join_all().await {
            assert_eq!(
                result.unwrap().payload,
                json!({ "count": 1 }),
                "{}",
                database.dialect
            );
        }
        // The same holds in another process, and with another payload.
        let later = perform(
            &database.upstream(&reserve()),
            "stock.reserve",
            1,
            json!({}),
        )
        .await;
        assert_eq!(later.unwrap().payload, json!({ "count": 1 }));
        assert_eq!(
            (database.free().await, database.markers().await),
            (json!(8), json!(1))
        );
        perform(
            &upstream,
            "stock.reserve",
            2,
            json!({ "qty": 3, "item": { "sku": "kettle" } }),
        )
        .await
        .unwrap();
        assert_eq!(
            (database.free().await, database.markers().await),
            (json!(5), json!(2))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_operation_is_rolled_back() {
    for database in databases().await {
        database.stock(3).await;
        let upstream = database.upstream(&reserve());
        let of = |qty: i64| json!({ "qty": qty, "item": { "sku": "kettle" } });
        let result = perform(&upstream, "stock.reserve", 1, of(4)).await;
        let Err(ProviderError::Permanent { failure, event, .. }) = result else {
            panic!("{result:?}")
        };
        assert_eq!(
            (failure.code.as_str(), event.unwrap().as_str()),
            ("out_of_stock", "OutOfStock")
        );
        assert_eq!(
            failure.message,
            "shop: statement 1 of stock.reserve has 0 rows, expected 1"
        );
        database.run("INSERT INTO reserved VALUES ('o-2', 1)").await;
        failed(perform(&upstream, "stock.reserve", 2, of(1)).await, "23505");
        assert_eq!(
            (database.free().await, database.markers().await),
            (json!(3), json!(0))
        );
        failed(
            perform(&upstream, "stock.reserve", 3, json!({ "qty": 1 })).await,
            "invalid_payload",
        );
        let item = order("stock.reserve", 2, of(1));
        assert_eq!(
            upstream.provider.probe(&item, PROBE).await,
            ProbeResult::NotDone
        );
        database.run("DELETE FROM reserved").await;
        perform(&upstream, "stock.reserve", 2, of(1)).await.unwrap();
        let done = ProbeResult::Done(Reply::from(json!({ "count": 1 })));
        assert_eq!(
            upstream.provider.probe(&item, PROBE).await,
            done,
            "{}",
            database.dialect
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn constraint_violation_code_is_database_independent() {
    for database in databases().await {
        database.stock(1).await;
        let upstream = database.upstream(&json!({
            "x.check": { "statement": "UPDATE stock SET free = free - :n" },
            "x.null": { "statement": "UPDATE stock SET free = :n" },
            "x.wrong": { "statement": "UPDATE stokc SET free = :n" },
        }));
        failed(
            perform(&upstream, "x.check", 1, json!({ "n": 2 })).await,
            "23514",
        );
        failed(
            perform(&upstream, "x.null", 2, json!({ "n": null })).await,
            "23502",
        );
        let invalid = perform(&upstream, "x.wrong", 3, json!({ "n": 1 })).await;
        let Err(ProviderError::Permanent { failure, .. }) = invalid else {
            panic!("{invalid:?}")
        };
        assert!(failure.message.contains("stokc"), "{failure}");
        assert_eq!(database.free().await, json!(1));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_skip_the_marker_and_are_bounded() {
    for database in databases().await {
        database.stock(7).await;
        let many = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT i FROM n";
        let upstream = database.upstream(&json!({
            "x.look": {
                "statement": "SELECT sku, free FROM stock WHERE sku = :sku", "marker": false, "answer": "row",
                "expect": { "rows": "some", "otherwise": "no_such_item" },
            },
            "x.many": { "statement": many, "marker": false },
        }));
        for _ in 0..2 {
            let found = perform(&upstream, "x.look", 1, json!({ "sku": "kettle" }))
                .await
                .unwrap();
            assert_eq!(found.payload, json!({ "sku": "kettle", "free": 7 }));
        }
        let missing = json!({ "sku": "' OR 1=1 --" });
        failed(
            perform(&upstream, "x.look", 2, missing).await,
            "no_such_item",
        );
        let message = failed(
            perform(&upstream, "x.many", 3, json!({})).await,
            "too_many_rows",
        );
        assert!(message.contains("more than 50 rows"), "{message}");
    }
}

/// PostgreSQL reports a table that another transaction creates at the same moment with three
/// different states, although the statement says IF NOT EXISTS.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_create_the_marker_table_at_once_all_succeed() {
    for _ in 0..40 {
        let database = postgres().await;
        let effects = json!({ "x.look": { "statement": "SELECT 1 AS n", "answer": "row" } });
        let mut attempts = JoinSet::new();
        for number in 0..6_u128 {
            let node = database.upstream(&effects);
            attempts.spawn(async move { perform(&node, "x.look", number, json!({})).await });
        }

        for done in attempts.join_all().await {
            assert_eq!(done.unwrap().payload, json!({ "n": 1 }));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_marker_table_is_retried() {
    for database in databases().await {
        database.stock(7).await;
        let config =
            json!({ "database": database.dialect, "url": database.url, "effects": reserve() });
        let config: SqlConfig = serde_json::from_value(config).unwrap();
        let upstream = config.upstream(UpstreamSite::new("shop")).unwrap();
        let payload = json!({ "qty": 1, "item": { "sku": "kettle" } });
        let result = perform(&upstream, "stock.reserve", 1, payload).await;
        let (code, message) = troubled(result, TransientCause::Unavailable);
        assert_eq!(code, "marker_missing", "{message}");
        assert!(message.contains("create_marker = true"), "{message}");
        assert_eq!(database.free().await, json!(7));
    }
}

/// While a writer locks the row (the file, in SQLite), an attempt waits no longer than its timeout.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_attempt_releases_its_connection() {
    for database in databases().await {
        database.stock(5).await;
        let slow = match database.dialect {
            "postgres" => "UPDATE stock SET free = free - 1 WHERE pg_sleep(3600) IS NOT NULL",
            "mysql" => "UPDATE stock SET free = free - 1 WHERE sleep(3600) = 0",
            _ => {
                "UPDATE stock SET free = (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n)"
            }
        };
        let upstream = database.upstream(&json!({
            "x.slow": { "statement": slow }, "x.quick": { "statement": "UPDATE stock SET free = free - 1" },
        }));
        let pending = perform(&upstream, "x.slow", 1, json!({}));
        assert!(
            tokio::time::timeout(Duration::from_millis(300), pending)
                .await
                .is_err()
        );
        let quick = perform(&upstream, "x.quick", 2, json!({})).await;
        assert!(quick.is_ok(), "{}: {quick:?}", database.dialect);
        assert_eq!(
            (database.free().await, database.markers().await),
            (json!(4), json!(1))
        );
    }
}

#[tokio::test]
async fn unreachable_database_is_transient_and_password_is_scrubbed() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("url");
    let upstream = |dialect: &str| {
        let config = json!({
            "database": dialect, "url": format!("file:{}", secret.display()), "attempt_timeout": "1s",
            "effects": { "x.run": { "statement": "SELECT 1", "marker": false } },
        });
        serde_json::from_value::<SqlConfig>(config)
            .unwrap()
            .upstream(UpstreamSite::new("shop"))
            .unwrap()
    };
    let down = |result| {
        let (code, message) = troubled(result, TransientCause::Unavailable);
        assert!(!message.contains("canary"), "{message}");
        (code, message)
    };
    let (code, message) = down(perform(&upstream("postgres"), "x.run", 1, json!({})).await);
    assert!(
        code == "secret" && message.contains("the log of the node"),
        "{message}"
    );
    assert!(
        !message.contains("file:"),
        "viewers do not see the reference: {message}"
    );
    for (dialect, url, expected) in [
        (
            "postgres",
            "postgres://orlog:canary-1@127.0.0.1:1/x",
            "database_unreachable",
        ),
        (
            "mysql",
            "mysql://orlog:canary-1@127.0.0.1:1/x",
            "database_unreachable",
        ),
        ("postgres", "postgres://orlog:canary-1@[::1/x", "bad_url"),
        ("postgres", "mysql://orlog:canary-1@127.0.0.1/x", "bad_url"),
        ("sqlite", "sqlite:///nowhere/canary.db", "sqlite_14"),
    ] {
        std::fs::write(&secret, url).unwrap();
        let result = perform(&upstream(dialect), "x.run", 1, json!({})).await;
        assert_eq!(down(result).0, expected, "{url}");
    }
}
