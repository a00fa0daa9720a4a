//! What the provider needs of a database.

use std::time::Duration;

use async_trait::async_trait;
use futures::{Stream, TryStreamExt as _};
use serde_json::{Map, Value};
use sqlx::Either;

use super::scan::Statement;

/// The connections to one database.
#[async_trait]
pub(crate) trait Database: Send + Sync {
    /// A connection in a transaction. In one that writes, nobody else's write comes between; no statement takes longer
    /// than `timeout` where the database can see to it.
    async fn begin(&self, writes: bool, timeout: Duration) -> Result<Box<dyn Session>, sqlx::Error>;
}

/// A transaction. Dropping it cancels what is under way in the database and rolls it back.
#[async_trait]
pub(crate) trait Session: Send {
    /// Runs a statement with the values of its names. Of rows at most `most` are read, and one more.
    async fn run(
        &mut self,
        statement: &Statement,
        values: &[Value],
        most: usize,
    ) -> Result<Rows, sqlx::Error>;

    /// Ends it and gives the connection back.
    async fn end(self: Box<Self>, how: End) -> Result<(), sqlx::Error>;
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    Rollback,
}

impl End {
    pub(crate) fn statement(self) -> &'static str {
        match self {
            Self::Commit => "COMMIT",
            Self::Rollback => "ROLLBACK",
        }
    }
}

/// What a statement gave.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Rows that it returned, or where it returns none, that it affected.
    pub(crate) count: u64,
    pub(crate) rows: Vec<Map<String, Value>>,
}

impl Rows {
    /// The first value of the first row, where it is a text.
    pub(crate) fn text(&self) -> Option<&str> {
        self.rows.first().and_then(|row| row.values().next()).and_then(Value::as_str)
    }
}

/// A value that has no form in JSON.
pub(crate) fn unreadable(column: &str, kind: &str) -> sqlx::Error {
    let source = format!("the type {kind} has no form in JSON; cast it to text in the statement");
    sqlx::Error::ColumnDecode { index: column.to_owned(), source: source.into() }
}

/// Reads what a statement answers, until there is more than `most` rows.
pub(crate) async fn gather<S, Q, R>(
    answers: S,
    most: usize,
    affected: impl Fn(&Q) -> u64 + Send,
    read: impl Fn(&R) -> Result<Map<String, Value>, sqlx::Error> + Send,
    returns: bool,
) -> Result<Rows, sqlx::Error>
where
    S: Stream<Item = Result<Either<Q, R>, sqlx::Error>> + Send,
{
    let (mut found, mut touched) = (Rows::default(), 0);
    let mut answers = std::pin::pin!(answers);
    while let Some(answer) = answers.try_next().await? {
        match answer {
            Either::Left(done) => touched += affected(&done),
            Either::Right(row) => found.rows.push(read(&row)?),
        }
        if found.rows.len() > most {
            break;
        }
    }
    found.count = if returns { found.rows.len() as u64 } else { touched };
    Ok(found)
}

/// A value as a text for the database; `None` is NULL.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
