//! Reports of workers about their jobs: heartbeats, log lines and results, and the job boards that
//! receive them.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Extension;
use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};
use axum::response::{IntoResponse, Response};
use orlog_effect::worker::{
    ClaimLost, JobReport, ReportAck, ReportContent, ReportRejection, ReportRules, Reports,
    ResultAck,
};
use orlog_effect::{ProviderError, ReceiptWatch, RemoteResult, Reply};
use orlog_model::{EventType, Fact, TenantId, TraceParent};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};
use utoipa::ToSchema;
use uuid::Uuid;

use super::pods::{credentials, pod_of_claim};
use crate::resources::access::{check_signed, invalid_body};
use crate::server::context::ApiState;
use crate::server::errors::invalid_parameter;
use crate::server::extract::tenant;
use crate::server::forward;
use crate::server::parts::access::Access;
use crate::server::parts::jobs::Jobs;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::{Caller, Right};

/// Maximum number of log lines of one request.
pub(super) const MAX_LOG_LINES: usize = 1000;

/// Maximum time in which the response waits until results are stored.
pub(super) const RESULT_TIMEOUT: Duration = Duration::from_secs(15);

/// Body of a report: the claim, and the content.
pub(super) trait ReportBody: Serialize {
    /// Whether the report adds data of its tenant, which has a quota.
    const ADDS_DATA: bool = false;

    /// Returns the claim.
    fn claim(&self) -> Uuid;

    /// Converts the body to a report about a job.
    ///
    /// # Errors
    /// If it exceeds a limit, or contains facts that the sender may not emit.
    fn about(self, job: Uuid, sender: &ReportSender) -> Result<JobReport, Problem>;
}

/// Reason why a report has no acknowledgement.
#[derive(Debug)]
pub(super) enum ReportFailure {
    /// A board rejects it, or no board has the claim.
    Rejected(ReportRejection),
    /// No board has the claim, and the stores cannot be read: the result may be stored. The sender
    /// relies on neither: a result that is stored is acknowledged as a duplicate when it is sent
    /// again, and another one as a lost claim. The failure itself changes nothing.
    Unknown(Problem),
}

/// Worker that sends reports.
pub(crate) struct ReportSender {
    pub(super) jobs: Jobs,
    pub(super) access: Access,
    pub(super) tenant: TenantId,
    pub(super) caller: Caller,
}

impl FromRequestParts<ApiState> for ReportSender {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Response> {
        let caller = Extension::<Caller>::from_request_parts(parts, api).await;
        let Extension(caller) = caller.map_err(IntoResponse::into_response)?;
        let tenant =
            tenant(&parts.headers, api.admitted_tenants()).map_err(IntoResponse::into_response)?;

        Ok(Self {
            jobs: Jobs::for_request(api, &parts.extensions),
            access: Access::from_ref(api),
            tenant,
            caller,
        })
    }
}

impl From<ClaimLost> for ReportFailure {
    fn from(lost: ClaimLost) -> Self {
        Self::Rejected(lost.into())
    }
}

impl ReportSender {
    /// Rejects facts in a context that requires signed events, unless the sender signed them and
    /// may publish events.
    fn check_facts(&self) -> Result<(), Problem> {
        let Self {
            access,
            tenant,
            caller,
            ..
        } = self;
        check_signed(access, caller, tenant)?;

        // A worker emits facts with the signature of the node, which would otherwise vouch for an
        // event that the worker itself may not publish.
        let is_required = access.requires_signed_events(tenant);
        if is_required && !caller.roles.allow(Right::Publish) {
            let detail = "the context requires signed events, and facts are events: a worker that \
                          emits facts needs the right to publish; send the result without facts, \
                          or as an admin of the context";
            return Err(Problem::new(Code::Forbidden, detail));
        }

        Ok(())
    }
}

/// Heartbeat of a worker.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct HeartbeatBody {
    #[schema(value_type = String, format = "uuid")]
    claim: Uuid,
}

/// Log lines of a job.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobLogBody {
    #[schema(value_type = String, format = "uuid")]
    claim: Uuid,
    log: Vec<String>,
}

