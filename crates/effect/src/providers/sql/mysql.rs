//! MySQL and MariaDB.
//!
//! Values are bound by their JSON types, and the server converts them to the column types. JSON
//! lists and objects are bound as text. A decimal is read as text, so that it keeps its digits.

use std::str::FromStr as _;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Map, Value};
use sqlx::error::BoxDynError;
use sqlx::mysql::{
    MySql, MySqlArguments, MySqlConnectOptions, MySqlPool, MySqlPoolOptions, MySqlQueryResult,
    MySqlRow,
};
use sqlx::pool::PoolConnection;
use sqlx::{
    Arguments as _, AssertSqlSafe, Column as _, ConnectOptions as _, Connection as _,
    Executor as _, MySqlConnection, Row as _, SqlSafeStr as _, Statement as _, TypeInfo as _,
    ValueRef as _,
};

use super::database::{
    Database, Rows, Session, TransactionEnd, cancel_in_background, read_rows, text,
    unsupported_type,
};
use super::dialect::PoolLimits;
use super::scan::ParsedStatement;

pub(crate) struct MySqlDatabase {
    pool: MySqlPool,
    options: MySqlConnectOptions,
}

impl MySqlDatabase {
    pub(crate) fn open(url: &str, size: PoolLimits) -> Result<Self, sqlx::Error> {
        let options = MySqlConnectOptions::from_str(url)?.disable_statement_logging();
        let pool = MySqlPoolOptions::new()
            .max_connections(size.connections)
            .acquire_timeout(size.acquire_timeout);

        Ok(Self {
            pool: pool.connect_lazy_with(options.clone()),
            options,
        })
    }
}

#[async_trait]
impl Database for MySqlDatabase {
    async fn start_transaction(
        &self,
        _writes: bool,
        timeout: Duration,
    ) -> Result<Box<dyn Session>, sqlx::Error> {
        let conn = self.pool.acquire().await?;

        // Created before the first statement: if it fails or is cancelled, dropping the session
        // closes the connection.
        let mut open = MySqlSession {
            conn: Some(conn),
            id: None,
            options: self.options.clone(),
        };
        // A statement must not wait for a lock for longer than the attempt may take.
        let timeout_secs = timeout.as_secs().clamp(1, 1 << 30);
        let start_transaction = format!(
            "SET SESSION innodb_lock_wait_timeout = {timeout_secs}; START TRANSACTION; SELECT \
            CAST(CONNECTION_ID() AS CHAR)"
        );

        let rows = sqlx::raw_sql(AssertSqlSafe(start_transaction))
            .fetch_all(open.conn())
            .await?;
        let id: Option<String> = rows.first().map(|row| row.try_get(0)).transpose()?;

        open.id = id.and_then(|id| id.parse().ok());
        Ok(Box::new(open))
    }
}

struct MySqlSession {
    conn: Option<PoolConnection<MySql>>,
    /// `None`: the transaction may have begun, but its response was not received.
    id: Option<u64>,
    options: MySqlConnectOptions,
}

impl MySqlSession {
    fn conn(&mut self) -> &mut MySqlConnection {
        self.conn
            .as_mut()
            .expect("the connection is removed only at the end")
    }
}

