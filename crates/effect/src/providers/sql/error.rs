//! Classification of database errors.
//!
//! `crate::decisions` has the decision about each SQLSTATE and error number. During
//! the commit, an error that makes the database unavailable leaves the outcome unknown. Before the
//! commit is sent, nothing is executed: any loss of the connection rolls the transaction back.

use std::borrow::Cow;

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use super::dialect::Dialect;
use crate::decisions::{Decision, decide_mysql_number, decide_sqlite, decide_sqlstate};
use crate::provider::ProviderError;
use crate::secret::SecretScrubber;

const UNREACHABLE: &str = "database_unreachable";

/// Classifies an error; `committing`: the commit was sent.
pub(crate) fn into_provider_error(
    dialect: Dialect,
    error: &sqlx::Error,
    committing: bool,
    label: &str,
    scrub: &SecretScrubber,
) -> ProviderError {
    let describe = |description: &str| scrub.scrub_text(format!("{label}: {description}"));
    match error {
        sqlx::Error::Database(error) => {
            let Class { code, decision } = classify(dialect, error.as_ref());
            let message = describe(error.message());
            // The commit may have been executed. Before it was sent, an unavailable database has
            // executed nothing.
            let decision = if committing {
                decision.during_commit()
            } else {
                decision
            };
            ProviderError::decided(decision, code, message)
        }
        sqlx::Error::ColumnDecode { index, source } => ProviderError::permanent(
            "unreadable_column",
            describe(&format!("column {index}: {source}")),
        ),
        sqlx::Error::Decode(error) | sqlx::Error::Encode(error) => {
            ProviderError::permanent("unreadable_value", describe(&error.to_string()))
        }
        // Before the other errors: without a connection no commit was sent.
        sqlx::Error::PoolTimedOut => {
            ProviderError::unavailable(UNREACHABLE, describe("no connection in time"))
        }
        other if committing => {
            ProviderError::response_lost("commit_lost", describe(&other.to_string()))
        }
        other => ProviderError::unavailable(UNREACHABLE, describe(&other.to_string())),
    }
}

pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else {
        return false;
    };

    matches!(error.code().as_deref(), Some("42P01" | "42S02"))
        || error.message().starts_with("no such table")
}

/// Returns whether the error means that the key already exists.
pub(crate) fn is_duplicate(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(DatabaseError::is_unique_violation)
}

/// Returns whether the error of `CREATE TABLE IF NOT EXISTS` means that another transaction created
/// the table at the same moment. PostgreSQL looks for the table before it locks the name, and then
/// fails at the first of its catalogs: a table (42P07), its row type (42710) or a unique index of a
/// catalog (23505).
pub(crate) fn is_concurrent_creation(error: &sqlx::Error) -> bool {
    is_duplicate(error)
        || error
            .as_database_error()
            .and_then(DatabaseError::code)
            .is_some_and(|state| state == "42P07" || state == "42710")
}

/// Classified error.
#[derive(Debug, PartialEq, Eq)]
struct Class {
    /// SQLSTATE, or a number of the database if it has no state.
    code: String,
    decision: Decision,
}

impl Class {
    fn new(code: impl Into<String>, decision: Decision) -> Self {
        Self {
            code: code.into(),
            decision,
        }
    }
}

fn classify(dialect: Dialect, error: &dyn DatabaseError) -> Class {
    let code = error.code().unwrap_or(Cow::Borrowed(""));

    match dialect {
        Dialect::Postgres => Class::new(&*code, decide_sqlstate(&code)),
        Dialect::MySql => {
            let number = error
                .try_downcast_ref::<MySqlDatabaseError>()
                .map_or(0, MySqlDatabaseError::number);
            mysql(&code, number, &error.kind())
        }
        Dialect::Sqlite => sqlite(code.parse().unwrap_or(1), &error.kind()),
    }
}

/// Distinguishes the MySQL errors that share the state 23000 or have none.
fn mysql(state: &str, number: u16, kind: &ErrorKind) -> Class {
    if let Some(decision) = decide_mysql_number(number) {
        return Class::new(mysql_code(state, number), decision);
    }

    match constraint(kind) {
        Some(state) => Class::new(state, Decision::Failed),
        // Any other general error concerns the statement.
        None if state == "HY000" => Class::new(mysql_code(state, number), Decision::Failed),
        None => Class::new(state, decide_sqlstate(state)),
    }
}

