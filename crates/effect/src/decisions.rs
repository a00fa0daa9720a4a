//! Decisions about the answers of upstreams: was the call executed, and is it retried? One table for
//! each kind of answer; every provider decides by them.
//!
//! An answer can be that of a proxy, which sends it after it forwarded the call. "Not executed"
//! therefore needs a proof: no connection, or a status that no proxy sends for a call that it
//! forwarded. Everything else that is no answer of the upstream itself is in doubt
//! ([ADR 0108](../../../docs/adr/0108-answers-of-proxies.md)). `docs/providers/decisions.md` contains
//! all tables; tests compare it, and execute the rows on real servers and behind real proxies.

use std::fmt;

use Decision::{
    Abandoned, Declined, Failed, ReportedThrottled, ReportedUnavailable, ResponseLost, Succeeded,
    Throttled, Unavailable,
};

/// Meaning of an answer for the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Executed.
    Succeeded,
    /// Rejected, thus not executed by this attempt. A retry is rejected too.
    Failed,
    /// Rejected by the service itself, which knows the idempotency key: executed by no attempt.
    Declined,
    /// Not executed, and the upstream works. Retried; no failure of the breaker.
    Throttled,
    /// Not executed: the upstream or the connection does not work. Retried.
    Unavailable,
    /// In doubt: a limit may have been found after the execution. Retried; no failure of the
    /// breaker.
    ReportedThrottled,
    /// In doubt: an outage is reported, also by proxies after they forwarded the call. Retried.
    ReportedUnavailable,
    /// In doubt: the result is lost. Retried.
    ResponseLost,
    /// In doubt: a retry is pointless.
    Abandoned,
}

impl Decision {
    /// Returns the decision after the commit of a database was sent: what makes the database
    /// unavailable leaves the outcome unknown.
    #[cfg(any(feature = "sql", test))]
    pub(crate) fn during_commit(self) -> Self {
        match self {
            Unavailable => ResponseLost,
            other => other,
        }
    }
}

/// Formats the decision as in the documentation.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Succeeded => "succeeded",
            Failed => "failed",
            Declined => "declined",
            Throttled => "throttled",
            Unavailable => "unavailable",
            ReportedThrottled => "throttled, in doubt",
            ReportedUnavailable => "unavailable, in doubt",
            ResponseLost => "response lost, in doubt",
            Abandoned => "not retried, in doubt",
        })
    }
}

/// Row of a table. The key is a status, a code or an error number.
pub(crate) struct Row<K> {
    pub(crate) key: K,
    pub(crate) decision: Decision,
    #[cfg_attr(not(test), expect(dead_code, reason = "documentation of the decision"))]
    pub(crate) reason: &'static str,
}

const fn row<K: Copy>(key: K, decision: Decision, reason: &'static str) -> Row<K> {
    Row {
        key,
        decision,
        reason,
    }
}

/// Range of statuses, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Statuses {
    first: u16,
    last: u16,
}

const fn one(status: u16) -> Statuses {
    Statuses {
        first: status,
        last: status,
    }
}

const fn from(first: u16, last: u16) -> Statuses {
    Statuses { first, last }
}

impl Statuses {
    fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl fmt::Display for Statuses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}–{}", self.first, self.last)
        }
    }
}

/// Calls without an answer, of all providers that use a connection.
// One row a line.
#[rustfmt::skip]
pub(crate) const CONNECTION: &[Row<Connection>] = &[
    row(Connection::NotEstablished, Unavailable, "Name, address or TLS: no byte of the call was sent"),
    row(Connection::Denied, Failed, "Egress rules deny the address"),
    row(Connection::GoAway, Unavailable, "HTTP/2: the last stream id is below that of the call, so that neither a proxy nor the upstream has begun with it (RFC 9113, 6.8)"),
    row(Connection::RefusedStream, ReportedUnavailable, "HTTP/2: HAProxy also sends it if the connection to the upstream breaks after the call (its RFC 9113, 8.7 excludes this)"),
    row(Connection::Lost, ResponseLost, "The call was sent, at least in part"),
    row(Connection::TimedOut, ResponseLost, "No answer within `attempt_timeout`"),
    row(Connection::Unreadable, ResponseLost, "The answer is incomplete or no valid one"),
];

