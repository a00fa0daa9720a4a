//! `/v1/runners`: runners register themselves, and users list them.

use std::collections::BTreeMap;

use axum::Json;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode};
use orlog_model::{Name, SteadyTime, TenantId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::claimed_job::{check_worker, runner_problem};
use super::pods::repeat_on_others;
use crate::server::body::JsonBody;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{PathParams, QueryParams, Tenant, page_limits};
use crate::server::page::{EncodedJson, PageBuilder};
use crate::server::parts::jobs::Jobs;
use crate::server::problem::Problem;
use orlog_node::jobs::runners::{EXPIRY, Runner};
use orlog_node::url_path;

/// Maximum number of script types, and of labels, of a runner.
const MAX_NAMES: usize = 100;
/// Maximum length of a key, an address, a topic or the value of a label, in bytes.
const MAX_TEXT_BYTES: usize = 1024;

/// Registration of a runner.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunnerBody {
    /// Name, unique in the tenant; `worker` in its claim requests.
    name: String,
    /// Script types that it executes.
    #[schema(value_type = Vec<String>, example = json!(["python"]))]
    types: Vec<Name>,
    /// Public key.
    key: Option<String>,
    /// Address.
    address: Option<String>,
    /// Topic.
    topic: Option<String>,
    /// Whether it runs on the machine of the node.
    #[serde(default)]
    local: bool,
    /// Labels.
    #[serde(default)]
    #[schema(value_type = BTreeMap<String, String>)]
    labels: BTreeMap<Name, String>,
    /// Maximum number of jobs that it holds at the same time. Default: 1.
    capacity: Option<u32>,
}

/// Runner.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunnerView {
    /// Name.
    name: String,
    /// Script types.
    types: Vec<String>,
    /// Effects that it claims: `job.<type>`.
    effects: Vec<String>,
    /// Public key.
    key: Option<String>,
    /// Address.
    address: Option<String>,
    /// Topic.
    topic: Option<String>,
    /// Whether it runs on the machine of the node.
    local: bool,
    /// Labels.
    labels: BTreeMap<String, String>,
    /// Maximum number of jobs that it holds at the same time.
    capacity: u32,
    /// Number of jobs that it holds.
    jobs: usize,
    /// End of the registration, unless the runner repeats it.
    #[schema(format = "date-time")]
    expires_at: String,
    /// Recommended interval of the registrations.
    heartbeat_interval_seconds: f64,
}

/// Registered runners of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RunnerPage {
    items: Vec<RunnerView>,
    /// Cursor of the next page; null after the last one.
    next_cursor: Option<String>,
}

/// Page of runners.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RunnerQuery {
    /// Maximum number of runners. Default: 100.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// Path of a runner.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Path)]
pub(crate) struct RunnerPath {
    /// Name of the runner, percent-encoded
    name: String,
}

/// List the registered runners
#[utoipa::path(
    get,
    path = "/v1/runners",
    tag = "runners",
    params(RunnerQuery),
    responses((status = 200, description = "Runners by name", body = RunnerPage))
)]
pub(crate) async fn list(
    jobs: Jobs,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<RunnerQuery>,
) -> Result<EncodedJson, Problem> {
    let limits = page_limits(query.limit, &jobs.request);
    let listed = jobs.clone();
    let api = &jobs.request;
    api.read_json(move |scope| {
        let now = scope.clock().steady();
        let mut page = PageBuilder::new(limits);
        let mut after = query.cursor;
        // One at a time: copies of all registrations of a tenant could have 40 MB.
        while let Some((runner, until)) = listed.runners().next(&tenant, after.as_deref(), now) {
            let name = runner.name.clone();
            if !page.push(view(&listed, &tenant, runner, until), name.clone()) {
                break;
            }
            after = Some(name);
        }

        let page = page.finish(None);
        Ok(RunnerPage {
            items: page.entries,
            next_cursor: page.next,
        })
    })
    .await
}

