//! `GET /v1/tasks`, `GET /v1/tasks/{id}`, `POST /v1/tasks/{id}/…`: lists human tasks and performs
//! task actions.
//!
//! The token or the gateway sets the user and the roles; if authentication is off, they are those
//! of the request (`user`, `roles`).

mod view;

use axum::{Extension, Json};
use orlog_model::{
    ControlAction, CorrelationId, EventId, EventType, SagaName, TaskAction, TaskRow, TaskStatus,
    TenantId,
};
use orlog_store::{TaskQuery, merge_tasks};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::resources::sagas::control::{ControlBody, ControlResponse, send_control};
use crate::server::body::CheckedBody;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{LastSegment, QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;
use view::{TaskDetail, TaskPage};
pub(crate) use view::{TaskEventView, TaskView};

/// Maximum number of events of a task in a response.
const MAX_EVENTS: usize = 1_000;

/// Filter of tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TaskQueryParams {
    /// Filter by status, comma-separated: `open`, `claimed`, `completed`, `closed`. Default:
    /// `open,claimed`.
    #[serde(default = "waiting", deserialize_with = "statuses")]
    #[param(value_type = Option<String>)]
    status: Vec<TaskStatus>,
    /// Filter by role that may claim the task; every role may claim a task without roles.
    role: Option<String>,
    /// Filter by assignee or claimant.
    assignee: Option<String>,
    /// Filter by saga.
    #[param(value_type = Option<String>)]
    saga: Option<SagaName>,
    /// Filter by correlation id.
    #[param(value_type = Option<String>)]
    correlation: Option<CorrelationId>,
    /// Maximum number of entries. Default: 100.
    limit: Option<usize>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

fn waiting() -> Vec<TaskStatus> {
    vec![TaskStatus::Open, TaskStatus::Claimed]
}

fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<TaskStatus>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let read = |name: &str| {
        let found = TaskStatus::ALL
            .into_iter()
            .find(|status| status.as_str() == name);
        found.ok_or_else(|| {
            D::Error::custom(format!(
                "unknown status {name:?}; statuses: {}",
                TaskStatus::ALL.map(TaskStatus::as_str).join(", ")
            ))
        })
    };

    text.split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(read)
        .collect()
}

/// User who performs a task action.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TaskUser {
    /// User name.
    user: Option<String>,
    /// Roles of the user.
    #[serde(default)]
    roles: Vec<String>,
    /// Idempotency key of the request. Default: a new id.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Reason recorded in the task.
    reason: Option<String>,
    /// Reject the request unless the instance has this version.
    expected_version: Option<u64>,
}

/// New assignee of a task.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AssignBody {
    /// New assignee; unassigned if omitted.
    assignee: Option<String>,
    /// Roles that may claim the task; unchanged if omitted.
    roles: Option<Vec<String>>,
    /// User name.
    user: Option<String>,
    /// Idempotency key of the request. Default: a new id.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Reason recorded in the task.
    reason: Option<String>,
    /// Reject the request unless the instance has this version.
    expected_version: Option<u64>,
}

/// Result of a task.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompleteBody {
    /// Outcome of the task, if it has outcomes.
    #[schema(value_type = Option<String>)]
    outcome: Option<EventType>,
    /// Result data for the saga.
    #[serde(default)]
    data: Value,
    /// User name.
    user: Option<String>,
    /// Roles of the user.
    #[serde(default)]
    roles: Vec<String>,
    /// Idempotency key of the request. Default: a new id.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Reason recorded in the task.
    reason: Option<String>,
    /// Reject the request unless the instance has this version.
    expected_version: Option<u64>,
}

