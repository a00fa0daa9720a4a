//! `/v1/flows`: submits, lists and controls flows. The response to a change arrives after its
//! commit is durable.

pub(crate) mod lines;
pub(crate) mod submit;
mod view;

use axum::extract::Path;
use axum::{Extension, Json};
use orlog_model::{ControlAction, InstanceKey, TenantId};
use orlog_sagas::flow;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::resources::sagas::built_in::{self, ListQuery, signal};
use crate::resources::sagas::control::{ControlBody, instruct};
use crate::server::body::CheckedBody;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant};
use crate::server::page::EncodedJson;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::flows;
pub(crate) use submit::{__path_submit, submit};
use view::{FlowPage, FlowSummary, FlowView};

/// Path of a flow.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct FlowPath {
    /// Id of the flow, percent-encoded
    id: String,
}

/// Path of a job.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct FlowJobPath {
    /// Id of the flow, percent-encoded
    id: String,
    /// Id of the job, percent-encoded
    job: String,
}

/// List flows
///
/// Ordered by id. A page can be short and still have a `next_cursor`; the last page has none.
#[utoipa::path(
    get,
    path = "/v1/flows",
    tag = "flows",
    params(ListQuery),
    responses((status = 200, description = "A page", body = FlowPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(params): QueryParams<ListQuery>,
) -> Result<EncodedJson, Problem> {
    built_in::list(
        &api,
        tenant,
        flow::SAGA,
        params,
        FlowSummary::read,
        FlowPage::of,
    )
    .await
}

/// Show a flow
///
/// Its status, and the status, the runner and the result of each job.
#[utoipa::path(
    get,
    path = "/v1/flows/{id}",
    tag = "flows",
    params(FlowPath),
    responses((status = 200, description = "The flow", body = FlowView))
)]
pub(crate) async fn show(
    api: RequestContext,
    Tenant(tenant): Tenant,
    Path(path): Path<FlowPath>,
) -> Result<Json<FlowView>, Problem> {
    view(&api, key(tenant, &path.id)?).await
}

/// Cancel a flow
///
/// Its jobs are withdrawn: runners receive none of them any more, and lose their claims. Finished
/// jobs keep their results.
#[utoipa::path(
    post,
    path = "/v1/flows/{id}/cancel",
    tag = "flows",
    params(FlowPath),
    request_body(content = Option<ControlBody>),
    responses((status = 200, description = "Durable", body = FlowView))
)]
pub(crate) async fn cancel(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<FlowPath>,
    body: CheckedBody,
) -> Result<Json<FlowView>, Problem> {
    let key = key(tenant, &path.id)?;
    change(&instances, &caller, key, &body, |reason| {
        ControlAction::Cancel { reason }
    })
    .await
}

/// Execute the failed jobs of a flow again
///
/// Each has a new idempotency key. An ended flow continues.
#[utoipa::path(
    post,
    path = "/v1/flows/{id}/retry",
    tag = "flows",
    params(FlowPath),
    request_body(content = Option<ControlBody>),
    responses((status = 200, description = "Durable", body = FlowView))
)]
pub(crate) async fn retry(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<FlowPath>,
    body: CheckedBody,
) -> Result<Json<FlowView>, Problem> {
    let key = key(tenant, &path.id)?;
    change(&instances, &caller, key, &body, |_| {
        signal(flow::RETRY, Value::Null)
    })
    .await
}

/// Execute a job again, and all jobs that follow it
///
/// Each has a new idempotency key. An ended flow continues.
#[utoipa::path(
    post,
    path = "/v1/flows/{id}/jobs/{job}/rerun",
    tag = "flows",
    params(FlowJobPath),
    request_body(content = Option<ControlBody>),
    responses((status = 200, description = "Durable", body = FlowView))
)]
pub(crate) async fn rerun(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<FlowJobPath>,
    body: CheckedBody,
) -> Result<Json<FlowView>, Problem> {
    let key = key(tenant, &path.id)?;
    change(&instances, &caller, key, &body, |_| {
        signal(flow::RERUN, json!({ "job": path.job }))
    })
    .await
}

/// Sends a control request to a flow that exists, and returns the flow.
async fn change(
    instances: &Instances,
    caller: &Caller,
    key: InstanceKey,
    body: &CheckedBody,
    action: impl FnOnce(String) -> ControlAction,
) -> Result<Json<FlowView>, Problem> {
    let sent = instruct(instances, caller, &key, body, action).await;
    // A missing instance is a missing flow for the caller, with the error code of flows.
    drop(sent.map_err(|problem| match problem.code() {
        code if code == Code::InstanceNotFound.as_str() => missing(&key),
        _ => problem,
    })?);
    view(&instances.request, key).await
}

fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, Problem> {
    flows::key(tenant, id).map_err(|error| invalid_parameter("id", error))
}

pub(super) fn missing(key: &InstanceKey) -> Problem {
    Problem::new(
        Code::FlowNotFound,
        format!("no flow \"{}\"", key.correlation),
    )
}

async fn view(api: &RequestContext, key: InstanceKey) -> Result<Json<FlowView>, Problem> {
    built_in::show(api, key, missing, FlowView::read)
        .await
        .map(Json)
}
