//! Tables in PostgreSQL. A response and its cursor are stored in one transaction, so an interrupted
//! export resumes at the exact position.

use std::str::FromStr as _;
use std::time::Duration;

use orlog_effect::providers::sql::{Decision, decide_sqlstate};
use orlog_effect::secret::{Secret, SecretScrubber};
use serde_json::Value;
use sqlx::error::DatabaseError;
use sqlx::postgres::{PgArguments, PgConnectOptions};
use sqlx::query::Query;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Postgres, Row as _};

use super::page::{ExportError, ExportPage};
use super::statements::{
    ADD_COLUMNS, EntityStatements, INSERT_STATE, KINDS, LACKS_COLUMNS, SCHEMA, SELECT_STATE,
    UPDATE_STATE,
};
use crate::cli::console::note;
use crate::cli::exit::{CommandError, CommandExit};

/// Current format of the tables.
const FORMAT: i32 = 2;
/// Timeout of database operations. Default: 2 min.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Lock that serializes concurrent creation of the tables.
const SCHEMA_LOCK: &str = "SELECT pg_advisory_xact_lock(7310595)";
/// Fields with times.
const TIMES: [&str; 5] = ["created_at", "updated_at", "opened_at", "due", "at"];

/// PostgreSQL database.
pub(crate) struct PostgresTarget {
    options: PgConnectOptions,
    scrub: SecretScrubber,
    scope: String,
    kinds: String,
    open: Option<PgConnection>,
    copy_number: i64,
    cursor: Option<String>,
    snapshotting: bool,
}

impl PostgresTarget {
    pub(crate) fn new(url: &Secret, scope: String, kinds: String) -> Result<Self, String> {
        // Errors of the driver can repeat the URL with its password.
        let scrub = SecretScrubber::of_url(url);
        let options = PgConnectOptions::from_str(url.expose())
            .map_err(|error| scrub.scrub_text(format!("invalid database URL: {error}")))?;
        let options = options
            .application_name("orlog export")
            // PgBouncer rejects this parameter, which no statement here needs.
            .extra_float_digits(None)
            .disable_statement_logging();

        Ok(Self {
            options,
            scrub,
            scope,
            kinds,
            open: None,
            copy_number: 0,
            cursor: None,
            snapshotting: false,
        })
    }

    /// Connects, creates missing tables, and reads the cursor.
    pub(crate) async fn open(&mut self) -> Result<Option<String>, ExportError> {
        // A connection of an earlier pass may be in the middle of a transaction.
        self.open = None;
        let opened = bounded(self.connect()).await;
        let (connection, found) = opened.map_err(|error| self.stop(&error))?;
        self.open = Some(connection);
        // Reset before the checks: if the export cannot resume, `start` sets them.
        self.copy_number = 0;
        self.cursor = None;
        self.snapshotting = false;

        let Some(ExportState {
            format,
            kinds,
            cursor,
            copy_number,
            snapshotting,
        }) = found
        else {
            return Ok(None);
        };
        // Before the kinds: rows of another format must not be changed by this release.
        if format != FORMAT {
            let text = format!(
                "the tables have format {format}, this release supports {FORMAT}; use the matching \
                 release"
            );
            return Err(ExportError::Permanent(CommandError::failed(text)));
        }
        // Only equal kinds resume: a cursor keeps its kinds, and the rows of other kinds would be
        // missing.
        if kinds == self.kinds {
            self.copy_number = copy_number;
            self.cursor.clone_from(&cursor);
            self.snapshotting = snapshotting;
            return Ok(cursor);
        }

        note(&format!(
            "the previous export had {kinds}: exporting a new snapshot"
        ));
        Ok(None)
    }

    async fn connect(&self) -> Result<(PgConnection, Option<ExportState>), sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let mut transaction = connection.begin().await?;
        // Two exports that start at the same time would both create the tables.
        unnamed(SCHEMA_LOCK).execute(&mut *transaction).await?;
        // Not `CREATE TABLE IF NOT EXISTS`: a user without the right to create needs no statement
        // at all if the tables exist.
        let exists = "SELECT to_regclass('orlog_export') IS NOT NULL";
        if !unnamed(exists)
            .fetch_one(&mut *transaction)
            .await?
            .try_get::<bool, _>(0)?
        {
            sqlx::raw_sql(SCHEMA).execute(&mut *transaction).await?;
        } else if unnamed(LACKS_COLUMNS)
            .fetch_one(&mut *transaction)
            .await?
            .try_get::<bool, _>(0)?
        {
            sqlx::raw_sql(ADD_COLUMNS)
                .execute(&mut *transaction)
                .await?;
        }

