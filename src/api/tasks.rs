//! `GET /v1/tasks`, `GET /v1/tasks/{id}`, `POST /v1/tasks/{id}/…`: what people are asked, and what they do about it.
//!
//! Who somebody is and which roles they have is what their token or the gateway says; where nobody asks who calls, it is taken
//! as stated (`by`, `roles`).

mod view;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use orlog_model::{
    Action, CorrelationId, EventId, EventType, SagaName, TaskOrder, TaskRow, TaskStatus, TenantId,
};
use orlog_store::{TaskQuery, merge_tasks};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::context::Api;
use super::control::{Answer, Given, give, optional, read};
use super::errors::bad_parameter;
use super::extract::{Params, Part, Tenant, page_limit};
use super::problem::{Code, Problem};
use crate::auth::Caller;
pub(super) use view::{FormView, TaskEventView, TaskView};
use view::{Found, TaskDetail};

/// Events of a task that are shown at most.
const EVENTS: usize = 1_000;

/// Which tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Filter {
    /// In these statuses only, separated by commas: `open`, `claimed`, `completed`, `closed`; `open,claimed` where nothing is
    /// said.
    #[serde(default = "waiting", deserialize_with = "statuses")]
    #[param(value_type = Option<String>)]
    status: Vec<TaskStatus>,
    /// That somebody with this role may take; a task without roles is for everybody.
    role: Option<String>,
    /// That this person is to do, or has taken.
    assignee: Option<String>,
    /// Of this saga only.
    #[param(value_type = Option<String>)]
    saga: Option<SagaName>,
    /// Of the instances with this correlation id only.
    #[param(value_type = Option<String>)]
    correlation: Option<CorrelationId>,
    /// Entries of a page; 100 where nothing is said.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

fn waiting() -> Vec<TaskStatus> {
    vec![TaskStatus::Open, TaskStatus::Claimed]
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TaskStatus>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = |word: &str| {
        let found = TaskStatus::ALL.into_iter().find(|status| status.as_str() == word);
        let known = || TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
        found.ok_or_else(|| D::Error::custom(format!("{word:?} is no status; there are {}", known())))
    };
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(read).collect()
}

/// Who does something about a task.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Person {
    /// Who it is.
    by: Option<String>,
    /// The roles they have.
    #[serde(default)]
    roles: Vec<String>,
    /// Makes sending it again harmless; a new one where nothing is said.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Why, for the record.
    reason: Option<String>,
    /// Refused unless the instance stands at this state version.
    expected_version: Option<u64>,
}

/// To whom a task is given.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Assignment {
    /// Who is to do it; whoever takes it where nobody is named.
    assignee: Option<String>,
    /// Those who may take it; as before where nothing is said.
    roles: Option<Vec<String>>,
    /// Who gives it.
    by: Option<String>,
    /// Makes sending it again harmless; a new one where nothing is said.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Why, for the record.
    reason: Option<String>,
    /// Refused unless the instance stands at this state version.
    expected_version: Option<u64>,
}

/// The answer to a task.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Completion {
    /// One of the task's outcomes, where it has any.
    #[schema(value_type = Option<String>)]
    outcome: Option<EventType>,
    /// What was entered; the saga is shown it.
    #[serde(default)]
    data: Value,
    /// Who it is.
    by: Option<String>,
    /// The roles they have.
    #[serde(default)]
    roles: Vec<String>,
    /// Makes sending it again harmless; a new one where nothing is said.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Why, for the record.
    reason: Option<String>,
    /// Refused unless the instance stands at this state version.
    expected_version: Option<u64>,
}

/// Find tasks
///
/// In the order of their ids, which is about that in which they were opened. A request looks at a bounded number of tasks, so a
/// page may be short and have a `next` all the same; the last one has none.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    tag = "tasks",
    params(Filter),
    responses((status = 200, description = "A page", body = Found))
)]
pub(super) async fn list(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Params(filter): Params<Filter>,
) -> Result<Json<Found>, Problem> {
    let limit = page_limit(filter.limit, &api);
    let query = TaskQuery {
        tenant,
        statuses: filter.status,
        role: filter.role,
        assignee: filter.assignee,
        saga: filter.saga,
        correlation: filter.correlation,
        cursor: filter.cursor,
        limit,
        scan_limit: api.app.config.http.scan_limit,
    };
    let page = api.read(move |app| {
        let pages: Result<Vec<_>, _> = app.runtime.readers().map(|reader| reader.tasks(&query)).collect();
        Ok(merge_tasks(pages?, limit))
    });
    let page = page.await?;
    Ok(Json(Found { items: page.items.iter().map(TaskView::of).collect(), next: page.next }))
}

