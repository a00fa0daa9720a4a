//! `/v1/work/exchange`: reports of a worker and new jobs in one message, as a request or in a stream.
//!
//! A message carries results, heartbeats and log lines up, and jobs down. The worker states its credit, the number of
//! jobs that it accepts, and never receives more. The acknowledgement of a result is sent when the result is stored.

pub(crate) mod stream;

use std::time::Duration;

use axum::Json;
use orlog_effect::worker::{ClaimLost, ClaimRequest, JobReport, ReportAck, ResultAck};
use orlog_model::{EffectName, TenantId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use utoipa::openapi::Ref;
use utoipa::openapi::schema::{
    AllOfBuilder, AnyOfBuilder, Array, ArrayBuilder, ObjectBuilder, SchemaType, Type,
};
use uuid::Uuid;

use super::claimed_job::{
    ClaimedJobView, MAX_CLAIM, MAX_WAIT_SECONDS, board_for, claim_request, with_registration,
};
use super::report::{
    HeartbeatBody, JobLogBody, JobResultBody, MAX_LOG_LINES, ReportBody, apply, claim_lost, stored,
};
use crate::api::body::{JsonBody, ObjectOf, parse_value};
use crate::api::context::ApiState;
use crate::api::errors::invalid_parameter;
use crate::api::extract::Tenant;
use crate::api::problem::{Code, Problem};

/// Maximum credit of a worker.
const MAX_CREDIT: usize = 1000;

/// Maximum number of reports of one message.
const MAX_REPORTS: usize = 1000;

/// Message of a worker: its reports, and the jobs that it accepts.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExchangeBody {
    /// Display name of the worker; required with `credit`.
    worker: Option<String>,
    /// Effects that the worker executes, all of one upstream; required with `credit`.
    #[schema(value_type = Option<Vec<String>>)]
    effects: Option<Vec<EffectName>>,
    /// The worker determines the outcome of earlier attempts before it executes a job with `in_doubt`. Stated with
    /// `effects`.
    #[serde(default)]
    probes: bool,
    /// Number of further jobs that the worker accepts, at most 1000. Default: 0.
    #[serde(default)]
    credit: usize,
    /// Maximum wait for the first job, in seconds. Maximum: 25. Default: 0. A stream ignores it.
    #[serde(default)]
    wait_seconds: u64,
    /// Log lines of jobs; applied first.
    #[serde(default)]
    #[schema(schema_with = items_of::<JobLogBody>)]
    logs: Vec<ItemOf<JobLogBody>>,
    /// Claims to extend; applied before the results.
    #[serde(default)]
    #[schema(schema_with = items_of::<HeartbeatBody>)]
    heartbeats: Vec<ItemOf<HeartbeatBody>>,
    /// Results of jobs.
    #[serde(default)]
    #[schema(schema_with = items_of::<JobResultBody>)]
    results: Vec<ItemOf<JobResultBody>>,
}

/// Report about a job in a message, and the id of the job if it is readable. An invalid item does not reject the others.
#[derive(Debug)]
pub(super) struct ItemOf<T> {
    job: Option<Uuid>,
    body: Result<T, Problem>,
}

/// Acknowledgements in the order of the reports, and claimed jobs.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ExchangeResponse {
    logs: Vec<ReportAckView>,
    heartbeats: Vec<ReportAckView>,
    results: Vec<ReportAckView>,
    /// Claimed jobs, oldest first; at most the credit, and at most 100.
    jobs: Vec<ClaimedJobView>,
}

/// Acknowledgement of one report.
#[derive(Debug, Serialize, ToSchema)]
struct ReportAckView {
    /// Job id of the report; null if the report has no valid id.
    #[schema(value_type = Option<String>, format = "uuid")]
    job: Option<Uuid>,
    status: ReportStatus,
    /// Expiry of the claim after a heartbeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "date-time")]
    expires_at: Option<String>,
    /// Reason of a status other than `accepted` and `duplicate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// Status of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ReportStatus {
    /// The report is applied; a result is stored.
    Accepted,
    /// The claim already has a result, which is stored.
    Duplicate,
    /// The claim is unknown or expired, or another worker has the job. The report has no effect.
    ClaimLost,
    /// The report is malformed and has no effect.
    Invalid,
    /// The result is not stored yet, or the shard stopped before it stored the result. Send it again.
    NotStored,
}

