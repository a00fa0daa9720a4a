//! Storage of the cases: a new database, stream or directory for each measurement.

use std::path::PathBuf;

use anyhow::{Context, Result};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tempfile::TempDir;

/// Servers of a run.
pub(crate) struct Servers {
    pub(crate) postgres: String,
    pub(crate) nats: String,
    pub(crate) dir: PathBuf,
}

/// Name of the database of the current measurement.
const DATABASE: &str = "orlog_workflow_bench";

impl Servers {
    /// Returns the URL of a new database. The server writes what earlier measurements left first.
    pub(crate) async fn new_database(&self) -> Result<String> {
        let mut server = PgConnection::connect(&self.postgres)
            .await
            .context("cannot connect to PostgreSQL")?;
        for statement in [
            format!("DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)"),
            format!("CREATE DATABASE {DATABASE}"),
            "CHECKPOINT".to_owned(),
        ] {
            let executed = sqlx::query(AssertSqlSafe(statement.as_str()))
                .execute(&mut server)
                .await;
            executed.with_context(|| format!("{statement} failed"))?;
        }
        server.close().await?;
        let (server, _) = self
            .postgres
            .rsplit_once('/')
            .context("the URL of PostgreSQL names no database")?;
        Ok(format!("{server}/{DATABASE}"))
    }

    /// Returns a new directory, which is deleted when it is dropped.
    pub(crate) fn new_dir(&self) -> Result<TempDir> {
        TempDir::new_in(&self.dir)
            .with_context(|| format!("cannot write in {}", self.dir.display()))
    }
}