/// Show a task and what happened to it
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}",
    tag = "tasks",
    params(("id" = String, Path, description = "The task's id")),
    responses((status = 200, description = "The task", body = TaskDetail))
)]
pub(super) async fn show(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
    Part(id): Part,
) -> Result<Json<TaskDetail>, Problem> {
    let id = parse(&id)?;
    let detail = api.read(move |app| {
        for reader in app.runtime.readers() {
            if let Some(row) = reader.task(&tenant, id)? {
                return Ok(TaskDetail::of(&row, &reader.task_events(&row, EVENTS)?));
            }
        }
        Err(missing(id))
    });
    Ok(Json(detail.await?))
}

macro_rules! orders {
    ($($(#[doc = $doc:literal])+ $verb:ident $path:literal $body:ty, $order:expr;)+) => {$(
        $(#[doc = $doc])+
        #[utoipa::path(
            post,
            path = $path,
            tag = "tasks",
            params(("id" = String, Path, description = "The task's id")),
            request_body(content = $body),
            responses((status = 200, description = "Durable", body = Answer))
        )]
        pub(super) async fn $verb(
            State(api): State<Api>,
            Extension(caller): Extension<Caller>,
            Tenant(tenant): Tenant,
            Part(id): Part,
            headers: HeaderMap,
            body: Body,
        ) -> Result<Json<Answer>, Problem> {
            let body: $body = optional(&read(&api, &headers, body).await?)?;
            let (order, roles, given) = $order(body);
            let roles = caller.acts_with(roles)?;
            tell((&api, &caller), tenant, parse(&id)?, given, (order, roles)).await
        }
    )+};
}

orders! {
    /// Take a task, so that no other does
    claim "/v1/tasks/{id}/claim" Person, Person::claims;
    /// Give a task back
    release "/v1/tasks/{id}/release" Person, Person::releases;
    /// Give a task to somebody else
    assign "/v1/tasks/{id}/assign" Assignment, Assignment::taken;
    /// Answer a task; its saga goes on
    complete "/v1/tasks/{id}/complete" Completion, Completion::taken;
}

impl Person {
    fn claims(self) -> (TaskOrder, Vec<String>, Given) {
        self.taken(TaskOrder::Claim)
    }

    fn releases(self) -> (TaskOrder, Vec<String>, Given) {
        self.taken(TaskOrder::Release)
    }

    fn taken(self, order: TaskOrder) -> (TaskOrder, Vec<String>, Given) {
        let Self { by, roles, id, reason, expected_version } = self;
        (order, roles, Given { id, by, reason, expected_version })
    }
}

impl Assignment {
    fn taken(self) -> (TaskOrder, Vec<String>, Given) {
        let Self { assignee, roles, by, id, reason, expected_version } = self;
        let given = Given { id, by, reason, expected_version };
        (TaskOrder::Assign { assignee, roles }, Vec::new(), given)
    }
}

impl Completion {
    fn taken(self) -> (TaskOrder, Vec<String>, Given) {
        let Self { outcome, data, by, roles, id, reason, expected_version } = self;
        let given = Given { id, by, reason, expected_version };
        (TaskOrder::Complete { outcome, data }, roles, given)
    }
}

/// Finds the instance of a task and gives it the order.
async fn tell(
    (api, caller): (&Api, &Caller),
    tenant: TenantId,
    id: Uuid,
    given: Given,
    (order, roles): (TaskOrder, Vec<String>),
) -> Result<Json<Answer>, Problem> {
    let row: TaskRow = api
        .read(move |app| {
            for reader in app.runtime.readers() {
                if let Some(row) = reader.task(&tenant, id)? {
                    return Ok(row);
                }
            }
            Err(missing(id))
        })
        .await?;
    give(api, caller, &row.instance, given, Action::Task { id, order, roles }).await
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|error| bad_parameter("id", format!("it is no task id: {error}")))
}

fn missing(id: Uuid) -> Problem {
    Problem::new(Code::NoTask, format!("there is no task {id}"))
}
