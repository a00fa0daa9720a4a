//! `/v1/batches`: creates, lists and controls batches. The response to a change arrives after its
//! commit is durable.

mod create;
mod dry_run;
mod view;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use orlog_model::{InstanceKey, TenantId};
use orlog_sagas::batch::{self, BatchAction};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use crate::resources::access::check_signed;
use crate::resources::sagas::built_in::{self, ListQuery};
use crate::resources::sagas::control::instruct;
use crate::server::body::CheckedBody;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant};
use crate::server::page::EncodedJson;
use crate::server::parts::access::Access;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
pub(crate) use create::{__path_create, create};
use orlog_node::auth::{Caller, Right};
use orlog_node::batches;
use view::{BatchPage, BatchView, decoded};

/// Path of a batch.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct BatchPath {
    /// Id of the batch, percent-encoded
    id: String,
}

/// List batches
///
/// Ordered by id. A page can be short and still have a `next_cursor`; the last page has none.
#[utoipa::path(
    get,
    path = "/v1/batches",
    tag = "batches",
    params(ListQuery),
    responses((status = 200, description = "A page", body = BatchPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(params): QueryParams<ListQuery>,
) -> Result<EncodedJson, Problem> {
    built_in::list(
        &api,
        tenant,
        batch::SAGA,
        params,
        BatchView::read,
        BatchPage::of,
    )
    .await
}

/// Show a batch
///
/// Its specification, its progress and its first failures.
#[utoipa::path(
    get,
    path = "/v1/batches/{id}",
    tag = "batches",
    params(BatchPath),
    responses((status = 200, description = "The batch", body = BatchView))
)]
pub(crate) async fn show(
    api: RequestContext,
    Tenant(tenant): Tenant,
    Path(path): Path<BatchPath>,
) -> Result<Json<BatchView>, Problem> {
    view(&api, key(tenant, &path)?).await
}

macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $verb:ident $path:literal => $signal:expr;)+) => {$(
        $(#[doc = $doc])+
        #[utoipa::path(
            post,
            path = $path,
            tag = "batches",
            params(BatchPath),
            request_body(content = Option<crate::resources::sagas::control::ControlBody>),
            responses((status = 200, description = "Durable", body = BatchView))
        )]
        pub(crate) async fn $verb(
            instances: Instances,
            State(access): State<Access>,
            Extension(caller): Extension<Caller>,
            Tenant(tenant): Tenant,
            Path(path): Path<BatchPath>,
            body: CheckedBody,
        ) -> Result<Json<BatchView>, Problem> {
            let key = key(tenant, &path)?;
            let api = &instances.request;
            let action = built_in::show(api, key.clone(), missing, |_, key, instance| {
                decoded(key, instance).map(|state| Some(state.spec.action))
            });
            let action = action.await?;
            permit(&caller, &action)?;
            if $signal == batch::RESUME {
                check_signals(&access, &caller, &key.tenant, &action)?;
            }
            let action = |_| built_in::signal($signal, Value::Null);
            drop(instruct(&instances, &caller, &key, &body, action).await?);
            view(api, key).await
        }
    )+};
}

verbs! {
    /// Pause a batch: no further instance receives the instruction until it is resumed
    ///
    /// A page of at most 100 instances that is in flight ends.
    pause "/v1/batches/{id}/pause" => batch::PAUSE;
    /// Resume a batch that is paused, or approve its canary
    resume "/v1/batches/{id}/resume" => batch::RESUME;
    /// Stop a batch: no further instance receives the instruction
    ///
    /// A page of at most 100 instances that is in flight ends. A stopped batch cannot be resumed.
    stop "/v1/batches/{id}/stop" => batch::STOP;
}

/// Rejects callers without the right that the instruction requires for one instance. The route
/// requires the right `control`.
fn permit(caller: &Caller, action: &BatchAction) -> Result<(), Problem> {
    if matches!(action, BatchAction::Migrate { .. }) && !caller.roles.allow(Right::Admin) {
        let detail = "a batch that migrates instances requires the right to administer, like the \
                      migration of one instance";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(())
}

/// Rejects an unsigned request that starts or continues a batch of signals, if the context requires
/// signed events.
fn check_signals(
    access: &Access,
    caller: &Caller,
    tenant: &TenantId,
    action: &BatchAction,
) -> Result<(), Problem> {
    if matches!(action, BatchAction::Signal { .. }) {
        check_signed(access, caller, tenant)?;
    }
    Ok(())
}

fn key(tenant: TenantId, path: &BatchPath) -> Result<InstanceKey, Problem> {
    batches::key(tenant, &path.id).map_err(|error| invalid_parameter("id", error))
}

fn missing(key: &InstanceKey) -> Problem {
    Problem::new(
        Code::BatchNotFound,
        format!("no batch \"{}\"", key.correlation),
    )
}

async fn view(api: &RequestContext, key: InstanceKey) -> Result<Json<BatchView>, Problem> {
    built_in::show(api, key, missing, BatchView::read)
        .await
        .map(Json)
}
