//! `GET /v1/export`: what there is and what changes, a line each, for whoever keeps a copy elsewhere.

mod cursor;
mod line;
mod read;

use std::time::{Duration, Instant};

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures::future::select_all;
use jiff::SignedDuration;
use orlog_model::TenantId;
use orlog_store::Fed;
use serde::Deserialize;
use utoipa::IntoParams;

use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{Params, Tenant};
use super::problem::{Code, Problem};
use crate::auth::{Caller, Reach};
use cursor::Cursor;
use read::{Order, Part};

/// Commits that come close together are told of together.
const GATHER: Duration = Duration::from_millis(20);

/// What is wanted.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Of these kinds only, separated by commas: `instances`, `tasks`, `task_events`, `history`. All where nothing is said.
    kinds: Option<String>,
    /// The cursor of the answer before; everything there is where it is absent.
    after: Option<String>,
    /// How long to wait where nothing has changed, for example `20s`; at most `http.request_timeout`.
    wait: Option<String>,
    /// About how many lines at most; `http.page_limit` where nothing is said.
    limit: Option<usize>,
    /// That of every tenant, not only of the tenant of the request.
    #[serde(default)]
    all: bool,
}

/// What changed
///
/// Newline-delimited JSON. Each line says how one thing stands: `kind` (`instance`, `task`, `task_event`, `history`), `op` (`put`,
/// `delete`), `shard`, `position`, `tenant`, `key`, and with `put` the `value`. Of two lines about the same thing the one with
/// the greater `position` holds. An answer to nobody's cursor begins with `{"kind":"begin"}`; the last line of every answer is `{"kind":"cursor","cursor":…,"more":…,"scanning":…}`; an answer without it was cut off.
#[utoipa::path(
    get,
    path = "/v1/export",
    tag = "export",
    params(Wanted),
    responses((status = 200, description = "Lines", body = String, content_type = "application/x-ndjson"))
)]
pub(super) async fn changes(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Extension(caller): Extension<Caller>,
    Params(wanted): Params<Wanted>,
) -> Result<Response, Problem> {
    if !api.app.config.export.enabled {
        let detail = "commits do not note what they touch; set export.enabled = true";
        return Err(Problem::new(Code::NoExport, detail));
    }
    if wanted.all && caller.reach != Reach::All {
        let detail = "all=true takes somebody who may act for all tenants (*)";
        return Err(Problem::new(Code::NotYourTenant, detail));
    }
    let until = Instant::now() + wanted.patience()?.min(api.app.config.http.request_timeout);
    let mut order = wanted.order(&api, (!wanted.all).then_some(tenant))?;
    loop {
        let shards = order.shards(&api.app)?;
        let mut commits: Vec<_> = shards.iter().map(|(_, reader)| reader.watch()).collect();
        for commits in &mut commits {
            drop(commits.borrow_and_update());
        }
        let (asked, is_draining) = (order.clone(), !api.app.runtime.health().accepting);
        let part = api.read(move |app| read::read(app, &asked, &shards)).await?;
        let is_quiet = part.lines.is_empty() && !part.cursor.is_scanning() && !part.more;
        let left = until.saturating_duration_since(Instant::now());
        if !is_quiet || left.is_zero() || is_draining {
            return Ok(answer(&part));
        }
        order.cursor = Some(part.cursor);
        let changed = select_all(commits.iter_mut().map(|commits| Box::pin(commits.changed())));
        tokio::select! {
            // An end of the shard is found out by the next look.
            _ = changed => tokio::time::sleep(GATHER.min(left)).await,
            () = tokio::time::sleep(left) => {}
            () = api.app.drained() => {}
        }
    }
}

impl Wanted {
    fn patience(&self) -> Result<Duration, Problem> {
        let Some(text) = &self.wait else { return Ok(Duration::ZERO) };
        let parsed = text.parse::<SignedDuration>().ok().and_then(|wait| Duration::try_from(wait).ok());
        parsed.ok_or_else(|| bad_parameter("wait", format!("{text:?} is no duration such as \"20s\"")))
    }

    fn order(&self, api: &Api, tenant: Option<TenantId>) -> Result<Order, Problem> {
        let http = &api.app.config.http;
        let asked = self.kinds.as_deref().map(kinds).transpose()?;
        let cursor = self.after.as_deref().map(Cursor::read).transpose()?;
        if let Some(cursor) = &cursor {
            cursor.fits(tenant.as_ref(), asked.as_deref())?;
        }
        let kinds = cursor.as_ref().map(|cursor| cursor.kinds.clone()).or(asked);
        Ok(Order {
            tenant,
            kinds: kinds.unwrap_or_else(|| Fed::ALL.to_vec()),
            cursor,
            limit: self.limit.unwrap_or(http.page_limit).clamp(1, http.page_limit),
        })
    }
}

fn kinds(text: &str) -> Result<Vec<Fed>, Problem> {
    let read = |word: &str| {
        let found = Fed::ALL.into_iter().find(|kind| kind.as_str() == word);
        let known = || Fed::ALL.map(Fed::as_str).join(", ");
        found.ok_or_else(|| bad_parameter("kinds", format!("{word:?} is no kind; there are {}", known())))
    };
    let mut kinds = text.split(',').map(|word| read(word.trim())).collect::<Result<Vec<_>, _>>()?;
    kinds.sort();
    kinds.dedup();
    Ok(kinds)
}

fn answer(part: &Part) -> Response {
    let head = [(header::CONTENT_TYPE, "application/x-ndjson"), (header::CACHE_CONTROL, "no-store")];
    let mut body = part.lines.clone();
    body.push_str(&line::last(&part.cursor, part.more));
    (head, body).into_response()
}
