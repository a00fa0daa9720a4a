//! PostgreSQL with a schema per test, and the command that maintains tables in it.

use std::process::Command;

use orlog_testkit::servers;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::harness::process::{orlog, run};
use crate::projection::node::Node;

/// Empty schema.
pub(crate) struct Schema {
    pub(crate) url: String,
}

impl Schema {
    /// Creates a schema.
    pub(crate) async fn new() -> Self {
        let port = servers::postgres().port;
        let name = format!("s{}", uuid::Uuid::new_v4().simple());
        let whole = Self {
            url: format!("postgres://orlog@127.0.0.1:{port}/postgres"),
        };
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}")))
            .execute(&mut whole.connect().await)
            .await
            .unwrap();
        Self {
            url: format!("{}?options[search_path]={name}", whole.url),
        }
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Returns the rows of a query as JSON.
    pub(crate) async fn rows(&self, query: &str) -> Vec<Value> {
        let query = format!("SELECT to_jsonb(q)::text FROM ({query}) AS q ORDER BY 1");
        let rows = sqlx::raw_sql(AssertSqlSafe(query))
            .fetch_all(&mut self.connect().await)
            .await
            .unwrap();
        rows.iter()
            .map(|row| serde_json::from_str(&row.get::<String, _>(0)).unwrap())
            .collect()
    }

    /// Returns the content of a table without the export metadata.
    pub(crate) async fn table(&self, name: &str) -> Vec<Value> {
        let mut rows = self.rows(&format!("SELECT * FROM {name}")).await;
        for row in &mut rows {
            for field in ["position", "generation"] {
                row.as_object_mut().unwrap().remove(field).unwrap();
            }
        }
        rows.sort_by_key(Value::to_string);
        rows
    }

    pub(crate) async fn count(&self, name: &str) -> u64 {
        self.rows(&format!("SELECT count(*) AS n FROM {name}"))
            .await[0]["n"]
            .as_u64()
            .unwrap()
    }

    pub(crate) async fn execute(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned()))
            .execute(&mut self.connect().await)
            .await
            .unwrap();
    }
}

/// Creates the command `orlog export` for a node.
pub(crate) fn export(node: &Node, to: &str, more: &[&str]) -> Command {
    let mut command = orlog(&["export", "--url", &node.url, "--to", "env:TARGET"]);
    command.env("TARGET", to).args(more);
    command
}

/// Like [`run`], but asserts success; returns standard output and standard error.
pub(crate) async fn done(command: Command) -> (String, String) {
    let (code, out, errors) = run(command).await;
    assert_eq!(code, 0, "{errors}");
    (out, errors)
}
