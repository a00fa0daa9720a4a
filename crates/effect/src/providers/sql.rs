//! Effects that are statements in a database.
//!
//! Statements are only in the configuration. The payload supplies the values of their parameters,
//! which are bound and never inserted into the text. The statements of an effect run in one
//! transaction that also writes a *marker*, a row with the id of the work item as its key. A second
//! delivery finds the marker and returns the first result, so the effect is executed exactly once.
//! After a lost response the marker shows whether it was executed.

mod config;
mod database;
mod dialect;
mod error;
mod mysql;
mod operation;
mod postgres;
mod scan;
mod sqlite;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{Effect, EffectName, WorkItem};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::OnceCell;

pub use config::{SqlConfig, SqlEffectConfig, StatementConfig};
pub use dialect::Dialect;
pub use operation::{ResultShape, RowCount, RowExpectation};

pub use crate::decisions::{Decision, decide_sqlstate};
use crate::operations::Operations;
use crate::provider::{
    Attempt, Probe, ProbeResult, Provider, ProviderError, Reply, TransientCause,
};
use crate::secret::{Secret, SecretRef, SecretScrubber};
use crate::template::PlaceholderScope;
use database::{Database, Rows, Session, TransactionEnd};
use dialect::PoolLimits;
use operation::SqlOperation;
use scan::ParsedStatement;

#[derive(Clone, Debug)]
enum DatabaseUrl {
    Secret(SecretRef),
    /// URL of a file, without a password.
    Plain(String),
}

struct SqlOptions {
    dialect: Dialect,
    address: DatabaseUrl,
    size: PoolLimits,
    create_marker: bool,
    max_rows: usize,
}

struct SqlProvider {
    options: SqlOptions,
    markers: MarkerStatements,
    operations: Operations<SqlOperation>,
    open: Mutex<Option<Arc<OpenPool>>>,
}

struct MarkerStatements {
    insert: ParsedStatement,
    find: ParsedStatement,
    response: ParsedStatement,
}

/// Connection pool of one URL; replaced when the secret changes.
struct OpenPool {
    url: Secret,
    database: Box<dyn Database>,
    scrub: SecretScrubber,
    has_marker: OnceCell<()>,
}

enum TransactionResult {
    Executed(Reply),
    /// The marker existed: the effect was executed earlier.
    AlreadyExecuted(Reply),
}

impl SqlProvider {
    fn new(options: SqlOptions, operations: Operations<SqlOperation>) -> Self {
        let own = |text| {
            ParsedStatement::parse(text, options.dialect).expect("built-in statements are valid")
        };

        let markers = MarkerStatements {
            insert: own(options.dialect.insert_marker()),
            find: own("SELECT answer FROM orlog_effect WHERE command_id = :id"),
            response: own("UPDATE orlog_effect SET answer = :answer WHERE command_id = :id"),
        };

        Self {
            options,
            markers,
            operations,
            open: Mutex::default(),
        }
    }

    fn opened(&self) -> Result<Arc<OpenPool>, ProviderError> {
        let upstream = &self.operations.upstream;
        let dialect = self.options.dialect;
        let url = match &self.options.address {
            DatabaseUrl::Plain(url) => Secret::new(url.as_str()),
            DatabaseUrl::Secret(reference) => reference.resolve().map_err(|error| {
                ProviderError::unavailable(
                    "secret",
                    format!("the url of {upstream}: {}", error.log()),
                )
            })?,
        };

        // A secret can change. The pool of the old URL then ends with its last session.
        let mut open = self.open.lock();
        if let Some(open) = open.as_ref().filter(|open| open.url == url) {
            return Ok(Arc::clone(open));
        }

        let to_error = |reason: String| {
            ProviderError::unavailable("bad_url", format!("the url of {upstream} {reason}"))
        };

        if !dialect
            .schemes()
            .iter()
            .any(|scheme| url.expose().starts_with(scheme))
        {
            return Err(to_error(format!(
                "does not start with {}, as {dialect} requires",
                dialect.schemes()[0]
            )));
        }

        // Errors must not contain the URL and its password.
        let scrub = SecretScrubber::of_url(&url);
        let text = url.expose();
        let size = self.options.size;
        let database: Result<Box<dyn Database>, sqlx::Error> = match dialect {
            Dialect::Postgres => {
                postgres::PostgresDatabase::open(text, size).map(|open| Box::new(open) as _)
            }
            Dialect::MySql => {
                mysql::MySqlDatabase::open(text, size).map(|open| Box::new(open) as _)
            }
            Dialect::Sqlite => {
                sqlite::SqliteDatabase::open(text, size).map(|open| Box::new(open) as _)
            }
        };

        let database =
            database.map_err(|error| to_error(scrub.scrub_text(format!("is invalid: {error}"))))?;

        let opened = Arc::new(OpenPool {
            url,
            database,
            scrub,
            has_marker: OnceCell::new(),
        });
        *open = Some(Arc::clone(&opened));
        Ok(opened)
    }