/// How a call ends without an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connection {
    NotEstablished,
    Denied,
    GoAway,
    RefusedStream,
    Lost,
    TimedOut,
    Unreadable,
}

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotEstablished => "no connection",
            Self::Denied => "denied address",
            Self::GoAway => "`GOAWAY` below the call",
            Self::RefusedStream => "`REFUSED_STREAM`",
            Self::Lost => "connection lost",
            Self::TimedOut => "no answer in time",
            Self::Unreadable => "invalid answer",
        })
    }
}

/// Statuses of HTTP: the kinds `http` and `webhook`, and the gateway over HTTP and NATS. Each
/// status has one row.
// One row a line.
#[rustfmt::skip]
pub(crate) const HTTP: &[Row<Statuses>] = &[
    row(from(100, 199), ResponseLost, "No final status: the upstream can execute the request"),
    row(from(200, 299), Succeeded, "Executed"),
    row(from(300, 301), Failed, "The resource has another address; redirects are not followed"),
    row(one(302), Abandoned, "Another address, or the answer after an executed request: frameworks redirect after a POST"),
    row(one(303), Abandoned, "The request was executed, and its result has another address (RFC 9110, 15.4.4)"),
    row(from(304, 399), Failed, "The resource has another address or is not modified; redirects are not followed"),
    row(from(400, 401), Failed, "Rejected: invalid, not authenticated"),
    row(one(402), Declined, "The service itself declines a payment, for all requests with this idempotency key; no proxy sends it"),
    row(from(403, 407), Failed, "Rejected: not authorized, not found, not allowed"),
    row(one(408), ReportedUnavailable, "Time-out of a proxy or of a layer of the service: Envoy sends it for a stream that it forwarded, servers for a handler that they stopped"),
    row(from(409, 424), Failed, "Rejected: conflict, gone, precondition, size, type, content"),
    row(one(425), Throttled, "The server did not risk to process early data (RFC 8470)"),
    row(from(426, 428), Failed, "Rejected: the request must be another one"),
    row(one(429), Throttled, "Rate limit, applied before the request is forwarded or executed (RFC 6585)"),
    row(from(430, 459), Failed, "Rejected"),
    row(one(460), ResponseLost, "Load balancer of AWS: the client of a forwarded request closed the connection, for example another proxy"),
    row(from(461, 498), Failed, "Rejected; nginx (494 to 497) before it forwards the request"),
    row(one(499), ResponseLost, "A proxy cancelled a forwarded request (nginx, Traefik); a gRPC gateway for CANCELLED"),
    row(from(500, 502), ResponseLost, "The service failed while it executed the request, or its answer did not reach the proxy"),
    row(one(503), ReportedUnavailable, "The service is overloaded, or its connection broke after a proxy forwarded the request (Envoy, HAProxy, nginx)"),
    row(one(504), ResponseLost, "A proxy waited too long for the answer to a forwarded request"),
    row(from(505, 599), ResponseLost, "Errors of the server; 520 to 530 of Cloudflare, also after it forwarded the request"),
    row(from(600, 999), ResponseLost, "No valid status: counts as an error of the server (RFC 9110, 15)"),
];

