//! Decisions about errors: one table for SQLSTATE, one for the error numbers of MySQL and MariaDB.
//!
//! An error concerns a transaction that is not committed, so nothing was executed. A state that
//! passes without a change of the statement is transient: otherwise a failover of the database or a
//! restart of a pooler would fail sagas for good. `docs/providers/sql-errors.md` contains both
//! tables; tests execute its rows on real servers.

use Decision::{Failed, Throttled, Unavailable};

/// Meaning of an error for an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The statement is rejected. A retry is rejected too.
    Failed,
    /// The database works, and a retry can succeed.
    Throttled,
    /// The database or the connection does not work. Another connection can.
    Unavailable,
}

/// Row of a table. The key is a class or a state of SQLSTATE, or an error number.
pub(super) struct Row<K> {
    pub(super) key: K,
    pub(super) decision: Decision,
    #[cfg_attr(not(test), expect(dead_code, reason = "documentation of the decision"))]
    pub(super) reason: &'static str,
}

const fn row<K: Copy>(key: K, decision: Decision, reason: &'static str) -> Row<K> {
    Row {
        key,
        decision,
        reason,
    }
}

/// Classes, and states that differ from their class.
// One row a line.
#[rustfmt::skip]
pub(super) const STATES: &[Row<&str>] = &[
    row("00", Failed, "Success, raised as an error by a function"),
    row("01", Failed, "Warning, raised as an error by a function"),
    row("02", Failed, "No data: the statement requires a row"),
    row("03", Failed, "SQL statement not yet complete: the order of statements is wrong"),
    row("08", Unavailable, "Connection failed; also each error of PgBouncer itself"),
    row("09", Failed, "Triggered action failed"),
    row("0A", Failed, "Feature not supported"),
    row("0B", Unavailable, "Invalid transaction initiation: state of the connection"),
    row("0F", Failed, "Invalid locator"),
    row("0L", Failed, "Invalid grantor"),
    row("0P", Failed, "Invalid role"),
    row("0Z", Failed, "Diagnostics exception: error in a function"),
    row("10", Failed, "XQuery error"),
    row("20", Failed, "Case not found"),
    row("21", Failed, "Cardinality violation"),
    row("22", Failed, "Invalid value"),
    row("23", Failed, "Constraint violation"),
    row("24", Failed, "Invalid cursor state: error in a function"),
    row(
        "25",
        Unavailable,
        "Invalid transaction state; 25006: a read-only server, for example a standby",
    ),
    row("25001", Throttled, "Not inside a transaction; the other effects of the upstream work"),
    row("26", Throttled, "Unknown prepared statement: a pooler changed the connection"),
    row("27", Failed, "Triggered data change violation"),
    row("28", Unavailable, "Authorization failed: passwords are rotated"),
    row("2B", Failed, "Dependent privileges exist"),
    row("2D", Failed, "Invalid transaction termination: a function commits"),
    row("2F", Failed, "Error in an SQL routine"),
    row("34", Failed, "Invalid cursor name"),
    row("38", Failed, "Error in an external routine"),
    row("39", Failed, "Invalid result of an external routine"),
    row("3B", Failed, "Invalid savepoint"),
    row("3D", Unavailable, "The database does not exist: it is created or restored"),
    row("3F", Failed, "The schema does not exist"),
    row("40", Throttled, "Serialization failure or deadlock: rolled back"),
    row("40003", Unavailable, "Completion unknown: in doubt after a commit"),
    row("42", Failed, "Syntax error, missing object or missing right"),
    row("42P05", Throttled, "Prepared statement exists: another client of a pooler created it"),
    row("44", Failed, "WITH CHECK OPTION violation"),
    row("53", Unavailable, "Insufficient resources: connections, disk, memory"),
    row("54", Failed, "Program limit exceeded: the statement or a value is too large"),
    row("55", Throttled, "Object not in the required state: it is in use, locked or not ready"),
    row("55P02", Failed, "The parameter cannot be changed at run time"),
    row("57", Unavailable, "Operator intervention: shutdown, startup, cancellation, timeout"),
    row("58", Unavailable, "System error: I/O"),
    row("70", Unavailable, "MySQL: the statement or the connection was killed"),
    row("72", Throttled, "Snapshot too old"),
    row("F0", Unavailable, "The configuration file of the server is invalid"),
    row("HV", Failed, "Foreign data wrapper: invalid definition or request"),
    row("HV001", Unavailable, "Foreign data wrapper: out of memory"),
    row("HV00L", Unavailable, "Foreign data wrapper: execution not possible"),
    row("HV00M", Unavailable, "Foreign data wrapper: reply not possible"),
    row("HV00N", Unavailable, "Foreign data wrapper: connection failed"),
    row("P0", Failed, "Error raised by a function"),
    row("XX", Unavailable, "Internal error of the server"),
];

