//! Audit record: user, role, tenant, request and outcome.

use std::net::IpAddr;

use orlog_model::Clock as _;
use serde::{Deserialize, Serialize};

use crate::auth::Roles;
use crate::clock::SystemClock;

/// Log target of audit records.
pub const TARGET: &str = "orlog::audit";

/// Maximum length of a text in a record, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Returns the text, shortened to the maximum length of a text in a record.
#[must_use]
pub fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT_BYTES)].to_owned()
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
    /// The request is authorized and starts. Only with `audit.required`; another record with the
    /// same id follows.
    Started,
    /// The request succeeded.
    Succeeded,
    /// The request was rejected: a 4xx status.
    Rejected,
    /// The node failed: a 5xx status.
    Failed,
    /// The client disconnected before the response; the request may have succeeded.
    Unknown,
}

impl AuditOutcome {
    /// Returns the outcome for an HTTP status.
    #[must_use]
    pub fn of(status: u16) -> Self {
        match status {
            0..400 => AuditOutcome::Succeeded,
            400..500 => AuditOutcome::Rejected,
            _ => AuditOutcome::Failed,
        }
    }
}

/// Edit of data by a request: the fingerprints before and after it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataEdit {
    /// SHA-256 of the data before the edit.
    pub before: String,
    /// SHA-256 of the data after it.
    pub after: String,
}

/// Authorized request that changes state, or reads an export, a backup or the audit trail.
#[derive(Debug, Serialize)]
pub struct AuditRecord {
    /// Id of the request; ids increase with time.
    pub id: uuid::Uuid,
    /// Time of the request, RFC 3339.
    pub at: String,
    /// User name; `None` if authentication is off.
    pub user: Option<String>,
    /// Id of the key that signed the request; `None` without a signature.
    pub key: Option<String>,
    /// User that the request names (`--user`), in whose name an admin acts; `None` if it names
    /// none. Without authentication, any name is accepted.
    pub named_user: Option<String>,
    /// Roles of the user.
    pub role: Option<Roles>,
    /// Tenant for which the request acts; `None` if it affects the node, or if its tenant is
    /// invalid.
    pub tenant: Option<String>,
    /// Route, for example `POST /v1/sagas/{saga}/{correlation}/cancel`; `SIGHUP` for a reload by a
    /// signal;
    /// `redrive of an admitted tenant` for redrives of the node.
    pub route: String,
    /// Path and query.
    pub target: String,
    /// Outcome of the request.
    pub outcome: AuditOutcome,
    /// HTTP status; 0 if there was no response.
    pub status: u16,
    /// Code of the problem, if any.
    pub code: Option<&'static str>,
    /// Request id (`x-request-id`).
    pub request_id: String,
    /// Source address of the connection.
    pub source: Option<IpAddr>,
    /// Client address that the trusted gateway added (`x-forwarded-for`); `None` without a trusted
    /// gateway.
    pub forwarded_for: Option<IpAddr>,
    /// Pod that forwarded the request: with a trusted gateway, or if the connection comes from the
    /// address of that pod.
    pub forwarded_by: Option<String>,
    /// Name of this node.
    pub node: String,
    /// Data that the request has edited; absent for other requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub edit: Option<DataEdit>,
}

impl AuditRecord {
    /// Creates the record of a change that no request caused, but a signal of the operating system
    /// or the node.
    #[must_use]
    pub fn of_process(route: &str, node: String) -> Self {
        let id = uuid::Uuid::now_v7();
        Self {
            id,
            at: SystemClock.now().to_string(),
            user: None,
            key: None,
            named_user: None,
            role: None,
            tenant: None,
            route: route.to_owned(),
            target: String::new(),
            outcome: AuditOutcome::Unknown,
            status: 0,
            code: None,
            request_id: id.to_string(),
            source: None,
            forwarded_for: None,
            forwarded_by: None,
            node,
            edit: None,
        }
    }
}