/// List tasks
///
/// Ordered by id, which is approximately the order of creation. A request scans a bounded number of
/// tasks, so a page can be short and still have a `next`; the last page has none.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    tag = "tasks",
    params(TaskQueryParams),
    responses((status = 200, description = "A page", body = TaskPage))
)]
pub(crate) async fn list(
    api: RequestContext,
    Tenant(tenant): Tenant,
    QueryParams(filter): QueryParams<TaskQueryParams>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(filter.limit, &api);
    let query = TaskQuery {
        tenant,
        statuses: filter.status,
        role: filter.role,
        assignee: filter.assignee,
        saga: filter.saga,
        correlation: filter.correlation,
        cursor: filter.cursor,
        limit: limits.entries,
        scan_limit: api.http().scan_limit,
    };

    api.read_json(move |scope| {
        let pages: Result<Vec<_>, _> = scope.readers().map(|reader| reader.tasks(&query)).collect();
        let found = merge_tasks(pages?, limits.entries);
        let mut page = PageBuilder::new(limits);
        for row in &found.items {
            let view = TaskView::of(row, scope.redact());
            if !page.push(view, row.task.id.to_string()) {
                break;
            }
        }

        let page = page.finish(found.next);
        Ok(TaskPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

/// Show a task with its events
#[utoipa::path(
    get,
    path = "/v1/tasks/{id}",
    tag = "tasks",
    params(("id" = Uuid, Path, description = "Task id")),
    responses((status = 200, description = "The task", body = TaskDetail))
)]
pub(crate) async fn show(
    api: RequestContext,
    Tenant(tenant): Tenant,
    LastSegment(id): LastSegment,
) -> Result<Json<TaskDetail>, Problem> {
    let id = parse(&id)?;
    let detail = api.read(move |scope| {
        // The id of a task does not identify its shard.
        for reader in scope.readers() {
            if let Some(row) = reader.task(&tenant, id)? {
                let events = reader.task_events(&row, MAX_EVENTS)?;
                let instance = reader.instance(&row.instance)?;
                return Ok(TaskDetail::of(
                    &row,
                    instance.as_ref(),
                    &events,
                    scope.redact(),
                ));
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
            params(("id" = Uuid, Path, description = "Task id")),
            request_body(content = $body),
            responses((status = 200, description = "Durable", body = ControlResponse))
        )]
        pub(crate) async fn $verb(
            instances: Instances,
            Extension(caller): Extension<Caller>,
            Tenant(tenant): Tenant,
            LastSegment(id): LastSegment,
            body: CheckedBody,
        ) -> Result<Json<ControlResponse>, Problem> {
            let body: $body = body.optional()?;
            let (order, roles, given) = $order(body);
            // The engine decides by the stated roles, so that a caller may state only its own.
            let roles = caller.check_roles(roles)?;
            send_action(&instances, &caller, tenant, parse(&id)?, given, order, roles).await
        }
    )+};
}

orders! {
    /// Claim a task exclusively
    claim "/v1/tasks/{id}/claim" TaskUser, TaskUser::claims;
    /// Release a claimed task
    release "/v1/tasks/{id}/release" TaskUser, TaskUser::releases;
    /// Assign a task to another user
    assign "/v1/tasks/{id}/assign" AssignBody, AssignBody::into_parts;
    /// Complete a task; its saga continues
    complete "/v1/tasks/{id}/complete" CompleteBody, CompleteBody::into_parts;
}

impl TaskUser {
    fn claims(self) -> (TaskAction, Vec<String>, ControlBody) {
        self.into_parts(TaskAction::Claim)
    }

    fn releases(self) -> (TaskAction, Vec<String>, ControlBody) {
        self.into_parts(TaskAction::Release)
    }

    fn into_parts(self, order: TaskAction) -> (TaskAction, Vec<String>, ControlBody) {
        let Self {
            user: by,
            roles,
            id,
            reason,
            expected_version,
        } = self;
        (
            order,
            roles,
            ControlBody {
                id,
                user: by,
                reason,
                expected_version,
                wait_token: None,
            },
        )
    }
}

impl AssignBody {
    fn into_parts(self) -> (TaskAction, Vec<String>, ControlBody) {
        let Self {
            assignee,
            roles,
            user: by,
            id,
            reason,
            expected_version,
        } = self;
        let control_caller = ControlBody {
            id,
            user: by,
            reason,
            expected_version,
            wait_token: None,
        };

        (
            TaskAction::Assign { assignee, roles },
            Vec::new(),
            control_caller,
        )
    }
}

impl CompleteBody {
    fn into_parts(self) -> (TaskAction, Vec<String>, ControlBody) {
        let Self {
            outcome,
            data,
            user: by,
            roles,
            id,
            reason,
            expected_version,
        } = self;

        let control_caller = ControlBody {
            id,
            user: by,
            reason,
            expected_version,
            wait_token: None,
        };

        (
            TaskAction::Complete { outcome, data },
            roles,
            control_caller,
        )
    }
}

/// Sends the task action to the instance of the task.
async fn send_action(
    instances: &Instances,
    caller: &Caller,
    tenant: TenantId,
    id: Uuid,
    control_caller: ControlBody,
    order: TaskAction,
    roles: Vec<String>,
) -> Result<Json<ControlResponse>, Problem> {
    // The row only locates the instance: its actor decides by the task as it is then.
    let row: TaskRow = instances
        .request
        .read(move |scope| {
            for reader in scope.readers() {
                if let Some(row) = reader.task(&tenant, id)? {
                    return Ok(row);
                }
            }
            Err(missing(id))
        })
        .await?;
    send_control(
        instances,
        caller,
        &row.instance,
        control_caller,
        ControlAction::Task { id, order, roles },
    )
    .await
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse()
        .map_err(|error| invalid_parameter("id", format!("not a task id: {error}")))
}

fn missing(id: Uuid) -> Problem {
    Problem::new(Code::TaskNotFound, format!("no task {id}"))
}