        transaction.commit().await?;
        // The state is read without a lock. Another export is detected when the cursor moves.
        let row = unnamed(SELECT_STATE)
            .bind(&self.scope)
            .fetch_optional(&mut connection)
            .await?;
        let found = row.map(|row| {
            Ok::<_, sqlx::Error>(ExportState {
                format: row.try_get(0)?,
                kinds: row.try_get(1)?,
                cursor: row.try_get(2)?,
                copy_number: row.try_get(3)?,
                snapshotting: row.try_get(4)?,
            })
        });

        Ok((connection, found.transpose()?))
    }

    /// Starts a generation. At the end of its snapshot, rows that the generation does not contain
    /// are deleted.
    pub(crate) async fn start(&mut self) -> Result<(), ExportError> {
        let connection = self.open.as_mut().expect("the connection is open");
        let start = unnamed(INSERT_STATE)
            .bind(&self.scope)
            .bind(FORMAT)
            .bind(&self.kinds)
            .fetch_one(connection);
        let number = bounded(async { start.await?.try_get(0) }).await;
        // The generation is stored before its first row: rows of this snapshot are newer than all
        // others.
        self.copy_number = number.map_err(|error| self.stop(&error))?;
        self.cursor = None;
        self.snapshotting = true;

        Ok(())
    }

    /// Stores a response.
    pub(crate) async fn take(&mut self, page: &ExportPage) -> Result<(), ExportError> {
        // After an error, the connection is not used again: its transaction may be open.
        let mut connection = self.open.take().expect("the connection is open");
        // A timeout drops the connection, and the database rolls the transaction back.
        let stored = bounded(self.store(&mut connection, page))
            .await
            .map_err(|error| self.stop(&error))?;
        if !stored {
            let text = "another export with the same scope updates these tables; stop one of them";
            return Err(ExportError::Permanent(CommandError::new(
                CommandExit::Rejected,
                text,
            )));
        }

        self.open = Some(connection);
        self.cursor = Some(page.cursor.clone());
        self.snapshotting = page.snapshotting;
        Ok(())
    }

    async fn store(
        &self,
        connection: &mut PgConnection,
        page: &ExportPage,
    ) -> Result<bool, sqlx::Error> {
        let mut transaction = connection.begin().await?;
        // The cursor moves in the transaction of the rows, so that a crash loses and repeats
        // nothing. It does not move if another export has moved it.
        let moved = unnamed(UPDATE_STATE)
            .bind(&self.scope)
            .bind(&page.cursor)
            .bind(page.snapshotting)
            .bind(self.copy_number)
            .bind(&self.cursor);
        // The update locks the row of the scope: a second export waits here, and then detects this
        // one.
        if moved.execute(&mut *transaction).await?.rows_affected() != 1 {
            transaction.rollback().await?;
            return Ok(false);
        }

        for EntityStatements {
            name,
            put,
            delete,
            sweep,
        } in &KINDS
        {
            let (there, removed) = page.of(name);
            for (statement, lines) in [(put, there), (delete, removed)] {
                if !lines.is_empty() {
                    let text = text(lines);
                    unnamed(statement)
                        .bind(text)
                        .bind(self.copy_number)
                        .execute(&mut *transaction)
                        .await?;
                }
            }
            // The snapshot ends with this response: rows of earlier generations no longer exist on
            // the node. Kinds that are not exported any more are deleted too.
            if self.snapshotting && !page.snapshotting {
                let tenant = self.scope.strip_prefix("tenant:");
                unnamed(sweep)
                    .bind(self.copy_number)
                    .bind(tenant)
                    .execute(&mut *transaction)
                    .await?;
            }
        }
        transaction.commit().await?;

        Ok(true)
    }

    /// Converts a database error. The database decides whether it is transient. The message is
    /// scrubbed, because it can repeat input data.
    fn stop(&self, error: &sqlx::Error) -> ExportError {
        // Connection failures have no SQLSTATE; all other decisions are those of the SQL provider.
        let state = error.as_database_error().and_then(DatabaseError::code);
        let passes = match (error, state.as_deref()) {
            (sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut, _) => true,
            (_, Some(state)) => is_transient(state),
            _ => false,
        };
        let text = self.scrub.scrub_text(format!("PostgreSQL: {error}"));

        if passes {
            ExportError::Transient(CommandError::new(CommandExit::Unavailable, text))
        } else {
            ExportError::Permanent(CommandError::failed(text))
        }
    }
}

