//! What an error of a database means.
//!
//! | error | meaning |
//! |---|---|
//! | 21, 22, 23, 42, 0A, P0 and what else the statement or its values are to blame for | refused for good, with the SQLSTATE as code |
//! | 40, 55P03, lock wait, SQLite busy | busy: tried again |
//! | 08, 28, 3D, 53, 57, 58, XX, no connection | down: tried again |
//! | any of the last line, and no answer, while committing | lost |
//!
//! Until the commit is sent nothing is done: whatever happens to the connection rolls the transaction back.

use std::borrow::Cow;

use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::mysql::MySqlDatabaseError;

use super::dialect::Dialect;
use crate::provider::{Refusal, Trouble};
use crate::secret::Scrub;

/// The code of whatever never reached the database.
const UNREACHABLE: &str = "database_unreachable";

/// What it means; `committing`: the commit was sent.
pub(crate) fn refusal(
    dialect: Dialect,
    error: &sqlx::Error,
    committing: bool,
    place: &str,
    scrub: &Scrub,
) -> Refusal {
    let say = |what: &str| scrub.text(format!("{place}: {what}"));
    match error {
        sqlx::Error::Database(error) => {
            let (code, meaning) = judge(dialect, error.as_ref());
            let message = say(error.message());
            match meaning {
                Meaning::Refused => Refusal::failed(code, message),
                Meaning::Trouble(Trouble::Down) if committing => Refusal::lost(code, message),
                Meaning::Trouble(Trouble::Busy) => Refusal::busy(code, message),
                Meaning::Trouble(Trouble::Down | Trouble::Lost) => Refusal::retry(code, message),
            }
        }
        sqlx::Error::ColumnDecode { index, source } => {
            Refusal::failed("unreadable_column", say(&format!("the column {index}: {source}")))
        }
        sqlx::Error::Decode(error) | sqlx::Error::Encode(error) => {
            Refusal::failed("unreadable_value", say(&error.to_string()))
        }
        sqlx::Error::PoolTimedOut => Refusal::retry(UNREACHABLE, say("no connection in time")),
        other if committing => Refusal::lost("commit_lost", say(&other.to_string())),
        other => Refusal::retry(UNREACHABLE, say(&other.to_string())),
    }
}

/// Whether it says that a table is missing.
pub(crate) fn is_missing_table(error: &sqlx::Error) -> bool {
    let Some(error) = error.as_database_error() else { return false };
    matches!(error.code().as_deref(), Some("42P01" | "42S02")) || error.message().starts_with("no such table")
}

/// Whether it says that the key is there already.
pub(crate) fn is_duplicate(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(DatabaseError::is_unique_violation)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Refused,
    Trouble(Trouble),
}

fn judge(dialect: Dialect, error: &dyn DatabaseError) -> (String, Meaning) {
    let code = error.code().unwrap_or(Cow::Borrowed(""));
    match dialect {
        Dialect::Postgres => (code.to_string(), by_state(&code)),
        Dialect::MySql => {
            let number = error.try_downcast_ref::<MySqlDatabaseError>().map_or(0, MySqlDatabaseError::number);
            mysql(&code, number, &error.kind())
        }
        Dialect::Sqlite => sqlite(code.parse().unwrap_or(1), &error.kind()),
    }
}

fn by_state(state: &str) -> Meaning {
    match (state, state.get(..2).unwrap_or_default()) {
        ("55P03", _) | (_, "40") => Meaning::Trouble(Trouble::Busy),
        (_, "08" | "28" | "3D" | "53" | "57" | "58" | "XX" | "") => Meaning::Trouble(Trouble::Down),
        _ => Meaning::Refused,
    }
}

/// What MySQL puts under the one state 23000, or under none, told apart.
fn mysql(state: &str, number: u16, kind: &ErrorKind) -> (String, Meaning) {
    match number {
        // Lock wait timeout, deadlock, and that a table was altered meanwhile.
        1205 | 1213 | 1412 => ("40001".to_owned(), Meaning::Trouble(Trouble::Busy)),
        // Too many connections, shutdown, disk full, killed, memory, time is over, read only.
        1021 | 1037 | 1040 | 1041 | 1053 | 1114 | 1203 | 1290 | 1317 | 1836 | 1927 | 1969 | 3024 => {
            (mysql_code(state, number), Meaning::Trouble(Trouble::Down))
        }
        // A check: 3819 in MySQL, 4025 in MariaDB.
        3819 | 4025 => ("23514".to_owned(), Meaning::Refused),
        _ => match constraint(kind) {
            Some(state) => (state.to_owned(), Meaning::Refused),
            // A general error that is none of the above is about the statement.
            None if state == "HY000" => (mysql_code(state, number), Meaning::Refused),
            None => (state.to_owned(), by_state(state)),
        },
    }
}

