//! `POST /v1/dead-letters/redrive`: redrives many dead letters, optionally with a canary.

use axum::Json;
use axum::extract::State;
use orlog_actors::ControlError;
use orlog_model::{
    DeadLetter, DeadLetterOriginal, DeadLetterReason, InstanceKey, SagaName, TenantId,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::collect_page;
use crate::server::body::JsonBody;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{Tenant, page_limit};
use crate::server::page::encoded_bytes;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;

/// Dead letters per read. Each of them can have the size of a whole event.
const BATCH: usize = 64;
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
    /// The `next_cursor` of the previous response: dead letters before it are not selected.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = "uuid")]
    cursor: Option<Uuid>,
}

/// Selected dead letter.
struct Selected {
    dead_letter: DeadLetter,
    recipient: Recipient,
}

/// Instance of a dead letter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Recipient {
    /// It applies the input at once, so that its result counts for the canary. So does a dead letter
    /// without an instance on this pod.
    Live,
    /// It buffers the input, and can fail later.
    Paused,
    /// It rejects the input, whatever was repaired.
    Ended,
}

/// Ids of dead letters to redrive, oldest first.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection {
    ids: Vec<Uuid>,
    /// Size of the selected dead letters in bytes.
    bytes: usize,
    /// Last scanned dead letter, if the selection ended before the last one.
    next: Option<Uuid>,
}

/// Page of the dead letters of a tenant, without their originals.
struct ScannedPage {
    items: Vec<ScannedDeadLetter>,
    /// Whether there are more.
    has_more: bool,
}

/// Dead letter in a scan.
struct ScannedDeadLetter {
    id: Uuid,
    /// Size in bytes; `None`: it does not match.
    matching_bytes: Option<usize>,
}

