//! `GET /v1/sagas` and `GET /v1/sagas/{saga}/{correlation}`: lists instances and shows one
//! instance.

pub(crate) mod built_in;
mod context;
pub(crate) mod control;
pub(crate) mod flow;
mod history;
mod ignored_event;
pub(crate) mod overview;
mod page;
mod request_key;
pub(crate) mod resource;
pub(crate) mod result;
pub(crate) mod start;
mod view;
mod work;

use orlog_model::{
    Instance, InstanceKey, OutboxKey, SagaName, Status, Timestamp, WorkItem, WorkKind,
};
use orlog_store::{InstanceQuery, Reader};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;

use crate::resources::dead_letters::DeadLetterView;
use crate::server::context::RequestContext;
use crate::server::extract::{
    InstanceParams, InstancePath, QueryParams, Tenant, page_limits, time,
};
use crate::server::page::EncodedJson;
use crate::server::problem::{Code, Problem};
use context::BufferedInputView;
pub(crate) use history::HistoryEntryView;
use ignored_event::IgnoredEventView;
use page::InstancePage;
use view::InstanceDetail;
pub(crate) use view::InstanceSummary;
use work::{AttemptView, OutboxView};

use orlog_node::sagas::instance_pages::parse_cursor;
use orlog_node::sagas::search::{self, InstanceSearch};
pub(crate) use orlog_node::sagas::state::{displayed_state, hidden_values, stored_hidden_values};
pub(crate) use orlog_node::sagas::view::ParentView;

/// Maximum scanned outbox rows for the work of one instance.
const OUTBOX_SCAN: usize = 2_000;
/// Maximum number of buffered inputs in a response.
const MAX_BUFFERED: usize = 100;

/// Filter of instances.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct InstanceQueryParams {
    /// Filter by saga.
    #[param(value_type = Option<String>)]
    saga: Option<SagaName>,
    /// Filter by status, comma-separated: `running`, `compensating`, `completed`, `failed`,
    /// `cancelled`, `stuck`.
    #[serde(default, deserialize_with = "statuses")]
    #[param(value_type = Option<String>)]
    status: Vec<Status>,
    /// Filter by prefix of the correlation id.
    prefix: Option<String>,
    /// Updated at or after this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = "date-time")]
    updated_from: Option<Timestamp>,
    /// Updated before this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = "date-time")]
    updated_until: Option<Timestamp>,
    /// Started at or after this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = "date-time")]
    created_from: Option<Timestamp>,
    /// Started before this time (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>, format = "date-time")]
    created_until: Option<Timestamp>,
    /// Filter by a part of the business reference, `order=o-1`, or by the name, `R-4711`.
    reference: Option<String>,
    /// Filter with a CEL condition, for example `vars.total > 100`; docs/queries.md describes the
    /// variables.
    filter: Option<String>,
    /// Whether to count the matching instances, as far as one request can scan.
    #[serde(default)]
    count: bool,
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Page of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct HistoryQuery {
    /// Return only history entries after this version: the `next` of the previous page.
    #[serde(default)]
    history_after: u64,
    /// Maximum number of history entries. Default: 100.
    history_limit: Option<usize>,
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Status>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = |name: &str| {
        let found = Status::ALL
            .into_iter()
            .find(|status| status.as_str() == name);
        found.ok_or_else(|| {
            D::Error::custom(format!(
                "unknown status {name:?}; statuses: {}",
                Status::ALL.map(Status::as_str).join(", ")
            ))
        })
    };

    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(read)
        .collect()
}

