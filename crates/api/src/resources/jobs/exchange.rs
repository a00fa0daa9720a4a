//! `/v1/work/exchange`: reports of a worker and new jobs in one message, as a request or in a
//! stream.
//!
//! A message carries results, heartbeats and log lines up, and jobs down. The worker states its
//! credit, the number of jobs that it accepts, and never receives more. The acknowledgement of a
//! result is sent when the result is stored.

mod pending_claim;
pub(crate) mod stream;

use std::collections::BTreeMap;

use axum::Json;
use axum::http::{HeaderMap, StatusCode};
use orlog_bus::membership::Pod;
use orlog_effect::worker::{
    ClaimLost, ClaimRequest, JobReport, ReportAck, ReportRejection, ResultAck,
};
use orlog_model::{EffectName, TenantId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;
use utoipa::ToSchema;
use utoipa::openapi::Ref;
use utoipa::openapi::schema::{
    AllOfBuilder, AnyOfBuilder, Array, ArrayBuilder, ObjectBuilder, SchemaType, Type,
};
use uuid::Uuid;

use super::claimed_job::{ClaimedJobView, MAX_CLAIM, board_for, claim_request, job_wait};
use super::pods::{
    JobOrder, OfferedJob, RESPONSE_TIMEOUT, Take, credentials, in_time, pod_of_claim, take_jobs,
};
use super::report::{
    HeartbeatBody, JobLogBody, JobResultBody, MAX_LOG_LINES, RESULT_TIMEOUT, ReportBody,
    ReportFailure, ReportSender, apply, claim_lost, rejected, stored,
};
use crate::server::body::{JsonBody, ObjectOf, parse_value};
use crate::server::errors::invalid_parameter;
use crate::server::forward;
use crate::server::parts::jobs::Jobs;
use crate::server::problem::{Code, Problem};
use crate::server::tenant_storage;

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
    /// The worker determines the outcome of earlier attempts before it executes a job with
    /// `in_doubt`. Stated with `effects`.
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

/// Report about a job in a message, and the id of the job if it is readable. An invalid item does
/// not reject the others.
#[derive(Debug)]
pub(super) struct ItemOf<T> {
    job: Option<Uuid>,
    body: Result<T, Problem>,
}

/// Acknowledgements in the order of the reports, and claimed jobs.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ExchangeResponse {
    #[schema(value_type = Vec<ReportAckView>)]
    logs: Vec<Acknowledgement>,
    #[schema(value_type = Vec<ReportAckView>)]
    heartbeats: Vec<Acknowledgement>,
    #[schema(value_type = Vec<ReportAckView>)]
    results: Vec<Acknowledgement>,
    /// Claimed jobs, oldest first; at most the credit, and at most 100.
    #[schema(value_type = Vec<ClaimedJobView>)]
    jobs: Vec<OfferedJob>,
}

/// Acknowledgement of a report: of this pod, or of the pod that has the job.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Acknowledgement {
    Own(ReportAckView),
    OfOtherPod(Value),
}

/// Acknowledgement of one report.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReportAckView {
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
    /// The report is malformed, contains a fact that the worker may not emit, or adds log lines of
    /// a tenant above its storage quota. It has no effect.
    Invalid,
    /// The result is not stored yet, or the shard stopped before it stored the result; or the pod
    /// that has the job did not respond, or cannot read its stores. Send the report again.
    NotStored,
}