    /// Begins a transaction, and creates the marker table if it is required and may be created.
    async fn start_transaction(
        &self,
        opened: &OpenPool,
        operation: &SqlOperation,
        timeout: Duration,
    ) -> Result<Box<dyn Session>, sqlx::Error> {
        // Once for each pool, not for each transaction.
        if operation.marker && self.options.create_marker {
            opened
                .has_marker
                .get_or_try_init(|| self.create(opened, timeout))
                .await?;
        }

        opened
            .database
            .start_transaction(operation.marker, timeout)
            .await
    }

    async fn create(&self, opened: &OpenPool, timeout: Duration) -> Result<(), sqlx::Error> {
        let text = self.options.dialect.create_marker();
        let create = ParsedStatement::parse(text, self.options.dialect)
            .expect("built-in statements are valid");

        let mut session = opened.database.start_transaction(true, timeout).await?;
        match session.run(&create, &[], 0).await {
            Ok(_) => session.end(TransactionEnd::Commit).await,
            // Another node has created the table at the same moment, so it exists.
            Err(error) if error::is_concurrent_creation(&error) => {
                session.end(TransactionEnd::Rollback).await
            }
            Err(error) => Err(error),
        }
    }

    fn provider_error(&self, opened: &OpenPool, error: &sqlx::Error, label: &str) -> ProviderError {
        error::into_provider_error(self.options.dialect, error, false, label, &opened.scrub)
    }

    fn at_marker(&self, opened: &OpenPool, error: &sqlx::Error) -> ProviderError {
        let upstream = &self.operations.upstream;

        if error::is_missing_table(error) {
            let message = format!(
                "{upstream} has no table orlog_effect; create it (docs/providers/sql.md) or set \
                create_marker = true"
            );
            return ProviderError::unavailable("marker_missing", message);
        }

        self.provider_error(opened, error, &format!("{upstream}: the marker"))
    }

    /// Runs all statements of one effect, without the end of the transaction.
    async fn run_statements(
        &self,
        opened: &OpenPool,
        session: &mut dyn Session,
        item: &WorkItem,
        effect: &Effect,
        operation: &SqlOperation,
    ) -> Result<TransactionResult, ProviderError> {
        // The marker is first: a concurrent transaction for the same item waits for it, and
        // executes nothing.
        if operation.marker
            && let Some(before) = self
                .write_marker(session, item, &effect.name)
                .await
                .map_err(|error| self.at_marker(opened, &error))?
        {
            return Ok(TransactionResult::AlreadyExecuted(before));
        }

        let mut last = Rows::default();
        for (index, step) in operation.steps.iter().enumerate() {
            let label = format!(
                "{}: statement {} of {}",
                self.operations.upstream,
                index + 1,
                effect.name
            );

            let values = step.values(
                PlaceholderScope {
                    item,
                    payload: &effect.payload,
                },
                &label,
            )?;

            let ran = session
                .run(&step.statement, &values, self.options.max_rows)
                .await;
            last = ran.map_err(|error| self.provider_error(opened, &error, &label))?;

            // Before the commit: an effect whose result is too large is not executed.
            if last.rows.len() > self.options.max_rows {
                let message = format!(
                    "{label} returns more than {} rows (max_rows)",
                    self.options.max_rows
                );
                return Err(ProviderError::permanent("too_many_rows", message));
            }

            if let Some(expect) = &step.expect {
                expect.check(&last, &label)?;
            }
        }

        // The response is stored in the same transaction, so that a second delivery returns it.
        let response = operation.response.of(last);
        if operation.marker {
            let values = [
                Value::from(response.to_string()),
                Value::from(item.id.to_string()),
            ];
            let stored = session.run(&self.markers.response, &values, 0).await;
            stored.map_err(|error| self.at_marker(opened, &error))?;
        }

        Ok(TransactionResult::Executed(Reply::from(response)))
    }