/// Exchange reports and jobs
///
/// Applies the reports, and waits until the results are stored. Then claims up to `credit` jobs, and waits up to
/// `wait_seconds` for the first one. Each item is applied for itself.
#[utoipa::path(
    post,
    path = "/v1/work/exchange",
    tag = "work",
    request_body = ExchangeBody,
    responses((status = 200, description = "Acknowledgements and claimed jobs", body = ExchangeResponse))
)]
pub(crate) async fn exchange(
    api: ApiState,
    Tenant(tenant): Tenant,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<ExchangeBody>>,
) -> Result<Json<ExchangeResponse>, Problem> {
    body.check_limits()?;
    let request = body.claim_request(&api, &tenant)?;
    let wait = Duration::from_secs(body.wait_seconds.min(MAX_WAIT_SECONDS));
    let (credit, wait) = (body.credit, wait.min(api.app.config.http.request_timeout));
    if credit > 0 && request.is_none() {
        return Err(missing_effects());
    }
    let _long_poll = (credit > 0 && !wait.is_zero())
        .then(|| api.quotas.begin_long_poll(api.scope.caller.as_ref()))
        .transpose()?;
    let applied = AppliedReports::apply(&api, &tenant, body).await;
    let mut response = applied.acknowledge(&api).await;
    if let Some(request) = request.filter(|_| credit > 0) {
        tokio::select! {
            biased;
            jobs = claim_jobs(&api, &request, credit, wait) => response.jobs = jobs?,
            // The process is shutting down and would wait for this response.
            () = api.app.drained() => {}
        }
    }
    Ok(Json(response))
}

/// Claims jobs as soon as one is available; returns none after `wait`.
async fn claim_jobs(
    api: &ApiState,
    request: &ClaimRequest,
    credit: usize,
    wait: Duration,
) -> Result<Vec<ClaimedJobView>, Problem> {
    let (board, terms) = board_for(api, request)?;
    // The runner of a stream may have registered since its message, and a stream can outlive the registration.
    let request = with_registration(api, request)?;
    let claimed = board
        .claim(
            api.app.clock.as_ref(),
            &request,
            credit.min(MAX_CLAIM),
            terms,
            wait,
        )
        .await;
    Ok(claimed.into_iter().map(ClaimedJobView::from).collect())
}

fn missing_effects() -> Problem {
    invalid_parameter(
        "effects",
        "a worker that accepts jobs must state its effects and its name",
    )
}

impl ExchangeBody {
    fn check_limits(&self) -> Result<(), Problem> {
        if self.credit > MAX_CREDIT {
            return Err(invalid_parameter("credit", format!("at most {MAX_CREDIT}")));
        }
        if self.logs.len() + self.heartbeats.len() + self.results.len() > MAX_REPORTS {
            return Err(invalid_parameter(
                "results",
                format!("at most {MAX_REPORTS} reports per message"),
            ));
        }
        let lines = self
            .logs
            .iter()
            .filter_map(|item| item.body.as_ref().ok())
            .map(JobLogBody::lines);
        if lines.sum::<usize>() > MAX_LOG_LINES {
            return Err(invalid_parameter(
                "logs",
                format!("at most {MAX_LOG_LINES} lines per message"),
            ));
        }
        Ok(())
    }

    /// Returns the claim request of the worker; `None` if the message contains none.
    fn claim_request(
        &self,
        api: &ApiState,
        tenant: &TenantId,
    ) -> Result<Option<ClaimRequest>, Problem> {
        let Some(effects) = self.effects.clone() else {
            return Ok(None);
        };
        let worker = self.worker.clone().unwrap_or_default();
        let request = claim_request(api, tenant, worker, effects, self.probes)?;
        board_for(api, &request)?;
        Ok(Some(request))
    }
}

/// Reports that the job boards have received, in the order of the message.
struct AppliedReports {
    logs: Vec<AppliedReport>,
    heartbeats: Vec<AppliedReport>,
    results: Vec<AppliedReport>,
}

struct AppliedReport {
    job: Option<Uuid>,
    ack: Result<Result<ReportAck, ClaimLost>, Problem>,
}

