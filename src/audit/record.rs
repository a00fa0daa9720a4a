//! Audit record: user, role, tenant, request and outcome.

use serde::{Deserialize, Serialize};

use crate::auth::Roles;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AuditOutcome {
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

/// Request that changes state.
#[derive(Clone, Debug, Serialize)]
pub struct AuditRecord {
    /// Record id; ids increase with time.
    pub id: uuid::Uuid,
    /// Time of the request, RFC 3339.
    pub at: String,
    /// User name; `None` if authentication is off or failed.
    pub user: Option<String>,
    /// Roles of the user.
    pub role: Option<Roles>,
    /// Tenant; `None` if the request affects the node.
    pub tenant: Option<String>,
    /// Route, for example `POST /v1/sagas/{saga}/{correlation}/cancel`.
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
    pub source: Option<String>,
    /// Client address stated by a proxy (`x-forwarded-for`); not verified.
    pub forwarded_for: Option<String>,
    /// Pod that forwarded the request.
    pub forwarded_by: Option<String>,
    /// Name of this node.
    pub node: String,
}