/// Result of a job.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobResultBody {
    #[schema(value_type = String, format = "uuid")]
    claim: Uuid,
    result: JobResultKind,
    /// Result payload.
    #[serde(default)]
    payload: Value,
    /// Schema version of the payload of a success, from 1. Default: 1.
    #[schema(value_type = Option<u32>)]
    version: Option<NonZeroU32>,
    /// Event that the saga receives.
    #[schema(value_type = Option<String>)]
    event: Option<EventType>,
    /// Facts to publish, independent of how the saga handles the result.
    #[serde(default)]
    facts: Vec<FactBody>,
    /// Code of a failure.
    code: Option<String>,
    /// Message of a failure.
    message: Option<String>,
    /// Delay before another attempt, in seconds.
    retry_after_seconds: Option<u64>,
    /// W3C trace context of the span in which the worker executed the job.
    traceparent: Option<String>,
}

/// Fact to publish.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct FactBody {
    /// Event type.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: EventType,
    #[serde(default)]
    data: Value,
}

/// Kind of a job result.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum JobResultKind {
    /// The job succeeded.
    Succeeded,
    /// The job failed permanently.
    Failed,
    /// The job was not executed under this claim; another attempt may succeed.
    Retry,
    /// It is unknown whether this claim or an earlier attempt executed the job. The claim has
    /// ended, and the worker does not continue the execution. The saga receives no result of the
    /// worker: the `in_doubt` policy decides. With `retry`, the job is in doubt and is repeated
    /// under the same idempotency key, if attempts are left; otherwise the effect timed out.
    Unknown,
}

impl JobLogBody {
    /// Returns the number of lines.
    pub(super) fn lines(&self) -> usize {
        self.log.len()
    }
}

impl ReportBody for HeartbeatBody {
    fn claim(&self) -> Uuid {
        self.claim
    }

    fn about(self, job: Uuid, _: &ReportSender) -> Result<JobReport, Problem> {
        Ok(JobReport {
            job,
            claim: self.claim,
            content: ReportContent::Heartbeat,
        })
    }
}

impl ReportBody for JobLogBody {
    const ADDS_DATA: bool = true;

    fn claim(&self) -> Uuid {
        self.claim
    }

    fn about(self, job: Uuid, _: &ReportSender) -> Result<JobReport, Problem> {
        if self.log.len() > MAX_LOG_LINES {
            return Err(invalid_parameter(
                "log",
                format!("at most {MAX_LOG_LINES} lines per request"),
            ));
        }
        Ok(JobReport {
            job,
            claim: self.claim,
            content: ReportContent::Log(self.log),
        })
    }
}

impl ReportBody for JobResultBody {
    fn claim(&self) -> Uuid {
        self.claim
    }

    fn about(self, job: Uuid, sender: &ReportSender) -> Result<JobReport, Problem> {
        // Only facts are events of the worker itself; a result needs no right but that to work.
        if !self.facts.is_empty() {
            sender.check_facts()?;
        }

        let claim = self.claim;
        let trace = self.traceparent.as_deref().and_then(TraceParent::new);
        let result = RemoteResult {
            trace,
            ..RemoteResult::from(reply(self))
        };

        Ok(JobReport {
            job,
            claim,
            content: ReportContent::Result(Box::new(result)),
        })
    }
}

fn reply(report: JobResultBody) -> Result<Reply, ProviderError> {
    let code = report.code.unwrap_or_else(|| "worker_failed".to_owned());
    let message = report
        .message
        .unwrap_or_else(|| "the worker sent no message".to_owned());
    let facts: Vec<_> = report
        .facts
        .into_iter()
        .map(|fact| Fact::new(fact.kind, fact.data))
        .collect();

    // Only a final result reaches the saga, so that an event of a retry or of an unknown outcome
    // has no meaning.
    let error = match (report.result, report.event) {
        (JobResultKind::Succeeded, event) => {
            let schema_version = report.version.map_or(1, NonZeroU32::get);
            return Ok(Reply {
                event,
                payload: report.payload,
                schema_version,
                facts,
            });
        }
        (JobResultKind::Failed, Some(event)) => {
            ProviderError::permanent_with_event(event, code, message)
        }
        (JobResultKind::Failed, None) => ProviderError::permanent(code, message),
        (JobResultKind::Retry, _) => ProviderError::unavailable(code, message),
        (JobResultKind::Unknown, _) => ProviderError::undetermined(code, message),
    };
    let retry_after = report.retry_after_seconds.map(Duration::from_secs);
    Err(error
        .with_payload(report.payload)
        .with_facts(facts)
        .with_retry_after(retry_after))
}

