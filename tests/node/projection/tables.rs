//! PostgreSQL with a schema per test, and the command that maintains tables in it.

use std::process::{Child, Command, Stdio};
use std::time::Duration;

use orlog_testkit::servers;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};

use crate::projection::node::{Node, TIMEOUT};

/// Empty schema.
pub(crate) struct Schema {
    pub(crate) url: String,
}

impl Schema {
    /// Creates a schema; `None` if PostgreSQL is not installed.
    pub(crate) async fn new() -> Option<Self> {
        let port = servers::postgres()?.port;
        let name = format!("s{}", uuid::Uuid::new_v4().simple());
        let whole = Self { url: format!("postgres://orlog@127.0.0.1:{port}/postgres") };
        sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}")))
            .execute(&mut whole.connect().await)
            .await
            .unwrap();
        Some(Self { url: format!("{}?options[search_path]={name}", whole.url) })
    }

    async fn connect(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }

    /// Returns the rows of a query as JSON.
    pub(crate) async fn rows(&self, query: &str) -> Vec<Value> {
        let query = format!("SELECT to_jsonb(q)::text FROM ({query}) AS q ORDER BY 1");
        let rows = sqlx::raw_sql(AssertSqlSafe(query)).fetch_all(&mut self.connect().await).await.unwrap();
        rows.iter().map(|row| serde_json::from_str(&row.get::<String, _>(0)).unwrap()).collect()
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
        self.rows(&format!("SELECT count(*) AS n FROM {name}")).await[0]["n"].as_u64().unwrap()
    }

    pub(crate) async fn execute(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut self.connect().await).await.unwrap();
    }
}

/// Creates a command of the real binary with a clean environment.
pub(crate) fn orlog(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_orlog"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("ORLOG_") {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).args(args);
    command
}

/// Creates the command `orlog export` for a node.
pub(crate) fn export(node: &Node, to: &str, more: &[&str]) -> Command {
    let mut command = orlog(&["export", "--url", &node.url, "--to", "env:TARGET"]);
    command.env("TARGET", to).args(more);
    command
}

/// Returns exit code, standard output and standard error.
pub(crate) async fn run(mut command: Command) -> (i32, String, String) {
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

/// Like [`run`], but asserts success; returns standard output and standard error.
pub(crate) async fn done(command: Command) -> (String, String) {
    let (code, out, errors) = run(command).await;
    assert_eq!(code, 0, "{errors}");
    (out, errors)
}

/// Command that runs until it is killed.
pub(crate) struct ExportProcess(Child);

impl ExportProcess {
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for ExportProcess {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// Waits until the condition holds.
pub(crate) async fn until(description: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    let waited = tokio::time::timeout(TIMEOUT, async {
        loop {
            ticks.tick().await;
            if is_so().await {
                return;
            }
        }
    });
    assert!(waited.await.is_ok(), "{description} does not come");
}
