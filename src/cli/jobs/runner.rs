//! Runner of a node: claims jobs, keeps their claims while it executes them, and sends their lines
//! and results.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use orlog_effect::{Attempt, Provider, ProviderError, Reply, TransientCause};
use orlog_model::{
    Clock as _, CorrelationId, Effect, EffectName, EventId, InstanceKey, Name, Priority, SagaName,
    TenantId, Timestamp, Work, WorkItem,
};
use orlog_node::clock::SystemClock;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

use super::unsent_lines::UnsentLines;
use crate::cli::client::{ApiClient, ClientError, REQUEST_TIMEOUT, path};
use crate::cli::console::{items, note, text};

/// Maximum wait of a claim request, which delays the end of the runner.
const CLAIM_WAIT_SECONDS: u64 = 10;
/// Interval of heartbeats if the node states none.
const DEFAULT_HEARTBEAT_INTERVAL: Duration = Duration::from_secs(20);
/// Minimum interval of heartbeats: a timer without one panics.
const MIN_HEARTBEAT_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum interval of heartbeats: a time beyond it cannot be represented.
const MAX_HEARTBEAT_INTERVAL: Duration = Duration::from_hours(24);
/// Number of denied heartbeats in sequence after which the claim has expired: a node that denies
/// them does not say so, and gives the job to another runner.
const MAX_DENIED_HEARTBEATS: u32 = 4;
/// Interval in which the lines of a job are sent.
const LINES_INTERVAL: Duration = Duration::from_millis(200);
/// Maximum time after the end of a job in which its last lines are sent.
const LINES_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay before a request is repeated that failed, and minimum interval of claim requests without
/// jobs.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Maximum delay before a request is repeated, if the response requests one.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(1);
/// Maximum length of the reason of a rejected result, in characters, so that it fits into a
/// request.
const MAX_REASON_CHARS: usize = 1000;

/// Runner of a node.
pub(super) struct Runner {
    pub(super) client: ApiClient,
    pub(super) tenant: TenantId,
    pub(super) name: String,
    pub(super) effects: Vec<String>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) timeout: Duration,
    pub(super) lines: Arc<UnsentLines>,
}

/// Job that this runner has claimed.
struct ClaimedJob {
    id: String,
    /// Its cause is the claim, so that the lines of two claims are not mixed.
    item: WorkItem,
    claim: Value,
    heartbeat_interval: Duration,
    claim_count: u32,
    /// An earlier claim may have executed the job.
    in_doubt: bool,
    /// The node has rejected a heartbeat of the claim.
    is_claim_lost: AtomicBool,
}

impl ClaimedJob {
    fn url(&self, action: &str) -> String {
        job_url(&self.id, action)
    }
}

impl Runner {
    /// Executes one job after another until the runner stops.
    pub(super) async fn slot(self: Arc<Self>, stopping: watch::Receiver<bool>) {
        let claim = json!({
            "effects": self.effects, "worker": self.name, "max": 1,
            "wait_seconds": CLAIM_WAIT_SECONDS,
        });
        // Checked between two jobs only, so that a claimed job is always finished.
        while !*stopping.borrow() {
            let sent_at = Instant::now();
            match self.client.send("/v1/work/claim", &claim).await {
                Ok(claimed) => {
                    let jobs = items(&claimed, "jobs");
                    for job in jobs {
                        self.work(job).await;
                    }
                    if jobs.is_empty() {
                        // A draining node, or a proxy, responds without the wait.
                        sleep_until(sent_at + RETRY_DELAY).await;
                    }
                }
                Err(error) => {
                    // Also after a rejection: a grant, or a reload of the node, can permit the next
                    // request.
                    let delay = retry_delay(&error).unwrap_or(RETRY_DELAY);
                    note(&self.client.failure(error).to_string());
                    sleep(delay).await;
                }
            }
        }
    }

