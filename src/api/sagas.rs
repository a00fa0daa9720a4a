//! `GET /v1/sagas` and `GET /v1/sagas/{saga}/{correlation}`: which instances there are, and everything about one.

mod page;
mod search;
mod view;
mod work;

use axum::Json;
use axum::extract::State;
use orlog_model::{InstanceKey, OutboxKey, SagaName, Status, Timestamp, WorkItem};
use orlog_store::{InstanceQuery, Page, Reader};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use utoipa::IntoParams;

use super::context::Api;
use super::errors::bad_parameter;
use super::extract::{Key, Params, Tenant, page_limit, time};
use super::problem::{Code, Problem};
use crate::app::App;
use page::Found;
use search::Search;
use view::Detail;
pub(super) use view::{ParentView, RecordView, Summary, hex, state};
use work::{AttemptView, Outbox};

/// Rows of the outbox that are looked at for those of one instance.
const OUTBOX_SCAN: usize = 2_000;

/// Which instances.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Wanted {
    /// Of this saga only.
    #[param(value_type = Option<String>)]
    saga: Option<SagaName>,
    /// In these statuses only, separated by commas: `running`, `compensating`, `completed`, `failed`, `cancelled`, `stuck`.
    #[serde(default, deserialize_with = "statuses")]
    #[param(value_type = Option<String>)]
    status: Vec<Status>,
    /// With a correlation id that begins so.
    prefix: Option<String>,
    /// Last changed then or later (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>)]
    updated_from: Option<Timestamp>,
    /// Last changed before (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>)]
    updated_until: Option<Timestamp>,
    /// Started then or later (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>)]
    created_from: Option<Timestamp>,
    /// Started before (RFC 3339).
    #[serde(default, deserialize_with = "time")]
    #[param(value_type = Option<String>)]
    created_until: Option<Timestamp>,
    /// That this condition in CEL holds of, for example `vars.total > 100`; docs/queries.md says what it can speak of.
    filter: Option<String>,
    /// Whether to say how many there are, as far as one request can look.
    #[serde(default)]
    count: bool,
    /// Entries of a page; 100 where nothing is said.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// How much of the history.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct HistoryPage {
    /// Records behind this state version only: the `next` of the page before.
    #[serde(default)]
    history_after: u64,
    /// Records of a page; 100 where nothing is said.
    history_limit: Option<usize>,
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Status>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = |word: &str| {
        let found = Status::ALL.into_iter().find(|status| status.as_str() == word);
        let known = || Status::ALL.map(Status::as_str).join(", ");
        found.ok_or_else(|| D::Error::custom(format!("{word:?} is no status; there are {}", known())))
    };
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(read).collect()
}

/// Find instances
///
/// In the order of saga and correlation id. A request looks at a bounded number of instances, so a page may be short and
/// have a `next` all the same; the last one has none.
#[utoipa::path(
    get,
    path = "/v1/sagas",
    tag = "sagas",
    params(Wanted),
    responses((status = 200, description = "A page", body = Found))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Params(wanted): Params<Wanted>,
) -> Result<Json<Found>, Problem> {
    let scan_limit = api.app.config.http.scan_limit;
    let limit = page_limit(wanted.limit, &api);
    let (shard, cursor) = resume(wanted.cursor.as_deref())?;
    let query = InstanceQuery {
        tenant,
        saga: wanted.saga,
        statuses: wanted.status,
        prefix: wanted.prefix,
        updated_from: wanted.updated_from,
        updated_until: wanted.updated_until,
        created_from: wanted.created_from,
        created_until: wanted.created_until,
        cursor,
        limit,
        scan_limit,
    };
    let filter = wanted.filter.as_deref().map(search::compiled).transpose()?;
    // Half of the time is for whoever waits for a thread.
    let patience = api.app.config.http.request_timeout / 2;
    let search = Search { query, first: shard, filter, count: wanted.count, patience };
    let sifted = api.read(move |app| search::search(app, search)).await?;
    Ok(Json(Found::of(sifted, wanted.count)))
}

