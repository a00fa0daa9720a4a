//! `POST /v1/replays`: replays the inputs that the bus still stores into the instances of a saga.

use axum::extract::State;
use axum::{Extension, Json};
use orlog_model::{CorrelationId, SagaName, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::resources::definitions::deploy::{MAX_NAME_BYTES, user_name};
use crate::server::body::JsonBody;
use crate::server::extract::Tenant;
use crate::server::parts::definitions::Definitions;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::replay::{
    ReplayError, ReplayMode, ReplayReport, ReplayRequest, ReplayResult, ReplayWorkMode,
    ReplayedInstance,
};

/// Options of a replay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReplayBody {
    /// Saga; its instances use the active definition.
    #[schema(value_type = String)]
    saga: SagaName,
    /// Start time of the replayed messages, RFC 3339.
    #[schema(value_type = String, example = "2026-11-21T00:00:00Z")]
    from: String,
    /// Handling of the requested work. Required, unless `redeliver` is true.
    work: Option<ReplayWorkMode>,
    /// Reset the checkpoint of the saga: instances are not rebuilt, but receive the inputs that
    /// they have not applied.
    #[serde(default)]
    redeliver: bool,
    /// Replay only these instances, by correlation id.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    only: Vec<CorrelationId>,
    /// Return the plan without replaying.
    #[serde(default)]
    dry_run: bool,
    /// User name recorded in the history.
    user: Option<String>,
    /// Reason recorded in the history.
    reason: Option<String>,
}

/// Result of a replay.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReplayResponse {
    /// Number of messages read.
    read: u64,
    /// Number of messages that are not events, or lack the identifier.
    undecodable: u64,
    /// Number of instances by result.
    counts: ReplayCounts,
    /// Instances with inputs among the messages, ordered by correlation id.
    items: Vec<ReplayedInstanceView>,
}

/// Number of instances by result.
#[derive(Debug, Default, Serialize, ToSchema)]
struct ReplayCounts {
    created: usize,
    replaced: usize,
    redelivered: usize,
    unchanged: usize,
    skipped: usize,
}

/// Replayed instance.
#[derive(Debug, Serialize, ToSchema)]
struct ReplayedInstanceView {
    correlation: String,
    /// Status before the replay; null: it did not exist.
    before: Option<&'static str>,
    /// Status after the replay.
    after: Option<&'static str>,
    /// `created`, `replaced`, `redelivered`, `unchanged` or `skipped`.
    result: &'static str,
    /// Reason, if the instance was skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// Number of work items that a rebuild dispatches.
    work: usize,
    /// Number of inputs that are delivered again.
    inputs: usize,
}

impl ReplayResponse {
    fn of(replay: ReplayReport) -> Self {
        let mut counts = ReplayCounts::default();
        for one in &replay.instances {
            *match one.result {
                ReplayResult::Created => &mut counts.created,
                ReplayResult::Replaced => &mut counts.replaced,
                ReplayResult::Redelivered => &mut counts.redelivered,
                ReplayResult::Unchanged => &mut counts.unchanged,
                ReplayResult::Skipped(_) => &mut counts.skipped,
            } += 1;
        }

        let items = replay
            .instances
            .into_iter()
            .map(ReplayedInstanceView::of)
            .collect();

        Self {
            read: replay.read,
            undecodable: replay.undecodable,
            counts,
            items,
        }
    }
}

impl ReplayedInstanceView {
    fn of(one: ReplayedInstance) -> Self {
        let (result, skip_reason) = match one.result {
            ReplayResult::Created => ("created", None),
            ReplayResult::Replaced => ("replaced", None),
            ReplayResult::Redelivered => ("redelivered", None),
            ReplayResult::Unchanged => ("unchanged", None),
            ReplayResult::Skipped(skip_reason) => ("skipped", Some(skip_reason)),
        };
        Self {
            correlation: one.key.correlation.to_string(),
            before: one.before.map(orlog_model::Status::as_str),
            after: one.after.map(orlog_model::Status::as_str),
            result,
            reason: skip_reason,
            work: one.work,
            inputs: one.inputs,
        }
    }
}

