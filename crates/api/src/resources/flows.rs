//! `/v1/flows`: submits, lists and controls flows. The response to a change arrives after its
//! commit is durable.

pub(crate) mod lines;
pub(crate) mod submit;
mod view;

use orlog_model::{Instance, InstanceKey, TenantId};
use orlog_sagas::flow;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;

use crate::resources::sagas::control::ControlBody;
use crate::resources::sagas::resource::{
    self, Changed, Changes, ListedResource, Resource, Verb, resource,
};
use crate::server::body::CheckedBody;
use crate::server::extract::{PathParams, Tenant};
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::flows;
pub(crate) use submit::{__path_submit, submit};
use view::{FlowPage, FlowSummary, FlowView};

/// Flows as a resource.
pub(crate) struct Flow;

impl Resource for Flow {
    const NOT_FOUND: Code = Code::FlowNotFound;
    type View = FlowView;

    fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
        flows::key(tenant, id)
    }

    fn missing(key: &InstanceKey) -> String {
        format!("no flow \"{}\"", key.correlation)
    }

    fn view(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<FlowView>, Problem> {
        FlowView::read(scope, key, instance)
    }
}

impl ListedResource for Flow {
    const SAGA: &'static str = flow::SAGA;
    type Entry = FlowSummary;

    fn entry(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<FlowSummary>, Problem> {
        FlowSummary::read(scope, key, instance)
    }
}

resource! {
    Flow, "flows", FlowPath { id: "Id of the flow, percent-encoded" }

    list "/v1/flows" -> FlowPage {
        /// List flows
        ///
        /// Ordered by id. A page can be short and still have a `next_cursor`; the last page has
        /// none.
    }

    show "/v1/flows/{id}" -> FlowView, "The flow" {
        /// Show a flow
        ///
        /// Its status, and the status, the runner and the result of each job.
    }

    change cancel "/v1/flows/{id}/cancel" -> FlowView = Verb::Cancel, {
        /// Cancel a flow
        ///
        /// Its jobs are withdrawn: runners receive none of them any more, and lose their claims.
        /// Finished jobs keep their results.
    }

    change retry "/v1/flows/{id}/retry" -> FlowView = Verb::Signal(flow::RETRY), {
        /// Execute the failed jobs of a flow again
        ///
        /// Each has a new idempotency key. An ended flow continues.
    }
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

/// Execute a job again, and all jobs that follow it
///
/// Each has a new idempotency key. An ended flow continues.
#[utoipa::path(
    post,
    path = "/v1/flows/{id}/jobs/{job}/rerun",
    tag = "flows",
    params(FlowJobPath),
    request_body(content = Option<ControlBody>),
    responses(
        (status = 200, description = "Durable", body = FlowView),
        (
            status = 202,
            description = "Durable; applied when the paused instance is resumed",
            body = Changed<FlowView>
        )
    )
)]
pub(crate) async fn rerun(
    changes: Changes,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<FlowJobPath>,
    body: CheckedBody,
) -> Result<Changed<FlowView>, Problem> {
    let key = resource::key::<Flow>(tenant, &path.id)?;
    let data = json!({ "job": path.job });
    let verb = Verb::Signal(flow::RERUN);
    changes.apply::<Flow>(key, verb, data, &body).await
}