    /// Executes a job and reports its result, unless the claim is lost meanwhile.
    async fn work(&self, job: &Value) {
        let job = match self.read(job) {
            Ok(job) => job,
            Err(reason) => {
                // A job that this release cannot read fails: without a result, each runner would
                // claim it again.
                let report = json!({
                    "claim": job["claim"], "result": "failed", "code": "bad_job", "message": reason,
                });
                let id = text(job, "job");
                // No heartbeat renews its claim, so a denied report is not repeated for ever.
                return self.report(&id, &report, &AtomicBool::new(true)).await;
            }
        };

        let unsent = self.execute_with_lines(&job).await;
        if unsent > 0 {
            note(&format!(
                "{}: the node did not acknowledge {unsent} lines",
                job.id
            ));
        }
    }

    /// Executes a job and sends its lines; returns the number of lines that the node has not
    /// acknowledged.
    async fn execute_with_lines(&self, job: &ClaimedJob) -> u64 {
        let claim = &job.item.causation;
        self.lines.open(claim);
        self.execute_and_report(job).await;
        self.lines.close(claim)
    }

    /// Executes a job. The requests about it run beside the execution: a node that does not respond
    /// must not stop reading the output of the script.
    async fn execute_and_report(&self, job: &ClaimedJob) {
        let (ended, is_ended) = watch::channel(false);
        let mut execution = pin!(self.execute(job));
        let mut heartbeats = pin!(self.keep_claim(job));
        let mut lines = pin!(self.send_lines(job, is_ended));

        let report = tokio::select! {
            // First: a finished job is reported, whatever the node responds to a heartbeat.
            biased;
            report = &mut execution => Some(report),
            () = &mut heartbeats => None,
            () = &mut lines => None,
        };
        let Some(report) = report else {
            // The end of the execution kills the script.
            return note(&format!("{}: the claim is lost", job.id));
        };
        ended.send_replace(true);

        let mut finish = pin!(async {
            // Before the result, after which the claim no longer accepts lines.
            if timeout(LINES_TIMEOUT, &mut lines).await.is_err() {
                note(&format!(
                    "{}: the node did not accept the last lines within {LINES_TIMEOUT:?}",
                    job.id
                ));
            }
            self.report(&job.id, &report, &job.is_claim_lost).await;
        });
        tokio::select! {
            () = &mut finish => {}
            // The node also rejects the heartbeat of a job whose result it has received, but not
            // stored yet. Only the response to the result says whether it is stored.
            () = &mut heartbeats => finish.await,
        }
    }