fn mysql_code(state: &str, number: u16) -> String {
    match number {
        // Lock wait timeout, deadlock, concurrent change of a table.
        1205 | 1213 | 1412 => "40001".to_owned(),
        // Check constraint: 3819 in MySQL, 4025 in MariaDB.
        3819 | 4025 => "23514".to_owned(),
        _ if state.is_empty() || state == "HY000" => format!("mysql_{number}"),
        _ => state.to_owned(),
    }
}

/// Classifies by the primary result code, which is the lowest byte.
fn sqlite(code: i32, kind: &ErrorKind) -> Class {
    let named = |decision| Class::new(format!("sqlite_{code}"), decision);
    let primary = u16::try_from(code & 0xff).unwrap_or_default();
    match (primary, decide_sqlite(primary)) {
        (_, Decision::Throttled) => Class::new("sqlite_busy", Decision::Throttled),
        (19, decision) => Class::new(constraint(kind).unwrap_or("23000"), decision),
        (_, decision) => named(decision),
    }
}

fn constraint(kind: &ErrorKind) -> Option<&'static str> {
    match kind {
        ErrorKind::UniqueViolation => Some("23505"),
        ErrorKind::ForeignKeyViolation => Some("23503"),
        ErrorKind::NotNullViolation => Some("23502"),
        ErrorKind::CheckViolation => Some("23514"),
        ErrorKind::ExclusionViolation => Some("23P01"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::TransientCause;

    #[test]
    fn sqlstate_is_classified() {
        for state in [
            "23505", "22P02", "42P01", "P0001", "21000", "0A000", "44000", "ZZ123", "2",
        ] {
            assert_eq!(decide_sqlstate(state), Decision::Failed, "{state}");
        }
        for state in [
            "40001", "40P01", "55P03", "55006", "42P05", "26000", "25001", "72000",
        ] {
            assert_eq!(decide_sqlstate(state), Decision::Throttled, "{state}");
        }
        for state in [
            "08006", "28P01", "3D000", "53300", "57P01", "57014", "58030", "XX000", "", "25006",
            "25P02", "25P03", "40003",
        ] {
            assert_eq!(decide_sqlstate(state), Decision::Unavailable, "{state}");
        }
    }

    #[test]
    fn mysql_error_numbers_are_classified() {
        let classify = |state, number| mysql(state, number, &ErrorKind::Other);
        for (state, number, code) in [
            ("40001", 1213, "40001"),
            ("HY000", 1205, "40001"),
            ("42000", 1226, "42000"),
            ("HY000", 1615, "mysql_1615"),
        ] {
            assert_eq!(
                classify(state, number),
                Class::new(code, Decision::Throttled)
            );
        }
        for (state, number, code) in [
            ("08004", 1040, "08004"),
            ("HY000", 3024, "mysql_3024"),
            ("HY000", 1290, "mysql_1290"),
            ("25006", 1792, "25006"),
            ("HY001", 1038, "HY001"),
            ("70100", 1028, "70100"),
        ] {
            assert_eq!(
                classify(state, number),
                Class::new(code, Decision::Unavailable)
            );
        }
        for (state, number, code) in [
            ("42S02", 1146, "42S02"),
            ("HY000", 1366, "mysql_1366"),
            ("HY000", 3819, "23514"),
        ] {
            assert_eq!(classify(state, number), Class::new(code, Decision::Failed));
        }
        assert_eq!(
            mysql("23000", 1062, &ErrorKind::UniqueViolation),
            Class::new("23505", Decision::Failed)
        );
    }

    #[test]
    fn sqlite_result_codes_are_classified() {
        let other = ErrorKind::Other;
        assert_eq!(
            sqlite(517, &other),
            Class::new("sqlite_busy", Decision::Throttled)
        );
        assert_eq!(
            sqlite(2067, &ErrorKind::UniqueViolation),
            Class::new("23505", Decision::Failed)
        );
        assert_eq!(sqlite(1811, &other), Class::new("23000", Decision::Failed));
        assert_eq!(sqlite(1, &other), Class::new("sqlite_1", Decision::Failed));
        assert_eq!(
            sqlite(14, &other),
            Class::new("sqlite_14", Decision::Unavailable)
        );
    }

    #[test]
    fn lost_response_counts_only_during_commit() {
        let error = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        let trouble = |committing| {
            let provider_error = into_provider_error(
                Dialect::Postgres,
                &error,
                committing,
                "db",
                &SecretScrubber::default(),
            );
            let ProviderError::Transient { trouble, .. } = provider_error else {
                panic!("{provider_error:?}")
            };
            trouble
        };
        assert_eq!(
            (trouble(false), trouble(true)),
            (TransientCause::Unavailable, TransientCause::ResponseLost)
        );
    }
}
