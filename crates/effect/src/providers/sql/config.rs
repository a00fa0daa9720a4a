//! Configuration of a database upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{EffectName, TenantId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::dialect::{Dialect, PoolLimits};
use super::operation::{ResultShape, RowExpectation, SqlOperation, StatementStep};
use super::scan::ParsedStatement;
use super::{DatabaseUrl, SqlOptions, SqlProvider};
use crate::config::{Error, UpstreamConfig, UpstreamSite, narrow, upstream_config};
use crate::operations::Operations;
use crate::policy::Policy;
use crate::template::JsonTemplate;
use crate::upstream::Upstream;

/// Default maximum number of rows.
const MAX_ROWS: usize = 1000;

/// Maximum wait for a connection, or for another writer of a file.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

upstream_config! {
    /// Configuration of a database.
    SqlConfig {
        /// SQL dialect of the database.
        pub database: Dialect,
        /// Database URL as a reference to a secret; for a file also the URL itself.
        pub url: String,
        /// Effects by name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, SqlEffectConfig>,
        /// Whether to create the marker table if it is missing.
        #[serde(default)]
        pub create_marker: bool,
        /// Maximum number of rows that a statement may return. Default: 1000.
        pub max_rows: Option<NonZeroUsize>,
    }
}

/// One effect of a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlEffectConfig {
    /// SQL statement.
    pub statement: Option<String>,
    /// Expected result of the statement.
    pub expect: Option<RowExpectation>,
    /// Several statements, instead of one.
    #[serde(default)]
    pub statements: Vec<StatementConfig>,
    /// Values of parameters. Default: the field of the arguments with the same name.
    #[serde(default)]
    pub params: BTreeMap<String, Value>,
    /// Part of the last statement's result that is returned.
    #[serde(default)]
    pub answer: ResultShape,
    /// Whether to write an idempotency marker.
    #[serde(default = "yes")]
    pub marker: bool,
    /// Contexts whose own definitions may request it, of those that the upstream permits; `*` for
    /// all. Default: all of these.
    pub contexts: Option<BTreeSet<TenantId>>,
}

/// One of several statements.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementConfig {
    /// SQL text.
    pub sql: String,
    /// Expected result.
    pub expect: Option<RowExpectation>,
}

impl UpstreamConfig for SqlConfig {
    fn upstream(&self, site: UpstreamSite<'_>) -> Result<Upstream, Error> {
        let compile = |_: &EffectName, config: &SqlEffectConfig| config.operation(self.database);
        let operations = Operations::new(site.name, "statement", &self.effects, compile)?;
        let policy = self.policy(Policy::sql());

        let options = SqlOptions {
            dialect: self.database,
            address: self
                .address()
                .map_err(|reason| Error::upstream(site.name, reason))?,
            size: PoolLimits {
                connections: u32::try_from(policy.max_concurrency).unwrap_or(u32::MAX),
                // The wait must end before the attempt does: then it is certain that nothing was
                // executed.
                acquire_timeout: (policy.attempt_timeout / 2).min(CONNECT_TIMEOUT),
            },
            create_marker: self.create_marker,
            max_rows: self.max_rows.map_or(MAX_ROWS, NonZeroUsize::get),
        };

        let effects = operations.effects();
        let sql = SqlProvider::new(options, operations);
        let upstream = self.finish(Upstream::effects(site.name, effects, Arc::new(sql), policy));
        narrow(
            upstream,
            self.effects
                .iter()
                .map(|(effect, config)| (effect, &config.contexts)),
        )
    }
}

impl SqlConfig {
    /// Parses the database URL. Errors never contain the text: it may contain a password.
    fn address(&self) -> Result<DatabaseUrl, String> {
        if let Ok(reference) = self.url.parse() {
            return Ok(DatabaseUrl::Secret(reference));
        }

        if self.database == Dialect::Sqlite {
            return match self.url.strip_prefix("sqlite:") {
                Some(path) if path.starts_with('/') => Ok(DatabaseUrl::Plain(self.url.clone())),
                Some(_) | None => {
                    Err("the url has no file; example: sqlite:///var/lib/shop.db".to_owned())
                }
            };
        }

        Err("a url with a password must be a reference; use env:DATABASE_URL or file:/absolute/path"
            .to_owned())
    }
}

impl SqlEffectConfig {
    fn operation(&self, dialect: Dialect) -> Result<SqlOperation, String> {
        let texts: Vec<_> = match (&self.statement, self.statements.as_slice()) {
            (Some(text), []) => vec![("the statement".to_owned(), text, &self.expect)],
            (None, []) => return Err("statement is missing".to_owned()),
            (None, _) if self.expect.is_some() => {
                return Err(
                    "expect is not allowed beside statements; move it into one of them".to_owned(),
                );
            }
            (None, several) => {
                let named = several.iter().enumerate();
                named
                    .map(|(i, one)| (format!("statements[{i}]"), &one.sql, &one.expect))
                    .collect()
            }
            (Some(_), _) => {
                return Err(
                    "statement and statements are mutually exclusive; remove one".to_owned(),
                );
            }
        };

        let mut steps = Vec::with_capacity(texts.len());
        for (field, text, expect) in texts {
            let step = self
                .step(text, expect.as_ref(), dialect)
                .map_err(|reason| format!("{field}: {reason}"))?;
            steps.push(step);
        }

        let is_used = |name: &str| {
            steps
                .iter()
                .any(|step| step.statement.names().iter().any(|n| n == name))
        };

        // A misspelled parameter would leave the field of the payload with that name in use.
        if let Some(name) = self.params.keys().find(|name| !is_used(name)) {
            return Err(format!(
                "unused parameter params.{name}: no statement contains :{name}"
            ));
        }

        Ok(SqlOperation {
            steps,
            marker: self.marker,
            response: self.answer,
        })
    }

    fn step(
        &self,
        text: &str,
        expect: Option<&RowExpectation>,
        dialect: Dialect,
    ) -> Result<StatementStep, String> {
        let statement = ParsedStatement::parse(text, dialect)?;
        let mut values = Vec::with_capacity(statement.names().len());
        for name in statement.names() {
            // Without a configured value, a parameter is the field of the payload with its name.
            let default = Value::from(format!("{{{name}}}"));
            let template = JsonTemplate::parse(self.params.get(name).unwrap_or(&default))
                .map_err(|reason| format!("params.{name}: {reason}"))?;
            values.push(template);
        }

        Ok(StatementStep {
            statement,
            values,
            expect: expect.cloned(),
        })
    }
}

fn yes() -> bool {
    true
}
