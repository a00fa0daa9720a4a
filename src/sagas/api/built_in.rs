//! Instances of built-in sagas as resources: lists, reads, and the signals that change them.

use axum::http::{HeaderMap, HeaderValue};
use orlog_model::{ControlAction, EventType, Instance, InstanceKey, SagaName, TenantId};
use orlog_store::InstanceQuery;
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;
use uuid::Uuid;

use super::start::IDEMPOTENCY_KEY;
use super::{find, parse_cursor};
use crate::api::context::ApiState;
use crate::api::errors::invalid_parameter;
use crate::api::extract::page_limit;
use crate::api::problem::Problem;
use crate::api::read_scope::ReadScope;

/// Page of a list, ordered by name or id.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ListQuery {
    /// Filter by prefix of the name or id.
    prefix: Option<String>,
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Returns a page of views and the cursor of the next page. An instance without a view is omitted.
pub(crate) async fn list<V, F>(
    api: &ApiState,
    (tenant, saga): (TenantId, &'static str),
    params: ListQuery,
    view: F,
) -> Result<(Vec<V>, Option<String>), Problem>
where
    V: Send + 'static,
    F: Fn(&ReadScope, &InstanceKey, &Instance) -> Result<Option<V>, Problem> + Send + 'static,
{
    let (shard, cursor) = parse_cursor(params.cursor.as_deref())?;
    let query = InstanceQuery {
        tenant,
        saga: Some(SagaName::new(saga).expect("the name is short")),
        prefix: params.prefix,
        cursor,
        limit: page_limit(params.limit, api),
        scan_limit: api.app.config.http.scan_limit,
        ..InstanceQuery::default()
    };
    let page = api.read(move |app| {
        let found = find(app, query, shard)?;
        let views = found
            .items
            .iter()
            .map(|found| view(app, &found.key, &found.instance));
        let items = views
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .flatten()
            .collect();
        Ok((items, found.next))
    });
    page.await
}

/// Returns the view of one instance; `missing` creates the problem if there is none.
pub(crate) async fn show<V, F>(
    api: &ApiState,
    key: InstanceKey,
    missing: fn(&InstanceKey) -> Problem,
    view: F,
) -> Result<V, Problem>
where
    V: Send + 'static,
    F: Fn(&ReadScope, &InstanceKey, &Instance) -> Result<Option<V>, Problem> + Send + 'static,
{
    let view = api.read(move |app| {
        // The shard was here when the request arrived.
        let reader = app.reader(&key).ok_or_else(Problem::moving)?;
        let instance = reader.instance(&key)?.ok_or_else(|| missing(&key))?;
        view(app, &key, &instance)?.ok_or_else(|| missing(&key))
    });
    view.await
}

/// Returns the signal that changes an instance.
pub(crate) fn signal(kind: &str, data: Value) -> ControlAction {
    ControlAction::Signal {
        kind: EventType::new(kind).expect("the name is short"),
        data,
        due_at: None,
    }
}

/// Returns the key of a new instance: its id is the idempotency key of the request. A new id becomes the idempotency key, so that another
/// pod uses it, too.
///
/// # Errors
/// If the id is invalid, or the body states another id than the header.
pub(crate) fn identified(
    stated: Option<String>,
    headers: &mut HeaderMap,
    key: impl Fn(&str) -> Result<InstanceKey, String>,
) -> Result<InstanceKey, Problem> {
    let invalid =
        |reason: String| invalid_parameter(IDEMPOTENCY_KEY, format!("{IDEMPOTENCY_KEY}: {reason}"));
    let header = headers.get(IDEMPOTENCY_KEY).map(|value| value.to_str());
    let header = header
        .transpose()
        .map_err(|_| invalid("the header is not printable ASCII".to_owned()))?;
    let id = match (stated, header) {
        (Some(stated), Some(header)) if stated != header => {
            return Err(invalid(format!(
                "the header is {header:?}, and the id in the body is {stated:?}; send one"
            )));
        }
        (Some(stated), _) => return key(&stated).map_err(|error| invalid_parameter("id", error)),
        (None, Some(header)) => header.to_owned(),
        (None, None) => Uuid::now_v7().to_string(),
    };
    let key = key(&id).map_err(invalid)?;
    headers.insert(
        IDEMPOTENCY_KEY,
        HeaderValue::from_str(&id).expect("a header or a UUID is a valid header"),
    );
    Ok(key)
}
