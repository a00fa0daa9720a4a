//! Differences between the databases.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// SQL dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// PostgreSQL and compatible databases.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// SQLite file.
    Sqlite,
}

impl Dialect {
    pub(crate) fn schemes(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["postgres:", "postgresql:"],
            Self::MySql => &["mysql:", "mariadb:"],
            Self::Sqlite => &["sqlite:"],
        }
    }

    pub(crate) fn create_marker(self) -> &'static str {
        match self {
            Self::Postgres => {
                "CREATE TABLE IF NOT EXISTS orlog_effect (command_id uuid PRIMARY KEY, effect text \
                NOT NULL, done_at timestamptz NOT NULL DEFAULT now(), answer text)"
            }
            Self::MySql => {
                "CREATE TABLE IF NOT EXISTS orlog_effect (command_id char(36) PRIMARY KEY, effect \
                varchar(255) NOT NULL, done_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), \
                answer longtext) ENGINE=InnoDB"
            }
            Self::Sqlite => {
                "CREATE TABLE IF NOT EXISTS orlog_effect (command_id text PRIMARY KEY, effect text \
                NOT NULL, done_at text NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), \
                answer text)"
            }
        }
    }

    /// Returns the statement that writes a marker. For an existing marker it affects no row; in
    /// MySQL it violates the key, which does not end a transaction there.
    pub(crate) fn insert_marker(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => {
                "INSERT INTO orlog_effect (command_id, effect) VALUES (:id, :effect) ON CONFLICT \
                DO NOTHING"
            }
            Self::MySql => "INSERT INTO orlog_effect (command_id, effect) VALUES (:id, :effect)",
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Postgres => "PostgreSQL",
            Self::MySql => "MySQL",
            Self::Sqlite => "SQLite",
        })
    }
}

/// Number of connections, and maximum wait for a connection or a concurrent write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolLimits {
    pub(crate) connections: u32,
    pub(crate) acquire_timeout: Duration,
}
