//! PostgreSQL: parameters and columns in its native types, and cancellation of statements in the
//! database.
//!
//! The server reports the parameter types. Each value is sent as text and cast to its type, so that
//! every type with a text form can be bound.
//!
//! No prepared statement has a name after its transaction. A transaction pooler runs the next
//! transaction on any connection of the server, where the name is unknown, or, worse, has another
//! statement of another client.

mod description;
mod values;

use std::str::FromStr as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow, Postgres as Pg};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _,
    Executor as _, PgConnection, Row as _, SqlSafeStr as _,
};

use self::description::{Description, Descriptions};
use super::database::{
    Database, Rows, Session, TransactionEnd, cancel_in_background, read_rows, unsupported_type,
};
use super::dialect::PoolLimits;
use super::scan::ParsedStatement;

/// Number of statements with a name in a transaction; the description of types needs some.
const NAMED_STATEMENTS: usize = 100;

pub(crate) struct PostgresDatabase {
    pool: PgPool,
    options: PgConnectOptions,
    descriptions: Arc<Descriptions>,
}

impl PostgresDatabase {
    pub(crate) fn open(url: &str, size: PoolLimits) -> Result<Self, sqlx::Error> {
        let options = PgConnectOptions::from_str(url)?
            .application_name("orlog")
            // A cache of 0, which a URL can request, would never close the statements.
            .statement_cache_capacity(NAMED_STATEMENTS)
            // PgBouncer rejects this parameter. Values are binary, and the default prints all
            // digits.
            .extra_float_digits(None)
            .disable_statement_logging();

        let pool = PgPoolOptions::new()
            .max_connections(size.connections)
            .acquire_timeout(size.acquire_timeout);

        Ok(Self {
            pool: pool.connect_lazy_with(options.clone()),
            options,
            descriptions: Arc::default(),
        })
    }
}

#[async_trait]
impl Database for PostgresDatabase {
    async fn start_transaction(
        &self,
        _writes: bool,
        timeout: Duration,
    ) -> Result<Box<dyn Session>, sqlx::Error> {
        let conn = self.pool.acquire().await?;

        // Created before the first statement: if it fails or is cancelled, dropping the session
        // closes the connection.
        let mut open = PostgresSession {
            conn: Some(conn),
            backend: None,
            options: self.options.clone(),
            descriptions: Arc::clone(&self.descriptions),
        };

        // The database ends a slow statement itself. Cancelling it from here needs a second
        // connection.
        let maximum = u128::from(i32::MAX.unsigned_abs());
        let limit = timeout.as_millis().clamp(1, maximum);
        let start_transaction =
            format!("BEGIN; SET LOCAL statement_timeout = {limit}; SELECT pg_backend_pid()");

        let rows = sqlx::raw_sql(AssertSqlSafe(start_transaction))
            .fetch_all(open.conn())
            .await?;

        open.backend = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(Box::new(open))
    }
}

struct PostgresSession {
    conn: Option<PoolConnection<Pg>>,
    /// `None`: the transaction may have begun, but its response was not received.
    backend: Option<i32>,
    options: PgConnectOptions,
    descriptions: Arc<Descriptions>,
}

impl PostgresSession {
    fn conn(&mut self) -> &mut PgConnection {
        self.conn
            .as_mut()
            .expect("the connection is removed only at the end")
    }

    async fn describe(
        &mut self,
        statement: &ParsedStatement,
    ) -> Result<Arc<Description>, sqlx::Error> {
        let sql = statement.render(|index| format!("${}", index + 1));
        if let Some(known) = self.descriptions.find(&sql) {
            return Ok(known);
        }

        let prepared = self
            .conn()
            .prepare(AssertSqlSafe(sql.clone()).into_sql_str())
            .await?;
        let description = Arc::new(Description::of(statement, &prepared)?);

        // A transaction pooler runs the next transaction on another connection, which does not have
        // the statement.
        self.close_named_statements().await?;
        self.descriptions.insert(sql, &description);
        Ok(description)
    }

    /// Closes the statements that the driver prepared with a name: for descriptions, and to read
    /// the definitions of types.
    async fn close_named_statements(&mut self) -> Result<(), sqlx::Error> {
        if self.conn().cached_statements_size() > 0 {
            self.conn().clear_cached_statements().await?;
        }
        Ok(())
    }
}

#[async_trait]
impl Session for PostgresSession {
    async fn run(
        &mut self,
        statement: &ParsedStatement,
        values: &[Value],
        maximum: usize,
    ) -> Result<Rows, sqlx::Error> {
        let description = self.describe(statement).await?;
        if let Some(column) = &description.unreadable {
            return Err(unsupported_type(&column.name, &column.kind));
        }

        let mut arguments = PgArguments::default();
        for (value, kind) in values.iter().zip(&description.parameters) {
            let text = values::to_text(value, kind)
                .map_err(|reason| sqlx::Error::Encode(reason.into()))?;
            arguments.add(text).map_err(sqlx::Error::Encode)?;
        }

        let query = sqlx::query_with(AssertSqlSafe(Arc::clone(&description.sql)), arguments)
            .persistent(false);
        let ran = read_rows(
            self.conn().fetch_many(query),
            maximum,
            sqlx::postgres::PgQueryResult::rows_affected,
            row,
            description.returns_rows,
        )
        .await;

        // The definition of a table may have changed since.
        if ran.is_err() {
            self.descriptions.remove(&description);
        }
        ran
    }

    async fn end(mut self: Box<Self>, how: TransactionEnd) -> Result<(), sqlx::Error> {
        self.close_named_statements().await?;
        sqlx::raw_sql(how.statement()).execute(self.conn()).await?;
        drop(self.conn.take());
        Ok(())
    }

    fn close(mut self: Box<Self>) {
        drop(self.conn.take().map(PoolConnection::detach));
    }
}

/// Cancels the running statement over a second connection and closes this one. The connection is
/// not reused before, so no statement of another caller is cancelled.
impl Drop for PostgresSession {
    fn drop(&mut self) {
        // In no case back to the pool: the transaction is open, or begins with the next response.
        let Some(connection) = self.conn.take().map(PoolConnection::detach) else {
            return;
        };
        let Some(backend) = self.backend else {
            return;
        };

        let options = self.options.clone();
        cancel_in_background(connection, async move {
            let mut second = PgConnection::connect_with(&options).await?;
            sqlx::raw_sql(AssertSqlSafe(format!(
                "SELECT pg_cancel_backend({backend})"
            )))
            .execute(&mut second)
            .await?;
            second.close().await
        });
    }
}

fn row(row: &PgRow) -> Result<Map<String, Value>, sqlx::Error> {
    let mut values = Map::new();
    for column in row.columns() {
        let value = values::value(&row.try_get_raw(column.ordinal())?).map_err(|source| {
            sqlx::Error::ColumnDecode {
                index: column.name().to_owned(),
                source,
            }
        })?;
        values.insert(column.name().to_owned(), value);
    }
    Ok(values)
}