/// Exchange reports and jobs
///
/// Applies the reports, and waits until the results are stored. Then claims up to `credit` jobs,
/// and waits up to `wait_seconds` for the first one. Each item is applied for itself.
#[utoipa::path(
    post,
    path = "/v1/work/exchange",
    tag = "work",
    request_body = ExchangeBody,
    responses((
        status = 200,
        description = "Acknowledgements and claimed jobs",
        body = ExchangeResponse
    ))
)]
pub(crate) async fn exchange(
    sender: ReportSender,
    headers: HeaderMap,
    JsonBody(ObjectOf(body)): JsonBody<ObjectOf<ExchangeBody>>,
) -> Result<Json<ExchangeResponse>, Problem> {
    let jobs = &sender.jobs;
    // Limits and effects are checked before a report is applied, so that a rejected message has no
    // effect.
    body.check_limits()?;
    let request = body.claim_request(jobs, &sender.tenant)?;
    let wait = job_wait(jobs, body.wait_seconds);
    let credit = body.credit;
    if credit > 0 && request.is_none() {
        return Err(missing_effects());
    }

    let _long_poll = (credit > 0 && !wait.is_zero())
        .then(|| jobs.request.begin_long_poll())
        .transpose()?;
    // Before the claim, because a reported result frees the capacity of a runner for another job.
    let applied = AppliedReports::apply(&sender, &headers, body).await;
    let mut response = applied.acknowledge(jobs, &headers).await;

    if let Some(request) = request.filter(|_| credit > 0) {
        let order = JobOrder {
            request: &request,
            take: Take::Claim,
            limit: credit.min(MAX_CLAIM),
            wait,
            headers: &headers,
            interrupt: &Notify::new(),
        };
        response.jobs = take_jobs(jobs, &order).await?;
    }

    Ok(Json(response))
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
        jobs: &Jobs,
        tenant: &TenantId,
    ) -> Result<Option<ClaimRequest>, Problem> {
        let Some(effects) = self.effects.clone() else {
            return Ok(None);
        };
        let worker = self.worker.clone().unwrap_or_default();
        let request = claim_request(jobs, tenant, worker, effects, self.probes)?;
        // Only to reject unknown effects now; the board is looked up again for each claim.
        board_for(jobs, &request)?;
        Ok(Some(request))
    }
}

/// Reports that the job boards have received, in the order of the message.
struct AppliedReports {
    logs: Vec<AppliedReport>,
    heartbeats: Vec<AppliedReport>,
    results: Vec<AppliedReport>,
    /// Reports about jobs of other pods, which are sent there.
    of_other_pods: BTreeMap<String, ReportsOfPod>,
}

struct AppliedReport {
    job: Option<Uuid>,
    state: ReportState,
}

enum ReportState {
    /// It is malformed, exceeds a quota, or has no pod at this moment.
    Rejected(ReportStatus, Problem),
    /// It waits for the job boards of this pod.
    Waits,
    Applied(Result<ReportAck, ReportFailure>),
    /// It is sent to the pod with this name.
    OfOtherPod(String),
}

impl ReportState {
    /// Returns the state of a report that is not applied. The worker discards an invalid report,
    /// so that a problem of this pod must not make it one: it sends the report again.
    fn rejected(problem: Problem) -> Self {
        let status = match problem.code() {
            Code::Unavailable | Code::StoreError | Code::DamagedTables | Code::DamagedJournal => {
                ReportStatus::NotStored
            }
            _ => ReportStatus::Invalid,
        };
        Self::Rejected(status, problem)
    }
}

/// Reports about jobs of one other pod, in the order of the message.
struct ReportsOfPod {
    pod: Pod,
    body: ReportBatch,
}

/// Reports of a message, or their acknowledgements.
#[derive(Debug, Default, Deserialize, Serialize)]
struct ReportBatch {
    logs: Vec<Value>,
    heartbeats: Vec<Value>,
    results: Vec<Value>,
}

/// Context in which the reports of a message are assigned to pods.
struct ReportSorter<'a> {
    sender: &'a ReportSender,
    headers: &'a HeaderMap,
    own: Vec<JobReport>,
    of_other_pods: BTreeMap<String, ReportsOfPod>,
}

