//! PostgreSQL: parameters and columns in its own types, and statements cancelled in the database.
//!
//! The server says which types the parameters have; each value goes there as text and is cast to that type, so that every
//! type can be bound that can be written.

mod read;
mod write;

use std::str::FromStr as _;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Map, Value};
use sqlx::postgres::{PgArguments, PgConnectOptions, PgPool, PgPoolOptions, PgRow, Postgres as Pg};
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _, Either, Executor as _,
    PgConnection, Row as _, SqlSafeStr as _, Statement as _, TypeInfo as _,
};

use super::database::{Database, End, Rows, Session, gather, unreadable};
use super::dialect::Size;
use super::scan::Statement;

/// Patience with the connection over which a statement is cancelled.
const CANCEL: Duration = Duration::from_secs(10);

pub(crate) struct Postgres {
    pool: PgPool,
    options: PgConnectOptions,
}

impl Postgres {
    pub(crate) fn open(url: &str, size: Size) -> Result<Self, sqlx::Error> {
        let options = PgConnectOptions::from_str(url)?.application_name("orlog").disable_statement_logging();
        let pool = PgPoolOptions::new().max_connections(size.connections).acquire_timeout(size.patience);
        Ok(Self { pool: pool.connect_lazy_with(options.clone()), options })
    }
}

#[async_trait]
impl Database for Postgres {
    async fn begin(&self, _writes: bool, timeout: Duration) -> Result<Box<dyn Session>, sqlx::Error> {
        let conn = self.pool.acquire().await?;
        let mut open = Open { conn: Some(conn), backend: None, options: self.options.clone() };
        let most = u128::from(i32::MAX.unsigned_abs());
        let limit = timeout.as_millis().clamp(1, most);
        let begin = format!("BEGIN; SET LOCAL statement_timeout = {limit}; SELECT pg_backend_pid()");
        let rows = sqlx::raw_sql(AssertSqlSafe(begin)).fetch_all(open.conn()).await?;
        open.backend = rows.first().map(|row| row.try_get(0)).transpose()?;
        Ok(Box::new(open))
    }
}

struct Open {
    conn: Option<sqlx::pool::PoolConnection<Pg>>,
    backend: Option<i32>,
    options: PgConnectOptions,
}

impl Open {
    fn conn(&mut self) -> &mut PgConnection {
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
        let plain = statement.render(|index| format!("${}", index + 1));
        let prepared = self.conn().prepare(AssertSqlSafe(plain).into_sql_str()).await?;
        for column in prepared.columns() {
            if !read::is_readable(column.type_info()) {
                return Err(unreadable(column.name(), column.type_info().name()));
            }
        }
        let returns = !prepared.columns().is_empty();
        let Some(Either::Left(kinds)) = prepared.parameters() else {
            return Err(sqlx::Error::Protocol(
                "the server did not say which parameters there are".to_owned(),
            ));
        };
        let mut arguments = PgArguments::default();
        for (value, kind) in values.iter().zip(kinds) {
            arguments
                .add(write::text(value, kind).map_err(|why| sqlx::Error::Encode(why.into()))?)
                .map_err(sqlx::Error::Encode)?;
        }
        let typed = statement.render(|index| match kinds.get(index) {
            Some(kind) => format!("(${}::text::{})", index + 1, write::cast(kind)),
            None => format!("${}", index + 1),
        });
        let query = sqlx::query_with(AssertSqlSafe(typed), arguments);
        gather(
            self.conn().fetch_many(query),
            most,
            sqlx::postgres::PgQueryResult::rows_affected,
            row,
            returns,
        )
        .await
    }

    async fn end(mut self: Box<Self>, how: End) -> Result<(), sqlx::Error> {
        sqlx::raw_sql(how.statement()).execute(self.conn()).await?;
        drop(self.conn.take());
        Ok(())
    }
}

/// Nobody waits for it any more: what runs is cancelled over a second connection, and this one is closed. It is ours until
/// then, so nobody else's statement is hit.
impl Drop for Open {
    fn drop(&mut self) {
        let (Some(conn), Ok(runtime)) = (self.conn.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        let (conn, options) = (conn.detach(), self.options.clone());
        let Some(backend) = self.backend else { return };
        runtime.spawn(async move {
            let cancel = async {
                let mut second = PgConnection::connect_with(&options).await?;
                sqlx::query("SELECT pg_cancel_backend($1)").bind(backend).execute(&mut second).await?;
                second.close().await
            };
            if let Ok(Err(error)) = tokio::time::timeout(CANCEL, cancel).await {
                tracing::debug!(%error, "a statement could not be cancelled");
            }
            drop(conn);
        });
    }
}

fn row(row: &PgRow) -> Result<Map<String, Value>, sqlx::Error> {
    let columns = row.columns().iter();
    let values = columns.map(|column| {
        let value = read::value(&row.try_get_raw(column.ordinal())?);
        let value =
            value.map_err(|source| sqlx::Error::ColumnDecode { index: column.name().to_owned(), source })?;
        Ok((column.name().to_owned(), value))
    });
    values.collect()
}
