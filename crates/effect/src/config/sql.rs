//! A database as the configuration describes it.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{EffectName, EventType};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::{Error, origin, upstream_config};
use crate::placeholders::Json;
use crate::policy::Policy;
use crate::sql::{Address, Answer, Count, Dialect, Expect, Manner, Operation, Size, Sql, Statement, Step};
use crate::upstream::Upstream;

/// The most rows that are read where nothing is said.
const MAX_ROWS: usize = 1000;

/// The longest wait for a connection, or for another writer of a file.
const PATIENCE: Duration = Duration::from_secs(5);

upstream_config! {
    /// One database.
    SqlConfig {
        /// Which database it is.
        pub database: Dialect,
        /// Where it is: a reference to a secret; of a file also the URL itself.
        pub url: String,
        /// What it performs, by the effect's name.
        #[serde(default)]
        pub effects: BTreeMap<EffectName, StatementsConfig>,
        /// Whether the table of the markers is made where it is missing.
        #[serde(default)]
        pub create_marker: bool,
        /// The most rows that a statement may return; 1000 where absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_rows: Option<NonZeroUsize>,
    }
}

/// One effect of a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementsConfig {
    /// The statement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// What the statement must come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectConfig>,
    /// Several statements, in place of the one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statements: Vec<StatementConfig>,
    /// What parameters stand for; where nothing is said the field of the arguments that has their name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, Value>,
    /// What of the last statement is the answer.
    #[serde(default)]
    pub answer: Answer,
    /// Whether a marker is set.
    #[serde(default = "yes")]
    pub marker: bool,
}

/// One statement of several.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatementConfig {
    /// Its text.
    pub sql: String,
    /// What it must come to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<ExpectConfig>,
}

/// What a statement must come to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectConfig {
    /// How many rows: a number, or `"some"`.
    pub rows: RowsConfig,
    /// The code of the failure where it comes to something else.
    #[serde(default = "unexpected")]
    pub otherwise: String,
    /// The event that the saga hears then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<EventType>,
}

/// How many rows.
#[derive(Clone, Copy, Debug)]
pub struct RowsConfig(Count);

impl SqlConfig {
    /// The upstream it describes.
    ///
    /// # Errors
    /// When the URL is no reference, or a statement is wrong.
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
        let manner = Manner {
            upstream: name.to_owned(),
            dialect: self.database,
            address: self
                .address()
                .map_err(|reason| Error::Upstream { upstream: name.to_owned(), reason })?,
            size: Size {
                connections: u32::try_from(policy.concurrency).unwrap_or(u32::MAX),
                // Waiting has to end before the attempt does: then it is known that nothing was done.
                patience: (policy.attempt_timeout / 2).min(PATIENCE),
            },
            create_marker: self.create_marker,
            max_rows: self.max_rows.map_or(MAX_ROWS, NonZeroUsize::get),
        };
        let sql = Sql::new(manner, operations);
        let upstream = Upstream::effects(name, sql.effects(), Arc::new(sql), policy);
        Ok(upstream.for_tenants(self.tenants.clone()).made_from(origin(self)))
    }

    /// The text is not repeated: it may hold a password.
    fn address(&self) -> Result<Address, String> {
        if let Ok(reference) = self.url.parse() {
            return Ok(Address::Secret(reference));
        }
        if self.database == Dialect::Sqlite {
            return match self.url.strip_prefix("sqlite:") {
                Some(path) if path.starts_with('/') => Ok(Address::Plain(self.url.clone())),
                Some(_) | None => {
                    Err("the url is of no file; write for example sqlite:///var/lib/shop.db".to_owned())
                }
            };
        }
        Err("the url holds a password, so it is given by reference: write env:DATABASE_URL or file:/absolute/path"
            .to_owned())
    }
}

impl StatementsConfig {
    fn operation(&self, dialect: Dialect) -> Result<Operation, String> {
        let texts: Vec<_> = match (&self.statement, self.statements.as_slice()) {
            (Some(text), []) => vec![("the statement".to_owned(), text, &self.expect)],
            (None, []) => return Err("it has no statement".to_owned()),
            (None, _) if self.expect.is_some() => {
                return Err("expect stands beside statements; write it into one of them".to_owned());
            }
            (None, several) => {
                let named = several.iter().enumerate();
                named.map(|(i, one)| (format!("statements[{i}]"), &one.sql, &one.expect)).collect()
            }
            (Some(_), _) => return Err("it has a statement and statements; keep one".to_owned()),
        };
        let steps = texts.into_iter().map(|(place, text, expect)| {
            self.step(text, expect.as_ref(), dialect).map_err(|reason| format!("{place}: {reason}"))
        });
        let steps = steps.collect::<Result<Vec<_>, String>>()?;
        let is_used = |name: &str| steps.iter().any(|step| step.statement.names().iter().any(|n| n == name));
        if let Some(name) = self.params.keys().find(|name| !is_used(name)) {
            return Err(format!("params.{name}: no statement has :{name}"));
        }
        Ok(Operation { steps, marker: self.marker, answer: self.answer })
    }

    fn step(&self, text: &str, expect: Option<&ExpectConfig>, dialect: Dialect) -> Result<Step, String> {
        let statement = Statement::parse(text, dialect)?;
        let values = statement.names().iter().map(|name| {
            let usual = Value::from(format!("{{{name}}}"));
            let template = Json::parse(self.params.get(name).unwrap_or(&usual));
            template.map_err(|reason| format!("params.{name}: {reason}"))
        });
        let values = values.collect::<Result<_, String>>()?;
        let expect = expect.map(|expect| Expect {
            rows: expect.rows.0,
            code: expect.otherwise.clone(),
            event: expect.event.clone(),
        });
        Ok(Step { statement, values, expect })
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
                let rows = u64::try_from(rows).map_err(|_| E::custom("rows is less than zero"))?;
                Ok(RowsConfig(Count::Exactly(rows)))
            }

            fn visit_u64<E: serde::de::Error>(self, rows: u64) -> Result<RowsConfig, E> {
                Ok(RowsConfig(Count::Exactly(rows)))
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<RowsConfig, E> {
                match text {
                    "some" => Ok(RowsConfig(Count::Some)),
                    other => Err(E::custom(format!("{other:?} is neither a number of rows nor \"some\""))),
                }
            }
        }
        deserializer.deserialize_any(Rows)
    }
}

impl Serialize for RowsConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Count::Exactly(rows) => serializer.serialize_u64(rows),
            Count::Some => serializer.serialize_str("some"),
        }
    }
}

fn yes() -> bool {
    true
}

fn unexpected() -> String {
    "unexpected_rows".to_owned()
}