impl AppliedReports {
    /// Gives all reports of a message about jobs of this pod to the job boards at once.
    async fn apply(sender: &ReportSender, headers: &HeaderMap, body: ExchangeBody) -> Self {
        let mut sorter = ReportSorter {
            sender,
            headers,
            own: Vec::new(),
            of_other_pods: BTreeMap::new(),
        };
        // In this order: a line or a heartbeat behind the result of its job would find no claim.
        let mut logs = sorter.sort(body.logs, |batch| &mut batch.logs);
        let mut heartbeats = sorter.sort(body.heartbeats, |batch| &mut batch.heartbeats);
        let mut results = sorter.sort(body.results, |batch| &mut batch.results);

        let ReportSorter {
            own, of_other_pods, ..
        } = sorter;

        let mut acks = apply(&sender.jobs, &sender.tenant, own).await.into_iter();
        let all = logs.iter_mut().chain(&mut heartbeats).chain(&mut results);
        for report in all.filter(|report| matches!(report.state, ReportState::Waits)) {
            let ack = acks.next().unwrap_or_else(|| Err(ClaimLost.into()));
            report.state = ReportState::Applied(ack);
        }

        Self {
            logs,
            heartbeats,
            results,
            of_other_pods,
        }
    }

    fn is_empty(&self) -> bool {
        self.logs.is_empty() && self.heartbeats.is_empty() && self.results.is_empty()
    }

    /// Waits until the results are stored, and returns the acknowledgements.
    async fn acknowledge(self, jobs: &Jobs, headers: &HeaderMap) -> ExchangeResponse {
        let receipts = self
            .results
            .iter()
            .filter_map(|result| match &result.state {
                ReportState::Applied(Ok(ReportAck::Completed(_, receipt))) => Some(receipt),
                _ => None,
            });
        let receipts: Vec<_> = receipts.collect();
        let sent = self
            .of_other_pods
            .into_iter()
            .map(|(name, reports)| async move {
                let acks = send_reports(jobs, headers, reports).await;
                (name, acks.into_lists())
            });

        // All pods at the same time, so that their waits do not add up.
        let sent = futures::future::join_all(sent);
        let (stored, sent) = tokio::join!(stored(jobs, &receipts), sent);
        let mut others: BTreeMap<_, _> = sent.into_iter().collect();

        let mut stored = stored.into_iter();
        let mut response = ExchangeResponse::default();
        for report in self.logs {
            let ack = report.acknowledgement(None, &mut others, |lists| &mut lists.logs);
            response.logs.push(ack);
        }

        for report in self.heartbeats {
            let ack = report.acknowledgement(None, &mut others, |lists| &mut lists.heartbeats);
            response.heartbeats.push(ack);
        }

        for report in self.results {
            // One entry of `stored` for each completed result, in the order of the message.
            let not_stored = match &report.state {
                ReportState::Applied(Ok(ReportAck::Completed(..))) => {
                    stored.next().and_then(Result::err)
                }
                _ => None,
            };
            let ack = report.acknowledgement(not_stored, &mut others, |lists| &mut lists.results);
            response.results.push(ack);
        }

        response
    }
}

impl ReportSorter<'_> {
    /// Assigns the reports of a list to this pod and to others, and returns the list.
    fn sort<T: ReportBody>(
        &mut self,
        items: Vec<ItemOf<T>>,
        list: impl Fn(&mut ReportBatch) -> &mut Vec<Value>,
    ) -> Vec<AppliedReport> {
        let mut reports = Vec::with_capacity(items.len());
        for ItemOf { job, body } in items {
            let state = self
                .assign(job, body, &list)
                .unwrap_or_else(|rejected| rejected);
            reports.push(AppliedReport { job, state });
        }
        reports
    }

    /// Returns the state of a report; the error is that of one that no pod applies.
    fn assign<T: ReportBody>(
        &mut self,
        job: Option<Uuid>,
        body: Result<T, Problem>,
        list: &impl Fn(&mut ReportBatch) -> &mut Vec<Value>,
    ) -> Result<ReportState, ReportState> {
        let body = body.map_err(ReportState::rejected)?;
        let job = job.ok_or_else(|| {
            ReportState::rejected(Problem::new(
                Code::InvalidBody,
                "/job: missing, or not a job id",
            ))
        })?;
        let ReportSender { jobs, tenant, .. } = self.sender;

        // Without an owner at this moment, the worker sends the report again; it is neither applied
        // nor lost.
        let pod = pod_of_claim(jobs, tenant, self.headers, body.claim())
            .map_err(|problem| ReportState::Rejected(ReportStatus::NotStored, problem))?;
        let Some(pod) = pod else {
            // For each item: a tenant above its quota still reports results, which end work.
            if T::ADDS_DATA {
                tenant_storage::check(&jobs.request, tenant).map_err(ReportState::rejected)?;
            }
            let report = body
                .about(job, self.sender)
                .map_err(ReportState::rejected)?;
            self.own.push(report);
            return Ok(ReportState::Waits);
        };

        let mut item = serde_json::to_value(&body).expect("a report serializes to JSON");
        // The id was removed before the body was parsed, because bodies reject unknown fields.
        item["job"] = json!(job);
        let name = pod.name.clone();
        let reports = self
            .of_other_pods
            .entry(name.clone())
            .or_insert_with(|| ReportsOfPod {
                pod,
                body: ReportBatch::default(),
            });
        list(&mut reports.body).push(item);

        Ok(ReportState::OfOtherPod(name))
    }
}

