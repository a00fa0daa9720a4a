//! Flows in responses.

use std::collections::BTreeMap;

use orlog_model::{Instance, InstanceKey, Status};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::resources::sagas::built_in::{ListedView, UNREADABLE};
use crate::resources::sagas::flow::{JobWork, show_claims, step_of};
use crate::server::page::BuiltPage;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::redact::HiddenValues;
use orlog_node::sagas::state::displayed_state;
use orlog_node::url_path::path;

/// Page of flows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowPage {
    /// Flows.
    items: Vec<FlowSummary>,
    /// Cursor of the next page; `null` at the end.
    next_cursor: Option<String>,
}

impl FlowPage {
    /// Creates the response of a list.
    pub(super) fn of(page: BuiltPage<FlowSummary>) -> Self {
        Self {
            items: page.entries,
            next_cursor: page.next,
        }
    }
}

/// Flow without its jobs.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowSummary {
    /// Id.
    id: String,
    /// Name for display.
    name: Option<String>,
    /// Labels.
    labels: BTreeMap<String, String>,
    /// `dispatched`, `started`, `error`, `finished` or `unreadable`.
    status: String,
    /// Whether a user cancelled it; its status is `error`.
    cancelled: bool,
    /// Whether inputs are buffered, not applied.
    paused: bool,
    /// User who submitted it.
    user: Option<String>,
    /// Tenant that owns the flow; empty for the default tenant.
    tenant: String,
    /// Number of jobs by status.
    jobs_by_status: BTreeMap<String, u32>,
    /// Time of the submission.
    #[schema(format = "date-time")]
    created_at: String,
    /// Time of the last change.
    #[schema(format = "date-time")]
    updated_at: String,
    /// Path of the instance of the flow, with its history.
    instance: String,
    /// Reason of the status `unreadable`: the jobs are not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Flow.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowView {
    #[serde(flatten)]
    summary: FlowSummary,
    /// Jobs in the order of the flow.
    jobs: Vec<FlowJobView>,
    /// Results of the finished jobs, by job.
    #[schema(value_type = Object)]
    results: Map<String, Value>,
    /// First failure.
    failure: Option<JobFailureView>,
}

/// Job of a flow.
#[derive(Debug, Serialize, ToSchema)]
struct FlowJobView {
    /// Id.
    id: String,
    /// Type of the script.
    #[serde(rename = "type")]
    kind: String,
    /// `waiting_for_prerequisites`, `dispatched` (no runner has taken it), `started`, `finished` or
    /// `error`.
    status: String,
    /// State of the step: `skipped` if the condition of the job was false, `abandoned` if it timed
    /// out or the flow was cancelled.
    state: String,
    /// Runner that executes the job.
    runner: Option<String>,
    /// Reason why no runner takes a dispatched job.
    waits_for: Option<String>,
    /// Time at which the job times out, while it is dispatched or started.
    #[schema(format = "date-time")]
    deadline: Option<String>,
    /// Jobs that must end first.
    prerequisites: Vec<String>,
    /// Jobs whose results it receives.
    dependencies: Vec<String>,
    /// Number of attempts, in all its runs, with those in progress.
    attempts: u64,
    /// Number of its stored lines.
    lines: u64,
    /// Failure of a job with the status `error`.
    failure: Option<JobFailureView>,
}

/// Failure of a job.
#[derive(Debug, Serialize, ToSchema)]
struct JobFailureView {
    /// Code.
    code: String,
    /// Message.
    message: String,
    /// Job; absent for the flow as a whole, and within the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<String>,
}

/// Returns the state of a flow, with the claims of the runners.
fn state(scope: &ReadScope, key: &InstanceKey, instance: &Instance) -> Result<Value, Problem> {
    let mut state = displayed_state(scope.stores(), instance);
    // If the program cannot read the state, `displayed_state` returns it as raw JSON, without a
    // graph.
    if !state["graph"].is_array() {
        let detail = format!(
            "the state of the flow \"{}\" cannot be read by this release",
            key.correlation
        );
        return Err(Problem::new(Code::StoreError, detail));
    }

    let types: BTreeMap<_, _> = values(&state["graph"])
        .filter_map(|job| Some((text(&job["id"])?, text(&job["type"])?)))
        .collect();
    // The pending work of the snapshot, not the outbox: a list would read the outbox once for each
    // flow.
    let pending = instance.pending_work.iter().filter_map(|work| {
        let id = work.id;
        let tag = work.tag.as_str();
        let kind = types.get(step_of(tag))?;
        Some(JobWork {
            id,
            tag,
            effect: format!("job.{kind}"),
        })
    });
    show_claims(scope, key, pending, &mut state);

    Ok(state)
}

