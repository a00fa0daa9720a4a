//! `/v1/contexts` and `/v1/actors`: contexts, actors and their keys. A response to a change arrives
//! after it is durable.

pub(crate) mod actors;
pub(crate) mod contexts;
pub(crate) mod keys;

use axum::http::HeaderMap;
use axum::http::header::IF_MATCH;
use orlog_model::TenantId;
use serde::Serialize;
use utoipa::ToSchema;

use crate::server::parts::access::Access;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::access::change::Change;
use orlog_node::access::store::WriteError;
use orlog_node::auth::Caller;

/// Change of a context, an actor or a peer.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct ChangeView {
    /// Time of the change.
    at: String,
    /// User who made it; null if authentication is off.
    by: Option<String>,
    /// What was added, for example `readers user:ada`.
    added: Vec<String>,
    /// What was removed.
    removed: Vec<String>,
}

/// Returns the changes, newest first.
pub(crate) fn change_views(changes: &[Change]) -> Vec<ChangeView> {
    changes.iter().rev().map(ChangeView::of).collect()
}

impl ChangeView {
    fn of(change: &Change) -> Self {
        Self {
            at: change.at.to_string(),
            by: change.by.clone(),
            added: change.added.clone(),
            removed: change.removed.clone(),
        }
    }
}

/// Rejects an unsigned request that starts instances, sends signals or emits facts, if the context
/// requires signed events.
pub(crate) fn check_signed(
    access: &Access,
    caller: &Caller,
    tenant: &TenantId,
) -> Result<(), Problem> {
    // A start or a signal over HTTP carries no event signature; the signed request is the proof
    // instead.
    if caller.key.is_some() || !access.requires_signed_events(tenant) {
        return Ok(());
    }

    let detail = "the context requires signed events, also for starts, signals and facts; sign the \
                  request with the key of an actor (messages of a stream have no signature)";
    Err(Problem::new(Code::SignatureRequired, detail))
}

/// Returns the problem of a body that contradicts a rule; `pointer` is the location.
pub(crate) fn invalid_body(pointer: &str, reason: impl Into<String>) -> Problem {
    let pointer = pointer.to_owned();
    let detail = reason.into();
    let text = format!("{pointer}: {detail}");
    Problem::new(Code::InvalidBody, text).with(vec![ProblemDetail { pointer, detail }])
}

/// Returns the revision in `if-match`; `None` without the header.
fn expected_revision(headers: &HeaderMap) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(IF_MATCH) else {
        return Ok(None);
    };

    // Clients send the revision with the quotes of an `ETag`, or without them.
    let revision = value
        .to_str()
        .ok()
        .and_then(|text| text.trim().trim_matches('"').parse().ok());
    let invalid = || {
        Problem::new(
            Code::BadParameter,
            "if-match: expected a revision, for example if-match: \"7\"",
        )
    };

    revision.map(Some).ok_or_else(invalid)
}

impl From<WriteError> for Problem {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Registry(error) => error.into(),
            WriteError::Conflict => Problem::new(
                Code::RevisionMismatch,
                "another request changed it at the same time; read it again",
            ),
            // Unlike after a conflict, the node has read the record again before each attempt.
            WriteError::Contended(_) => {
                Problem::new(Code::RevisionMismatch, format!("{error}; try again"))
            }
        }
    }
}
