//! `POST /v1/shadows/{saga}/promote`: deploys the candidate of a shadow, and ends the shadow.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use orlog_sagas::shadow::{self, ShadowState, ShadowStatus};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Shadow, ShadowPath, state};
use crate::resources::definitions::deploy::{deploy_one, user_name};
use crate::resources::sagas::built_in;
use crate::resources::sagas::control::{ControlBody, send_control};
use crate::resources::sagas::resource;
use crate::server::body::CheckedBody;
use crate::server::extract::{PathParams, Tenant};
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use orlog_node::definitions::DeploymentPlan;
use orlog_node::shadows::candidate::source_file;

/// Conditions of a promotion.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PromoteBody {
    /// Deploy the candidate although it differs, or no instance was compared.
    #[serde(default)]
    accept_differences: bool,
    /// Activate a lower version than the active one.
    #[serde(default)]
    allow_downgrade: bool,
    /// User name recorded in the deployment.
    user: Option<String>,
    /// Reason recorded in the history of the shadow.
    reason: Option<String>,
}

/// Promote the candidate of a shadow
///
/// Deploys the candidate like `POST /admin/deploy` with `keep_others`, on all pods, then ends the
/// shadow. Differences must be accepted.
#[utoipa::path(
    post,
    path = "/v1/shadows/{saga}/promote",
    tag = "shadows",
    params(ShadowPath),
    request_body(content = Option<PromoteBody>),
    responses((status = 200, description = "The candidate is active", body = DeploymentPlan))
)]
pub(crate) async fn promote(
    instances: Instances,
    State(definitions): State<Definitions>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<ShadowPath>,
    headers: HeaderMap,
    body: CheckedBody,
) -> Result<Json<DeploymentPlan>, Problem> {
    let PromoteBody {
        accept_differences,
        allow_downgrade,
        user,
        reason,
    } = body.optional()?;
    let key = resource::key::<Shadow>(tenant, &path.saga)?;
    let state = state(&instances.request, &key).await?;
    let user = user_name(caller.check_user(user)?)?;

    let active = definitions
        .programs()
        .active(&key.tenant, &state.spec.saga)
        .map(|program| program.definition_ref().hash);
    if let Some(detail) = obstacle(&state, active, accept_differences) {
        return Err(Problem::new(Code::PromotionRejected, detail));
    }

    let file =
        source_file(&state.spec.source).map_err(|detail| Problem::new(Code::StoreError, detail))?;
    let context = definitions.active().owner(&key.tenant, &state.spec.saga);
    let plan = deploy_one(
        &definitions,
        &instances.cluster,
        &headers,
        context,
        file,
        user.clone(),
        allow_downgrade,
    )
    .await?;

    if !state.status.is_final() {
        let provided = ControlBody {
            id: None,
            user: Some(user),
            reason,
            expected_version: None,
            wait_token: None,
        };
        let ended = built_in::signal(shadow::PROMOTED, Value::Null);

        drop(send_control(&instances, &caller, &key, provided, ended).await?);
    }

    Ok(Json(plan))
}

/// Returns why the candidate cannot be promoted.
fn obstacle(state: &ShadowState, active: Option<[u8; 16]>, accepts: bool) -> Option<String> {
    let ShadowState {
        spec,
        status,
        different,
        ..
    } = state;
    let saga = &spec.saga;
    let is_changed =
        active.is_some_and(|hash| hash != spec.live.hash && hash != spec.candidate.hash);
    if is_changed || *status == ShadowStatus::Superseded {
        return Some(format!(
            "another definition of saga \"{saga}\" was deployed since the shadow started; start a \
             new shadow, or deploy the file"
        ));
    }

    let finding = match (different, state.compared()) {
        (0, 0) => "no instance was compared".to_owned(),
        (0, _) => return None,
        (different, compared) => format!("{different} of {compared} compared instances differ"),
    };
    let advice =
        format!("see orlog shadow report {saga}; to deploy it anyway: --accept-differences");

    (!accepts).then(|| format!("{finding}; {advice}"))
}