    /// Sends heartbeats until the claim is lost.
    async fn keep_claim(&self, job: &ClaimedJob) {
        let claim = json!({ "claim": job.claim });
        let interval = job.heartbeat_interval;
        // A request that hangs must not delay the next heartbeat beyond the expiry of the claim.
        let timeout = interval.min(REQUEST_TIMEOUT);
        // Not at once: the claim itself starts the time until its expiry.
        let mut heartbeat = interval_at(Instant::now() + interval, interval);
        heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut denied = 0;
        loop {
            heartbeat.tick().await;
            let url = job.url("heartbeat");
            let sent = self.client.send_with_timeout(&url, &claim, timeout);
            let Err(error) = sent.await else {
                denied = 0;
                continue;
            };

            // Another failure is repeated with the next heartbeat, before the claim expires.
            denied = if is_access_denied(&error) {
                denied + 1
            } else {
                0
            };
            if is_lost(&error) || denied == MAX_DENIED_HEARTBEATS {
                job.is_claim_lost.store(true, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Sends the lines of a job until it has ended and all are sent, or until its claim is lost.
    async fn send_lines(&self, job: &ClaimedJob, mut is_ended: watch::Receiver<bool>) {
        loop {
            if !*is_ended.borrow() {
                tokio::select! {
                    () = sleep(LINES_INTERVAL) => {}
                    _ = is_ended.changed() => {}
                }
            }

            let lines = self.lines.take(&job.item.causation);
            if lines.is_empty() {
                if *is_ended.borrow() {
                    return;
                }
                continue;
            }

            let body = json!({ "claim": job.claim, "log": lines });
            let url = job.url("logs");
            let sent = self.send_until_stored(&url, &body, &job.is_claim_lost);
            match sent.await {
                Ok(()) => self.lines.acknowledge(&job.item.causation),
                Err(error) if is_lost(&error) => return,
                Err(error) => {
                    // The node would reject the others for the same reason. The job continues.
                    let reason = self.client.failure(error);
                    note(&format!("{}: lines rejected: {reason}", job.id));
                    is_ended.wait_for(|ended| *ended).await.ok();
                    return;
                }
            }
        }
    }

    /// Reports a result until the node has stored it, or the claim is lost. If the node rejects the
    /// result itself, for example because it is too large, reports a failure in its place.
    async fn report(&self, id: &str, report: &Value, is_claim_lost: &AtomicBool) {
        let url = job_url(id, "result");
        // The work is done. Without its result, another runner would repeat it.
        let Err(error) = self.send_until_stored(&url, report, is_claim_lost).await else {
            return;
        };

        let rejects_content = is_content_rejected(&error);
        let reason = self.client.failure(error).to_string();
        note(&format!("{id}: result rejected: {reason}"));
        if !rejects_content {
            return;
        }

        // Each other runner would have the same result rejected, and the job would never end.
        let message: String = reason.chars().take(MAX_REASON_CHARS).collect();
        let failed = json!({
            "claim": report["claim"], "result": "failed", "code": "result_rejected",
            "message": message,
        });
        match self.send_until_stored(&url, &failed, is_claim_lost).await {
            Ok(()) => note(&format!("{id}: reported as failed: result_rejected")),
            Err(error) => {
                let reason = self.client.failure(error);
                note(&format!("{id}: failure rejected: {reason}"));
            }
        }
    }

    /// Sends a request until the node has stored it.
    ///
    /// # Errors
    /// If a repetition cannot succeed, or if the node denies access and the claim is lost.
    async fn send_until_stored(
        &self,
        url: &str,
        body: &Value,
        is_claim_lost: &AtomicBool,
    ) -> Result<(), ClientError> {
        let mut is_first = true;
        loop {
            let Err(error) = self.client.send(url, body).await else {
                return Ok(());
            };
            let Some(delay) = retry_delay(&error) else {
                return Err(error);
            };
            // A proxy can deny one request for ever. Without the claim, its job is not waiting.
            if is_access_denied(&error) && is_claim_lost.load(Ordering::Relaxed) {
                return Err(error);
            }

            // Once: an outage of an hour would fill the terminal.
            if is_first {
                let failure = self.client.failure(error);
                note(&format!(
                    "{failure}; repeating the request until it succeeds"
                ));
                is_first = false;
            }
            sleep(delay).await;
        }
    }

    /// Executes a job; returns the report.
    async fn execute(&self, job: &ClaimedJob) -> Value {
        let at = SystemClock.now();
        // Whichever is first: after the deadline of the step, the node no longer waits for the
        // result.
        let rest = job.item.deadline;
        let rest = rest.map(|deadline| deadline.duration_since(at));
        let limit = rest.unwrap_or(Duration::MAX).min(self.timeout);
        let attempt = Attempt {
            number: job.claim_count,
            timeout: limit,
            at,
            in_doubt: job.in_doubt,
        };

        // The dropped execution kills the script, so that it does not run on without a claim.
        let execution = self.provider.execute(&job.item, attempt);
        let result = timeout(limit, execution).await.unwrap_or_else(|_| {
            let message = format!("not finished within {limit:?}");
            Err(ProviderError::response_lost("timeout", message))
        });

        let mut report = report_of(result);
        report["claim"] = job.claim.clone();
        report
    }

    /// Reads a claimed job.
    fn read(&self, job: &Value) -> Result<ClaimedJob, String> {
        let claim_count = job["claim_count"].as_u64();
        let claim_count = claim_count.and_then(|count| u32::try_from(count).ok());

        Ok(ClaimedJob {
            id: text(job, "job"),
            item: self.item(job)?,
            claim: job["claim"].clone(),
            heartbeat_interval: heartbeat_interval(job),
            claim_count: claim_count.unwrap_or(1),
            in_doubt: job["in_doubt"] == true,
            is_claim_lost: AtomicBool::new(false),
        })
    }

    /// Returns a claimed job as a work item.
    fn item(&self, job: &Value) -> Result<WorkItem, String> {
        let text = |field: &str| text(job, field);
        let name = EffectName::new(text("effect")).map_err(|error| error.to_string())?;
        let tag = Name::new(
            job["payload"]["job"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        );
        let deadline = job["deadline"].as_str().map(Timestamp::parse).transpose();

        Ok(WorkItem {
            id: text("job")
                .parse()
                .map_err(|_| "the job has no id".to_owned())?,
            instance: InstanceKey {
                tenant: self.tenant.clone(),
                saga: SagaName::new(text("saga")).map_err(|error| error.to_string())?,
                correlation: CorrelationId::new(text("correlation"))
                    .map_err(|error| error.to_string())?,
            },
            work: Work::Effect(Effect {
                tag: tag.map_err(|error| error.to_string())?,
                // The node applies these policies; the provider of scripts reads none of them.
                round: 0,
                name,
                payload: job["payload"].clone(),
                timeout: None,
                retry: None,
                in_doubt: None,
                priority: Priority::Normal,
                schema_version: 1,
            }),
            deadline: deadline.map_err(|error| error.to_string())?,
            causation: EventId::new(text("claim")).map_err(|error| error.to_string())?,
            trace: None,
            created_at: SystemClock.now(),
            priority: Priority::Normal,
        })
    }
}

/// Returns the interval of heartbeats that a response of the node states.
pub(super) fn heartbeat_interval(response: &Value) -> Duration {
    let seconds = response["heartbeat_interval_seconds"].as_f64();
    let interval = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    interval
        .unwrap_or(DEFAULT_HEARTBEAT_INTERVAL)
        .clamp(MIN_HEARTBEAT_INTERVAL, MAX_HEARTBEAT_INTERVAL)
}

/// Returns the API path of an action on a job.
fn job_url(id: &str, action: &str) -> String {
    path(&["v1", "work", "jobs", id, action])
}

/// Returns the report of a result, without its claim.
fn report_of(result: Result<Reply, ProviderError>) -> Value {
    let error = match result {
        Ok(reply) => return json!({ "result": "succeeded", "payload": reply.payload }),
        Err(error) => error,
    };

    let result = match &error {
        ProviderError::Permanent { .. } => "failed",
        ProviderError::Transient { trouble, .. } => match trouble {
            TransientCause::Throttled | TransientCause::Unavailable => "retry",
            // The outcome is unknown. After `retry`, the node would repeat the script, although
            // `in_doubt` of the job decides about that.
            TransientCause::ReportedThrottled
            | TransientCause::ReportedUnavailable
            | TransientCause::ResponseLost
            | TransientCause::Undetermined => "unknown",
        },
        ProviderError::Abandoned { .. } => "unknown",
    };
    json!({
        "result": result, "code": error.failure().code, "message": error.failure().message,
    })
}

/// Returns the delay before a failed request is repeated; `None` if a repetition cannot succeed.
fn retry_delay(error: &ClientError) -> Option<Duration> {
    let ClientError::Problem {
        status,
        retry_after,
        ..
    } = error
    else {
        return Some(RETRY_DELAY);
    };
    let is_temporary = matches!(status, 408 | 425 | 429 | 500..) || is_access_denied(error);
    is_temporary.then(|| {
        let delay = retry_after.unwrap_or(RETRY_DELAY);
        delay.clamp(RETRY_DELAY, MAX_RETRY_DELAY)
    })
}

/// Returns whether a response denies access: a grant, or a reload of the node, can permit the same
/// request. A proxy redirects to its log-in instead.
fn is_access_denied(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Problem {
            status: 300..=399 | 401 | 403,
            ..
        }
    )
}

/// Returns whether a node rejects the content of a result: its form, its size, or its facts.
fn is_content_rejected(error: &ClientError) -> bool {
    matches!(
        error,
        ClientError::Problem {
            status: 400 | 413 | 422,
            ..
        }
    )
}

/// Returns whether a response says that the claim is lost.
fn is_lost(error: &ClientError) -> bool {
    matches!(error, ClientError::Problem { status: 409, .. })
}

#[cfg(test)]
mod tests;