/// Statuses of gRPC, from the headers or trailers of the response.
// One row a line.
#[rustfmt::skip]
#[cfg(any(feature = "grpc", test))]
pub(crate) const GRPC: &[Row<&str>] = &[
    row("OK", Succeeded, "Executed; without exactly one valid message: response lost"),
    row("CANCELLED", ResponseLost, "A proxy or the service cancelled a call in progress"),
    row("UNKNOWN", ResponseLost, "The service failed while it executed the call"),
    row("INVALID_ARGUMENT", Failed, "Rejected; no library or proxy sends it"),
    row("DEADLINE_EXCEEDED", ResponseLost, "The deadline passed during the call; the service can go on"),
    row("NOT_FOUND", Failed, "Rejected; no library or proxy sends it"),
    row("ALREADY_EXISTS", Failed, "Rejected; no library or proxy sends it"),
    row("PERMISSION_DENIED", Failed, "Rejected before the call is executed"),
    row("RESOURCE_EXHAUSTED", ReportedThrottled, "A limit, or a response above the size limit: libraries find it after the execution (gRPC for Go, C++ and .NET)"),
    row("FAILED_PRECONDITION", Failed, "Rejected; no library or proxy sends it"),
    row("ABORTED", Throttled, "A conflict that the service rolled back; no library or proxy sends it"),
    row("OUT_OF_RANGE", Failed, "Rejected. A service with tonic and a limit of its response size sends it after the execution: state no such limit"),
    row("UNIMPLEMENTED", Failed, "The service has no such method"),
    row("INTERNAL", ResponseLost, "An invariant of the service or of the transport is broken"),
    row("UNAVAILABLE", ReportedUnavailable, "The service is down, or its connection broke after a proxy forwarded the call"),
    row("DATA_LOSS", ResponseLost, "Data was lost, maybe of the response"),
    row("UNAUTHENTICATED", Failed, "Rejected before the call is executed; a token is fetched again once"),
];

/// gRPC statuses of HTTP statuses without `grpc-status`, which come from proxies
/// (<https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md>).
// One row a line.
#[rustfmt::skip]
#[cfg(any(feature = "grpc", test))]
pub(crate) const GRPC_OF_HTTP: &[GrpcOfHttp] = &[
    mapped(from(100, 399), "UNKNOWN"),
    mapped(one(400), "INTERNAL"),
    mapped(one(401), "UNAUTHENTICATED"),
    mapped(one(402), "UNKNOWN"),
    mapped(one(403), "PERMISSION_DENIED"),
    mapped(one(404), "UNIMPLEMENTED"),
    mapped(from(405, 428), "UNKNOWN"),
    mapped(one(429), "UNAVAILABLE"),
    mapped(from(430, 501), "UNKNOWN"),
    mapped(from(502, 504), "UNAVAILABLE"),
    mapped(from(505, 999), "UNKNOWN"),
];

/// HTTP statuses of proxies, and the gRPC status that they stand for.
#[cfg(any(feature = "grpc", test))]
pub(crate) struct GrpcOfHttp {
    http: Statuses,
    grpc: &'static str,
}

#[cfg(any(feature = "grpc", test))]
const fn mapped(http: Statuses, grpc: &'static str) -> GrpcOfHttp {
    GrpcOfHttp { http, grpc }
}

/// Replies of SMTP before the end of the message: nothing is accepted.
// One row a line.
#[rustfmt::skip]
#[cfg(any(feature = "smtp", test))]
pub(crate) const SMTP: &[Row<Statuses>] = &[
    row(from(400, 420), Throttled, "Rejected for now"),
    row(one(421), Unavailable, "The server closes the connection"),
    row(from(422, 499), Throttled, "Rejected for now: greylisting, mailbox busy, out of space"),
    row(from(500, 529), Failed, "Rejected: syntax, command, parameter"),
    row(one(530), Unavailable, "Authentication or TLS is required: the operator corrects it"),
    row(from(531, 533), Failed, "Rejected"),
    row(from(534, 535), Unavailable, "The credentials are rejected: the operator corrects them"),
    row(from(536, 537), Failed, "Rejected"),
    row(one(538), Unavailable, "Encryption is required: the operator corrects it"),
    row(from(539, 599), Failed, "Rejected: mailbox, policy, size"),
];

/// Replies of SMTP to the whole message, where they differ. A relay that passes the message on
/// before it replies (a before-queue filter) may have delivered it.
// One row a line.
#[rustfmt::skip]
#[cfg(any(feature = "smtp", test))]
pub(crate) const SMTP_AFTER_MESSAGE: &[Row<Statuses>] = &[
    row(one(421), ReportedUnavailable, "The relay stops; the next server may have accepted the message"),
    row(one(451), ReportedThrottled, "Error of the relay; the next server may have accepted the message. With the enhanced status 4.7.x, greylisting: throttled"),
];

