//! `GET /v1/export`: snapshot and changes as JSON lines, to maintain a copy in another system.

mod cursor;
mod line;
mod read;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::future::select_all;
use orlog_model::TenantId;
use orlog_store::FeedEntityKind;
use serde::Deserialize;
use utoipa::IntoParams;

use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant, duration};
use crate::server::parts::access::Access;
use crate::server::parts::cluster::Cluster;
use crate::server::parts::operations::Operations;
use crate::server::problem::{Code, Problem};
use cursor::ExportCursor;
use orlog_node::auth::{Caller, Right, TenantScope};
use read::{ExportPart, ExportRequest};

/// Time in which commits are coalesced into one response.
const COALESCE_DELAY: Duration = Duration::from_millis(20);

/// Options of an export request.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportQuery {
    /// Kinds, comma-separated: `instances`, `tasks`, `task_events`, `history`. Default: all.
    kinds: Option<String>,
    /// Cursor of the previous response; a new snapshot if absent.
    after: Option<String>,
    /// Maximum wait for a change, for example `20s`; limited by `http.request_timeout`.
    #[param(format = "duration")]
    wait: Option<String>,
    /// Approximate maximum number of lines. Default: `http.max_page_size`.
    limit: Option<usize>,
    /// Include all tenants, not only the tenant of the request, except contexts of which the caller
    /// is no member.
    #[serde(default)]
    all: bool,
}

/// Export the snapshot and the changes
///
/// Newline-delimited JSON. Each line is the state of one entity: `kind` (`instance`, `task`,
/// `task_event`, `history`), `op` (`put`, `delete`), `shard`, `position`, `tenant`, `key`, and with
/// `put` the `value`. Of two lines about the same entity, the one with the greater `position`
/// applies. A response without a request cursor starts with `{"kind":"reset"}`. The last line of
/// every response is `{"kind":"cursor","cursor":…,"has_more":…,"snapshotting":…}`; a response
/// without it is truncated.
#[utoipa::path(
    get,
    path = "/v1/export",
    tag = "export",
    params(ExportQuery),
    responses((
        status = 200,
        description = "Lines",
        body = String,
        content_type = "application/x-ndjson"
    ))
)]
pub(crate) async fn export(
    api: RequestContext,
    State(operations): State<Operations>,
    State(access): State<Access>,
    cluster: Cluster,
    Tenant(tenant): Tenant,
    Extension(caller): Extension<Caller>,
    QueryParams(query): QueryParams<ExportQuery>,
) -> Result<Response, Problem> {
    if !operations.has_export() {
        let detail = "the change feed is disabled; set export.enabled = true";
        return Err(Problem::new(Code::ExportDisabled, detail));
    }
    if query.all && caller.tenants != TenantScope::All {
        let detail = "all=true requires access to all tenants (*)";
        return Err(Problem::new(Code::TenantForbidden, detail));
    }

    // Within `http.request_timeout`: the deadline of the request is twice as long, and leaves time
    // for the last read.
    let until = Instant::now() + query.timeout()?.min(api.http().request_timeout);
    let _long_poll = query
        .wait
        .is_some()
        .then(|| api.begin_long_poll())
        .transpose()?;
    let mut order = query.order(&api, (!query.all).then_some(tenant))?;

    loop {
        // In each round, because a shard can move to another pod during the wait.
        let shards = order.shards(&cluster)?;
        // Watched before the read: a commit after the read ends the wait below.
        let mut commits: Vec<_> = shards.iter().map(|(_, reader)| reader.watch()).collect();
        for commits in &mut commits {
            drop(commits.borrow_and_update());
        }

        // In each round: a caller that loses its access to a context during the wait receives no
        // further lines of it.
        if query.all {
            order.closed = access.registry().closed_to(&caller, Right::Read);
        }
        let requested = order.clone();
        // Before the read: a drain that starts later resolves `drained` during the wait.
        let is_draining = !api.health().accepting;
        let part = api
            .read(move |scope| read::read(scope, &requested, &shards))
            .await?;
        let is_quiet = part.lines.is_empty() && !part.cursor.is_scanning() && !part.more;

        let remaining = until.saturating_duration_since(Instant::now());
        if !is_quiet || remaining.is_zero() || is_draining {
            return Ok(response(&part));
        }

        // The next round continues behind the changes of other tenants, which this part has
        // skipped.
        order.cursor = Some(part.cursor);
        let changed = select_all(
            commits
                .iter_mut()
                .map(|commits| Box::pin(commits.changed())),
        );

        tokio::select! {
            // The next read detects a closed shard.
            _ = changed => tokio::time::sleep(COALESCE_DELAY.min(remaining)).await,
            () = tokio::time::sleep(remaining) => {}
            () = api.drained() => {}
        }
    }
}

impl ExportQuery {
    fn timeout(&self) -> Result<Duration, Problem> {
        Ok(duration("wait", self.wait.as_deref())?.unwrap_or_default())
    }

    fn order(
        &self,
        api: &RequestContext,
        tenant: Option<TenantId>,
    ) -> Result<ExportRequest, Problem> {
        let http = api.http();
        let requested = self.kinds.as_deref().map(kinds).transpose()?;
        let cursor = self.after.as_deref().map(ExportCursor::read).transpose()?;
        if let Some(cursor) = &cursor {
            cursor.matches_query(tenant.as_ref(), requested.as_deref())?;
        }

        // `matches_query` has rejected other kinds, so that those of the cursor apply also without
        // the parameter.
        let kinds = cursor
            .as_ref()
            .map(|cursor| cursor.kinds.clone())
            .or(requested);
        Ok(ExportRequest {
            tenant,
            kinds: kinds.unwrap_or_else(|| FeedEntityKind::ALL.to_vec()),
            closed: BTreeSet::new(),
            cursor,
            limit: self
                .limit
                .unwrap_or(http.max_page_size)
                .clamp(1, http.max_page_size),
        })
    }
}

fn kinds(text: &str) -> Result<Vec<FeedEntityKind>, Problem> {
    let read = |name: &str| {
        let found = FeedEntityKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == name);
        found.ok_or_else(|| {
            invalid_parameter(
                "kinds",
                format!(
                    "unknown kind {name:?}; kinds: {}",
                    FeedEntityKind::ALL.map(FeedEntityKind::as_str).join(", ")
                ),
            )
        })
    };

    let mut kinds = text
        .split(',')
        .map(|name| read(name.trim()))
        .collect::<Result<Vec<_>, _>>()?;
    // The cursor contains the list and is compared with it, so that equal sets need equal lists.
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}

fn response(part: &ExportPart) -> Response {
    let mut body = part.lines.clone();
    body.push_str(&line::end_line(&part.cursor, part.more));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response()
}
