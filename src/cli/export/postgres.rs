//! Tables in PostgreSQL. An answer and its cursor are kept in one transaction, so a copy that is interrupted goes on exactly there.

use std::str::FromStr as _;
use std::time::Duration;

use orlog_effect::secret::{Scrub, Secret};
use serde_json::Value;
use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, Row as _};

use super::error::Stop;
use super::page::Page;
use super::statements::{BEGIN, FIND, KINDS, Kind, MOVE, SCHEMA};
use crate::cli::console::remark;
use crate::cli::exit::{Exit, Failure};

/// The form of the tables so far.
const FORMAT: i32 = 1;
/// How long the database may take for anything.
const PATIENCE: Duration = Duration::from_mins(2);
/// Two that make the tables at once wait for each other.
const MAKING: &str = "SELECT pg_advisory_xact_lock(7310595)";
/// The fields that are times.
const TIMES: [&str; 5] = ["created_at", "updated_at", "opened_at", "due", "at"];

/// A database.
pub(super) struct Postgres {
    options: PgConnectOptions,
    scrub: Scrub,
    scope: String,
    kinds: String,
    open: Option<PgConnection>,
    generation: i64,
    cursor: Option<String>,
    scanning: bool,
}

impl Postgres {
    pub(super) fn new(url: &Secret, scope: String, kinds: String) -> Result<Self, String> {
        let scrub = Scrub::of_url(url);
        let options = PgConnectOptions::from_str(url.expose())
            .map_err(|error| scrub.text(format!("the URL of the database cannot be read: {error}")))?;
        let options = options.application_name("orlog export").disable_statement_logging();
        Ok(Self { options, scrub, scope, kinds, open: None, generation: 0, cursor: None, scanning: false })
    }

    /// Connects, makes the tables where there are none, and reads the cursor.
    pub(super) async fn open(&mut self) -> Result<Option<String>, Stop> {
        self.open = None;
        let opened = bounded(self.connect()).await;
        let (connection, found) = opened.map_err(|error| self.stop(&error))?;
        self.open = Some(connection);
        (self.generation, self.cursor, self.scanning) = (0, None, false);
        let Some(Found { format, kinds, cursor, generation, scanning }) = found else { return Ok(None) };
        if format != FORMAT {
            let text = format!(
                "the tables have the format {format}, this release keeps {FORMAT}: use the other one"
            );
            return Err(Stop::Final(Failure::failed(text)));
        }
        if kinds == self.kinds {
            (self.generation, self.cursor, self.scanning) = (generation, cursor.clone(), scanning);
            return Ok(cursor);
        }
        remark(&format!("{kinds} was kept until now: everything is copied anew"));
        Ok(None)
    }

    async fn connect(&self) -> Result<(PgConnection, Option<Found>), sqlx::Error> {
        let mut connection = PgConnection::connect_with(&self.options).await?;
        let mut making = connection.begin().await?;
        sqlx::query(MAKING).execute(&mut *making).await?;
        let there = "SELECT to_regclass('orlog_export') IS NOT NULL";
        if !sqlx::query(there).fetch_one(&mut *making).await?.try_get::<bool, _>(0)? {
            sqlx::raw_sql(SCHEMA).execute(&mut *making).await?;
        }
        making.commit().await?;
        let row = sqlx::query(FIND).bind(&self.scope).fetch_optional(&mut connection).await?;
        let found = row.map(|row| {
            Ok::<_, sqlx::Error>(Found {
                format: row.try_get(0)?,
                kinds: row.try_get(1)?,
                cursor: row.try_get(2)?,
                generation: row.try_get(3)?,
                scanning: row.try_get(4)?,
            })
        });
        Ok((connection, found.transpose()?))
    }

    /// Begins a generation: what it does not tell of is removed when its first pass is over.
    pub(super) async fn begin(&mut self) -> Result<(), Stop> {
        let connection = self.open.as_mut().expect("it was opened");
        let begin = sqlx::query(BEGIN).bind(&self.scope).bind(FORMAT).bind(&self.kinds).fetch_one(connection);
        let number = bounded(async { begin.await?.try_get(0) }).await;
        self.generation = number.map_err(|error| self.stop(&error))?;
        (self.cursor, self.scanning) = (None, true);
        Ok(())
    }

