//! Where a copy is kept.

use std::str::FromStr as _;

use orlog_effect::secret::{Secret, SecretRef};

use super::error::Stop;
use super::file::Lines;
use super::page::Page;
use super::postgres::Postgres;
use crate::cli::exit::Failure;

/// Where a copy is kept.
pub(super) enum Target {
    /// A file, or standard output.
    Lines(Lines),
    /// Tables.
    Postgres(Box<Postgres>),
}

impl Target {
    /// `scope` says whose data, `kinds` which.
    pub(super) fn new(to: &str, scope: String, kinds: String) -> Result<Self, Failure> {
        let wrong = |error: String| Failure::usage(format!("--to: {error}"));
        let url = match SecretRef::from_str(to) {
            Ok(reference) => Some(reference.resolve().map_err(|error| wrong(error.to_string()))?),
            Err(_) => to.contains("://").then(|| Secret::new(to)),
        };
        match url {
            Some(url) if is_postgres(&url) => {
                Ok(Self::Postgres(Box::new(Postgres::new(&url, scope, kinds).map_err(wrong)?)))
            }
            Some(_) => Err(wrong("the URL does not begin with postgres://".to_owned())),
            None => Ok(Self::Lines(Lines::new(to))),
        }
    }

    /// Gets ready; the cursor that it stands at, if it has one.
    pub(super) async fn open(&mut self) -> Result<Option<String>, Stop> {
        match self {
            Self::Lines(lines) => Ok(lines.open()?),
            Self::Postgres(postgres) => postgres.open().await,
        }
    }

    /// Everything is told from the beginning.
    pub(super) async fn begin(&mut self) -> Result<(), Stop> {
        match self {
            Self::Lines(_) => Ok(()),
            Self::Postgres(postgres) => postgres.begin().await,
        }
    }

    /// Keeps an answer and its cursor, both or neither.
    pub(super) async fn take(&mut self, page: &Page) -> Result<(), Stop> {
        match self {
            Self::Lines(lines) => Ok(lines.take(page)?),
            Self::Postgres(postgres) => postgres.take(page).await,
        }
    }
}

fn is_postgres(url: &Secret) -> bool {
    ["postgres://", "postgresql://"].iter().any(|scheme| url.expose().starts_with(scheme))
}
