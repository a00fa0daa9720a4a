//! `GET /v1/dead-letters/causes`: dead letters grouped by reason and target saga.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use orlog_model::{DeadLetter, DeadLetterReason, SagaName, TenantId};
use serde::Serialize;
use utoipa::ToSchema;

use super::collect_page;
use crate::api::context::ApiState;
use crate::api::extract::Tenant;
use crate::api::problem::Problem;
use crate::api::read_scope::ReadScope;
use crate::dead_letters::view;
use crate::redact::Redaction;

/// Dead letters per read.
const BATCH: usize = 500;

/// Dead letters by cause, the most frequent first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CausePage {
    items: Vec<CauseView>,
    /// All dead letters were scanned; otherwise the counts are lower bounds.
    complete: bool,
}

/// Dead letters that a redrive with the same `reason` and `saga` selects.
#[derive(Debug, Serialize, ToSchema)]
struct CauseView {
    reason: &'static str,
    /// Target saga, if known.
    saga: Option<String>,
    count: u64,
    /// Time of the oldest dead letter.
    #[schema(format = "date-time")]
    oldest: String,
    /// Time of the newest dead letter.
    #[schema(format = "date-time")]
    newest: String,
    /// Message of the newest dead letter.
    message: String,
}

/// Number of dead letters with the same reason and target saga.
pub(crate) struct CauseCount {
    pub(crate) count: u64,
    oldest: DeadLetter,
    newest: DeadLetter,
}

/// All groups, and whether all dead letters were scanned.
pub(crate) type CauseCounts = (
    BTreeMap<(DeadLetterReason, Option<SagaName>), CauseCount>,
    bool,
);

/// Count dead letters by cause
///
/// Scans at most `http.scan_limit` dead letters.
#[utoipa::path(
    get,
    path = "/v1/dead-letters/causes",
    operation_id = "causes",
    tag = "dead letters",
    responses((status = 200, description = "Causes, the most frequent first", body = CausePage))
)]
pub(crate) async fn list(
    api: ApiState,
    Tenant(tenant): Tenant,
) -> Result<Json<CausePage>, Problem> {
    let (piles, complete) = api.read(move |app| count_causes(app, &tenant)).await?;
    let redact = &api.app.config.redact;
    let mut items: Vec<_> = piles
        .into_iter()
        .map(|((reason, saga), pile)| cause(reason, saga, &pile, redact))
        .collect();
    items.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    Ok(Json(CausePage { items, complete }))
}

fn cause(
    reason: DeadLetterReason,
    saga: Option<SagaName>,
    pile: &CauseCount,
    redact: &Redaction,
) -> CauseView {
    CauseView {
        reason: reason.as_str(),
        saga: saga.map(|saga| saga.to_string()),
        count: pile.count,
        oldest: pile.oldest.at.to_string(),
        newest: pile.newest.at.to_string(),
        message: view::message(&pile.newest, redact),
    }
}

/// Counts the dead letters of a tenant by cause; scans at most `http.scan_limit`.
pub(crate) fn count_causes(app: &ReadScope, tenant: &TenantId) -> Result<CauseCounts, Problem> {
    let (mut piles, mut seen, mut after) =
        (BTreeMap::<_, CauseCount>::new(), BTreeSet::new(), None);
    let scan_limit = app.config.http.scan_limit;
    loop {
        let page = collect_page(app, tenant, after, BATCH.min(scan_limit))?;
        let Some(last) = page.last() else {
            return Ok((piles, true));
        };
        after = Some(last.id);
        for dead_letter in page {
            // A dead letter of a key-sharded tenant can be in several shards.
            if !seen.insert(dead_letter.id) {
                continue;
            }
            let saga = dead_letter.instance.as_ref().map(|key| key.saga.clone());
            match piles.get_mut(&(dead_letter.reason, saga.clone())) {
                None => {
                    let pile = CauseCount {
                        count: 1,
                        oldest: dead_letter.clone(),
                        newest: dead_letter,
                    };
                    piles.insert((pile.newest.reason, saga), pile);
                }
                Some(pile) => {
                    pile.count += 1;
                    if dead_letter.at < pile.oldest.at {
                        pile.oldest = dead_letter;
                    } else if dead_letter.at >= pile.newest.at {
                        pile.newest = dead_letter;
                    }
                }
            }
        }
        if seen.len() >= scan_limit {
            return Ok((piles, collect_page(app, tenant, after, 1)?.is_empty()));
        }
    }
}