    /// Keeps an answer.
    pub(super) async fn take(&mut self, page: &Page) -> Result<(), Stop> {
        let mut connection = self.open.take().expect("it was opened");
        let kept = bounded(self.keep(&mut connection, page)).await.map_err(|error| self.stop(&error))?;
        if !kept {
            let text = "another export of the same keeps these tables too; end one of them";
            return Err(Stop::Final(Failure::new(Exit::Refused, text)));
        }
        self.open = Some(connection);
        (self.cursor, self.scanning) = (Some(page.cursor.clone()), page.scanning);
        Ok(())
    }

    async fn keep(&self, connection: &mut PgConnection, page: &Page) -> Result<bool, sqlx::Error> {
        let mut transaction = connection.begin().await?;
        let moved = sqlx::query(MOVE)
            .bind(&self.scope)
            .bind(&page.cursor)
            .bind(page.scanning)
            .bind(self.generation)
            .bind(&self.cursor);
        if moved.execute(&mut *transaction).await?.rows_affected() != 1 {
            transaction.rollback().await?;
            return Ok(false);
        }
        for Kind { name, put, delete, sweep } in &KINDS {
            let (there, gone) = page.of(name);
            for (statement, lines) in [(put, there), (delete, gone)] {
                if !lines.is_empty() {
                    let text = text(lines);
                    sqlx::query(*statement)
                        .bind(text)
                        .bind(self.generation)
                        .execute(&mut *transaction)
                        .await?;
                }
            }
            if self.scanning && !page.scanning {
                let tenant = self.scope.strip_prefix("tenant:");
                sqlx::query(*sweep).bind(self.generation).bind(tenant).execute(&mut *transaction).await?;
            }
        }
        transaction.commit().await?;
        Ok(true)
    }

    /// Whether it may pass says the database; what it says may repeat what it was sent.
    fn stop(&self, error: &sqlx::Error) -> Stop {
        let state = error.as_database_error().and_then(DatabaseError::code);
        let passes = match (error, state.as_deref()) {
            (sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolTimedOut, _) => true,
            (_, Some(state)) => {
                ["08", "40", "53", "55", "57", "58"].iter().any(|class| state.starts_with(class))
            }
            _ => false,
        };
        let text = self.scrub.text(format!("PostgreSQL: {error}"));
        if passes {
            Stop::Passing(Failure::new(Exit::Unavailable, text))
        } else {
            Stop::Final(Failure::failed(text))
        }
    }
}

/// What a database knows of an earlier export.
struct Found {
    format: i32,
    kinds: String,
    cursor: Option<String>,
    generation: i64,
    scanning: bool,
}

async fn bounded<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let late = |_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()));
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(late)
}

/// Lines as PostgreSQL takes them: its JSON knows no NUL, and its times no year 0.
fn text(lines: Vec<&Value>) -> String {
    let clean = |line: &Value| {
        let mut line = line.clone();
        without_nul(&mut line);
        for field in TIMES {
            if let Some(Value::String(time)) = line["value"].get(field)
                && !is_time(time)
            {
                line["value"][field] = Value::Null;
            }
        }
        line
    };
    Value::Array(lines.into_iter().map(clean).collect()).to_string()
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.as_bytes()[..4].iter().all(u8::is_ascii_digit) && !text.starts_with("0000")
}

fn without_nul(value: &mut Value) {
    match value {
        Value::String(text) if text.contains('\0') => *text = text.replace('\0', "\u{fffd}"),
        Value::Array(items) => items.iter_mut().for_each(without_nul),
        Value::Object(fields) => {
            if fields.keys().any(|name| name.contains('\0')) {
                let all = std::mem::take(fields);
                *fields =
                    all.into_iter().map(|(name, value)| (name.replace('\0', "\u{fffd}"), value)).collect();
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
    fn what_postgresql_cannot_hold_is_replaced() {
        let line = json!({ "value": { "at": "0000-01-01T00:00:00Z", "due": "2026-01-02T03:04:05Z", "a\0": ["b\0"] } });
        let taken: Value = serde_json::from_str(&text(vec![&line])).unwrap();
        let expected = json!({ "at": null, "due": "2026-01-02T03:04:05Z", "a\u{fffd}": ["b\u{fffd}"] });
        assert_eq!(taken[0]["value"], expected);
        assert!(!is_time("-009999-01-01T00:00:00Z"));
    }

    #[test]
    fn a_password_is_not_told() {
        let url = Secret::new("postgres://orlog:canary-1@[::1/x");
        let error = Postgres::new(&url, String::new(), String::new()).err().unwrap();
        assert!(!error.contains("canary"), "{error}");
    }
}