/// Register a runner, or extend its registration
///
/// A registration is valid for 1 minute, and until the node restarts. Meanwhile its name belongs to
/// the caller.
#[utoipa::path(
    post,
    path = "/v1/runners",
    tag = "runners",
    request_body = RunnerBody,
    responses((status = 200, description = "The runner is registered", body = RunnerView))
)]
pub(crate) async fn register(
    jobs: Jobs,
    Tenant(tenant): Tenant,
    headers: HeaderMap,
    JsonBody(body): JsonBody<RunnerBody>,
) -> Result<Json<RunnerView>, Problem> {
    let repeated = serde_json::to_vec(&body).expect("a registration serializes to JSON");
    let runner = checked(body)?;
    let now = jobs.request.steady();
    let caller = jobs.request.scope.user.as_deref();
    let registered = jobs
        .runners()
        .register(tenant.clone(), runner.clone(), caller, now);
    // Only a registration that is valid here is repeated; each pod checks the owner of the name
    // itself.
    registered.map_err(runner_problem)?;

    let body = repeated.into();
    repeat_on_others(&jobs, &tenant, &headers, Method::POST, "/v1/runners", body).await;
    Ok(Json(view(
        &jobs,
        &tenant,
        runner,
        now.saturating_add(EXPIRY),
    )))
}

/// End the registration of a runner
#[utoipa::path(
    delete,
    path = "/v1/runners/{name}",
    tag = "runners",
    params(RunnerPath),
    responses((status = 204, description = "The runner is not registered"))
)]
pub(crate) async fn remove(
    jobs: Jobs,
    Tenant(tenant): Tenant,
    PathParams(path): PathParams<RunnerPath>,
    headers: HeaderMap,
) -> Result<StatusCode, Problem> {
    let caller = jobs.request.scope.user.as_deref();
    let now = jobs.request.steady();
    let removed = jobs.runners().remove(&tenant, &path.name, caller, now);
    removed.map_err(runner_problem)?;

    let path = url_path::path(&["v1", "runners", &path.name]);
    repeat_on_others(
        &jobs,
        &tenant,
        &headers,
        Method::DELETE,
        &path,
        Bytes::new(),
    )
    .await;
    Ok(StatusCode::NO_CONTENT)
}

fn checked(body: RunnerBody) -> Result<Runner, Problem> {
    let RunnerBody {
        name,
        types,
        key,
        address,
        topic,
        local,
        labels,
        capacity,
    } = body;
    check_worker(&name)?;
    if types.is_empty() || types.len() > MAX_NAMES {
        let detail = format!(
            "a runner has 1 to {MAX_NAMES} script types; it has {}",
            types.len()
        );
        return Err(invalid_parameter("types", detail));
    }
    if labels.len() > MAX_NAMES {
        let detail = format!(
            "a runner has at most {MAX_NAMES} labels; it has {}",
            labels.len()
        );
        return Err(invalid_parameter("labels", detail));
    }

    // Registrations are kept in memory and chosen by their callers, so that each text is limited.
    let texts = [("key", &key), ("address", &address), ("topic", &topic)];
    let texts = texts
        .into_iter()
        .filter_map(|(field, text)| Some((field, text.as_ref()?.len())));
    let mut sizes = texts.chain(labels.values().map(|value| ("labels", value.len())));
    let too_long = sizes.find(|(_, bytes)| *bytes > MAX_TEXT_BYTES);
    drop(sizes);
    if let Some((field, bytes)) = too_long {
        let detail = format!("{field} has {bytes} bytes, the limit is {MAX_TEXT_BYTES}");
        return Err(invalid_parameter(field, detail));
    }

    let capacity = capacity.unwrap_or(1);
    if capacity == 0 {
        return Err(invalid_parameter(
            "capacity",
            "capacity is 0; set 1 or more",
        ));
    }

    Ok(Runner {
        name,
        types,
        key,
        address,
        topic,
        local,
        labels,
        capacity,
    })
}

fn view(jobs: &Jobs, tenant: &TenantId, runner: Runner, until: SteadyTime) -> RunnerView {
    let Runner {
        name,
        types,
        key,
        address,
        topic,
        local,
        labels,
        capacity,
    } = runner;

    let boards = jobs.catalog().job_boards();
    RunnerView {
        jobs: boards
            .iter()
            .map(|(board, ..)| board.held(tenant, &name))
            .sum(),
        name,
        effects: types.iter().map(|kind| format!("job.{kind}")).collect(),
        types: types.iter().map(ToString::to_string).collect(),
        key,
        address,
        topic,
        local,
        labels: labels
            .into_iter()
            .map(|(name, value)| (name.to_string(), value))
            .collect(),
        capacity,
        expires_at: jobs.request.clock().wall_at(until).to_string(),
        // Two registrations in a row can be lost before the name expires.
        heartbeat_interval_seconds: EXPIRY.as_secs_f64() / 3.0,
    }
}
