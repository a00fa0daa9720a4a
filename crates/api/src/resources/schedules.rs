//! `/v1/schedules`: lists, creates, changes and triggers schedules. The response to a change
//! arrives after its commit is durable.

mod view;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use orlog_model::{EventId, InstanceKey, TenantId};
use orlog_sagas::schedule::{self, PutSchedule, ScheduleError, ScheduleSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::resources::access::check_signed;
use crate::resources::sagas::built_in::{self, ListQuery};
use crate::resources::sagas::control::{ControlBody, ControlCaller, instruct, send_control};
use crate::server::body::{self, CheckedBody};
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{QueryParams, Tenant};
use crate::server::page::EncodedJson;
use crate::server::parts::access::Access;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem, ProblemDetail};
use orlog_node::auth::Caller;
use orlog_node::definitions::schedules;
use view::{ScheduleBody, SchedulePage, ScheduleView};

/// Default number of the next start times in a response.
const NEXT: usize = 10;
/// Maximum number of the next start times in a response.
const MAX_NEXT: usize = 100;

/// Options of one schedule.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ScheduleQuery {
    /// Number of the next start times, at most 100. Default: 10.
    next: Option<usize>,
}

/// Options of a deletion.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DeleteQuery {
    /// Idempotency key of the request. Default: a new id.
    #[param(value_type = Option<String>)]
    id: Option<EventId>,
    /// User name recorded in the history.
    user: Option<String>,
    /// Reason recorded in the history.
    reason: Option<String>,
}

/// Path of a schedule.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct SchedulePath {
    /// Name of the schedule, percent-encoded
    name: String,
}

/// List schedules
///
/// Ordered by name. A page can be short and still have a `next_cursor`; the last page has none.
#[utoipa::path(
    get,
    path = "/v1/schedules",
    tag = "schedules",
    params(ListQuery),
    responses((status = 200, description = "A page", body = SchedulePage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(params): QueryParams<ListQuery>,
) -> Result<EncodedJson, Problem> {
    built_in::list(
        &api,
        tenant,
        schedule::SAGA,
        params,
        |scope, key, instance| ScheduleView::of(key, instance, scope.redact(), scope.now(), NEXT),
        SchedulePage::of,
    )
    .await
}

/// Show a schedule
///
/// Its specification, the next start times, the runs in progress and the last ended runs.
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    params(SchedulePath, ScheduleQuery),
    responses((status = 200, description = "The schedule", body = ScheduleView))
)]
pub(crate) async fn show(
    api: RequestContext,
    Tenant(tenant): Tenant,
    Path(path): Path<SchedulePath>,
    QueryParams(query): QueryParams<ScheduleQuery>,
) -> Result<Json<ScheduleView>, Problem> {
    let key = key(tenant, &path)?;
    view(&api, key, query.next.unwrap_or(NEXT).min(MAX_NEXT)).await
}

/// Create or replace a schedule
///
/// An equal specification changes nothing. A changed one continues after the current time; runs in
/// progress continue.
#[utoipa::path(
    put,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    params(SchedulePath),
    request_body = ScheduleBody,
    responses((status = 200, description = "Durable", body = ScheduleView))
)]
pub(crate) async fn put(
    instances: Instances,
    State(definitions): State<Definitions>,
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<SchedulePath>,
    CheckedBody(body): CheckedBody,
) -> Result<Json<ScheduleView>, Problem> {
    let api = &instances.request;
    check_signed(&access, &caller, &tenant)?;
    let key = key(tenant, &path)?;
    let spec: ScheduleSpec = api
        .bodies()
        .parse(&body, body::parse::<ScheduleBody>)
        .await?
        .into();
    let mut errors = spec.check().err().unwrap_or_default();
    // The next checks need a readable specification, and would only repeat its errors.
    if errors.is_empty() {
        let programs = definitions.programs().all_active(&key.tenant);
        errors.extend(schedules::check_saga(&spec, programs.iter().map(AsRef::as_ref)).err());
        let now = api.now();
        if errors.is_empty()
            && spec
                .times()
                .is_ok_and(|times| times.next_after(now).is_none())
        {
            let message = "the date has passed".to_owned();
            errors.push(ScheduleError {
                field: "at".to_owned(),
                message,
            });
        }
    }

    if !errors.is_empty() {
        return Err(invalid(&errors));
    }

    // `file: None` marks a schedule of a user, in contrast to one of a deployed file.
    let data = json!(PutSchedule { spec, file: None });
    let provided = ControlCaller {
        id: None,
        user: None,
        reason: None,
        expected_version: None,
        wait_token: None,
    };
    drop(
        send_control(
            &instances,
            &caller,
            &key,
            provided,
            built_in::signal(schedule::PUT, data),
        )
        .await?,
    );

    view(api, key, NEXT).await
}

