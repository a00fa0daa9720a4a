//! Classification of database errors.
//!
//! | error | meaning |
//! |---|---|
//! | 21, 22, 23, 42, 0A, P0, other errors of the statement | permanent error; code is the SQLSTATE |
//! | 40, 55P03, lock wait, SQLite busy | throttled: retried |
//! | 08, 28, 3D, 53, 57, 58, XX, no connection | unavailable: retried |
//! | any error of the previous row, or no response, during the commit | response lost |
//!
//! Nothing is executed before the commit is sent: any loss of the connection rolls the transaction
//! back.

use std::borrow::Cow;

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use super::dialect::Dialect;
use crate::provider::{ProviderError, TransientCause};
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
            let (code, class) = classify(dialect, error.as_ref());
            let message = describe(error.message());
            match class {
                None => ProviderError::permanent(code, message),
                Some(TransientCause::Throttled) => ProviderError::throttled(code, message),
                Some(_) if committing => ProviderError::response_lost(code, message),
                Some(_) => ProviderError::unavailable(code, message),
            }
        }
        sqlx::Error::ColumnDecode { index, source } => ProviderError::permanent(
            "unreadable_column",
            describe(&format!("column {index}: {source}")),
        ),
        sqlx::Error::Decode(error) | sqlx::Error::Encode(error) => {
            ProviderError::permanent("unreadable_value", describe(&error.to_string()))
        }
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

/// Code of an error, and the cause of a transient one; `None`: the statement was rejected.
type Class = (String, Option<TransientCause>);

fn classify(dialect: Dialect, error: &dyn DatabaseError) -> Class {
    let code = error.code().unwrap_or(Cow::Borrowed(""));
    match dialect {
        Dialect::Postgres => (code.to_string(), by_state(&code)),
        Dialect::MySql => {
            let number = error
                .try_downcast_ref::<MySqlDatabaseError>()
                .map_or(0, MySqlDatabaseError::number);
            mysql(&code, number, &error.kind())
        }
        Dialect::Sqlite => sqlite(code.parse().unwrap_or(1), &error.kind()),
    }
}

fn by_state(state: &str) -> Option<TransientCause> {
    match (state, state.get(..2).unwrap_or_default()) {
        // Statement completion unknown: after a commit, it may have been executed.
        ("40003", _) => Some(TransientCause::Unavailable),
        ("55P03", _) | (_, "40") => Some(TransientCause::Throttled),
        (_, "08" | "28" | "3D" | "53" | "57" | "58" | "XX" | "") => {
            Some(TransientCause::Unavailable)
        }
        _ => None,
    }
}

/// Distinguishes the MySQL errors that share the state 23000 or have none.
fn mysql(state: &str, number: u16, kind: &ErrorKind) -> Class {
    match number {
        // Lock wait timeout, deadlock, concurrent change of a table.
        1205 | 1213 | 1412 => ("40001".to_owned(), Some(TransientCause::Throttled)),
        // Too many connections, shutdown, disk full, killed, out of memory, timeout, read only.
        1021 | 1037 | 1040 | 1041 | 1053 | 1114 | 1203 | 1290 | 1317 | 1836 | 1927 | 1969
        | 3024 => (mysql_code(state, number), Some(TransientCause::Unavailable)),
        // Check constraint: 3819 in MySQL, 4025 in MariaDB.
        3819 | 4025 => ("23514".to_owned(), None),
        _ => match constraint(kind) {
            Some(state) => (state.to_owned(), None),
            // Any other general error concerns the statement.
            None if state == "HY000" => (mysql_code(state, number), None),
            None => (state.to_owned(), by_state(state)),
        },
    }
}

fn mysql_code(state: &str, number: u16) -> String {
    if state.is_empty() || state == "HY000" {
        format!("mysql_{number}")
    } else {
        state.to_owned()
    }
}

/// Classifies by the primary result code, which is the lowest byte.
fn sqlite(code: i32, kind: &ErrorKind) -> Class {
    let named = |code: i32| format!("sqlite_{code}");
    match code & 0xff {
        5 | 6 => ("sqlite_busy".to_owned(), Some(TransientCause::Throttled)),
        19 => (constraint(kind).unwrap_or("23000").to_owned(), None),
        1 | 18 | 20 | 25 => (named(code), None),
        _ => (named(code), Some(TransientCause::Unavailable)),
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

    const BUSY: Option<TransientCause> = Some(TransientCause::Throttled);
    const DOWN: Option<TransientCause> = Some(TransientCause::Unavailable);

    #[test]
    fn sqlstate_is_classified() {
        for state in [
            "23505", "22P02", "42P01", "P0001", "21000", "0A000", "44000",
        ] {
            assert_eq!(by_state(state), None, "{state}");
        }
        for state in ["40001", "40P01", "55P03"] {
            assert_eq!(by_state(state), BUSY, "{state}");
        }
        for state in [
            "08006", "28P01", "3D000", "53300", "57P01", "57014", "58030", "XX000", "",
        ] {
            assert_eq!(by_state(state), DOWN, "{state}");
        }
    }

    #[test]
    fn mysql_error_numbers_are_classified() {
        let classify_code = |state, number, kind| mysql(state, number, &kind);
        assert_eq!(
            classify_code("40001", 1213, ErrorKind::Other),
            ("40001".to_owned(), BUSY)
        );
        assert_eq!(
            classify_code("HY000", 1205, ErrorKind::Other),
            ("40001".to_owned(), BUSY)
        );
        assert_eq!(
            classify_code("23000", 1062, ErrorKind::UniqueViolation),
            ("23505".to_owned(), None)
        );
        assert_eq!(
            classify_code("HY000", 3819, ErrorKind::CheckViolation),
            ("23514".to_owned(), None)
        );
        assert_eq!(
            classify_code("08004", 1040, ErrorKind::Other),
            ("08004".to_owned(), DOWN)
        );
        assert_eq!(
            classify_code("HY000", 3024, ErrorKind::Other),
            ("mysql_3024".to_owned(), DOWN)
        );
        assert_eq!(
            classify_code("42S02", 1146, ErrorKind::Other),
            ("42S02".to_owned(), None)
        );
        assert_eq!(
            classify_code("HY000", 1366, ErrorKind::Other),
            ("mysql_1366".to_owned(), None)
        );
    }

    #[test]
    fn sqlite_result_codes_are_classified() {
        assert_eq!(
            sqlite(517, &ErrorKind::Other),
            ("sqlite_busy".to_owned(), BUSY)
        );
        assert_eq!(
            sqlite(2067, &ErrorKind::UniqueViolation),
            ("23505".to_owned(), None)
        );
        assert_eq!(sqlite(1811, &ErrorKind::Other), ("23000".to_owned(), None));
        assert_eq!(sqlite(1, &ErrorKind::Other), ("sqlite_1".to_owned(), None));
        assert_eq!(
            sqlite(14, &ErrorKind::Other),
            ("sqlite_14".to_owned(), DOWN)
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
