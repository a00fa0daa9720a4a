//! `POST /v1/dead-letters/redrive`: redrives many dead letters, optionally with a canary.

use axum::Json;
use orlog_actors::ControlError;
use orlog_model::{DeadLetter, DeadLetterOriginal, DeadLetterReason, SagaName, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::collect_page;
use crate::api::body::JsonBody;
use crate::api::context::ApiState;
use crate::api::errors::invalid_parameter;
use crate::api::extract::{Tenant, page_limit};
use crate::api::problem::Problem;
use crate::api::read_scope::ReadScope;
use crate::app::App;

/// Dead letters per read.
const BATCH: usize = 500;
/// Maximum number of failures in a response.
const MAX_NAMED_FAILURES: usize = 10;

/// Dead letters to redrive, oldest first, and the canary size.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveBody {
    /// Filter by reason.
    #[schema(value_type = Option<String>)]
    reason: Option<DeadLetterReason>,
    /// Filter by target saga, if known.
    #[schema(value_type = Option<String>)]
    saga: Option<SagaName>,
    /// Maximum number of dead letters. Default: 100.
    limit: Option<usize>,
    /// Canary size: redrive this many first, and the rest only if all of them succeed.
    canary: Option<usize>,
}

/// Result of a redrive.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct RedriveResponse {
    /// Number of selected dead letters.
    matched: usize,
    /// More dead letters match.
    has_more: bool,
    /// Number of dead letters that their instances applied.
    applied: usize,
    /// Number of messages published to the bus. Their result is unknown, because they name no instance.
    published: usize,
    /// Number of dead letters that failed again and were dead-lettered again.
    dead_lettered: usize,
    /// Number of dead letters that their instances rejected; they are still stored.
    rejected: usize,
    /// Number of dead letters that were not redriven; they are still stored.
    skipped: usize,
    /// Reason why some were not redriven; null if all were.
    stopped: Option<String>,
    /// First failures.
    failures: Vec<RedriveFailure>,
}

/// Dead letter that failed again.
#[derive(Debug, Serialize, ToSchema)]
struct RedriveFailure {
    #[schema(format = "uuid")]
    id: String,
    detail: String,
}

impl RedriveResponse {
    /// Records a result; returns `false` if the redrive must stop.
    fn note(&mut self, id: String, to_instance: bool, result: Result<(), ControlError>) -> bool {
        let error = match result {
            Ok(()) if to_instance => {
                self.applied += 1;
                return true;
            }
            Ok(()) => {
                self.published += 1;
                return true;
            }
            Err(error) => error,
        };
        match &error {
            ControlError::DeadLettered(_) => self.dead_lettered += 1,
            ControlError::Rejected(_) => self.rejected += 1,
            ControlError::Unavailable => {
                self.stopped = Some(format!("at dead letter {id}: {error}"));
                return false;
            }
        }
        if self.failures.len() < MAX_NAMED_FAILURES {
            self.failures.push(RedriveFailure { id, detail: error.to_string() });
        }
        true
    }

    fn failed(&self) -> usize {
        self.dead_lettered + self.rejected
    }

    fn sent(&self) -> usize {
        self.applied + self.published + self.failed()
    }
}

/// Redrive many dead letters
///
/// Redrives in sequence, oldest first. With `canary: n`, the first n are redriven alone; the rest
/// follows only if none of them was dead-lettered again or rejected. The response has counts. Failed
/// inputs are dead letters again, and dead letters that were not redriven stay stored.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/redrive",
    tag = "dead letters",
    request_body = RedriveBody,
    responses((status = 200, description = "Counts and failures", body = RedriveResponse))
)]
pub(crate) async fn redrive_many(
    api: ApiState,
    Tenant(tenant): Tenant,
    JsonBody(selection): JsonBody<RedriveBody>,
) -> Result<Json<RedriveResponse>, Problem> {
    let (limit, canary) = (page_limit(at_least_one("limit", selection.limit)?, &api), selection.canary);
    let canary = at_least_one("canary", canary)?;
    // The canary and the others meet the same definitions.
    let _alone = api.app.lock_definitions().await;
    let mut dead_letters = api.read(move |app| choose(app, &tenant, &selection, limit + 1)).await?;
    let more = dead_letters.len() > limit;
    dead_letters.truncate(limit);
    let mut redriven =
        RedriveResponse { matched: dead_letters.len(), has_more: more, ..RedriveResponse::default() };
    send(&api.app, dead_letters, canary, &mut redriven).await;
    redriven.skipped = redriven.matched - redriven.sent();
    Ok(Json(redriven))
}

fn at_least_one(name: &str, count: Option<usize>) -> Result<Option<usize>, Problem> {
    match count {
        Some(0) => Err(invalid_parameter(name, format!("{name} is 0; set at least 1, or omit it"))),
        count => Ok(count),
    }
}

/// Returns the matching dead letters of a tenant, oldest first; one that is in several shards occurs
/// once.
fn choose(
    app: &ReadScope,
    tenant: &TenantId,
    selection: &RedriveBody,
    limit: usize,
) -> Result<Vec<DeadLetter>, Problem> {
    let is_meant = |dead_letter: &DeadLetter| {
        let saga = dead_letter.instance.as_ref().map(|key| &key.saga);
        selection.reason.is_none_or(|reason| reason == dead_letter.reason)
            && selection.saga.as_ref().is_none_or(|meant| saga == Some(meant))
    };
    let (mut chosen, mut after) = (Vec::new(), None);
    while chosen.len() < limit {
        let page = collect_page(app, tenant, after, BATCH)?;
        let Some(last) = page.last() else { break };
        after = Some(last.id);
        chosen.extend(page.into_iter().filter(is_meant));
    }
    chosen.dedup_by_key(|dead_letter| dead_letter.id);
    chosen.truncate(limit);
    Ok(chosen)
}

async fn send(
    app: &App,
    dead_letters: Vec<DeadLetter>,
    canary: Option<usize>,
    redriven: &mut RedriveResponse,
) {
    for (index, dead_letter) in dead_letters.into_iter().enumerate() {
        if canary == Some(index) && redriven.failed() > 0 {
            redriven.stopped = Some(format!("{} of the first {index} failed again", redriven.failed()));
            return;
        }
        let to_instance =
            dead_letter.instance.is_some() && matches!(dead_letter.original, DeadLetterOriginal::Input(_));
        let id = dead_letter.id.to_string();
        let result = app.runtime.redrive(dead_letter).await.map(|_| ());
        if !redriven.note(id, to_instance, result) {
            return;
        }
    }
}
