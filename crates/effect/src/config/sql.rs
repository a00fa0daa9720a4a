//! Configuration of a database upstream.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{EffectName, EventType};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Error, origin, upstream_config};
use crate::placeholders::JsonTemplate;
use crate::policy::Policy;
use crate::sql::{
    DatabaseUrl, Dialect, ParsedStatement, PoolLimits, ResultShape, RowCount, RowExpectation, SqlOperation,
    SqlOptions, SqlProvider, StatementStep,
};
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
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_rows: Option<NonZeroUsize>,
    }
}

/// One effect of a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SqlEffectConfig {
    /// SQL statement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// Expected result of the statement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectConfig>,
    /// Several statements, instead of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<StatementConfig>,
    /// Values of parameters. Default: the field of the arguments with the same name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Value>,
    /// Part of the last statement's result that is returned.
    #[serde(default)]
    pub answer: ResultShape,
    /// Whether to write an idempotency marker.
    #[serde(default = "yes")]
    pub marker: bool,
}

/// One of several statements.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementConfig {
    /// SQL text.
    pub sql: String,
    /// Expected result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectConfig>,
}

/// Expected result of a statement.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectConfig {
    /// Number of rows: a number, or `"some"`.
    pub rows: RowsConfig,
    /// Failure code of another result.
    #[serde(default = "unexpected")]
    pub otherwise: String,
    /// Event type of the failure for the saga.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventType>,
}

/// Expected number of rows.
#[derive(Clone, Copy, Debug)]
pub struct RowsConfig(RowCount);

impl SqlConfig {
    /// Builds the upstream.
    ///
    /// # Errors
    /// If the URL is not a reference, or if a statement is invalid.
    pub fn upstream(&self, name: &str) -> Result<Upstream, Error> {
        let operations = self.effects.iter().map(|(effect, config)| {
            let operation = config.operation(self.database).map_err(|reason| Error::Operation {
                upstream: name.to_owned(),
                effect: effect.clone(),
                reason,
            })?;
            Ok((effect.clone(), operation))
        });
        let operations = operations.collect::<Result<BTreeMap<_, _>, Error>>()?;
        let policy = self.policy(Policy::sql());
        let options = SqlOptions {
            upstream: name.to_owned(),
            dialect: self.database,
            address: self
                .address()
                .map_err(|reason| Error::Upstream { upstream: name.to_owned(), reason })?,
            size: PoolLimits {
                connections: u32::try_from(policy.max_concurrency).unwrap_or(u32::MAX),
                // The wait must end before the attempt does: then it is certain that nothing was executed.
                acquire_timeout: (policy.attempt_timeout / 2).min(CONNECT_TIMEOUT),
            },
            create_marker: self.create_marker,
            max_rows: self.max_rows.map_or(MAX_ROWS, NonZeroUsize::get),
        };
        let sql = SqlProvider::new(options, operations);
        let upstream = Upstream::effects(name, sql.effects(), Arc::new(sql), policy);
        Ok(upstream.for_tenants(self.tenants.clone()).with_origin(origin(self)))
    }

    /// Parses the database URL. Errors never contain the text: it may contain a password.
    fn address(&self) -> Result<DatabaseUrl, String> {
        if let Ok(reference) = self.url.parse() {
            return Ok(DatabaseUrl::Secret(reference));
        }
        if self.database == Dialect::Sqlite {
            return match self.url.strip_prefix("sqlite:") {
                Some(path) if path.starts_with('/') => Ok(DatabaseUrl::Plain(self.url.clone())),
                Some(_) | None => Err("the url has no file; example: sqlite:///var/lib/shop.db".to_owned()),
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
                return Err("expect is not allowed beside statements; move it into one of them".to_owned());
            }
            (None, several) => {
                let named = several.iter().enumerate();
                named.map(|(i, one)| (format!("statements[{i}]"), &one.sql, &one.expect)).collect()
            }
            (Some(_), _) => {
                return Err("statement and statements are mutually exclusive; remove one".to_owned());
            }
        };
        let steps = texts.into_iter().map(|(field, text, expect)| {
            self.step(text, expect.as_ref(), dialect).map_err(|reason| format!("{field}: {reason}"))
        });
        let steps = steps.collect::<Result<Vec<_>, String>>()?;
        let is_used = |name: &str| steps.iter().any(|step| step.statement.names().iter().any(|n| n == name));
        if let Some(name) = self.params.keys().find(|name| !is_used(name)) {
            return Err(format!("unused parameter params.{name}: no statement contains :{name}"));
        }
        Ok(SqlOperation { steps, marker: self.marker, response: self.answer })
    }

    fn step(
        &self,
        text: &str,
        expect: Option<&ExpectConfig>,
        dialect: Dialect,
    ) -> Result<StatementStep, String> {
        let statement = ParsedStatement::parse(text, dialect)?;
        let values = statement.names().iter().map(|name| {
            let usual = Value::from(format!("{{{name}}}"));
            let template = JsonTemplate::parse(self.params.get(name).unwrap_or(&usual));
            template.map_err(|reason| format!("params.{name}: {reason}"))
        });
        let values = values.collect::<Result<_, String>>()?;
        let expect = expect.map(|expect| RowExpectation {
            rows: expect.rows.0,
            code: expect.otherwise.clone(),
            event: expect.event.clone(),
        });
        Ok(StatementStep { statement, values, expect })
    }
}

impl<'de> Deserialize<'de> for RowsConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Rows;
        impl Visitor<'_> for Rows {
            type Value = RowsConfig;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a number of rows or \"some\"")
            }

            fn visit_i64<E: serde::de::Error>(self, rows: i64) -> Result<RowsConfig, E> {
                let rows = u64::try_from(rows).map_err(|_| E::custom("rows is negative"))?;
                Ok(RowsConfig(RowCount::Exactly(rows)))
            }

            fn visit_u64<E: serde::de::Error>(self, rows: u64) -> Result<RowsConfig, E> {
                Ok(RowsConfig(RowCount::Exactly(rows)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RowsConfig, E> {
                match text {
                    "some" => Ok(RowsConfig(RowCount::Some)),
                    other => Err(E::custom(format!("invalid rows {other:?}: expected a number or \"some\""))),
                }
            }
        }
        deserializer.deserialize_any(Rows)
    }
}

impl Serialize for RowsConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            RowCount::Exactly(rows) => serializer.serialize_u64(rows),
            RowCount::Some => serializer.serialize_str("some"),
        }
    }
}

fn yes() -> bool {
    true
}

fn unexpected() -> String {
    "unexpected_rows".to_owned()
}
