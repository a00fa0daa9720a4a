//! SQLite: a file. Writers are serialized; cancelled statements are interrupted.
//!
//! Values are bound by their JSON types; lists and objects as text. Values are read with their
//! stored types, except for columns that are declared as boolean.

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use sqlx::error::BoxDynError;
use sqlx::pool::PoolConnection;
use sqlx::sqlite::{
    Sqlite, SqliteArguments, SqliteConnectOptions, SqlitePool, SqlitePoolOptions,
    SqliteQueryResult, SqliteRow,
};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Executor as _, Row as _,
    SqlSafeStr as _, SqliteConnection, Statement as _, TypeInfo as _, ValueRef as _,
};

use super::database::{Database, Rows, Session, TransactionEnd, read_rows, text};
use super::dialect::PoolLimits;
use super::scan::ParsedStatement;

/// Number of virtual machine instructions between checks for cancellation.
const PROGRESS_INTERVAL: i32 = 1000;

pub(crate) struct SqliteDatabase {
    pool: SqlitePool,
}

impl SqliteDatabase {
    pub(crate) fn open(url: &str, size: PoolLimits) -> Result<Self, sqlx::Error> {
        let options = SqliteConnectOptions::from_str(url)?
            .busy_timeout(size.acquire_timeout)
            .disable_statement_logging();

        let pool = SqlitePoolOptions::new()
            .max_connections(size.connections)
            .acquire_timeout(size.acquire_timeout);

        Ok(Self {
            pool: pool.connect_lazy_with(options),
        })
    }
}

#[async_trait]
impl Database for SqliteDatabase {
    async fn start_transaction(
        &self,
        writes: bool,
        _timeout: Duration,
    ) -> Result<Box<dyn Session>, sqlx::Error> {
        let conn = self.pool.acquire().await?;
        let mut open = SqliteSession {
            conn: Some(conn),
            closed: Arc::default(),
        };

        // SQLite runs in the process, so no second connection can cancel a statement. It asks this
        // function instead, and stops when the session was dropped.
        let closed = Arc::clone(&open.closed);
        open.conn()
            .lock_handle()
            .await?
            .set_progress_handler(PROGRESS_INTERVAL, move || !closed.load(Ordering::Relaxed));

        // A transaction that reads first and then writes would be rejected after a concurrent
        // write.
        let start_transaction = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };

        sqlx::raw_sql(start_transaction)
            .execute(open.conn())
            .await?;
        Ok(Box::new(open))
    }
}

struct SqliteSession {
    conn: Option<PoolConnection<Sqlite>>,
    closed: Arc<AtomicBool>,
}

impl SqliteSession {
    fn conn(&mut self) -> &mut SqliteConnection {
        self.conn
            .as_mut()
            .expect("the connection is removed only at the end")
    }
}

#[async_trait]
impl Session for SqliteSession {
    async fn run(
        &mut self,
        statement: &ParsedStatement,
        values: &[Value],
        max_rows: usize,
    ) -> Result<Rows, sqlx::Error> {
        let sql = statement.render(|index| format!("?{}", index + 1));
        let prepared = self
            .conn()
            .prepare(AssertSqlSafe(sql.clone()).into_sql_str())
            .await?;

        let returns = !prepared.columns().is_empty();
        let mut arguments = SqliteArguments::default();
        for value in values.iter().take(statement.names().len()) {
            bind(&mut arguments, value).map_err(sqlx::Error::Encode)?;
        }

        let query = sqlx::query_with(AssertSqlSafe(sql), arguments);
        read_rows(
            self.conn().fetch_many(query),
            max_rows,
            SqliteQueryResult::rows_affected,
            row,
            returns,
        )
        .await
    }

    async fn end(mut self: Box<Self>, how: TransactionEnd) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(how.statement()).execute(self.conn()).await?;
        drop(self.conn.take());
        Ok(())
    }

    fn close(mut self: Box<Self>) {
        drop(self.conn.take().map(PoolConnection::detach));
    }
}

/// Closes the connection, which rolls the transaction back.
impl Drop for SqliteSession {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            // The progress handler reads it, and ends a statement that is still running.
            self.closed.store(true, Ordering::Relaxed);
            drop(conn.detach());
        }
    }
}

fn bind(arguments: &mut SqliteArguments, value: &Value) -> Result<(), BoxDynError> {
    match value {
        Value::Bool(flag) => arguments.add(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(number) => arguments.add(number),
            None => arguments.add(number.as_f64()),
        },
        other => arguments.add(text(other)),
    }
}

fn row(row: &SqliteRow) -> Result<Map<String, Value>, sqlx::Error> {
    let values = row.columns().iter().map(|column| {
        let value = value(row, column.ordinal(), column.type_info().name())?;
        Ok((column.name().to_owned(), value))
    });
    values.collect()
}

fn value(row: &SqliteRow, at: usize, declared: &str) -> Result<Value, sqlx::Error> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }

    let stored = raw.type_info();
    Ok(match stored.name() {
        "INTEGER" | "BOOLEAN" => match row.try_get_unchecked::<i64, _>(at)? {
            number @ (0 | 1) if declared == "BOOLEAN" => Value::from(number == 1),
            number => Value::from(number),
        },
        "REAL" => Value::from(row.try_get_unchecked::<f64, _>(at)?),
        "BLOB" => Value::from(BASE64_STANDARD.encode(row.try_get_unchecked::<&[u8], _>(at)?)),
        _ => Value::from(row.try_get_unchecked::<String, _>(at)?),
    })
}