/// Classes of SQLSTATE, and states that differ from their class.
// One row a line.
#[rustfmt::skip]
#[cfg(any(feature = "sql", test))]
pub(crate) const SQL_STATES: &[Row<&str>] = &[
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
#[cfg(any(feature = "sql", test))]
pub(crate) const MYSQL_NUMBERS: &[Row<u16>] = &[
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

/// Primary result codes of SQLite.
// One row a line.
#[rustfmt::skip]
#[cfg(any(feature = "sql", test))]
pub(crate) const SQLITE_CODES: &[Row<Statuses>] = &[
    row(one(1), Failed, "SQL error or missing object"),
    row(from(2, 4), Unavailable, "Internal error, permission of the file, aborted"),
    row(from(5, 6), Throttled, "The database or a table is locked"),
    row(from(7, 17), Unavailable, "Memory, read-only file, interrupt, I/O, corruption, full disk, schema change"),
    row(from(18, 20), Failed, "Value too large, constraint violation, wrong type"),
    row(from(21, 24), Unavailable, "Misuse, large files, authorization, format"),
    row(one(25), Failed, "Parameter out of range"),
    row(from(26, 255), Unavailable, "The file is no database, and other codes"),
];

/// Decides about a call without an answer.
pub(crate) fn decide_connection(end: Connection) -> Decision {
    decision_of(CONNECTION, |key| *key == end).unwrap_or(ResponseLost)
}

/// Decides about an HTTP status.
pub(crate) fn decide_http(status: u16) -> Decision {
    decision_of(HTTP, |statuses| statuses.contains(status)).unwrap_or(ResponseLost)
}

/// Decides about a gRPC status by its name.
#[cfg(any(feature = "grpc", test))]
pub(crate) fn decide_grpc(name: &str) -> Decision {
    decision_of(GRPC, |known| *known == name).unwrap_or(ResponseLost)
}

/// Returns the gRPC status for which the HTTP status of a proxy stands.
#[cfg(any(feature = "grpc", test))]
pub(crate) fn grpc_of_http(status: u16) -> &'static str {
    let row = GRPC_OF_HTTP.iter().find(|row| row.http.contains(status));
    row.map_or("UNKNOWN", |row| row.grpc)
}

/// Decides about an SMTP reply; `after_message`: to the whole message.
#[cfg(any(feature = "smtp", test))]
pub(crate) fn decide_smtp(code: u16, after_message: bool) -> Decision {
    let of = |table| decision_of(table, |codes: &Statuses| codes.contains(code));
    let special = after_message.then(|| of(SMTP_AFTER_MESSAGE)).flatten();
    special.or_else(|| of(SMTP)).unwrap_or(Failed)
}

/// Decides by the state, or else by its class. An unknown class is defined by a function of the
/// database, so the statement has failed. Without a state, the connection has failed.
#[cfg(any(feature = "sql", test))]
#[must_use]
pub fn decide_sqlstate(state: &str) -> Decision {
    if state.is_empty() {
        return Unavailable;
    }

    let class = state.get(..2).unwrap_or_default();
    decision_of(SQL_STATES, |key| *key == state)
        .or_else(|| decision_of(SQL_STATES, |key| *key == class))
        .unwrap_or(Failed)
}

/// Decides by the error number; `None`: the state decides.
#[cfg(any(feature = "sql", test))]
pub(crate) fn decide_mysql_number(number: u16) -> Option<Decision> {
    decision_of(MYSQL_NUMBERS, |key| *key == number)
}

/// Decides by the primary result code of SQLite.
#[cfg(any(feature = "sql", test))]
pub(crate) fn decide_sqlite(code: u16) -> Decision {
    decision_of(SQLITE_CODES, |codes| codes.contains(code)).unwrap_or(Unavailable)
}

fn decision_of<K>(table: &[Row<K>], fits: impl Fn(&K) -> bool) -> Option<Decision> {
    table
        .iter()
        .find(|row| fits(&row.key))
        .map(|row| row.decision)
}

#[cfg(test)]
mod tests;
