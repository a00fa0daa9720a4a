//! SQLite: a file. Writers take turns; what nobody waits for any more is interrupted.
//!
//! Values are bound by their JSON types; lists and objects as text. What is read has the type in which it is stored, but for
//! columns declared as boolean.

use std::str::FromStr as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use sqlx::error::BoxDynError;
use sqlx::sqlite::{
    Sqlite, SqliteArguments, SqliteConnectOptions, SqlitePool, SqlitePoolOptions, SqliteQueryResult,
    SqliteRow,
};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Executor as _, Row as _,
    SqlSafeStr as _, SqliteConnection, Statement as _, TypeInfo as _, ValueRef as _,
};

use super::database::{Database, End, Rows, Session, gather, text};
use super::dialect::Size;
use super::scan::Statement;

/// The virtual machine asks after so many instructions whether it shall go on.
const INSTRUCTIONS: i32 = 1000;

pub(crate) struct File {
    pool: SqlitePool,
}

impl File {
    pub(crate) fn open(url: &str, size: Size) -> Result<Self, sqlx::Error> {
        let options =
            SqliteConnectOptions::from_str(url)?.busy_timeout(size.patience).disable_statement_logging();
        let pool = SqlitePoolOptions::new().max_connections(size.connections).acquire_timeout(size.patience);
        Ok(Self { pool: pool.connect_lazy_with(options) })
    }
}

#[async_trait]
impl Database for File {
    async fn begin(&self, writes: bool, _timeout: Duration) -> Result<Box<dyn Session>, sqlx::Error> {
        let conn = self.pool.acquire().await?;
        let mut open = Open { conn: Some(conn), left: Arc::default() };
        let left = Arc::clone(&open.left);
        let go_on = move || !left.load(Ordering::Relaxed);
        open.conn().lock_handle().await?.set_progress_handler(INSTRUCTIONS, go_on);
        // One that first reads and then writes would be refused when another has written in between.
        let begin = if writes { "BEGIN IMMEDIATE" } else { "BEGIN" };
        sqlx::raw_sql(begin).execute(open.conn()).await?;
        Ok(Box::new(open))
    }
}

struct Open {
    conn: Option<sqlx::pool::PoolConnection<Sqlite>>,
    left: Arc<AtomicBool>,
}

impl Open {
    fn conn(&mut self) -> &mut SqliteConnection {
        self.conn.as_mut().expect("it is taken when it ends")
    }
}

#[async_trait]
impl Session for Open {
    async fn run(
        &mut self,
        statement: &Statement,
        values: &[Value],
        most: usize,
    ) -> Result<Rows, sqlx::Error> {
        let plain = statement.render(|index| format!("?{}", index + 1));
        let prepared = self.conn().prepare(AssertSqlSafe(plain.clone()).into_sql_str()).await?;
        let returns = !prepared.columns().is_empty();
        let mut arguments = SqliteArguments::default();
        for value in values.iter().take(statement.names().len()) {
            bind(&mut arguments, value).map_err(sqlx::Error::Encode)?;
        }
        let query = sqlx::query_with(AssertSqlSafe(plain), arguments);
        gather(self.conn().fetch_many(query), most, SqliteQueryResult::rows_affected, row, returns).await
    }

    async fn end(mut self: Box<Self>, how: End) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(how.statement()).execute(self.conn()).await?;
        drop(self.conn.take());
        Ok(())
    }
}

/// Closing the connection rolls the transaction back.
impl Drop for Open {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.left.store(true, Ordering::Relaxed);
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