/// Acknowledgements of another pod that are not assigned to their reports yet.
#[derive(Default)]
struct AckLists {
    logs: std::vec::IntoIter<Value>,
    heartbeats: std::vec::IntoIter<Value>,
    results: std::vec::IntoIter<Value>,
}

impl ReportBatch {
    /// Returns the acknowledgements of reports that another pod has rejected together: each has the
    /// problem of the response. None if the response has no problem.
    fn rejected(self, status: StatusCode, problem: &[u8]) -> Self {
        let problem: Value = serde_json::from_slice(problem).unwrap_or_default();
        if !problem["code"].is_string() {
            return Self::default();
        }

        // A repetition of a request with another error has the same result.
        let is_transient = status.is_server_error()
            || [StatusCode::TOO_MANY_REQUESTS, StatusCode::REQUEST_TIMEOUT].contains(&status);
        let status = if is_transient {
            ReportStatus::NotStored
        } else {
            ReportStatus::Invalid
        };
        let acknowledge = |reports: Vec<Value>| {
            reports
                .into_iter()
                .map(|report| json!({ "job": report["job"], "status": status, "problem": problem }))
                .collect()
        };

        Self {
            logs: acknowledge(self.logs),
            heartbeats: acknowledge(self.heartbeats),
            results: acknowledge(self.results),
        }
    }

    fn into_lists(self) -> AckLists {
        AckLists {
            logs: self.logs.into_iter(),
            heartbeats: self.heartbeats.into_iter(),
            results: self.results.into_iter(),
        }
    }
}

/// Sends reports to the pod that has their jobs, and returns the acknowledgements; none if it does
/// not respond.
async fn send_reports(jobs: &Jobs, headers: &HeaderMap, reports: ReportsOfPod) -> ReportBatch {
    let ReportsOfPod { pod, body } = reports;
    let sent = serde_json::to_vec(&body).expect("reports serialize to JSON");
    let headers = credentials(headers);
    let response = forward::forward_post(
        &jobs.cluster,
        &pod,
        "/v1/work/exchange",
        &headers,
        sent.into(),
    );

    // The pod responds when the results are stored, or after its own limit.
    match in_time(RESULT_TIMEOUT + RESPONSE_TIMEOUT, response).await {
        Ok((StatusCode::OK, acks)) => serde_json::from_slice(&acks).unwrap_or_default(),
        Ok((status, problem)) => {
            tracing::debug!(pod = pod.name, %status, "reports of a worker not forwarded");
            body.rejected(status, &problem)
        }
        Err(error) => {
            tracing::debug!(pod = pod.name, %error, "reports of a worker not forwarded");
            ReportBatch::default()
        }
    }
}