/// List instances
///
/// Ordered by saga and correlation id; with `status` or a filter that uses an index, first by
/// status or value. A request scans a bounded number of instances, so a page can be short and still
/// have a `next_cursor`; the last page has none.
#[utoipa::path(
    get,
    path = "/v1/sagas",
    tag = "sagas",
    params(InstanceQueryParams),
    responses((status = 200, description = "A page", body = InstancePage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(mut params): QueryParams<InstanceQueryParams>,
) -> Result<EncodedJson, Problem> {
    if let Some(reference) = &params.reference {
        params.filter = Some(search::reference_condition(
            reference,
            params.filter.as_deref(),
        ));
    }

    let scan_limit = api.http().scan_limit;
    let limits = page_limits(params.limit, &api);
    let (shard, cursor) = parse_cursor(params.cursor.as_deref())?;
    // Only a condition needs a place: its evaluation uses a processor for up to a second.
    let permit = params
        .filter
        .is_some()
        .then(|| api.queries().acquire(&tenant))
        .transpose()?;
    // Before the read, so that a caller without CPU time takes no place of the pool.
    let timer = params
        .filter
        .is_some()
        .then(|| api.begin_query())
        .transpose()?;

    let query = InstanceQuery {
        tenant,
        saga: params.saga,
        statuses: params.status,
        prefix: params.prefix,
        updated_from: params.updated_from,
        updated_until: params.updated_until,
        created_from: params.created_from,
        created_until: params.created_until,
        variable: None,
        cursor,
        limit: limits.entries,
        scan_limit,
    };

    // The rest is for the response.
    let timeout = api.http().request_timeout / 2;
    let source = params.filter;
    let count = params.count;
    api.read_json(move |scope| {
        // Held by the thread: an evaluation continues after its client has disconnected.
        let _permit = permit;
        timer.unwrap_or_default().run(|| {
            let filter = source.as_deref().map(search::compile_filter).transpose()?;
            let search = InstanceSearch {
                query,
                start_shard: shard,
                only: None,
                filter,
                count,
                timeout,
            };
            let result = search::search(scope.stores(), search)?;

            Ok(InstancePage::of(scope, result, limits, count))
        })
    })
    .await
}

/// Show an instance
///
/// Its snapshot with the state of its program, what it waits for, its timers, its pending work and
/// a page of its history.
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}",
    tag = "sagas",
    params(InstanceParams, HistoryQuery),
    responses((status = 200, description = "The instance", body = InstanceDetail))
)]
pub(crate) async fn show(
    api: RequestContext,
    InstancePath(key): InstancePath,
    QueryParams(page): QueryParams<HistoryQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(page.history_limit, &api);
    let buffered_limit = api.http().max_page_size;
    api.read_json(move |scope| {
        let reader = scope
            .reader(&key)
            .ok_or_else(|| Problem::new(Code::InstanceNotFound, format!("no instance {key}")))?;
        let Some(instance) = reader.instance(&key)? else {
            return Err(context::missing_instance(&reader, &key)?);
        };

        // One entry more than the page shows that there is a next page.
        let history = reader.history(&key, page.history_after, limits.entries + 1)?;
        let buffered = reader.buffered_inputs(&key, buffered_limit)?;
        let spilled = reader.spilled_inputs(&key, buffered_limit)?;
        let (work, whole) = outbox(&reader, &key, &instance)?;
        let (dead_letters, scanned_all) = context::dead_letters(&reader, &key)?;
        let redact = scope.redact();
        let hidden = hidden_values(scope.stores(), &instance);
        let mut detail = InstanceDetail::of(scope, &key, &instance, &history, limits, &work);
        // Both lists are limited, so that the number is a lower bound for an instance with more
        // inputs.
        detail.buffered_inputs = buffered.len() + spilled.len();

        let inputs = buffered
            .iter()
            .map(|(_, input)| BufferedInputView::of(input, false));
        let inputs = inputs.chain(
            spilled
                .iter()
                .map(|(_, input)| BufferedInputView::of(input, true)),
        );
        detail.buffered = inputs.take(MAX_BUFFERED).collect();

        let ignored = scope.ignored_events(&key);
        detail.ignored_events = ignored
            .iter()
            .map(|event| IgnoredEventView::of(event, &hidden))
            .collect();

        detail.dead_letters = dead_letters
            .iter()
            .map(|letter| DeadLetterView::of(letter, redact))
            .collect();
        detail.dead_letters_complete = scanned_all;
        detail.breakers = context::breakers(scope, &work);

        let attempts = scope.failed_attempts(&key);
        detail.attempts = attempts
            .iter()
            .map(|attempt| AttemptView::of(attempt, &hidden, redact))
            .collect();
        detail.outbox = OutboxView::of(&work, whole);

        Ok(detail)
    })
    .await
}

/// Returns the work of one instance in the outbox, and whether the whole outbox was scanned.
/// Effects and commands are scanned only if the instance waits for some: the other instances of the
/// tenant may have thousands.
fn outbox(
    reader: &Reader,
    key: &InstanceKey,
    instance: &Instance,
) -> Result<(Vec<(OutboxKey, WorkItem)>, bool), Problem> {
    let mut work = Vec::new();
    let mut remaining = OUTBOX_SCAN;
    let can_have = |kind| match kind {
        WorkKind::Fact | WorkKind::Saga => true,
        WorkKind::Effect | WorkKind::Command => {
            instance.pending_work.iter().any(|work| work.kind == kind)
        }
    };
    let destinations = reader.tenant_destinations(&key.tenant)?;
    for destination in destinations
        .into_iter()
        .filter(|destination| can_have(destination.kind))
    {
        // One row beyond the limit shows that the outbox was not read to its end.
        let rows = reader.outbox(&destination, 0, remaining + 1)?;
        let whole = rows.len() <= remaining;
        remaining -= rows.len().min(remaining);
        work.extend(rows.into_iter().filter(|(_, item)| item.instance == *key));
        if !whole {
            return Ok((work, false));
        }
    }

    Ok((work, true))
}