    /// Writes the marker, or returns the stored result of an existing one. Waits for a concurrent
    /// transaction with the same marker.
    async fn write_marker(
        &self,
        session: &mut dyn Session,
        item: &WorkItem,
        effect: &EffectName,
    ) -> Result<Option<Reply>, sqlx::Error> {
        let id = Value::from(item.id.to_string());
        // Inserted, not read before: only the key of the table decides between two transactions.
        match session
            .run(
                &self.markers.insert,
                &[id.clone(), Value::from(effect.as_str())],
                0,
            )
            .await
        {
            // If the marker exists, PostgreSQL and SQLite insert no row, and MySQL reports a
            // duplicate key.
            Ok(set) if set.count == 1 => return Ok(None),
            Ok(_) => {}
            Err(error) if error::is_duplicate(&error) => {}
            Err(error) => return Err(error),
        }

        let found = session.run(&self.markers.find, &[id], 1).await?;
        let stored = found
            .text()
            .and_then(|text| serde_json::from_str(text).ok())
            .unwrap_or(Value::Null);
        Ok(Some(Reply::from(stored)))
    }

    async fn probe_marker(&self, item: &WorkItem) -> Result<ProbeResult, ProviderError> {
        let (effect, operation) = self.operations.find(item)?;
        if !operation.marker {
            return Ok(ProbeResult::Unknown);
        }

        let opened = self.opened()?;
        let to_error = |error: sqlx::Error| self.at_marker(&opened, &error);

        let mut session = self
            .start_transaction(&opened, operation, self.options.size.acquire_timeout)
            .await
            .map_err(to_error)?;

        // The write waits for a transaction in flight, whose commit may be on its way. A read would
        // miss it.
        let before = self
            .write_marker(session.as_mut(), item, &effect.name)
            .await
            .map_err(to_error)?;

        session
            .end(TransactionEnd::Rollback)
            .await
            .map_err(to_error)?;
        Ok(before.map_or(ProbeResult::NotDone, ProbeResult::Done))
    }
}

#[async_trait]
impl Provider for SqlProvider {
    async fn execute(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, ProviderError> {
        let (effect, operation) = self.operations.find(item)?;
        let opened = self.opened()?;
        let label = &self.operations.upstream;

        let mut session = self
            .start_transaction(&opened, operation, attempt.timeout)
            .await
            .map_err(|error| self.provider_error(&opened, &error, label))?;

        match self
            .run_statements(&opened, session.as_mut(), item, effect, operation)
            .await
        {
            Ok(TransactionResult::Executed(reply)) => {
                match session.end(TransactionEnd::Commit).await {
                    Ok(()) => Ok(reply),
                    // After the commit was sent, a lost connection leaves the outcome unknown.
                    Err(error) => Err(error::into_provider_error(
                        self.options.dialect,
                        &error,
                        true,
                        label,
                        &opened.scrub,
                    )),
                }
            }

            // The stored result is that of the first execution. This transaction wrote nothing.
            Ok(TransactionResult::AlreadyExecuted(reply)) => {
                rolled_back(session).await;
                Ok(reply)
            }
            Err(provider_error) => {
                if is_unavailable(&provider_error) {
                    // The server may be a former primary: another attempt connects again, and the
                    // address can lead to another server by then.
                    session.close();
                } else {
                    rolled_back(session).await;
                }
                Err(provider_error)
            }
        }
    }

    fn can_probe(&self, effect: &EffectName) -> bool {
        self.operations
            .get(effect)
            .is_some_and(|operation| operation.marker)
    }

    async fn probe(&self, item: &WorkItem, _probe: Probe) -> ProbeResult {
        self.probe_marker(item)
            .await
            .unwrap_or_else(ProbeResult::from_error)
    }
}

fn is_unavailable(error: &ProviderError) -> bool {
    matches!(
        error,
        ProviderError::Transient {
            trouble: TransientCause::Unavailable,
            ..
        }
    )
}

/// Rolls back. If that fails, the connection is closed, which also rolls back.
async fn rolled_back(session: Box<dyn Session>) {
    if let Err(error) = session.end(TransactionEnd::Rollback).await {
        tracing::debug!(%error, "rollback failed; closing the connection");
    }
}