fn mysql_code(state: &str, number: u16) -> String {
    if state.is_empty() || state == "HY000" { format!("mysql_{number}") } else { state.to_owned() }
}

/// By the primary result code, which is the lowest byte.
fn sqlite(code: i32, kind: &ErrorKind) -> (String, Meaning) {
    let named = |code: i32| format!("sqlite_{code}");
    match code & 0xff {
        5 | 6 => ("sqlite_busy".to_owned(), Meaning::Trouble(Trouble::Busy)),
        19 => (constraint(kind).unwrap_or("23000").to_owned(), Meaning::Refused),
        1 | 18 | 20 | 25 => (named(code), Meaning::Refused),
        _ => (named(code), Meaning::Trouble(Trouble::Down)),
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

    const BUSY: Meaning = Meaning::Trouble(Trouble::Busy);
    const DOWN: Meaning = Meaning::Trouble(Trouble::Down);

    #[test]
    fn a_sqlstate_says_who_is_to_blame() {
        for state in ["23505", "22P02", "42P01", "P0001", "21000", "0A000", "44000"] {
            assert_eq!(by_state(state), Meaning::Refused, "{state}");
        }
        for state in ["40001", "40P01", "55P03"] {
            assert_eq!(by_state(state), BUSY, "{state}");
        }
        for state in ["08006", "28P01", "3D000", "53300", "57P01", "57014", "58030", "XX000", ""] {
            assert_eq!(by_state(state), DOWN, "{state}");
        }
    }

    #[test]
    fn mysql_tells_by_its_numbers() {
        let told = |state, number, kind| mysql(state, number, &kind);
        assert_eq!(told("40001", 1213, ErrorKind::Other), ("40001".to_owned(), BUSY));
        assert_eq!(told("HY000", 1205, ErrorKind::Other), ("40001".to_owned(), BUSY));
        assert_eq!(told("23000", 1062, ErrorKind::UniqueViolation), ("23505".to_owned(), Meaning::Refused));
        assert_eq!(told("HY000", 3819, ErrorKind::CheckViolation), ("23514".to_owned(), Meaning::Refused));
        assert_eq!(told("08004", 1040, ErrorKind::Other), ("08004".to_owned(), DOWN));
        assert_eq!(told("HY000", 3024, ErrorKind::Other), ("mysql_3024".to_owned(), DOWN));
        assert_eq!(told("42S02", 1146, ErrorKind::Other), ("42S02".to_owned(), Meaning::Refused));
        assert_eq!(told("HY000", 1366, ErrorKind::Other), ("mysql_1366".to_owned(), Meaning::Refused));
    }

    #[test]
    fn sqlite_tells_by_its_result_codes() {
        assert_eq!(sqlite(517, &ErrorKind::Other), ("sqlite_busy".to_owned(), BUSY));
        assert_eq!(sqlite(2067, &ErrorKind::UniqueViolation), ("23505".to_owned(), Meaning::Refused));
        assert_eq!(sqlite(1811, &ErrorKind::Other), ("23000".to_owned(), Meaning::Refused));
        assert_eq!(sqlite(1, &ErrorKind::Other), ("sqlite_1".to_owned(), Meaning::Refused));
        assert_eq!(sqlite(14, &ErrorKind::Other), ("sqlite_14".to_owned(), DOWN));
    }

    #[test]
    fn an_answer_that_never_came_is_lost_only_while_committing() {
        let error = sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into());
        let trouble = |committing| {
            let refusal = refusal(Dialect::Postgres, &error, committing, "db", &Scrub::default());
            let Refusal::Transient { trouble, .. } = refusal else { panic!("{refusal:?}") };
            trouble
        };
        assert_eq!((trouble(false), trouble(true)), (Trouble::Down, Trouble::Lost));
    }
}
