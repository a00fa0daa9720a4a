//! Database interface of the provider.

use std::time::Duration;

use async_trait::async_trait;
use futures::{Stream, TryStreamExt as _};
use serde_json::{Map, Value};
use sqlx::Either;

use super::scan::ParsedStatement;

/// Timeout of the connection that cancels a statement.
const CANCEL: Duration = Duration::from_secs(10);

/// Connections to one database.
#[async_trait]
pub(crate) trait Database: Send + Sync {
    /// Begins a transaction. Writing transactions are isolated from other writers. Statements are
    /// limited to `timeout` if the database supports it.
    async fn start_transaction(
        &self,
        writes: bool,
        timeout: Duration,
    ) -> Result<Box<dyn Session>, sqlx::Error>;
}

/// Transaction. Dropping it cancels running statements in the database and rolls it back.
#[async_trait]
pub(crate) trait Session: Send {
    /// Runs a statement with the values of its parameters. Reads at most `most` rows, and one more.
    async fn run(
        &mut self,
        statement: &ParsedStatement,
        values: &[Value],
        max_rows: usize,
    ) -> Result<Rows, sqlx::Error>;

    /// Ends the transaction and returns the connection to the pool.
    async fn end(self: Box<Self>, how: TransactionEnd) -> Result<(), sqlx::Error>;

    /// Closes the connection, which rolls the transaction back. No statement may be running.
    fn close(self: Box<Self>);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TransactionEnd {
    Commit,
    Rollback,
}

impl TransactionEnd {
    pub(crate) fn statement(self) -> &'static str {
        match self {
            Self::Commit => "COMMIT",
            Self::Rollback => "ROLLBACK",
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Number of returned rows, or of affected rows if none are returned.
    pub(crate) count: u64,
    pub(crate) rows: Vec<Map<String, Value>>,
}

impl Rows {
    /// Returns the first value of the first row if it is a text.
    pub(crate) fn text(&self) -> Option<&str> {
        self.rows
            .first()
            .and_then(|row| row.values().next())
            .and_then(Value::as_str)
    }
}

/// Creates the error for a value without a JSON representation.
pub(crate) fn unsupported_type(column: &str, kind: &str) -> sqlx::Error {
    let source =
        format!("the type {kind} has no JSON representation; cast it to text in the statement");
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: source.into(),
    }
}

/// Reads the rows of a statement until there are more than `most`.
pub(crate) async fn read_rows<S, Q, R>(
    results: S,
    max_rows: usize,
    affected: impl Fn(&Q) -> u64 + Send,
    read: impl Fn(&R) -> Result<Map<String, Value>, sqlx::Error> + Send,
    returns: bool,
) -> Result<Rows, sqlx::Error>
where
    S: Stream<Item = Result<Either<Q, R>, sqlx::Error>> + Send,
{
    let mut found = Rows::default();
    let mut affected_rows = 0;
    let mut results = std::pin::pin!(results);
    while let Some(result) = results.try_next().await? {
        match result {
            Either::Left(done) => affected_rows += affected(&done),
            Either::Right(row) => found.rows.push(read(&row)?),
        }

        // One row more shows that there are too many.
        if found.rows.len() > max_rows {
            break;
        }
    }

    // For a statement that returns rows, the number of affected rows depends on the database.
    found.count = if returns {
        found.rows.len() as u64
    } else {
        affected_rows
    };

    Ok(found)
}

/// Runs a cancellation of a dropped session in the background, and then closes its connection,
/// which is not reused before. Outside a runtime, only the connection is closed.
pub(crate) fn cancel_in_background<C: Send + 'static>(
    connection: C,
    cancel: impl Future<Output = Result<(), sqlx::Error>> + Send + 'static,
) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        return;
    };

    runtime.spawn(async move {
        if let Ok(Err(error)) = tokio::time::timeout(CANCEL, cancel).await {
            tracing::debug!(%error, "statement cancellation failed");
        }
        drop(connection);
    });
}

/// Returns a value as text for the database; `None` is NULL.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}