/// Gives reports to the job boards, and returns their acknowledgements in the same order. A result
/// that is stored already is a duplicate, also after a restart.
pub(super) async fn apply(
    jobs: &Jobs,
    tenant: &TenantId,
    reports: Vec<JobReport>,
) -> Vec<Result<ReportAck, ReportFailure>> {
    // Noted before the boards consume the reports: those that no board has are looked up in the
    // stores.
    let results: Vec<_> = reports
        .iter()
        .map(|report| {
            let is_result = matches!(report.content, ReportContent::Result(_));
            is_result.then_some((report.job, report.claim))
        })
        .collect();
    let acks = apply_to_boards(jobs, tenant, reports);

    let lost = acks.iter().zip(results).enumerate();
    // Results only: a heartbeat or a line after the end of its job has no stored trace, and is
    // lost.
    let lost: Vec<_> = lost
        .filter_map(|(index, (ack, result))| {
            let is_lost = matches!(ack, Err(ReportRejection::Lost(_)));
            is_lost.then_some((index, result?))
        })
        .collect();

    let looked_up: Vec<_> = lost.iter().map(|(index, _)| *index).collect();
    let stored = stored_before(jobs, tenant, lost).await;
    let mut acks: Vec<_> = acks
        .into_iter()
        .map(|ack| ack.map_err(ReportFailure::Rejected))
        .collect();
    acknowledge_stored(&mut acks, &looked_up, stored);
    acks
}

/// Replaces the rejections of results that no board has by what the stores contain.
fn acknowledge_stored(
    acks: &mut [Result<ReportAck, ReportFailure>],
    looked_up: &[usize],
    stored: Result<Vec<usize>, Problem>,
) {
    match stored {
        Ok(stored) => {
            for index in stored {
                let receipt = ReceiptWatch::of_stored();
                acks[index] = Ok(ReportAck::Completed(ResultAck::Duplicate, receipt));
            }
        }
        // A lost claim would let the worker discard a result that the next attempt acknowledges.
        Err(problem) => {
            for index in looked_up {
                let detail = format!(
                    "the stores cannot be read, and the result may be stored; send it again: {}",
                    problem.detail()
                );
                let problem = Problem::new(Code::Unavailable, detail);
                acks[*index] = Err(ReportFailure::Unknown(problem));
            }
        }
    }
}

/// Returns the indices of the results that the stores of this pod contain.
///
/// # Errors
/// If the stores cannot be read now.
async fn stored_before(
    jobs: &Jobs,
    tenant: &TenantId,
    results: Vec<(usize, (Uuid, Uuid))>,
) -> Result<Vec<usize>, Problem> {
    if results.is_empty() {
        return Ok(Vec::new());
    }

    let tenant = tenant.clone();
    let read = jobs.request.read(move |scope| {
        let now = scope.now();
        let mut stored = Vec::new();
        for (index, (job, claim)) in results {
            // The report does not name the instance, so that the shard of the job is unknown.
            for reader in scope.readers() {
                if reader.has_job_result(&tenant, job, claim, now)? {
                    stored.push(index);
                    break;
                }
            }
        }

        Ok(stored)
    });

    read.await
}

fn apply_to_boards(
    jobs: &Jobs,
    tenant: &TenantId,
    reports: Vec<JobReport>,
) -> Vec<Result<ReportAck, ReportRejection>> {
    let mut reports = Reports::new(reports);
    // Reports name no upstream: each board takes those about its own jobs, and leaves the others.
    for (board, terms, executor) in jobs.catalog().job_boards() {
        if reports.is_complete() {
            break;
        }
        let rules = ReportRules {
            claim_ttl: terms.claim_ttl,
            facts: &executor.upstream().facts,
        };
        board.report(jobs.request.clock(), tenant, rules, &mut reports);
    }

    reports.into_acks()
}

