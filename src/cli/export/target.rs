//! Target of an export.

use std::str::FromStr as _;

use orlog_effect::secret::{Secret, SecretRef};

use super::file::LineSink;
use super::page::{ExportError, ExportPage};
#[cfg(feature = "sql")]
use super::postgres::PostgresTarget;
use crate::cli::exit::CommandError;

/// Target of an export.
pub(crate) enum ExportTarget {
    /// A file, or standard output.
    Lines(LineSink),
    /// PostgreSQL tables.
    #[cfg(feature = "sql")]
    Postgres(Box<PostgresTarget>),
}

impl ExportTarget {
    /// Creates a target; `scope` names the tenants, `kinds` the exported kinds.
    pub(crate) fn new(to: &str, scope: String, kinds: String) -> Result<Self, CommandError> {
        let usage_error = |error: String| CommandError::usage(format!("--to: {error}"));
        // References first: `file:/PATH` names a file with the URL, not a file for JSON lines.
        let url = match SecretRef::from_str(to) {
            Ok(reference) => Some(
                reference
                    .resolve()
                    .map_err(|error| usage_error(error.to_string()))?,
            ),
            // Without a scheme, the argument is a file name.
            Err(_) => to.contains("://").then(|| Secret::new(to)),
        };

        match url {
            #[cfg(feature = "sql")]
            Some(url) if is_postgres(&url) => Ok(Self::Postgres(Box::new(
                PostgresTarget::new(&url, scope, kinds).map_err(usage_error)?,
            ))),
            #[cfg(not(feature = "sql"))]
            Some(url) if is_postgres(&url) => Err(usage_error(format!(
                "PostgreSQL is not part of this program; build it with the Cargo feature `sql` \
                 (scope {scope}, kinds {kinds})"
            ))),
            Some(_) => Err(usage_error(
                "the URL does not start with postgres://".to_owned(),
            )),
            None => Ok(Self::Lines(LineSink::new(to))),
        }
    }

    /// Opens the target and returns its cursor, if it has one.
    pub(crate) async fn open(&mut self) -> Result<Option<String>, ExportError> {
        match self {
            Self::Lines(lines) => Ok(lines.open()?),
            #[cfg(feature = "sql")]
            Self::Postgres(postgres) => postgres.open().await,
        }
    }

    /// Starts a new snapshot.
    pub(crate) async fn start(&mut self) -> Result<(), ExportError> {
        match self {
            // The first line of a snapshot is `reset`, so that readers of the file need nothing
            // else.
            Self::Lines(_) => Ok(()),
            #[cfg(feature = "sql")]
            Self::Postgres(postgres) => postgres.start().await,
        }
    }

    /// Stores a response and its cursor atomically.
    pub(crate) async fn take(&mut self, page: &ExportPage) -> Result<(), ExportError> {
        match self {
            Self::Lines(lines) => Ok(lines.take(page)?),
            #[cfg(feature = "sql")]
            Self::Postgres(postgres) => postgres.take(page).await,
        }
    }
}

fn is_postgres(url: &Secret) -> bool {
    ["postgres://", "postgresql://"]
        .iter()
        .any(|scheme| url.expose().starts_with(scheme))
}
