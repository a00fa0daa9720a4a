//! `POST /v1/dead-letters/redrive`: redrives many dead letters, optionally with a canary.

use axum::Json;
use axum::extract::State;
use orlog_actors::ControlError;
use orlog_model::{
    DeadLetter, DeadLetterOriginal, DeadLetterReason, InstanceKey, SagaName, TenantId,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::collect_page;
use crate::server::body::JsonBody;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{Tenant, page_limit};
use crate::server::page::encoded_bytes;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;

/// Dead letters per read.
const BATCH: usize = 500;
/// Size of the selected dead letters in bytes at which the selection ends.
const MAX_BYTES: usize = 32 << 20;
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
    /// Canary size: redrive this many first, and the rest only if all of them succeed. Dead letters
    /// of ended instances do not count.
    canary: Option<usize>,
}

/// Selected dead letter.
struct Selected {
    dead_letter: DeadLetter,
    /// Whether its instance has ended.
    has_ended: bool,
}

/// Dead letters to redrive, oldest first.
#[derive(Default)]
struct Selection {
    dead_letters: Vec<Selected>,
    /// Whether more dead letters match.
    has_more: bool,
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
    /// Number of messages published to the bus. Their result is unknown, because they name no
    /// instance.
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
    /// Records a failure; returns `false` if the redrive must stop.
    fn note_failure(&mut self, id: String, has_ended: bool, error: &ControlError) -> bool {
        match error {
            ControlError::DeadLettered(_) => self.dead_lettered += 1,
            ControlError::Rejected(_) => self.rejected += 1,
            // A shard or the bus is not available: the rest stays stored for another request.
            ControlError::Unavailable => {
                self.stopped = Some(format!("at dead letter {id}: {error}"));
                return false;
            }
        }

        if self.failures.len() < MAX_NAMED_FAILURES {
            let advice = if has_ended {
                "; the instance has ended: discard the dead letter"
            } else {
                ""
            };
            self.failures.push(RedriveFailure {
                id,
                detail: format!("{error}{advice}"),
            });
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
/// follows only if none of them was dead-lettered again or rejected. Dead letters of ended
/// instances are redriven too, but do not count as canary: their result does not depend on a
/// repaired definition. The response has counts. Failed inputs are dead letters again, and dead
/// letters that were not redriven stay stored.
#[utoipa::path(
    post,
    path = "/v1/dead-letters/redrive",
    tag = "dead letters",
    request_body = RedriveBody,
    responses((status = 200, description = "Counts and failures", body = RedriveResponse))
)]
pub(crate) async fn redrive_many(
    instances: Instances,
    State(definitions): State<Definitions>,
    Tenant(tenant): Tenant,
    JsonBody(selection): JsonBody<RedriveBody>,
) -> Result<Json<RedriveResponse>, Problem> {
    let api = &instances.request;
    let limit = page_limit(at_least_one("limit", selection.limit)?, api);
    let canary = selection.canary;
    let canary = at_least_one("canary", canary)?;

    // The canary and the others meet the same definitions.
    let _alone = definitions.lock().await;
    let selected = api
        .read(move |scope| choose(scope, &tenant, &selection, limit))
        .await?;
    let mut redriven = RedriveResponse {
        matched: selected.dead_letters.len(),
        has_more: selected.has_more,
        ..RedriveResponse::default()
    };
    send(&instances, selected.dead_letters, canary, &mut redriven).await;
    // Each attempted dead letter is in one of the counts; the difference is what a stop has left.
    redriven.skipped = redriven.matched - redriven.sent();

    Ok(Json(redriven))
}

fn at_least_one(name: &str, count: Option<usize>) -> Result<Option<usize>, Problem> {
    match count {
        Some(0) => Err(invalid_parameter(
            name,
            format!("{name} is 0; set at least 1, or omit it"),
        )),
        count => Ok(count),
    }
}

/// Returns the matching dead letters of a tenant, oldest first; one that is in several shards
/// occurs once. They are in memory together, so that their size is limited too.
fn choose(
    scope: &ReadScope,
    tenant: &TenantId,
    selection: &RedriveBody,
    limit: usize,
) -> Result<Selection, Problem> {
    let is_meant = |dead_letter: &DeadLetter| {
        let saga = dead_letter.instance.as_ref().map(|key| &key.saga);
        selection
            .reason
            .is_none_or(|reason| reason == dead_letter.reason)
            && selection
                .saga
                .as_ref()
                .is_none_or(|selected| saga == Some(selected))
    };

    let mut chosen = Selection::default();
    let mut bytes = 0;
    let mut after = None;
    loop {
        let page = collect_page(scope, tenant, after, BATCH)?;
        for dead_letter in page.items.into_iter().filter(is_meant) {
            // Checked at the next match, not at the limit: only then it is certain that more match.
            if chosen.dead_letters.len() == limit || bytes >= MAX_BYTES {
                chosen.has_more = true;
                return Ok(chosen);
            }

            bytes += encoded_bytes(&dead_letter);
            chosen.dead_letters.push(Selected {
                has_ended: has_ended(scope, dead_letter.instance.as_ref())?,
                dead_letter,
            });
        }

        after = page.next;
        if after.is_none() {
            return Ok(chosen);
        }
    }
}

fn has_ended(scope: &ReadScope, key: Option<&InstanceKey>) -> Result<bool, Problem> {
    // Without an instance on this pod, the dead letter counts for the canary.
    let Some((reader, key)) = key.and_then(|key| Some((scope.reader(key)?, key))) else {
        return Ok(false);
    };
    match reader.instance(key) {
        Ok(instance) => Ok(instance.is_some_and(|instance| instance.status.is_final())),
        // Its dead letters are redriven after it is dropped or replayed.
        Err(error) if error.is_damage() => Ok(false),
        Err(error) => Err(error.into()),
    }
}

async fn send(
    instances: &Instances,
    dead_letters: Vec<Selected>,
    canary: Option<usize>,
    redriven: &mut RedriveResponse,
) {
    // Redriven dead letters whose instances have not ended, and how many of them failed.
    let mut count = 0;
    let mut failed = 0;
    for Selected {
        dead_letter,
        has_ended,
    } in dead_letters
    {
        // The canary ends after this number of dead letters of live instances, however many others
        // are in between.
        if canary == Some(count) && failed > 0 {
            redriven.stopped = Some(format!("{failed} of the first {count} failed again"));
            return;
        }
        // Before the redrive consumes the dead letter: only an input of an instance has a result.
        let to_instance = dead_letter.instance.is_some()
            && matches!(dead_letter.original, DeadLetterOriginal::Input(_));
        let id = dead_letter.id.to_string();
        // In sequence, because the inputs of an instance must arrive in their order.
        let result = instances.redrive(dead_letter).await;
        count += usize::from(!has_ended);
        match result {
            Ok(_) if to_instance => redriven.applied += 1,
            Ok(_) => redriven.published += 1,
            Err(error) => {
                failed += usize::from(!has_ended);
                if !redriven.note_failure(id, has_ended, &error) {
                    return;
                }
            }
        }
    }
}