/// Gives one report to the job boards.
///
/// # Errors
/// If the claim is lost, the board rejects the content, or it is unknown whether the result is
/// stored.
pub(super) async fn apply_one(
    jobs: &Jobs,
    tenant: &TenantId,
    report: JobReport,
) -> Result<ReportAck, Problem> {
    let mut acks = apply(jobs, tenant, vec![report]).await;
    let ack = acks.pop().unwrap_or_else(|| Err(ClaimLost.into()));
    ack.map_err(|failure| match failure {
        ReportFailure::Rejected(rejection) => rejected(&rejection),
        ReportFailure::Unknown(problem) => problem,
    })
}

/// Sends a report to the pod that has the job, and returns the response; `None` if that is this
/// pod.
///
/// # Errors
/// If no pod has the job at this moment, or the pod does not respond.
pub(super) async fn send_to_owner(
    sender: &ReportSender,
    headers: &HeaderMap,
    path: &str,
    report: &impl ReportBody,
) -> Result<Option<Response>, Problem> {
    let Some(pod) = pod_of_claim(&sender.jobs, &sender.tenant, headers, report.claim())? else {
        return Ok(None);
    };
    let body = serde_json::to_vec(report).expect("a report serializes to JSON");
    let headers = credentials(headers);
    let response = forward::send_body(
        &sender.jobs.cluster,
        &pod,
        Method::POST,
        path,
        headers,
        body.into(),
    )
    .await?;
    Ok(Some(response))
}

/// Creates the problem of a report that a board rejects.
pub(super) fn rejected(rejection: &ReportRejection) -> Problem {
    match rejection {
        ReportRejection::Lost(lost) => claim_lost(*lost),
        ReportRejection::UndeclaredFact(_) => invalid_body("/facts", rejection.to_string()),
    }
}

/// Creates the problem of a lost claim.
pub(super) fn claim_lost(lost: ClaimLost) -> Problem {
    Problem::new(Code::ClaimLost, lost.to_string())
}

/// Waits until results are stored; an error means that a result is not stored, and that the worker
/// must send it again.
pub(super) async fn stored(jobs: &Jobs, receipts: &[&ReceiptWatch]) -> Vec<Result<(), Problem>> {
    // One deadline for all results, within the time of the request, so that their waits do not add
    // up.
    let until = Instant::now() + RESULT_TIMEOUT.min(jobs.request.http().request_timeout / 2);
    let mut results = Vec::with_capacity(receipts.len());
    for receipt in receipts {
        let is_stored = timeout_at(until, receipt.is_stored())
            .await
            .unwrap_or(false);
        let detail = "the result is not stored yet; send it again";
        results.push(if is_stored {
            Ok(())
        } else {
            Err(Problem::new(Code::Unavailable, detail))
        });
    }

    results
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost() -> Result<ReportAck, ReportFailure> {
        Err(ClaimLost.into())
    }

    #[test]
    fn stored_result_of_a_lost_claim_is_a_duplicate() {
        let mut acks = vec![Ok(ReportAck::Logged), lost(), lost()];
        acknowledge_stored(&mut acks, &[1, 2], Ok(vec![2]));
        assert!(matches!(
            acks[..],
            [
                Ok(ReportAck::Logged),
                Err(ReportFailure::Rejected(ReportRejection::Lost(_))),
                Ok(ReportAck::Completed(ResultAck::Duplicate, _)),
            ]
        ));
    }

    #[test]
    fn result_is_not_lost_while_the_stores_cannot_be_read() {
        let mut acks = vec![lost(), Ok(ReportAck::Logged), lost()];
        let full = Problem::new(Code::Unavailable, "too many requests read the stores");
        acknowledge_stored(&mut acks, &[2], Err(full));
        let [
            Err(ReportFailure::Rejected(ReportRejection::Lost(_))),
            Ok(ReportAck::Logged),
            Err(ReportFailure::Unknown(problem)),
        ] = &acks[..]
        else {
            panic!("{acks:?}");
        };
        assert_eq!(problem.code(), Code::Unavailable);
        assert!(problem.detail().contains("send it again"), "{problem:?}");
    }
}