impl AppliedReport {
    fn acknowledgement(
        self,
        not_stored: Option<Problem>,
        others: &mut BTreeMap<String, AckLists>,
        list: impl Fn(&mut AckLists) -> &mut std::vec::IntoIter<Value>,
    ) -> Acknowledgement {
        let Self { job, state } = self;
        let (status, expires_at, problem) = match state {
            ReportState::Rejected(status, problem) => (status, None, Some(problem)),
            ReportState::OfOtherPod(name) => {
                let received = others.get_mut(&name).and_then(|lists| list(lists).next());
                match received {
                    Some(ack) => return Acknowledgement::OfOtherPod(ack),
                    // The pod may have applied the report; a repeated result is then a duplicate
                    // there.
                    None => (ReportStatus::NotStored, None, Some(Problem::moving())),
                }
            }
            // `apply` has replaced `Waits` in every report, so that this arm is for lost claims.
            ReportState::Waits
            | ReportState::Applied(Err(ReportFailure::Rejected(ReportRejection::Lost(_)))) => {
                let problem = claim_lost(ClaimLost);
                (ReportStatus::ClaimLost, None, Some(problem))
            }
            ReportState::Applied(Err(ReportFailure::Rejected(
                rejection @ ReportRejection::UndeclaredFact(_),
            ))) => (ReportStatus::Invalid, None, Some(rejected(&rejection))),
            ReportState::Applied(Err(ReportFailure::Unknown(problem))) => {
                (ReportStatus::NotStored, None, Some(problem))
            }
            ReportState::Applied(Ok(ReportAck::Extended(until))) => {
                (ReportStatus::Accepted, Some(until.to_string()), None)
            }
            ReportState::Applied(Ok(ReportAck::Completed(..))) if not_stored.is_some() => {
                (ReportStatus::NotStored, None, not_stored)
            }
            ReportState::Applied(Ok(ReportAck::Completed(ResultAck::Duplicate, _))) => {
                (ReportStatus::Duplicate, None, None)
            }
            ReportState::Applied(Ok(
                ReportAck::Completed(ResultAck::Accepted, _) | ReportAck::Logged,
            )) => (ReportStatus::Accepted, None, None),
        };

        Acknowledgement::Own(ReportAckView {
            job,
            status,
            expires_at,
            problem,
        })
    }
}

impl<'de, T: DeserializeOwned> Deserialize<'de> for ItemOf<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut value = Value::deserialize(deserializer)?;
        let job = value
            .as_object_mut()
            .and_then(|fields| fields.remove("job"));
        // An unreadable id invalidates this item only, not the message.
        let job = job.and_then(|job| job.as_str()?.parse().ok());

        Ok(Self {
            job,
            body: parse_value(value).map(|ObjectOf(body)| body),
        })
    }
}

/// Returns the schema of a list of reports: each is the body of the single request, and the id of
/// the job. Any other item is invalid, and does not reject the message.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_that_another_pod_rejects_have_its_problem() {
        let sent = || ReportBatch {
            results: vec![json!({ "job": "7", "result": "done" })],
            ..ReportBatch::default()
        };
        let problem = br#"{"code":"OR0021","detail":"a reason"}"#;
        for (status, expected) in [
            (StatusCode::FORBIDDEN, "invalid"),
            (StatusCode::TOO_MANY_REQUESTS, "not_stored"),
            (StatusCode::SERVICE_UNAVAILABLE, "not_stored"),
        ] {
            let acks = sent().rejected(status, problem);
            assert_eq!(acks.results.len(), 1);
            assert_eq!(acks.results[0]["job"], "7");
            assert_eq!(acks.results[0]["status"], expected);
            assert_eq!(acks.results[0]["problem"]["code"], "OR0021");
        }

        let acks = sent().rejected(StatusCode::BAD_GATEWAY, b"<html>");
        assert!(acks.results.is_empty());
    }

    #[test]
    fn report_is_invalid_only_if_a_repetition_has_the_same_result() {
        for (code, expected) in [
            (Code::InvalidBody, ReportStatus::Invalid),
            (Code::SignatureRequired, ReportStatus::Invalid),
            (Code::Unavailable, ReportStatus::NotStored),
            (Code::StoreError, ReportStatus::NotStored),
        ] {
            let state = ReportState::rejected(Problem::new(code, "reason"));
            let ReportState::Rejected(status, _) = state else {
                panic!("{code:?} does not reject the report");
            };
            assert_eq!(status, expected, "{code:?}");
        }
    }
}
