//! `/v1/schedules`: lists, creates, changes and triggers schedules. The response to a change
//! arrives after its commit is durable.

mod view;

use axum::Json;
use axum::extract::State;
use orlog_model::{ControlAction, EventId, Instance, InstanceKey, TenantId};
use orlog_sagas::schedule::{self, PutSchedule, ScheduleError, ScheduleSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::resources::access::check_signed;
use crate::resources::sagas::built_in::{self, signal};
use crate::resources::sagas::control::ControlCaller;
use crate::resources::sagas::resource::{
    self, Changes, ListedResource, Resource, missing, resource,
};
use crate::server::body::{self, CheckedBody};
use crate::server::context::RequestContext;
use crate::server::extract::{PathParams, QueryParams, Tenant};
use crate::server::parts::definitions::Definitions;
use crate::server::problem::{Code, Problem, ProblemDetail};
use crate::server::read_scope::ReadScope;
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

/// Schedules as a resource.
pub(crate) struct Schedule;

impl Resource for Schedule {
    const PARAMETER: &'static str = "name";
    const NOT_FOUND: Code = Code::ScheduleNotFound;
    type View = ScheduleView;

    fn key(tenant: TenantId, name: &str) -> Result<InstanceKey, String> {
        schedules::key(tenant, name)
    }

    fn missing(key: &InstanceKey) -> String {
        format!("no schedule \"{}\"", key.correlation)
    }

    /// A deleted schedule is still an instance, which does not exist for users.
    fn view(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<ScheduleView>, Problem> {
        ScheduleView::of(key, instance, scope.redact(), scope.now(), NEXT)
    }

    async fn permit(
        changes: &Changes,
        key: &InstanceKey,
        change: &ControlAction,
    ) -> Result<(), Problem> {
        let ControlAction::Signal { kind, .. } = change else {
            return Ok(());
        };

        // Starts follow, except after these two.
        if ![schedule::PAUSE, schedule::DELETE].contains(&kind.as_str()) {
            check_signed(&changes.access, &changes.caller, &key.tenant)?;
        }
        // A control request creates a schedule; it would also be delivered to a deleted one.
        if kind.as_str() != schedule::PUT {
            drop(view(&changes.instances.request, key.clone(), 0).await?);
        }
        Ok(())
    }
}

impl ListedResource for Schedule {
    const SAGA: &'static str = schedule::SAGA;
    type Entry = ScheduleView;

    fn entry(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<ScheduleView>, Problem> {
        Self::view(scope, key, instance)
    }
}

resource! {
    Schedule, "schedules", SchedulePath { name: "Name of the schedule, percent-encoded" }

    list "/v1/schedules" -> SchedulePage {
        /// List schedules
        ///
        /// Ordered by name. A page can be short and still have a `next_cursor`; the last page has
        /// none.
    }

    change pause "/v1/schedules/{name}/pause" -> ScheduleView
        = |_| signal(schedule::PAUSE, Value::Null), {
        /// Pause a schedule: due times are ignored until it is resumed
    }

    change resume "/v1/schedules/{name}/resume" -> ScheduleView
        = |_| signal(schedule::RESUME, Value::Null), {
        /// Resume a schedule after the current time
    }

    change trigger "/v1/schedules/{name}/trigger" -> ScheduleView
        = |_| signal(schedule::TRIGGER, Value::Null), {
        /// Trigger a run now, under the overlap policy
    }
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
    PathParams(path): PathParams<SchedulePath>,
    QueryParams(query): QueryParams<ScheduleQuery>,
) -> Result<Json<ScheduleView>, Problem> {
    let key = resource::key::<Schedule>(tenant, &path.name)?;
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
    changes: Changes,
    State(definitions): State<Definitions>,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<SchedulePath>,
    CheckedBody(body): CheckedBody,
) -> Result<Json<ScheduleView>, Problem> {
    let api = &changes.instances.request;
    // Before the body, whose errors are of no use to a caller without a signature.
    check_signed(&changes.access, &changes.caller, &tenant)?;
    let key = resource::key::<Schedule>(tenant, &path.name)?;
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
    let action = signal(schedule::PUT, data);
    changes
        .send::<Schedule>(&key, ControlCaller::default(), action)
        .await?;

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
    changes: Changes,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<SchedulePath>,
    QueryParams(query): QueryParams<DeleteQuery>,
) -> Result<axum::http::StatusCode, Problem> {
    let key = resource::key::<Schedule>(tenant, &path.name)?;
    let DeleteQuery { id, user, reason } = query;
    let options = ControlCaller {
        id,
        user,
        reason,
        ..ControlCaller::default()
    };
    let action = signal(schedule::DELETE, Value::Null);
    changes.send::<Schedule>(&key, options, action).await?;

    Ok(axum::http::StatusCode::NO_CONTENT)
}

/// Reads a schedule that is not deleted.
async fn view(
    api: &RequestContext,
    key: InstanceKey,
    next: usize,
) -> Result<Json<ScheduleView>, Problem> {
    let view = built_in::show(
        api,
        key,
        missing::<Schedule>,
        move |scope, key, instance| {
            ScheduleView::of(key, instance, scope.redact(), scope.now(), next)
        },
    );

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
