//! `/v1/contexts/{tenant}/definitions`: deployment and garbage collection of the definitions of a
//! context.

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use serde::Deserialize;
use utoipa::IntoParams;

use super::deploy::{self, CollectResponse, DeployBody, MAX_DEPLOY_BYTES, user_name};
use super::distribute;
use crate::server::body;
use crate::server::context::RequestContext;
use crate::server::extract::{QueryParams, Tenant};
use crate::server::forward;
use crate::server::parts::access::Access;
use crate::server::parts::cluster::Cluster;
use crate::server::parts::definitions::Definitions;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::definitions::DeploymentPlan;
use orlog_node::definitions::deploy::{DeployPolicy, DeployRequest};

/// Options of a deployment of a context.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ContextDeployOptions {
    /// Return the plan without deploying.
    #[serde(default)]
    dry_run: bool,
    /// Activate definitions with a lower version than the active ones.
    #[serde(default)]
    allow_downgrade: bool,
    /// Keep the active definitions and the schedules of the context that no file contains.
    #[serde(default)]
    keep_others: bool,
    /// Number of the deployment that a pod repeats; only in requests between pods.
    number: Option<i64>,
    /// Its time, in milliseconds since 1970; only in requests between pods.
    at: Option<i64>,
}

/// Deploy the definitions of a context
///
/// Replaces the active definitions of the context, as `POST /admin/deploy` does with the shared
/// ones. New instances of its tenant use them instead of shared definitions of the same saga.
/// Effects and commands need an upstream that permits the context.
#[utoipa::path(
    post,
    path = "/v1/contexts/{tenant}/definitions",
    operation_id = "deploy",
    tag = "contexts",
    params(("tenant" = String, Path, description = "Tenant, \
                                                    percent-encoded"), ContextDeployOptions),
    request_body = DeployBody,
    responses((
        status = 200,
        description = "The definitions are active; with dry_run, the plan",
        body = DeploymentPlan
    ))
)]
#[expect(clippy::too_many_arguments, reason = "one argument per extractor")]
pub(crate) async fn deploy(
    api: RequestContext,
    State(definitions): State<Definitions>,
    State(access): State<Access>,
    cluster: Cluster,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    QueryParams(how): QueryParams<ContextDeployOptions>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<DeploymentPlan>, Problem> {
    // Not the limit of other bodies: a deployment contains all files of its owner, also modules.
    let body = body::read(&api, &headers, body, MAX_DEPLOY_BYTES).await?;
    let bundle: DeployBody = api.bodies().parse(&body, body::parse).await?;
    let user = user_name(caller.check_user(bundle.user)?)?;
    let files = deploy::files(bundle.files)?;
    // An empty deployment, which retires everything, needs no context: definitions must never be
    // impossible to retire.
    if !files.is_empty() && !access.registry().directory().contexts.contains_key(&tenant) {
        let detail = format!(
            "the tenant {tenant:?} has no context, so it has no definitions of its own; create the \
             context, or deploy shared definitions with POST /admin/deploy"
        );
        return Err(Problem::new(Code::ContextNotFound, detail));
    }

    let policy = DeployPolicy {
        allow_downgrade: how.allow_downgrade,
        ..DeployPolicy::default()
    };
    let repeats = deploy::repeated(&headers, how.number, how.at);
    let keep_others = how.keep_others;
    let dry_run = how.dry_run;
    let context = Some(tenant.clone());
    let request = DeployRequest {
        context,
        files,
        keep_others,
        user,
        dry_run,
        policy,
        repeats,
    };

    let mut plan = definitions.deployments().deploy(request).await?;
    // Only the pod that received the deployment of the user repeats it; pods would send it to each
    // other without end.
    if !how.dry_run && !forward::is_forwarded(&headers) {
        plan.warnings
            .extend(distribute::repeat(&definitions, &cluster, &headers, Some(&tenant)).await);
    }
    Ok(Json(plan))
}

/// Delete unused definitions of a context
///
/// Deletes its retired definitions with which no stored instance started. Every deployment does the
/// same.
#[utoipa::path(
    post,
    path = "/v1/contexts/{tenant}/definitions/collect",
    operation_id = "collect",
    tag = "contexts",
    params(("tenant" = String, Path, description = "Tenant, percent-encoded")),
    responses((status = 200, description = "The definitions were deleted", body = CollectResponse))
)]
pub(crate) async fn collect(
    State(definitions): State<Definitions>,
    Tenant(tenant): Tenant,
) -> Result<Json<CollectResponse>, Problem> {
    Ok(Json(
        definitions.collector().collect(Some(tenant)).await?.into(),
    ))
}
