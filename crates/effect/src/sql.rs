//! Effects that are statements in a database.
//!
//! Statements are written in the configuration and nowhere else; the payload gives the values of their parameters, which are
//! bound, never put into the text. An effect's statements run in one transaction, and with them a *marker* is set, a row that
//! has the work item's id for its key: a second delivery finds it and gets the answer of the first, so the effect happens
//! exactly once. After a lost answer the marker says whether it was done.

mod database;
mod dialect;
mod error;
mod mysql;
mod operation;
mod postgres;
mod scan;
mod sqlite;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{Effect, EffectName, Work, WorkItem};
use serde_json::Value;
use tokio::sync::OnceCell;

use database::{Database, End, Rows, Session};
pub use dialect::Dialect;
pub(crate) use dialect::Size;
pub use operation::Answer;
pub(crate) use operation::{Count, Expect, Operation, Step};
pub(crate) use scan::Statement;

use crate::placeholders::Scope;
use crate::provider::{Attempt, Probe, Provider, Refusal, Reply};
use crate::secret::{Scrub, Secret, SecretRef};

/// Where the database is.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Secret(SecretRef),
    /// Of a file, which holds no password.
    Plain(String),
}

/// What is the same for all effects of an upstream.
pub(crate) struct Manner {
    pub(crate) upstream: String,
    pub(crate) dialect: Dialect,
    pub(crate) address: Address,
    pub(crate) size: Size,
    pub(crate) create_marker: bool,
    pub(crate) max_rows: usize,
}

/// The effects of one database.
pub struct Sql {
    manner: Manner,
    markers: Markers,
    operations: BTreeMap<EffectName, Operation>,
    open: Mutex<Option<Arc<Opened>>>,
}

struct Markers {
    insert: Statement,
    find: Statement,
    answer: Statement,
}

/// The pool of one URL; another one begins when the secret has changed.
struct Opened {
    url: Secret,
    database: Box<dyn Database>,
    scrub: Scrub,
    has_marker: OnceCell<()>,
}

/// What a transaction came to.
enum Came {
    Did(Reply),
    /// A marker was there: it was done before.
    Before(Reply),
}

impl Sql {
    pub(crate) fn new(manner: Manner, operations: BTreeMap<EffectName, Operation>) -> Self {
        let own = |text| Statement::parse(text, manner.dialect).expect("our own statements are valid");
        let markers = Markers {
            insert: own(manner.dialect.insert_marker()),
            find: own("SELECT answer FROM orlog_effect WHERE command_id = :id"),
            answer: own("UPDATE orlog_effect SET answer = :answer WHERE command_id = :id"),
        };
        Self { manner, markers, operations, open: Mutex::default() }
    }

    /// The effects it performs, in the order of their names.
    #[must_use]
    pub fn effects(&self) -> Vec<EffectName> {
        self.operations.keys().cloned().collect()
    }

    fn opened(&self) -> Result<Arc<Opened>, Refusal> {
        let (upstream, dialect) = (&self.manner.upstream, self.manner.dialect);
        let url = match &self.manner.address {
            Address::Plain(url) => Secret::new(url.as_str()),
            Address::Secret(reference) => reference
                .resolve()
                .map_err(|error| Refusal::retry("secret", format!("the url of {upstream}: {error}")))?,
        };
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = open.as_ref().filter(|open| open.url == url) {
            return Ok(Arc::clone(open));
        }
        let wrong = |why: String| Refusal::retry("bad_url", format!("the url of {upstream} {why}"));
        if !dialect.schemes().iter().any(|scheme| url.expose().starts_with(scheme)) {
            return Err(wrong(format!("does not begin with {}, as {dialect} has it", dialect.schemes()[0])));
        }
        // The URL and the password in it must not come back in an error.
        let scrub = Scrub::of_url(&url);
        let (text, size) = (url.expose(), self.manner.size);
        let database: Result<Box<dyn Database>, sqlx::Error> = match dialect {
            Dialect::Postgres => postgres::Postgres::open(text, size).map(|open| Box::new(open) as _),
            Dialect::MySql => mysql::MySqlDatabase::open(text, size).map(|open| Box::new(open) as _),
            Dialect::Sqlite => sqlite::File::open(text, size).map(|open| Box::new(open) as _),
        };
        let database = database.map_err(|error| wrong(scrub.text(format!("cannot be read: {error}"))))?;
        let opened = Arc::new(Opened { url, database, scrub, has_marker: OnceCell::new() });
        *open = Some(Arc::clone(&opened));
        Ok(opened)
    }