#[async_trait]
impl Session for MySqlSession {
    async fn run(
        &mut self,
        statement: &ParsedStatement,
        values: &[Value],
        max_rows: usize,
    ) -> Result<Rows, sqlx::Error> {
        let sql = statement.render(|_| "?".to_owned());
        let prepared = self
            .conn()
            .prepare(AssertSqlSafe(sql.clone()).into_sql_str())
            .await?;

        for column in prepared.columns() {
            if column.type_info().name() == "GEOMETRY" {
                return Err(unsupported_type(column.name(), column.type_info().name()));
            }
        }

        let returns = !prepared.columns().is_empty();
        let mut arguments = MySqlArguments::default();
        for value in statement
            .param_indexes()
            .filter_map(|index| values.get(index))
        {
            bind(&mut arguments, value).map_err(sqlx::Error::Encode)?;
        }

        let query = sqlx::query_with(AssertSqlSafe(sql), arguments);
        read_rows(
            self.conn().fetch_many(query),
            max_rows,
            MySqlQueryResult::rows_affected,
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

/// Kills the running statement over a second connection, as in PostgreSQL, and closes this one,
/// which is not reused before.
impl Drop for MySqlSession {
    fn drop(&mut self) {
        // In no case back to the pool: the transaction is open, or begins with the next response.
        let Some(connection) = self.conn.take().map(PoolConnection::detach) else {
            return;
        };

        let Some(id) = self.id else {
            return;
        };

        let options = self.options.clone();
        cancel_in_background(connection, async move {
            let mut second = MySqlConnection::connect_with(&options).await?;
            sqlx::raw_sql(AssertSqlSafe(format!("KILL QUERY {id}")))
                .execute(&mut second)
                .await?;
            second.close().await
        });
    }
}

fn bind(arguments: &mut MySqlArguments, value: &Value) -> Result<(), BoxDynError> {
    match value {
        Value::Bool(flag) => arguments.add(*flag),
        Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(number), _) => arguments.add(number),
            (None, Some(number)) => arguments.add(number),
            (None, None) => arguments.add(number.as_f64()),
        },
        other => arguments.add(text(other)),
    }
}

fn row(row: &MySqlRow) -> Result<Map<String, Value>, sqlx::Error> {
    let values = row.columns().iter().map(|column| {
        let value = value(row, column.ordinal())?;
        Ok((column.name().to_owned(), value))
    });
    values.collect()
}

fn value(row: &MySqlRow, at: usize) -> Result<Value, sqlx::Error> {
    let raw = row.try_get_raw(at)?;
    if raw.is_null() {
        return Ok(Value::Null);
    }

    let kind = raw.type_info();
    Ok(match kind.name() {
        "BOOLEAN" => Value::from(row.try_get_unchecked::<bool, _>(at)?),
        "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => {
            Value::from(row.try_get_unchecked::<i64, _>(at)?)
        }
        "TINYINT UNSIGNED" | "SMALLINT UNSIGNED" | "MEDIUMINT UNSIGNED" | "INT UNSIGNED"
        | "BIGINT UNSIGNED" | "YEAR" | "BIT" => Value::from(row.try_get_unchecked::<u64, _>(at)?),
        "FLOAT" => Value::from(row.try_get_unchecked::<f32, _>(at)?),
        "DOUBLE" => Value::from(row.try_get_unchecked::<f64, _>(at)?),
        "DATE" | "DATETIME" | "TIMESTAMP" => {
            let zone = if kind.name() == "TIMESTAMP" { "Z" } else { "" };
            Value::from(moment(row.try_get_unchecked::<&[u8], _>(at)?) + zone)
        }
        "TIME" => Value::from(time(row.try_get_unchecked::<&[u8], _>(at)?)),
        "BINARY" | "VARBINARY" | "TINYBLOB" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" => {
            Value::from(BASE64_STANDARD.encode(row.try_get_unchecked::<&[u8], _>(at)?))
        }
        "JSON" => {
            let text = row.try_get_unchecked::<&[u8], _>(at)?;
            serde_json::from_slice(text).map_err(|error| sqlx::Error::Decode(error.into()))?
        }
        _ => Value::from(row.try_get_unchecked::<String, _>(at)?),
    })
}

/// Parses year, month, day, hour, minute, second and microseconds; trailing zero fields are
/// omitted. Follows the length.
fn moment(bytes: &[u8]) -> String {
    let bytes = bytes.get(1..).unwrap_or_default();
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let micros = micros(bytes, 7);
    let date = format!(
        "{:04}-{:02}-{:02}",
        u16::from_le_bytes([at(0), at(1)]),
        at(2),
        at(3)
    );

    if bytes.len() <= 4 {
        date
    } else {
        format!("{date}T{:02}:{:02}:{:02}{micros}", at(4), at(5), at(6))
    }
}

/// Parses sign, days, hour, minute, second, microseconds.
fn time(bytes: &[u8]) -> String {
    let bytes = bytes.get(1..).unwrap_or_default();
    let at = |index: usize| bytes.get(index).copied().unwrap_or_default();
    let micros = micros(bytes, 8);

    let sign = if at(0) == 1 { "-" } else { "" };
    let hours = u32::from_le_bytes([at(1), at(2), at(3), at(4)]) * 24 + u32::from(at(5));
    format!("{sign}{hours:02}:{:02}:{:02}{micros}", at(6), at(7))
}

fn micros(bytes: &[u8], from: usize) -> String {
    let micros = bytes
        .get(from..from + 4)
        .and_then(|four| four.try_into().ok())
        .map_or(0, u32::from_le_bytes);

    if micros == 0 {
        String::new()
    } else {
        format!(".{micros:06}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mysql_dates_and_times_are_parsed() {
        assert_eq!(moment(&[4, 0xea, 0x07, 11, 21]), "2026-11-21");
        assert_eq!(
            moment(&[7, 0xea, 0x07, 11, 21, 9, 5, 7]),
            "2026-11-21T09:05:07"
        );
        assert_eq!(
            moment(&[11, 0xea, 0x07, 11, 21, 9, 5, 7, 0x40, 0xe2, 1, 0]),
            "2026-11-21T09:05:07.123456"
        );
        assert_eq!(moment(&[0]), "0000-00-00");
        assert_eq!(time(&[8, 1, 1, 0, 0, 0, 2, 3, 4]), "-26:03:04");
        assert_eq!(time(&[0]), "00:00:00");
    }
}