/// Result of a redrive.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct RedriveResponse {
    /// Number of selected dead letters.
    matched: usize,
    /// More dead letters match, or were not scanned yet.
    has_more: bool,
    /// Cursor of the next request; null if no more dead letters match. Without it, a request scans
    /// from the oldest dead letter again.
    #[schema(format = "uuid")]
    next_cursor: Option<String>,
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
    /// Reason why some were not redriven, or why no other request should follow; otherwise null.
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
    fn note_failure(&mut self, id: String, recipient: Recipient, error: &ControlError) -> bool {
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
            let advice = if recipient == Recipient::Ended {
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
/// and of paused instances are redriven too, but do not count as canary: their result does not
/// depend on a repaired definition, or is not known yet. The response has counts. Failed inputs are
/// dead letters again, and dead letters that were not redriven stay stored. A request scans at most
/// `http.scan_limit` dead letters; `next_cursor` continues the scan.
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

    // Before the lock: deployments and replays must not wait for a scan.
    let of_tenant = tenant.clone();
    let Selection { ids, next, .. } = api
        .read(move |scope| choose(scope, &of_tenant, &selection, limit))
        .await?;

    let mut redriven = RedriveResponse {
        has_more: next.is_some(),
        next_cursor: next.map(|id| id.to_string()),
        ..RedriveResponse::default()
    };
    // Before the lock: it waits for deployments, migrations and replays in progress.
    if ids.is_empty() {
        return Ok(Json(redriven));
    }

    // The canary and the others meet the same definitions.
    let _alone = definitions.lock().await;
    // Under the lock: another request may have redriven or discarded some of them meanwhile.
    let selected = api.read(move |scope| load(scope, &tenant, &ids)).await?;
    redriven.matched = selected.len();
    send(&instances, selected, canary, &mut redriven).await;
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

/// Returns the ids of the matching dead letters of a tenant, oldest first; one that is in several
/// shards occurs once. At most `http.scan_limit` dead letters are scanned.
fn choose(
    scope: &ReadScope,
    tenant: &TenantId,
    selection: &RedriveBody,
    limit: usize,
) -> Result<Selection, Problem> {
    let limits = SelectionLimits {
        matches: limit,
        scanned: scope.http().scan_limit,
    };
    select(selection.cursor, limits, |after, count| {
        let page = collect_page(scope, tenant, after, count)?;
        let items = page.items.iter().map(|dead_letter| ScannedDeadLetter {
            id: dead_letter.id,
            matching_bytes: selection
                .admits(dead_letter)
                .then(|| encoded_bytes(dead_letter)),
        });
        Ok(ScannedPage {
            items: items.collect(),
            has_more: page.next.is_some(),
        })
    })
}

/// Maximum numbers of dead letters of a selection.
#[derive(Clone, Copy)]
struct SelectionLimits {
    matches: usize,
    scanned: usize,
}

/// Selects from pages, which `read` returns after a dead letter, up to a number of dead letters.
fn select(
    mut after: Option<Uuid>,
    limits: SelectionLimits,
    mut read: impl FnMut(Option<Uuid>, usize) -> Result<ScannedPage, Problem>,
) -> Result<Selection, Problem> {
    let mut chosen = Selection::default();
    let mut scanned = 0;
    loop {
        let page = read(after, BATCH.min(limits.scanned - scanned))?;
        scanned += page.items.len();
        for ScannedDeadLetter { id, matching_bytes } in page.items {
            if let Some(bytes) = matching_bytes {
                // Checked at the next match, not at the limit: only then it is certain that more
                // match. They are in memory together, so that their size is limited, too.
                if chosen.ids.len() == limits.matches || chosen.bytes >= MAX_BYTES {
                    chosen.next = after;
                    return Ok(chosen);
                }
                chosen.bytes += bytes;
                chosen.ids.push(id);
            }
            after = Some(id);
        }

        if !page.has_more {
            return Ok(chosen);
        }
        if scanned >= limits.scanned {
            chosen.next = after;
            return Ok(chosen);
        }
    }
}

/// Returns the selected dead letters that are still stored.
fn load(scope: &ReadScope, tenant: &TenantId, ids: &[Uuid]) -> Result<Vec<Selected>, Problem> {
    let readers: Vec<_> = scope.readers().collect();
    let mut selected = Vec::with_capacity(ids.len());
    for id in ids {
        for reader in &readers {
            let Some(dead_letter) = reader.dead_letter(tenant, *id)? else {
                continue;
            };
            selected.push(Selected {
                recipient: recipient(scope, dead_letter.instance.as_ref())?,
                dead_letter,
            });
            // A copy in another shard is the same dead letter.
            break;
        }
    }

    Ok(selected)
}

impl RedriveBody {
    /// Returns whether a dead letter matches the filters.
    fn admits(&self, dead_letter: &DeadLetter) -> bool {
        let saga = dead_letter.instance.as_ref().map(|key| &key.saga);
        self.reason
            .is_none_or(|reason| reason == dead_letter.reason)
            && self
                .saga
                .as_ref()
                .is_none_or(|selected| saga == Some(selected))
    }
}

fn recipient(scope: &ReadScope, key: Option<&InstanceKey>) -> Result<Recipient, Problem> {
    let Some((reader, key)) = key.and_then(|key| Some((scope.reader(key)?, key))) else {
        return Ok(Recipient::Live);
    };
    match reader.instance(key) {
        Ok(Some(instance)) if instance.status.is_final() => Ok(Recipient::Ended),
        Ok(Some(instance)) if instance.paused => Ok(Recipient::Paused),
        Ok(_) => Ok(Recipient::Live),
        // Its dead letters are redriven after it is dropped or replayed.
        Err(error) if error.is_damage() => Ok(Recipient::Live),
        Err(error) => Err(error.into()),
    }
}

async fn send(
    instances: &Instances,
    dead_letters: Vec<Selected>,
    canary: Option<usize>,
    redriven: &mut RedriveResponse,
) {
    // Redriven dead letters of live instances, and how many of them failed.
    let mut count = 0;
    let mut failed = 0;
    for Selected {
        dead_letter,
        recipient,
    } in dead_letters
    {
        // The canary ends after this number of dead letters of live instances, however many others
        // are in between.
        if canary == Some(count) && failed > 0 {
            redriven.stopped = Some(canary_failure(failed, count));
            return;
        }
        // Before the redrive consumes the dead letter: only an input of an instance has a result.
        let to_instance = dead_letter.instance.is_some()
            && matches!(dead_letter.original, DeadLetterOriginal::Input(_));
        let id = dead_letter.id.to_string();
        // In sequence, because the inputs of an instance must arrive in their order.
        let result = instances.redrive(dead_letter).await;
        let is_live = recipient == Recipient::Live;
        count += usize::from(is_live);
        match result {
            Ok(_) if to_instance => redriven.applied += 1,
            Ok(_) => redriven.published += 1,
            Err(error) => {
                failed += usize::from(is_live);
                if !redriven.note_failure(id, recipient, &error) {
                    return;
                }
            }
        }
    }

    // The next request of the same redrive does not receive the failures of this one.
    let is_canary = canary.is_some_and(|canary| count <= canary);
    if is_canary && failed > 0 && redriven.has_more {
        redriven.stopped = Some(canary_failure(failed, count));
    }
}

fn canary_failure(failed: usize, count: usize) -> String {
    format!("{failed} of the first {count} failed again")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a page of the dead letters 1 to 10, of which the even ones match.
    fn page(after: Option<Uuid>, count: usize) -> ScannedPage {
        let first = after.map_or(1, |id| id.as_u128() + 1);
        let last = (first + count as u128 - 1).min(10);
        let items = (first..=last).map(|number| ScannedDeadLetter {
            id: Uuid::from_u128(number),
            matching_bytes: (number % 2 == 0).then_some(100),
        });
        ScannedPage {
            items: items.collect(),
            has_more: last < 10,
        }
    }

    fn selected(after: Option<u128>, matches: usize, scanned: usize) -> (Vec<u128>, Option<u128>) {
        let limits = SelectionLimits { matches, scanned };
        let mut read = 0;
        let chosen = select(after.map(Uuid::from_u128), limits, |after, count| {
            let page = page(after, count);
            read += page.items.len();
            Ok(page)
        })
        .unwrap();
        assert!(read <= scanned, "{read} dead letters were read");
        let ids = chosen.ids.iter().map(Uuid::as_u128).collect();
        (ids, chosen.next.map(|id| id.as_u128()))
    }

    #[test]
    fn selection_ends_at_the_scan_limit_and_continues_there() {
        assert_eq!(selected(None, 100, 5), (vec![2, 4], Some(5)));
        assert_eq!(selected(Some(5), 100, 5), (vec![6, 8, 10], None));
        // Nothing matches within the limit, and the scan still advances.
        assert_eq!(selected(None, 100, 1), (vec![], Some(1)));
    }

    #[test]
    fn selection_has_more_only_if_another_one_matches() {
        assert_eq!(selected(None, 2, 100), (vec![2, 4], Some(5)));
        assert_eq!(selected(Some(5), 2, 100), (vec![6, 8], Some(9)));
        assert_eq!(selected(Some(9), 2, 100), (vec![10], None));
        assert_eq!(selected(None, 5, 100), (vec![2, 4, 6, 8, 10], None));
    }
}