/// Creates a query without a name: behind a transaction pooler, the name can belong to another
/// client.
fn unnamed<'q>(statement: &'static str) -> Query<'q, Postgres, PgArguments> {
    sqlx::query(statement).persistent(false)
}

/// Returns whether a retry can succeed. A wrong password or database ends the command, because the
/// user can correct it now.
fn is_transient(state: &str) -> bool {
    // Class 28 is the authorization, and 3D the name of the database.
    let is_wrong_url = state.starts_with("28") || state.starts_with("3D");
    !is_wrong_url && decide_sqlstate(state) != Decision::Failed
}

/// State of an earlier export in the database.
struct ExportState {
    format: i32,
    kinds: String,
    cursor: Option<String>,
    copy_number: i64,
    snapshotting: bool,
}

async fn bounded<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    tokio::time::timeout(TIMEOUT, work)
        .await
        // As an I/O error, which is transient.
        .unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}

/// Converts lines to JSON that PostgreSQL accepts: without NUL and without the year 0.
fn text(lines: Vec<&Value>) -> String {
    Value::Array(lines.into_iter().map(clean).collect()).to_string()
}

fn clean(line: &Value) -> Value {
    let mut line = line.clone();
    without_nul(&mut line);
    for field in TIMES {
        // A time that PostgreSQL cannot store must not stop the export of all other rows.
        if let Some(Value::String(time)) = line["value"].get(field)
            && !is_time(time)
        {
            line["value"][field] = Value::Null;
        }
    }

    line
}

fn is_time(text: &str) -> bool {
    // RFC 3339 with four digits of the year. A sign at the start is a year outside of 0 to 9999.
    text.len() >= 20
        && text.as_bytes()[..4].iter().all(u8::is_ascii_digit)
        && !text.starts_with("0000")
}

fn without_nul(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', "\u{fffd}"),
        Value::Array(items) => items.iter_mut().for_each(without_nul),
        Value::Object(fields) => {
            if fields.keys().any(|name| name.contains('\0')) {
                let all = std::mem::take(fields);
                *fields = all
                    .into_iter()
                    .map(|(name, value)| (name.replace('\0', "\u{fffd}"), value))
                    .collect();
            }
            fields.values_mut().for_each(without_nul);
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_postgresql_cannot_store_are_replaced() {
        let line = json!({ "value": { "at": "0000-01-01T00:00:00Z", "due": "2026-01-02T03:04:05Z", "a\0": ["b\0"] } });
        let parsed: Value = serde_json::from_str(&text(vec![&line])).unwrap();
        let expected =
            json!({ "at": null, "due": "2026-01-02T03:04:05Z", "a\u{fffd}": ["b\u{fffd}"] });
        assert_eq!(parsed[0]["value"], expected);
        assert!(!is_time("-009999-01-01T00:00:00Z"));
    }

    #[test]
    fn failover_and_pooler_are_transient_and_a_wrong_url_is_not() {
        for state in [
            "25006", "26000", "42P05", "40001", "57P01", "08006", "53300",
        ] {
            assert!(is_transient(state), "{state}");
        }
        for state in ["28P01", "3D000", "42501", "23505"] {
            assert!(!is_transient(state), "{state}");
        }
    }

    #[test]
    fn password_is_not_printed() {
        let url = Secret::new("postgres://orlog:canary-1@[::1/x");
        let error = PostgresTarget::new(&url, String::new(), String::new())
            .err()
            .unwrap();
        assert!(!error.contains("canary"), "{error}");
    }
}
