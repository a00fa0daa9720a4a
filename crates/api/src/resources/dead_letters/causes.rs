//! `GET /v1/dead-letters/causes`: dead letters grouped by reason and target saga.

use std::collections::BTreeMap;

use orlog_model::{DeadLetter, DeadLetterReason, SagaName, TenantId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::collect_page;
use crate::server::context::RequestContext;
use crate::server::extract::{QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;
use orlog_node::dead_letters::view;

/// Dead letters per read.
const BATCH: usize = 500;

/// Dead letters by cause, the most frequent first.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CausePage {
    items: Vec<CauseView>,
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
    /// All dead letters were scanned; otherwise the counts are lower bounds.
    complete: bool,
}

/// Page to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct CauseQuery {
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page: the number of causes before this one.
    #[param(value_type = Option<String>)]
    cursor: Option<usize>,
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

/// Reason and target saga of dead letters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cause {
    reason: DeadLetterReason,
    saga: Option<SagaName>,
}

/// Number of dead letters with the same cause. It has no dead letter: one can have the size of a
/// message.
pub(crate) struct CauseCount {
    pub(crate) count: u64,
    oldest_at: Timestamp,
    newest_at: Timestamp,
    newest: Uuid,
}

/// Dead letters of a tenant by cause.
#[derive(Default)]
pub(crate) struct CauseCounts {
    pub(crate) causes: BTreeMap<Cause, CauseCount>,
    /// Whether all dead letters were scanned.
    pub(crate) complete: bool,
}

/// Count dead letters by cause
///
/// Scans at most `http.scan_limit` dead letters.
#[utoipa::path(
    get,
    path = "/v1/dead-letters/causes",
    operation_id = "causes",
    tag = "dead letters",
    params(CauseQuery),
    responses((status = 200, description = "Causes, the most frequent first", body = CausePage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<CauseQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(query.limit, &api);
    let skipped = query.cursor.unwrap_or_default();
    api.read_json(move |scope| {
        let counted = count_causes(scope, &tenant)?;
        let mut causes: Vec<_> = counted.causes.iter().collect();
        // A stable sort: causes with equal counts keep their order, so that a cursor continues
        // between them.
        causes.sort_by_key(|(_, count)| std::cmp::Reverse(count.count));

        let mut page = PageBuilder::new(limits);
        for (index, (cause, count)) in causes.into_iter().enumerate().skip(skipped) {
            let view = CauseView::read(scope, &tenant, cause, count)?;
            if !page.push(view, (index + 1).to_string()) {
                break;
            }
        }

        let page = page.finish(None);
        Ok(CausePage {
            items: page.entries,
            next_cursor: page.next,
            complete: counted.complete,
        })
    })
    .await
}

impl CauseView {
    /// Creates the view, with the message of the newest dead letter.
    fn read(
        scope: &ReadScope,
        tenant: &TenantId,
        cause: &Cause,
        count: &CauseCount,
    ) -> Result<Self, Problem> {
        // The counts keep no dead letters, so that the newest one is read again. It can be redriven
        // by then; the message stays empty.
        let mut message = String::new();
        for reader in scope.readers() {
            if let Some(newest) = reader.dead_letter(tenant, count.newest)? {
                message = view::message(&newest, scope.redact());
                break;
            }
        }

        Ok(Self {
            reason: cause.reason.as_str(),
            saga: cause.saga.as_ref().map(ToString::to_string),
            count: count.count,
            oldest: count.oldest_at.to_string(),
            newest: count.newest_at.to_string(),
            message,
        })
    }
}

impl CauseCounts {
    fn add(&mut self, dead_letter: &DeadLetter) {
        let cause = Cause {
            reason: dead_letter.reason,
            saga: dead_letter.instance.as_ref().map(|key| key.saga.clone()),
        };
        let at = dead_letter.at;
        let count = self.causes.entry(cause).or_insert(CauseCount {
            count: 0,
            oldest_at: at,
            newest_at: at,
            newest: dead_letter.id,
        });

        count.count += 1;
        count.oldest_at = count.oldest_at.min(at);
        if at >= count.newest_at {
            count.newest_at = at;
            count.newest = dead_letter.id;
        }
    }
}

/// Counts the dead letters of a tenant by cause; scans at most `http.scan_limit`.
pub(crate) fn count_causes(scope: &ReadScope, tenant: &TenantId) -> Result<CauseCounts, Problem> {
    let mut counts = CauseCounts::default();
    let mut scanned = 0;
    let mut after = None;
    let scan_limit = scope.http().scan_limit;
    while scanned < scan_limit {
        let page = collect_page(scope, tenant, after, BATCH.min(scan_limit - scanned))?;
        page.items
            .iter()
            .for_each(|dead_letter| counts.add(dead_letter));
        scanned += page.items.len();
        after = page.next;

        if after.is_none() {
            counts.complete = true;
            return Ok(counts);
        }
    }

    // The limit can end the scan exactly after the last dead letter; then the counts are complete.
    counts.complete = collect_page(scope, tenant, after, 1)?.items.is_empty();
    Ok(counts)
}
