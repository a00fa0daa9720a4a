//! `/v1/shadows`: starts, lists, shows, stops and promotes shadows. The response to a change
//! arrives after its commit is durable.

mod promote;
mod start;
mod view;

use axum::extract::Path;
use axum::{Extension, Json};
use orlog_model::{InstanceKey, TenantId};
use orlog_sagas::shadow::{self, ShadowState};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::resources::sagas::built_in::{self, ListQuery};
use crate::resources::sagas::control::instruct;
use crate::server::body::CheckedBody;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant};
use crate::server::page::EncodedJson;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::shadows;
pub(crate) use promote::{__path_promote, promote};
pub(crate) use start::{__path_start, start};
use view::{ShadowPage, ShadowView, decoded};

/// Path of a shadow.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct ShadowPath {
    /// Saga of the shadow, percent-encoded
    saga: String,
}

/// List shadows
///
/// Ordered by saga. A page can be short and still have a `next_cursor`; the last page has none.
#[utoipa::path(
    get,
    path = "/v1/shadows",
    tag = "shadows",
    params(ListQuery),
    responses((status = 200, description = "A page", body = ShadowPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(params): QueryParams<ListQuery>,
) -> Result<EncodedJson, Problem> {
    built_in::list(
        &api,
        tenant,
        shadow::SAGA,
        params,
        ShadowView::read,
        ShadowPage::of,
    )
    .await
}

/// Show a shadow
///
/// Its definitions, its progress, and the report: the number of instances of each kind of
/// difference, with examples.
#[utoipa::path(
    get,
    path = "/v1/shadows/{saga}",
    tag = "shadows",
    params(ShadowPath),
    responses((status = 200, description = "The shadow", body = ShadowView))
)]
pub(crate) async fn show(
    api: RequestContext,
    Tenant(tenant): Tenant,
    Path(path): Path<ShadowPath>,
) -> Result<Json<ShadowView>, Problem> {
    view(&api, key(tenant, &path.saga)?).await
}

/// Stop a shadow
///
/// The page in flight ends; then the inputs of new instances are no longer recorded. The report
/// remains.
#[utoipa::path(
    post,
    path = "/v1/shadows/{saga}/stop",
    tag = "shadows",
    params(ShadowPath),
    request_body(content = Option<crate::resources::sagas::control::ControlBody>),
    responses((status = 200, description = "Durable", body = ShadowView))
)]
pub(crate) async fn stop(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<ShadowPath>,
    body: CheckedBody,
) -> Result<Json<ShadowView>, Problem> {
    let key = key(tenant, &path.saga)?;
    let api = &instances.request;
    drop(state(api, &key).await?);
    drop(
        instruct(&instances, &caller, &key, &body, |_| {
            built_in::signal(shadow::STOP, Value::Null)
        })
        .await?,
    );

    view(api, key).await
}

fn key(tenant: TenantId, saga: &str) -> Result<InstanceKey, Problem> {
    shadows::key(tenant, saga).map_err(|error| invalid_parameter("saga", error))
}

fn missing(key: &InstanceKey) -> Problem {
    let saga = &key.correlation;
    let detail = format!("no shadow of saga \"{saga}\"; start one with POST /v1/shadows");
    Problem::new(Code::ShadowNotFound, detail)
}

async fn view(api: &RequestContext, key: InstanceKey) -> Result<Json<ShadowView>, Problem> {
    built_in::show(api, key, missing, ShadowView::read)
        .await
        .map(Json)
}

async fn state(api: &RequestContext, key: &InstanceKey) -> Result<ShadowState, Problem> {
    built_in::show(api, key.clone(), missing, |_, key, instance| {
        decoded(key, instance).map(Some)
    })
    .await
}
