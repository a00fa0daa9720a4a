//! PostgreSQL: parameters and columns in its native types, and cancellation of statements in the
//! database.
//!
//! The server reports the parameter types. Each value is sent as text and cast to its type, so that
//! every type with a text form can be bound.

mod values;

use std::str::FromStr as _;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow, Postgres as Pg};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Either,
    Executor as _, PgConnection, Row as _, SqlSafeStr as _, Statement as _, TypeInfo as _,
};

use super::database::{
    Database, Rows, Session, TransactionEnd, cancel_in_background, read_rows, unsupported_type,
};
use super::dialect::PoolLimits;
use super::scan::ParsedStatement;

pub(crate) struct PostgresDatabase {
    pool: PgPool,
    options: PgConnectOptions,
}

impl PostgresDatabase {
    pub(crate) fn open(url: &str, size: PoolLimits) -> Result<Self, sqlx::Error> {
        let options = PgConnectOptions::from_str(url)?
            .application_name("orlog")
            .disable_statement_logging();
        let pool = PgPoolOptions::new()
            .max_connections(size.connections)
            .acquire_timeout(size.acquire_timeout);
        Ok(Self {
            pool: pool.connect_lazy_with(options.clone()),
            options,
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
        let mut open = PostgresSession {
            conn: Some(conn),
            backend: None,
            options: self.options.clone(),
        };
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
    conn: Option<sqlx::pool::PoolConnection<Pg>>,
    backend: Option<i32>,
    options: PgConnectOptions,
}

impl PostgresSession {
    fn conn(&mut self) -> &mut PgConnection {
        self.conn
            .as_mut()
            .expect("the connection is removed only at the end")
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
        let sql = statement.render(|index| format!("${}", index + 1));
        let prepared = self
            .conn()
            .prepare(AssertSqlSafe(sql).into_sql_str())
            .await?;
        for column in prepared.columns() {
            if !values::is_readable(column.type_info()) {
                return Err(unsupported_type(column.name(), column.type_info().name()));
            }
        }
        let returns = !prepared.columns().is_empty();
        let Some(Either::Left(kinds)) = prepared.parameters() else {
            return Err(sqlx::Error::Protocol(
                "the server did not report the parameters".to_owned(),
            ));
        };
        let mut arguments = PgArguments::default();
        for (value, kind) in values.iter().zip(kinds) {
            arguments
                .add(
                    values::to_text(value, kind)
                        .map_err(|reason| sqlx::Error::Encode(reason.into()))?,
                )
                .map_err(sqlx::Error::Encode)?;
        }
        let typed = statement.render(|index| match kinds.get(index) {
            Some(kind) => format!("(${}::text::{})", index + 1, values::cast(kind)),
            None => format!("${}", index + 1),
        });
        let query = sqlx::query_with(AssertSqlSafe(typed), arguments);
        read_rows(
            self.conn().fetch_many(query),
            maximum,
            sqlx::postgres::PgQueryResult::rows_affected,
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
}

/// Cancels the running statement over a second connection and closes this one. The connection is not
/// reused before, so no statement of another caller is cancelled.
impl Drop for PostgresSession {
    fn drop(&mut self) {
        let (Some(conn), Some(backend)) = (self.conn.take(), self.backend) else {
            return;
        };
        let options = self.options.clone();
        cancel_in_background(conn.detach(), async move {
            let mut second = PgConnection::connect_with(&options).await?;
            sqlx::query("SELECT pg_cancel_backend($1)")
                .bind(backend)
                .execute(&mut second)
                .await?;
            second.close().await
        });
    }
}

fn row(row: &PgRow) -> Result<Map<String, Value>, sqlx::Error> {
    let columns = row.columns().iter();
    let values = columns.map(|column| {
        let value = values::value(&row.try_get_raw(column.ordinal())?);
        let value = value.map_err(|source| sqlx::Error::ColumnDecode {
            index: column.name().to_owned(),
            source,
        })?;
        Ok((column.name().to_owned(), value))
    });
    values.collect()
}