/// Delete a schedule
///
/// Its runs in progress continue.
#[utoipa::path(
    delete,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    params(SchedulePath, DeleteQuery),
    responses((status = 204, description = "Durable"))
)]
pub(crate) async fn delete(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Path(path): Path<SchedulePath>,
    QueryParams(query): QueryParams<DeleteQuery>,
) -> Result<axum::http::StatusCode, Problem> {
    let key = key(tenant, &path)?;
    let api = &instances.request;
    // A deleted schedule is still an instance, to which the signal would be delivered without an
    // error.
    drop(view(api, key.clone(), 0).await?);
    let DeleteQuery { id, user, reason } = query;
    let provided = ControlCaller {
        id,
        user,
        reason,
        expected_version: None,
        wait_token: None,
    };
    drop(
        send_control(
            &instances,
            &caller,
            &key,
            provided,
            built_in::signal(schedule::DELETE, Value::Null),
        )
        .await?,
    );

    Ok(axum::http::StatusCode::NO_CONTENT)
}

macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $verb:ident $path:literal => $signal:expr;)+) => {$(
        $(#[doc = $doc])+
        #[utoipa::path(
            post,
            path = $path,
            tag = "schedules",
            params(SchedulePath),
            request_body(content = Option<ControlBody>),
            responses((status = 200, description = "Durable", body = ScheduleView))
        )]
        pub(crate) async fn $verb(
            instances: Instances,
            State(access): State<Access>,
            Extension(caller): Extension<Caller>,
            Tenant(tenant): Tenant,
            Path(path): Path<SchedulePath>,
            body: CheckedBody,
        ) -> Result<Json<ScheduleView>, Problem> {
            let key = key(tenant, &path)?;
            let api = &instances.request;
            // Starts follow, except after a pause.
            if $signal != schedule::PAUSE {
                check_signed(&access, &caller, &key.tenant)?;
            }
            drop(view(api, key.clone(), 0).await?);
            let action = |_| built_in::signal($signal, Value::Null);
            drop(instruct(&instances, &caller, &key, &body, action).await?);
            view(api, key, NEXT).await
        }
    )+};
}

verbs! {
    /// Pause a schedule: due times are ignored until it is resumed
    pause "/v1/schedules/{name}/pause" => schedule::PAUSE;
    /// Resume a schedule after the current time
    resume "/v1/schedules/{name}/resume" => schedule::RESUME;
    /// Trigger a run now, under the overlap policy
    trigger "/v1/schedules/{name}/trigger" => schedule::TRIGGER;
}

fn key(tenant: TenantId, path: &SchedulePath) -> Result<InstanceKey, Problem> {
    schedules::key(tenant, &path.name).map_err(|error| invalid_parameter("name", error))
}

/// Reads a schedule that is not deleted.
async fn view(
    api: &RequestContext,
    key: InstanceKey,
    next: usize,
) -> Result<Json<ScheduleView>, Problem> {
    let missing = |key: &InstanceKey| {
        Problem::new(
            Code::ScheduleNotFound,
            format!("no schedule \"{}\"", key.correlation),
        )
    };
    let view = built_in::show(api, key, missing, move |scope, key, instance| {
        ScheduleView::of(key, instance, scope.redact(), scope.now(), next)
    });

    view.await.map(Json)
}

fn invalid(errors: &[ScheduleError]) -> Problem {
    // Fields of a schedule are nested by dots; a body is addressed by JSON pointers.
    let detail = |error: &ScheduleError| ProblemDetail {
        pointer: format!("/{}", error.field.replace('.', "/")),
        detail: error.to_string(),
    };
    let texts: Vec<_> = errors.iter().map(ToString::to_string).collect();
    Problem::new(Code::InvalidSchedule, texts.join("; ")).with(errors.iter().map(detail).collect())
}
