//! In what the databases differ.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Which database it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// PostgreSQL and what speaks its protocol.
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    /// A file.
    Sqlite,
}

impl Dialect {
    /// The schemes of its URLs.
    pub(crate) fn schemes(self) -> &'static [&'static str] {
        match self {
            Self::Postgres => &["postgres:", "postgresql:"],
            Self::MySql => &["mysql:", "mariadb:"],
            Self::Sqlite => &["sqlite:"],
        }
    }

    /// Makes the table of the markers.
    pub(crate) fn create_marker(self) -> &'static str {
        match self {
            Self::Postgres => {
                "CREATE TABLE IF NOT EXISTS orlog_effect (command_id uuid PRIMARY KEY, effect text NOT NULL, done_at timestamptz NOT NULL DEFAULT now(), answer text)"
            }
            Self::MySql => {
                "CREATE TABLE IF NOT EXISTS orlog_effect (command_id char(36) PRIMARY KEY, effect varchar(255) NOT NULL, done_at timestamp(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6), answer longtext) ENGINE=InnoDB"
            }
            Self::Sqlite => {
                "CREATE TABLE IF NOT EXISTS orlog_effect (command_id text PRIMARY KEY, effect text NOT NULL, done_at text NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')), answer text)"
            }
        }
    }

    /// Sets a marker; where there is one already no row, or in MySQL a violation of the key, which does not end a
    /// transaction there.
    pub(crate) fn insert_marker(self) -> &'static str {
        match self {
            Self::Postgres | Self::Sqlite => {
                "INSERT INTO orlog_effect (command_id, effect) VALUES (:id, :effect) ON CONFLICT DO NOTHING"
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

/// How many connections, and how long to wait for one or for another's write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) connections: u32,
    pub(crate) patience: Duration,
}