/// Error numbers that share the state HY000, or whose state belongs to another class.
// One row a line.
#[rustfmt::skip]
pub(super) const MYSQL_NUMBERS: &[Row<u16>] = &[
    row(1015, Unavailable, "A file cannot be locked"),
    row(1016, Unavailable, "A file cannot be opened: too many open files"),
    row(1020, Throttled, "The row changed since it was read (snapshot isolation of MariaDB)"),
    row(1021, Unavailable, "The disk is full"),
    row(1023, Unavailable, "Error when closing a file"),
    row(1024, Unavailable, "Error when reading a file"),
    row(1026, Unavailable, "Error when writing a file"),
    row(1030, Unavailable, "Error of the storage engine"),
    row(1036, Unavailable, "The table is read-only"),
    row(1037, Unavailable, "Out of memory"),
    row(1038, Unavailable, "Out of memory for sorting"),
    row(1040, Unavailable, "Too many connections"),
    row(1041, Unavailable, "Out of memory"),
    row(1047, Unavailable, "The node of a Galera cluster is not ready"),
    row(1053, Unavailable, "The server shuts down"),
    row(1114, Unavailable, "The table or the disk is full"),
    row(1129, Unavailable, "The host is blocked after connection errors"),
    row(1130, Unavailable, "The host is not allowed to connect"),
    row(1180, Unavailable, "Error during the commit: in doubt"),
    row(1203, Unavailable, "Too many connections of the user"),
    row(1205, Throttled, "Lock wait timeout"),
    row(1206, Throttled, "The lock table is full"),
    row(1213, Throttled, "Deadlock, or conflict in a Galera cluster"),
    row(1226, Throttled, "The user exceeded a limit per hour"),
    row(1243, Throttled, "Unknown prepared statement"),
    row(1290, Unavailable, "The server is read-only, for example a replica after a failover"),
    row(1296, Unavailable, "Error of the storage engine"),
    row(1297, Throttled, "Temporary error of the storage engine"),
    row(1317, Unavailable, "The statement was interrupted"),
    row(1412, Throttled, "The table changed during the transaction"),
    row(1461, Unavailable, "Too many prepared statements"),
    row(1615, Throttled, "A prepared statement must be prepared again"),
    row(1637, Throttled, "Too many concurrent transactions"),
    row(1689, Throttled, "Lock wait aborted by an exclusive lock"),
    row(1712, Unavailable, "An index is corrupt"),
    row(1792, Unavailable, "The transaction is read-only, for example on a replica"),
    row(1820, Unavailable, "The password must be reset"),
    row(1836, Unavailable, "The server is in read-only mode"),
    row(1862, Unavailable, "The password has expired"),
    row(1874, Unavailable, "InnoDB is in read-only mode"),
    row(1878, Unavailable, "A temporary file cannot be written"),
    row(1927, Unavailable, "The connection was killed"),
    row(1969, Unavailable, "Statement timeout (MariaDB)"),
    row(3024, Unavailable, "Statement timeout (MySQL)"),
    row(3032, Unavailable, "The server is in offline mode"),
    row(3100, Unavailable, "The commit failed in group replication: in doubt"),
    row(3101, Throttled, "Group replication rolled the transaction back"),
    row(3168, Unavailable, "The server is not available"),
    row(3169, Unavailable, "The connection was killed"),
    row(3572, Throttled, "The row is locked (NOWAIT)"),
    row(3819, Failed, "Check constraint (MySQL)"),
    row(4025, Failed, "Check constraint (MariaDB)"),
    row(4031, Unavailable, "The connection was idle for too long"),
];

/// Decides by the state, or else by its class. An unknown class is defined by a function of the
/// database, so the statement has failed. Without a state, the connection has failed.
#[must_use]
pub fn decide_sqlstate(state: &str) -> Decision {
    if state.is_empty() {
        return Unavailable;
    }

    let decision_of = |key: &str| STATES.iter().find(|row| row.key == key);
    let class = state.get(..2).unwrap_or_default();
    decision_of(state)
        .or_else(|| decision_of(class))
        .map_or(Failed, |row| row.decision)
}

/// Decides by the error number; `None`: the state decides.
pub(super) fn decide_mysql_number(number: u16) -> Option<Decision> {
    let row = MYSQL_NUMBERS.iter().find(|row| row.key == number)?;
    Some(row.decision)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn line<K: std::fmt::Display>(row: &Row<K>) -> String {
        let decision = match row.decision {
            Failed => "failed",
            Throttled => "throttled",
            Unavailable => "unavailable",
        };
        format!("| {} | {decision} | {} |", row.key, row.reason)
    }

    #[test]
    fn documentation_has_each_row_and_no_other() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/providers/sql-errors.md");
        let page = std::fs::read_to_string(page).unwrap();
        let (_, tables) = page.split_once("\n## SQLSTATE").unwrap();
        let documented: Vec<&str> = tables
            .lines()
            .filter(|line| line.starts_with("| ") && line.contains("| "))
            .filter(|line| !line.contains("| decision |"))
            .collect();
        let states = STATES.iter().map(line);
        let expected: Vec<String> = states.chain(MYSQL_NUMBERS.iter().map(line)).collect();
        assert_eq!(documented, expected);
    }
}
