//! A record: who called, in which role, for whom, what was asked, and what came of it.

use serde::{Deserialize, Serialize};

use crate::auth::Role;

/// What came of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Outcome {
    /// It was done.
    Done,
    /// The caller was told no: a 4xx status.
    Refused,
    /// The node could not: a 5xx status.
    Failed,
    /// The caller went away before the answer; it may have been done.
    Unknown,
}

impl Outcome {
    /// By the status of the answer.
    #[must_use]
    pub fn of(status: u16) -> Self {
        match status {
            0..400 => Outcome::Done,
            400..500 => Outcome::Refused,
            _ => Outcome::Failed,
        }
    }
}

/// A call that changes something.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// The record's own; ids grow with time.
    pub id: uuid::Uuid,
    /// When the call came, RFC 3339.
    pub at: String,
    /// Who called; nobody where nobody was asked or believed.
    pub who: Option<String>,
    /// In which role.
    pub role: Option<Role>,
    /// For whom; nobody where it is about the node.
    pub tenant: Option<String>,
    /// `POST /v1/sagas/{saga}/{correlation}/cancel`.
    pub route: String,
    /// The path and the query.
    pub target: String,
    /// What came of it.
    pub outcome: Outcome,
    /// The HTTP status; 0 where there was no answer.
    pub status: u16,
    /// The code of the problem, where there was one.
    pub code: Option<&'static str>,
    /// The `x-request-id`.
    pub request_id: String,
    /// Where the connection came from.
    pub source: Option<String>,
    /// For whom a proxy says that it speaks (`x-forwarded-for`); not checked.
    pub forwarded_for: Option<String>,
    /// The pod that sent it on.
    pub forwarded_by: Option<String>,
    /// This node.
    pub node: String,
}