    fn operation<'a>(&'a self, item: &'a WorkItem) -> Result<(&'a Effect, &'a Operation), Refusal> {
        let Work::Effect(effect) = &item.work else {
            return Err(Refusal::failed("not_an_effect", format!("{} is no effect", item.work.label())));
        };
        let operation = self.operations.get(&effect.name).ok_or_else(|| {
            let message = format!("{} has no statement for {}", self.manner.upstream, effect.name);
            Refusal::failed("effect_unknown", message)
        })?;
        Ok((effect, operation))
    }

    /// A transaction, in a database in which there is the table of the markers where it is needed and may be made.
    async fn begin(
        &self,
        opened: &Opened,
        operation: &Operation,
        timeout: Duration,
    ) -> Result<Box<dyn Session>, sqlx::Error> {
        if operation.marker && self.manner.create_marker {
            opened.has_marker.get_or_try_init(|| self.create(opened, timeout)).await?;
        }
        opened.database.begin(operation.marker, timeout).await
    }

    async fn create(&self, opened: &Opened, timeout: Duration) -> Result<(), sqlx::Error> {
        let text = self.manner.dialect.create_marker();
        let create = Statement::parse(text, self.manner.dialect).expect("our own statements are valid");
        let mut session = opened.database.begin(true, timeout).await?;
        match session.run(&create, &[], 0).await {
            Ok(_) => session.end(End::Commit).await,
            // Another node was creating it at the same time.
            Err(error) if error::is_duplicate(&error) => session.end(End::Rollback).await,
            Err(error) => Err(error),
        }
    }

    fn refusal(&self, opened: &Opened, error: &sqlx::Error, place: &str) -> Refusal {
        error::refusal(self.manner.dialect, error, false, place, &opened.scrub)
    }

    fn at_marker(&self, opened: &Opened, error: &sqlx::Error) -> Refusal {
        let upstream = &self.manner.upstream;
        if error::is_missing_table(error) {
            let message = format!(
                "{upstream} has no table orlog_effect; create it (docs/providers/sql.md) or set create_marker = true"
            );
            return Refusal::retry("marker_missing", message);
        }
        self.refusal(opened, error, &format!("{upstream}: the marker"))
    }

    /// Everything of one effect but the end of the transaction.
    async fn inside(
        &self,
        opened: &Opened,
        session: &mut dyn Session,
        item: &WorkItem,
        (effect, operation): (&Effect, &Operation),
    ) -> Result<Came, Refusal> {
        if operation.marker
            && let Some(before) = self
                .mark(session, item, &effect.name)
                .await
                .map_err(|error| self.at_marker(opened, &error))?
        {
            return Ok(Came::Before(before));
        }
        let mut last = Rows::default();
        for (index, step) in operation.steps.iter().enumerate() {
            let place = format!("{}: statement {} of {}", self.manner.upstream, index + 1, effect.name);
            let values = step.values(Scope { item, payload: &effect.payload }, &place)?;
            let ran = session.run(&step.statement, &values, self.manner.max_rows).await;
            last = ran.map_err(|error| self.refusal(opened, &error, &place))?;
            if last.rows.len() > self.manner.max_rows {
                let message = format!("{place} returns more than {} rows (max_rows)", self.manner.max_rows);
                return Err(Refusal::failed("too_many_rows", message));
            }
            if let Some(expect) = &step.expect {
                expect.check(&last, &place)?;
            }
        }
        let answer = operation.answer.of(last);
        if operation.marker {
            let values = [Value::from(answer.to_string()), Value::from(item.id.to_string())];
            let kept = session.run(&self.markers.answer, &values, 0).await;
            kept.map_err(|error| self.at_marker(opened, &error))?;
        }
        Ok(Came::Did(Reply::from(answer)))
    }

    /// Sets the marker; where there is one, the answer that it keeps. Waits for another transaction that is setting it.
    async fn mark(
        &self,
        session: &mut dyn Session,
        item: &WorkItem,
        effect: &EffectName,
    ) -> Result<Option<Reply>, sqlx::Error> {
        let id = Value::from(item.id.to_string());
        match session.run(&self.markers.insert, &[id.clone(), Value::from(effect.as_str())], 0).await {
            Ok(set) if set.count == 1 => return Ok(None),
            Ok(_) => {}
            Err(error) if error::is_duplicate(&error) => {}
            Err(error) => return Err(error),
        }
        let found = session.run(&self.markers.find, &[id], 1).await?;
        let kept = found.text().and_then(|text| serde_json::from_str(text).ok()).unwrap_or(Value::Null);
        Ok(Some(Reply::from(kept)))
    }

    async fn ask(&self, item: &WorkItem) -> Result<Probe, Refusal> {
        let (effect, operation) = self.operation(item)?;
        if !operation.marker {
            return Ok(Probe::Unknown);
        }
        let opened = self.opened()?;
        let wrong = |error: sqlx::Error| self.at_marker(&opened, &error);
        let mut session = self.begin(&opened, operation, self.manner.size.patience).await.map_err(wrong)?;
        let before = self.mark(session.as_mut(), item, &effect.name).await.map_err(wrong)?;
        session.end(End::Rollback).await.map_err(wrong)?;
        Ok(before.map_or(Probe::NotDone, Probe::Done))
    }
}

#[async_trait]
impl Provider for Sql {
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal> {
        let work = self.operation(item)?;
        let opened = self.opened()?;
        let place = &self.manner.upstream;
        let mut session = self
            .begin(&opened, work.1, attempt.timeout)
            .await
            .map_err(|error| self.refusal(&opened, &error, place))?;
        match self.inside(&opened, session.as_mut(), item, work).await {
            Ok(Came::Did(reply)) => match session.end(End::Commit).await {
                Ok(()) => Ok(reply),
                Err(error) => Err(error::refusal(self.manner.dialect, &error, true, place, &opened.scrub)),
            },
            Ok(Came::Before(reply)) => {
                rolled_back(session).await;
                Ok(reply)
            }
            Err(refusal) => {
                rolled_back(session).await;
                Err(refusal)
            }
        }
    }

    async fn probe(&self, item: &WorkItem) -> Probe {
        self.ask(item).await.unwrap_or_else(|refusal| {
            tracing::debug!(item = %item.id, ?refusal, "the marker cannot be looked for");
            Probe::Unknown
        })
    }
}

/// A connection on which that fails is closed, and then it is rolled back too.
async fn rolled_back(session: Box<dyn Session>) {
    if let Err(error) = session.end(End::Rollback).await {
        tracing::debug!(%error, "a transaction could not be rolled back; its connection is closed");
    }
}
