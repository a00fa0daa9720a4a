//! `/v1/schedules`: lists, creates, changes and triggers schedules. The response to a change
//! arrives after its commit is durable.

mod view;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use orlog_model::{EventId, Instance, InstanceKey, TenantId};
use orlog_sagas::schedule::{self, LAST_CRON_YEAR, PutSchedule, ScheduleError, ScheduleSpec};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use crate::resources::access::check_signed;
use crate::resources::sagas::built_in;
use crate::resources::sagas::control::ControlBody;
use crate::resources::sagas::resource::{
    self, Changed, Changes, Deferral, ListedResource, Resource, Verb, missing, resource,
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

    async fn permit(changes: &Changes, key: &InstanceKey, verb: Verb) -> Result<(), Problem> {
        // Starts follow, except after these two.
        if ![
            Verb::Signal(schedule::PAUSE),
            Verb::Signal(schedule::DELETE),
        ]
        .contains(&verb)
        {
            check_signed(&changes.access, &changes.caller, &key.tenant)?;
        }
        // A control request creates a schedule; it would also be delivered to a deleted one.
        if verb != Verb::Signal(schedule::PUT) {
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
        = Verb::Signal(schedule::PAUSE), {
        /// Pause a schedule: due times are ignored until it is resumed
    }

    change resume "/v1/schedules/{name}/resume" -> ScheduleView
        = Verb::Signal(schedule::RESUME), {
        /// Resume a schedule after the current time
    }

    change trigger "/v1/schedules/{name}/trigger" -> ScheduleView
        = Verb::Signal(schedule::TRIGGER), {
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
    responses(
        (status = 200, description = "Durable", body = ScheduleView),
        (
            status = 202,
            description = "Durable; applied when the paused instance is resumed",
            body = Changed<ScheduleView>
        )
    )
)]
pub(crate) async fn put(
    changes: Changes,
    State(definitions): State<Definitions>,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<SchedulePath>,
    CheckedBody(body): CheckedBody,
) -> Result<Changed<ScheduleView>, Problem> {
    let api = &changes.instances.request;
    let key = resource::key::<Schedule>(tenant, &path.name)?;
    let put = Verb::Signal(schedule::PUT);
    let change = changes.permit::<Schedule>(key.clone(), put).await?;
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
            errors.push(never_due(&spec));
        }
    }

    if !errors.is_empty() {
        return Err(invalid(&errors));
    }

    // `file: None` marks a schedule of a user, in contrast to one of a deployed file.
    let data = json!(PutSchedule { spec, file: None });
    change.show(ControlBody::default(), data).await
}

/// Delete a schedule
///
/// Its runs in progress continue.
#[utoipa::path(
    delete,
    path = "/v1/schedules/{name}",
    tag = "schedules",
    params(SchedulePath, DeleteQuery),
    responses(
        (status = 204, description = "Durable"),
        (
            status = 202,
            description = "Durable; applied when the paused instance is resumed",
            body = Deferral
        )
    )
)]
pub(crate) async fn delete(
    changes: Changes,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<SchedulePath>,
    QueryParams(query): QueryParams<DeleteQuery>,
) -> Result<Response, Problem> {
    let key = resource::key::<Schedule>(tenant, &path.name)?;
    let delete = Verb::Signal(schedule::DELETE);
    let change = changes.permit::<Schedule>(key, delete).await?;
    let DeleteQuery { id, user, reason } = query;
    let options = ControlBody {
        id,
        user,
        reason,
        ..ControlBody::default()
    };

    let deferral = change.send(options, Value::Null).await?;
    Ok(match deferral.status(StatusCode::NO_CONTENT) {
        StatusCode::ACCEPTED => (StatusCode::ACCEPTED, Json(deferral)).into_response(),
        status => status.into_response(),
    })
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

/// Returns the error of a schedule without a due time.
fn never_due(spec: &ScheduleSpec) -> ScheduleError {
    let (field, message) = match &spec.cron {
        Some(cron) => (
            "cron",
            format!("{cron:?} is never due: no time matches it up to the year {LAST_CRON_YEAR}"),
        ),
        None => ("at", "the date has passed".to_owned()),
    };
    ScheduleError {
        field: field.to_owned(),
        message,
    }
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