/// A cursor is the number of a shard, a dot, and the cursor within the shard, which is empty at its beginning.
pub(super) fn resume(cursor: Option<&str>) -> Result<(usize, Option<String>), Problem> {
    let Some(cursor) = cursor else { return Ok((0, None)) };
    let parts = cursor.split_once('.').and_then(|(shard, rest)| Some((shard.parse().ok()?, rest)));
    let (shard, rest) =
        parts.ok_or_else(|| bad_parameter("cursor", "it is no cursor of this query; begin without one"))?;
    Ok((shard, Some(rest.to_owned()).filter(|rest| !rest.is_empty())))
}

/// Looks through one shard after the other, from `first` on, until the page is full.
pub(super) fn find(
    app: &App,
    mut query: InstanceQuery,
    first: usize,
) -> Result<Page<(InstanceKey, orlog_model::Instance)>, Problem> {
    let mut all = Page { items: Vec::new(), next: None, scanned: 0 };
    let (limit, scan_limit) = (query.limit, query.scan_limit);
    let shards = app.runtime.numbered_readers().skip_while(|(index, _)| usize::from(*index) < first);
    for (index, reader) in shards {
        if usize::from(index) != first {
            // The cursor is one of the first shard, which may have gone to another process meanwhile.
            query.cursor = None;
        }
        if all.items.len() >= limit || all.scanned >= scan_limit {
            all.next = Some(format!("{index}."));
            break;
        }
        query.limit = limit - all.items.len();
        query.scan_limit = scan_limit - all.scanned;
        let page = reader.instances(&query)?;
        all.items.extend(page.items);
        all.scanned += page.scanned;
        if let Some(next) = page.next {
            all.next = Some(format!("{index}.{next}"));
            break;
        }
    }
    Ok(all)
}

/// Show an instance
///
/// Its snapshot with the program's state, what it waits for, its timers, its work under way and a page of its history.
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}",
    tag = "sagas",
    params(
        ("saga" = String, Path, description = "The definition's name"),
        ("correlation" = String, Path, description = "The correlation id, percent-encoded"),
        HistoryPage
    ),
    responses((status = 200, description = "The instance", body = Detail))
)]
pub(super) async fn show(
    State(api): State<Api>,
    Key(key): Key,
    Params(page): Params<HistoryPage>,
) -> Result<Json<Detail>, Problem> {
    let (limit, held_limit) = (page_limit(page.history_limit, &api), api.app.config.http.page_limit);
    let detail = api.read(move |app| {
        let missing = || Problem::new(Code::NoInstance, format!("there is no instance {key}"));
        let reader = app.runtime.reader(&key).ok_or_else(missing)?;
        let instance = reader.instance(&key)?.ok_or_else(missing)?;
        let history = reader.history(&key, page.history_after, limit + 1)?;
        let held = reader.held(&key, held_limit)?.len();
        let (work, whole) = outbox(&reader, &key)?;
        let program = app.programs.pinned(&instance.program.hash);
        let state = program.and_then(|program| program.show(&instance.state));
        let detail = Detail::of(&key, &instance, state, &history, limit);
        let detail = detail
            .with_redacted(&app.config.redact)
            .with_held(held)
            .with_attempts(app.attempts.of(&key).iter().map(AttemptView::of).collect());
        Ok(detail.with_outbox(Outbox::of(&work, whole)))
    });
    Ok(Json(detail.await?))
}

/// The work of one instance that lies in the outbox, and whether all of the outbox was looked at.
fn outbox(reader: &Reader, key: &InstanceKey) -> Result<(Vec<(OutboxKey, WorkItem)>, bool), Problem> {
    let (mut work, mut left) = (Vec::new(), OUTBOX_SCAN);
    for lane in reader.lanes()? {
        let rows = reader.outbox(&lane, 0, left + 1)?;
        let whole = rows.len() <= left;
        left -= rows.len().min(left);
        work.extend(rows.into_iter().filter(|(_, item)| item.instance == *key));
        if !whole {
            return Ok((work, false));
        }
    }
    Ok((work, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_names_the_shard_and_the_place_in_it() {
        assert_eq!(resume(None).unwrap(), (0, None));
        assert_eq!(resume(Some("2.")).unwrap(), (2, None));
        assert_eq!(resume(Some("2.ab")).unwrap(), (2, Some("ab".to_owned())));
        for wrong in ["", "ab", "x.ab", "-1.ab"] {
            assert!(resume(Some(wrong)).is_err(), "{wrong}");
        }
    }
}