/// Replay a saga
///
/// Reads the bus from the given time, computes the state of each instance of the saga, and replaces
/// the stored state. Instances whose inputs are not complete on the bus are skipped, with a reason.
/// With `redeliver`, the instances receive the inputs that they have not applied instead. After an
/// interruption, the same request resumes. The duration depends on the number of messages.
#[utoipa::path(
    post,
    path = "/v1/replays",
    tag = "sagas",
    request_body = ReplayBody,
    responses((status = 200, description = "Result of each instance", body = ReplayResponse))
)]
pub(crate) async fn replay(
    State(definitions): State<Definitions>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    JsonBody(request): JsonBody<ReplayBody>,
) -> Result<Json<ReplayResponse>, Problem> {
    let from = Timestamp::parse(&request.from);
    let from = from.map_err(|error| Problem::new(Code::InvalidBody, format!("from: {error}")))?;
    let order = ReplayRequest {
        tenant,
        saga: request.saga,
        from,
        only: request.only,
        mode: mode(request.work, request.redeliver)?,
        dry_run: request.dry_run,
        user: user_name(caller.check_user(request.user)?)?,
        reason: reason(request.reason)?,
    };

    Ok(Json(ReplayResponse::of(
        definitions.replays().replay(order).await?,
    )))
}

/// Returns the reason for the history; `None` if it is empty.
fn reason(stated: Option<String>) -> Result<Option<String>, Problem> {
    let stated = stated.filter(|reason| !reason.is_empty());
    // The history of each instance repeats it, so that it has the limit of a user name.
    if let Some(reason) = &stated
        && (reason.len() > MAX_NAME_BYTES || reason.chars().any(char::is_control))
    {
        let detail =
            format!("reason: at most {MAX_NAME_BYTES} bytes and no control characters; shorten it");
        return Err(Problem::new(Code::InvalidBody, detail));
    }
    Ok(stated)
}

fn mode(work: Option<ReplayWorkMode>, redeliver: bool) -> Result<ReplayMode, Problem> {
    let invalid = |reason: &str| Err(Problem::new(Code::InvalidBody, reason));
    match (work, redeliver) {
        (Some(work), false) => Ok(ReplayMode::Rebuild(work)),
        (None, true) => Ok(ReplayMode::Redeliver),
        (Some(_), true) => {
            invalid("work: a redelivery dispatches work as always; remove `work` or `redeliver`")
        }
        (None, false) => {
            invalid("work: missing; set it to `suppress` or `emit`, or set `redeliver` to true")
        }
    }
}

impl From<ReplayError> for Problem {
    fn from(error: ReplayError) -> Self {
        match error {
            ReplayError::NoDefinition(_) => Self::new(Code::DefinitionNotFound, error.to_string()),
            ReplayError::TooMany => Self::new(Code::InvalidBody, error.to_string()),
            ReplayError::Bus(error) => error.into(),
            ReplayError::Store(error) => error.into(),
            ReplayError::Control(error) => error.into(),
            ReplayError::ShuttingDown => Self::new(Code::Unavailable, error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_reason_is_none_and_a_long_one_is_named_in_the_error() {
        assert_eq!(reason(None).unwrap(), None);
        assert_eq!(reason(Some(String::new())).unwrap(), None);
        let longest = "x".repeat(MAX_NAME_BYTES);
        assert_eq!(reason(Some(longest.clone())).unwrap(), Some(longest));
        for invalid in ["x".repeat(MAX_NAME_BYTES + 1), "two\nlines".to_owned()] {
            let problem = reason(Some(invalid)).unwrap_err();
            assert!(problem.detail().starts_with("reason: "), "{problem:?}");
        }
    }
}