impl AppliedReports {
    /// Gives all reports of a message to the job boards at once.
    async fn apply(api: &ApiState, tenant: &TenantId, body: ExchangeBody) -> Self {
        let mut reports = Vec::new();
        let mut lists = [
            collect(body.logs, &mut reports),
            collect(body.heartbeats, &mut reports),
            collect(body.results, &mut reports),
        ];
        let mut acks = apply(api, tenant, reports).await.into_iter();
        for applied in lists
            .iter_mut()
            .flatten()
            .filter(|applied| applied.ack.is_ok())
        {
            applied.ack = Ok(acks.next().unwrap_or(Err(ClaimLost)));
        }
        let [logs, heartbeats, results] = lists;
        Self {
            logs,
            heartbeats,
            results,
        }
    }

    fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.heartbeats.is_empty() && self.results.is_empty()
    }

    /// Waits until the results are stored, and returns the acknowledgements.
    async fn acknowledge(self, api: &ApiState) -> ExchangeResponse {
        let receipts = self.results.iter().filter_map(|result| match &result.ack {
            Ok(Ok(ReportAck::Completed(_, receipt))) => Some(receipt),
            _ => None,
        });
        let mut stored = stored(api, &receipts.collect::<Vec<_>>()).await.into_iter();
        let results = self.results.into_iter().map(|result| match result.ack {
            Ok(Ok(ReportAck::Completed(..))) => {
                let problem = stored.next().and_then(Result::err);
                result.view(problem)
            }
            _ => result.view(None),
        });
        ExchangeResponse {
            results: results.collect(),
            logs: self
                .logs
                .into_iter()
                .map(|report| report.view(None))
                .collect(),
            heartbeats: self
                .heartbeats
                .into_iter()
                .map(|report| report.view(None))
                .collect(),
            jobs: Vec::new(),
        }
    }
}

/// Adds the valid reports of a list, and returns the list.
fn collect<T: ReportBody>(
    items: Vec<ItemOf<T>>,
    reports: &mut Vec<JobReport>,
) -> Vec<AppliedReport> {
    let add = |item: ItemOf<T>| {
        let ItemOf { job, body } = item;
        let id =
            job.ok_or_else(|| Problem::new(Code::InvalidBody, "/job: missing, or not a job id"));
        let report = body.and_then(|body| body.about(id?));
        let ack = report.map(|report| {
            reports.push(report);
            Err(ClaimLost)
        });
        AppliedReport { job, ack }
    };
    items.into_iter().map(add).collect()
}

impl AppliedReport {
    fn view(self, not_stored: Option<Problem>) -> ReportAckView {
        let Self { job, ack } = self;
        let (status, expires_at, problem) = match ack {
            Err(problem) => (ReportStatus::Invalid, None, Some(problem)),
            Ok(Err(lost)) => (ReportStatus::ClaimLost, None, Some(claim_lost(lost))),
            Ok(Ok(ReportAck::Extended(until))) => {
                (ReportStatus::Accepted, Some(until.to_string()), None)
            }
            Ok(Ok(ReportAck::Completed(..))) if not_stored.is_some() => {
                (ReportStatus::NotStored, None, not_stored)
            }
            Ok(Ok(ReportAck::Completed(ResultAck::Duplicate, _))) => {
                (ReportStatus::Duplicate, None, None)
            }
            Ok(Ok(ReportAck::Completed(ResultAck::Accepted, _) | ReportAck::Logged)) => {
                (ReportStatus::Accepted, None, None)
            }
        };
        ReportAckView {
            job,
            status,
            expires_at,
            problem,
        }
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for ItemOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let job = value
            .as_object_mut()
            .and_then(|fields| fields.remove("job"));
        let job = job.and_then(|job| job.as_str()?.parse().ok());
        Ok(Self {
            job,
            body: parse_value(value).map(|ObjectOf(body)| body),
        })
    }
}

/// Returns the schema of a list of reports: each is the body of the single request, and the id of the job. Any other
/// item is invalid, and does not reject the message.
fn items_of<T: ToSchema>() -> Array {
    let id = ObjectBuilder::new()
        .schema_type(Type::String)
        .description(Some("Job id"));
    let job = ObjectBuilder::new().property("job", id).required("job");
    let report = AllOfBuilder::new()
        .item(Ref::from_schema_name(T::name()))
        .item(job);
    let invalid = ObjectBuilder::new()
        .schema_type(SchemaType::AnyValue)
        .description(Some("An invalid item, which gets the status `invalid`"));
    let item = AnyOfBuilder::new().item(report).item(invalid);
    ArrayBuilder::new().items(item).build()
}