impl FlowSummary {
    /// Returns the view of a flow.
    pub(super) fn read(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<Self>, Problem> {
        Ok(Some(Self::of(key, instance, &state(scope, key, instance)?)))
    }

    fn of(key: &InstanceKey, instance: &Instance, state: &Value) -> Self {
        let mut jobs_by_status = BTreeMap::new();
        for status in state["flow"]["jobs"]
            .as_object()
            .into_iter()
            .flat_map(Map::values)
        {
            *jobs_by_status
                .entry(text(status).unwrap_or_default())
                .or_default() += 1;
        }

        let labels = state["labels"].as_object().into_iter().flatten();
        Self {
            id: key.correlation.to_string(),
            name: text(&state["name"]),
            labels: labels
                .map(|(name, value)| (name.clone(), text(value).unwrap_or_default()))
                .collect(),
            status: text(&state["flow"]["status"]).unwrap_or_default(),
            cancelled: instance.status == Status::Cancelled,
            paused: instance.paused,
            user: text(&state["user"]),
            tenant: key.tenant.to_string(),
            jobs_by_status,
            created_at: instance.created_at.to_string(),
            updated_at: instance.updated_at.to_string(),
            instance: path(&["v1", "sagas", key.saga.as_str(), key.correlation.as_str()]),
            error: None,
        }
    }
}

impl ListedView for FlowSummary {
    fn unreadable(key: &InstanceKey, instance: &Instance, error: String) -> Self {
        Self {
            status: UNREADABLE.to_owned(),
            error: Some(error),
            ..Self::of(key, instance, &Value::Null)
        }
    }
}

impl FlowView {
    /// Returns the view of a flow.
    pub(super) fn read(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<Self>, Problem> {
        let redact = scope.redact();
        let mut state = state(scope, key, instance)?;
        // Collected before the results are redacted, because failures can quote the values.
        let hidden = redact.hidden_values([&state]);
        let summary = FlowSummary::of(key, instance, &state);
        let steps: BTreeMap<_, _> = values(&state["steps"])
            .map(|step| (text(&step["id"]), step))
            .collect();
        let lines = line_counts(scope, key)?;
        let jobs = values(&state["graph"]).map(|job| {
            let step = steps
                .get(&text(&job["id"]))
                .copied()
                .unwrap_or(&Value::Null);
            FlowJobView::of(job, step, &state["flow"]["jobs"], &hidden, &lines)
        });
        let jobs = jobs.collect();
        let failure = failure(&state["failure"], &hidden);
        let results = redact.redact(state["flow"]["results"].take());
        let results = results.as_object().cloned().unwrap_or_default();
        Ok(Some(Self {
            summary,
            jobs,
            results,
            failure,
        }))
    }
}

impl FlowJobView {
    fn of(
        job: &Value,
        step: &Value,
        statuses: &Value,
        hidden: &HiddenValues,
        lines: &BTreeMap<String, u64>,
    ) -> Self {
        let id = text(&job["id"]).unwrap_or_default();
        let ids = |field: &str| values(&job[field]).filter_map(text).collect();
        let status = text(&statuses[&id]).unwrap_or_default();
        Self {
            kind: text(&job["type"]).unwrap_or_default(),
            state: text(&step["state"]).unwrap_or_default(),
            runner: text(&step["worker"]),
            waits_for: text(&step["waits_for"]),
            deadline: text(&step["until"]),
            prerequisites: ids("prerequisites"),
            dependencies: ids("dependencies"),
            // The state counts ended attempts only; those in progress come from the claims.
            attempts: count(&job["attempts"]) + count(&step["in_progress"]),
            lines: lines.get(&id).copied().unwrap_or_default(),
            failure: failure(&job["failure"], hidden).filter(|_| status == "error"),
            status,
            id,
        }
    }
}

/// Returns the number of stored lines of each job.
fn line_counts(scope: &ReadScope, key: &InstanceKey) -> Result<BTreeMap<String, u64>, Problem> {
    let mut counts = BTreeMap::new();
    let stored = scope
        .reader(key)
        .map(|reader| reader.job_log_counts(key))
        .transpose()?;

    // Elements of a list write under tags of their own, which belong to one job of the view.
    for (tag, lines) in stored.unwrap_or_default() {
        *counts.entry(step_of(tag.as_str()).to_owned()).or_default() += lines;
    }
    Ok(counts)
}

fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn failure(failure: &Value, hidden: &HiddenValues) -> Option<JobFailureView> {
    Some(JobFailureView {
        code: text(&failure["code"])?,
        message: hidden.remove_from(&text(&failure["message"])?),
        job: text(&failure["step"]),
    })
}

fn values(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
