//! The job board: jobs for workers with their claims, expiry times and logs.
//!
//! | job state | claim | heartbeat, log lines | result |
//! |---|---|---|---|
//! | waiting | claimed | lost | accepted: the effect was executed, maybe under a claim before a crash |
//! | claimed by the caller | – | extended | accepted |
//! | claimed by another | – | lost | lost |
//! | claim expired | claimed again, or in doubt | extended, if no other worker has it | accepted |
//! | completed or abandoned | – | lost | a duplicate if the claim is the same, else lost |
//!
//! If the definition of a job forbids a retry (`in_doubt: fail` or `ask`), a second worker never
//! receives it. It returns in doubt when its claim has expired and a worker requests jobs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlog_model::{Clock, EffectName, InDoubtPolicy, SteadyTime, TenantId, Timestamp, WorkItem};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::job_logs::{JobLogs, LogLine};
use crate::provider::{ProviderError, RemoteResult};

/// Number of stored results that identify duplicates.
const REMEMBERED: usize = 10_000;

/// Smallest number of jobs at which abandoned ones are removed without a worker.
const FIRST_LIMIT: usize = 64;

/// Durations of claims, and the default batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClaimOptions {
    /// Duration of a claim, from the claim request and from each heartbeat.
    pub claim_ttl: Duration,
    /// Recommended interval of heartbeats; less than `claim_ttl`.
    pub heartbeat_interval: Duration,
    /// Maximum number of jobs per claim request if the worker specifies none.
    pub max_batch: usize,
}

impl Default for ClaimOptions {
    fn default() -> Self {
        Self::new(Duration::from_mins(5))
    }
}

impl ClaimOptions {
    /// Creates options with this duration of a claim. The heartbeat interval is two fifths of it: if one
    /// heartbeat is lost, the next one arrives in time.
    #[must_use]
    pub fn new(claim_ttl: Duration) -> Self {
        Self { claim_ttl, heartbeat_interval: claim_ttl * 2 / 5, max_batch: 1 }
    }
}

/// Claim request of a worker.
#[derive(Clone, Debug)]
pub struct ClaimRequest {
    /// Tenant of the worker.
    pub tenant: TenantId,
    /// Effects that it supports.
    pub effects: Vec<EffectName>,
    /// Worker name, for users.
    pub worker: String,
}

/// Job claimed by a worker.
#[derive(Clone, Debug, PartialEq)]
pub struct ClaimedJob {
    /// Work item; its id identifies the job and is the idempotency key.
    pub item: WorkItem,
    /// Id of this claim.
    pub claim: Uuid,
    /// Number of this claim of the job, from 1.
    pub claim_count: u32,
    /// Expiry of the claim.
    pub expires_at: Timestamp,
    /// Recommended interval of heartbeats.
    pub heartbeat_interval: Duration,
}

/// Public view of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Work item.
    pub item: WorkItem,
    /// Worker of the claim and its expiry; `None`: the job waits.
    pub claim: Option<(String, Timestamp)>,
    /// Number of claims so far.
    pub claims: u32,
    /// Log lines of its workers.
    pub log: Vec<LogLine>,
}

/// Acknowledgement of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultAck {
    /// The result was accepted.
    Accepted,
    /// The same claim already has a result.
    Duplicate,
}

/// Error for a lost claim: the job is completed, abandoned, or claimed by another worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("claim lost: the job is completed, abandoned or claimed by another worker")]
pub struct ClaimLost;

/// Job board; see the table above.
#[derive(Default)]
pub struct JobBoard {
    state: Mutex<State>,
    changed: Notify,
    lines: Arc<JobLogs>,
}

#[derive(Default)]
struct State {
    /// Jobs in posting order.
    order: BTreeMap<u64, Uuid>,
    jobs: BTreeMap<Uuid, BoardJob>,
    next: u64,
    /// Number of jobs at which a new one removes the abandoned ones, if no worker does before.
    limit: usize,
    done: VecDeque<(Uuid, Uuid)>,
}

struct BoardJob {
    position: u64,
    item: WorkItem,
    claim: Option<Claim>,
    claims: u32,
    reply: oneshot::Sender<RemoteResult>,
}

struct Claim {
    id: Uuid,
    worker: String,
    until: SteadyTime,
}

/// Expiry and heartbeats of new claims.
#[derive(Clone, Copy)]
struct ClaimTerms {
    until: SteadyTime,
    expires_at: Timestamp,
    heartbeat_interval: Duration,
}

impl JobBoard {
    /// Posts a job and waits for its result. A job is abandoned when the future is dropped.
    pub(crate) async fn post(&self, item: &WorkItem) -> RemoteResult {
        let (reply, result) = oneshot::channel();
        self.lock().post(item.clone(), reply);
        self.changed.notify_waiters();
        result.await.unwrap_or_else(|_| {
            Err(ProviderError::unavailable("board_closed", "its upstream was removed")).into()
        })
    }

    /// Claims up to `limit` jobs, oldest first, as soon as one is available; returns none after `wait`.
    pub async fn claim(
        &self,
        clock: &dyn Clock,
        request: &ClaimRequest,
        limit: usize,
        terms: ClaimOptions,
        wait: Duration,
    ) -> Vec<ClaimedJob> {
        let until = clock.steady().saturating_add(wait);
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let (claimed, expiry) = self.lock().claim(clock, request, limit, terms);
            if !claimed.is_empty() || clock.steady() >= until {
                return claimed;
            }
            tokio::select! {
                () = changed => {}
                () = clock.sleep_until(expiry.map_or(until, |expiry| expiry.min(until))) => {}
            }
        }
    }

    /// Extends the claim of a worker to `ttl` from now, if that is later. Returns the new expiry.
    ///
    /// # Errors
    /// If the claim is lost; the worker should then stop.
    pub fn heartbeat(
        &self,
        clock: &dyn Clock,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        ttl: Duration,
    ) -> Result<Timestamp, ClaimLost> {
        let mut state = self.lock();
        let active = state.active(tenant, job, claim)?;
        let claim = active.claim.as_mut().expect("the job has a claim");
        claim.until = claim.until.max(clock.steady().saturating_add(ttl));
        Ok(clock.wall_at(claim.until))
    }

    /// Appends log lines of a worker.
    ///
    /// # Errors
    /// If the claim is lost.
    pub fn append_log(
        &self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        lines: &[String],
        at: Timestamp,
    ) -> Result<(), ClaimLost> {
        let mut state = self.lock();
        self.lines.append(&state.active(tenant, job, claim)?.item, at, lines);
        Ok(())
    }

    /// Completes a job with the result of a worker.
    ///
    /// # Errors
    /// If the claim is lost.
    pub fn complete(
        &self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        reply: impl Into<RemoteResult>,
    ) -> Result<ResultAck, ClaimLost> {
        let job = {
            let mut state = self.lock();
            if state.done.contains(&(job, claim)) {
                return Ok(ResultAck::Duplicate);
            }
            let found = state
                .jobs
                .get(&job)
                .filter(|found| found.item.instance.tenant == *tenant)
                .ok_or(ClaimLost)?;
            if found.claim.as_ref().is_some_and(|active| active.id != claim) {
                return Err(ClaimLost);
            }
            let removed = state.jobs.remove(&job).ok_or(ClaimLost)?;
            state.order.remove(&removed.position);
            if state.done.len() == REMEMBERED {
                state.done.pop_front();
            }
            state.done.push_back((job, claim));
            removed
        };
        // The posting task may be cancelled; the result is then lost, as after a lost connection.
        job.reply.send(reply.into()).map_err(|_| ClaimLost)?;
        Ok(ResultAck::Accepted)
    }

    /// Returns the jobs of a tenant, oldest first.
    #[must_use]
    pub fn list(&self, clock: &dyn Clock, tenant: &TenantId) -> Vec<JobView> {
        let (mut state, now) = (self.lock(), clock.steady());
        state.remove_abandoned();
        let jobs = state.order.values().filter_map(|id| state.jobs.get(id));
        let jobs = jobs.filter(|job| job.item.instance.tenant == *tenant);
        jobs.map(|job| JobView {
            item: job.item.clone(),
            claim: job
                .claim
                .as_ref()
                .filter(|c| c.until > now)
                .map(|c| (c.worker.clone(), clock.wall_at(c.until))),
            claims: job.claims,
            log: self.lines.job(tenant, job.item.id).unwrap_or_default(),
        })
        .collect()
    }

    /// Returns the job logs of workers.
    #[must_use]
    pub fn job_logs(&self) -> Arc<JobLogs> {
        Arc::clone(&self.lines)
    }

    /// Removes all jobs; the posting tasks continue with another executor.
    pub(crate) fn close(&self) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        drop(jobs);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Consistent after every statement that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Adds a job; it replaces an earlier one of the same item.
    fn post(&mut self, item: WorkItem, reply: oneshot::Sender<RemoteResult>) {
        if self.jobs.len() >= self.limit {
            self.remove_abandoned();
            self.limit = (self.jobs.len() * 2).max(FIRST_LIMIT);
        }
        let (id, position) = (item.id, self.next);
        self.next += 1;
        self.order.insert(position, id);
        let earlier = self.jobs.insert(id, BoardJob { position, item, claim: None, claims: 0, reply });
        if let Some(earlier) = earlier {
            self.order.remove(&earlier.position);
        }
    }

    fn remove_abandoned(&mut self) {
        for (_, job) in self.jobs.extract_if(.., |_, job| job.reply.is_closed()) {
            self.order.remove(&job.position);
        }
    }

    /// Claims available jobs, and returns the time at which the next job becomes available.
    fn claim(
        &mut self,
        clock: &dyn Clock,
        request: &ClaimRequest,
        limit: usize,
        terms: ClaimOptions,
    ) -> (Vec<ClaimedJob>, Option<SteadyTime>) {
        let now = clock.steady();
        self.remove_abandoned();
        self.give_back(now);
        let until = now.saturating_add(terms.claim_ttl);
        let terms = ClaimTerms {
            until,
            expires_at: clock.wall_at(until),
            heartbeat_interval: terms.heartbeat_interval,
        };
        let (mut claimed, mut expiry) = (Vec::new(), None::<SteadyTime>);
        for id in self.order.values() {
            if claimed.len() == limit {
                break;
            }
            let Some(job) = self.jobs.get_mut(id).filter(|job| job.suits(request)) else { continue };
            match &job.claim {
                Some(active) if active.until > now => {
                    expiry = Some(expiry.map_or(active.until, |first| first.min(active.until)));
                }
                Some(_) | None => claimed.push(job.give(request, terms)),
            }
        }
        (claimed, expiry)
    }

    /// Returns jobs with an expired claim that must not be retried.
    fn give_back(&mut self, now: SteadyTime) {
        let is_expired = |job: &BoardJob| job.claim.as_ref().is_some_and(|active| active.until <= now);
        let expired: Vec<_> = self
            .jobs
            .extract_if(.., |_, job| is_expired(job) && !job.may_be_repeated())
            .map(|(_, job)| job)
            .collect();
        for job in expired {
            self.order.remove(&job.position);
            let worker = job.claim.map(|active| active.worker).unwrap_or_default();
            let message = format!("worker {worker} claimed it and sent nothing since");
            // An error means that the posting task was cancelled; the job is then dispatched again.
            drop(job.reply.send(Err(ProviderError::response_lost("claim_expired", message)).into()));
        }
    }

    fn active(&mut self, tenant: &TenantId, job: Uuid, claim: Uuid) -> Result<&mut BoardJob, ClaimLost> {
        let job = self.jobs.get_mut(&job).filter(|job| job.item.instance.tenant == *tenant);
        let is_held = |job: &&mut BoardJob| job.claim.as_ref().is_some_and(|active| active.id == claim);
        job.filter(is_held).filter(|job| !job.reply.is_closed()).ok_or(ClaimLost)
    }
}

impl BoardJob {
    fn suits(&self, request: &ClaimRequest) -> bool {
        let Some(effect) = self.item.work.effect() else { return false };
        self.item.instance.tenant == request.tenant && request.effects.contains(&effect.name)
    }

    fn may_be_repeated(&self) -> bool {
        let Some(effect) = self.item.work.effect() else { return true };
        matches!(effect.in_doubt, None | Some(InDoubtPolicy::Retry))
    }

    fn give(&mut self, request: &ClaimRequest, terms: ClaimTerms) -> ClaimedJob {
        let ClaimTerms { until, expires_at, heartbeat_interval } = terms;
        let claim = Uuid::new_v4();
        self.claims += 1;
        self.claim = Some(Claim { id: claim, worker: request.worker.clone(), until });
        let (item, claim_count) = (self.item.clone(), self.claims);
        ClaimedJob { item, claim, claim_count, expires_at, heartbeat_interval }
    }
}

#[cfg(test)]
mod tests {
    use orlog_model::Work;
    use orlog_testkit::SimClock;
    use orlog_testkit::provider_suite::{START, item};
    use serde_json::{Value, json};

    use super::*;
    use crate::job_logs::MAX_LINES_PER_JOB;
    use crate::provider::{Reply, TransientCause};

    fn name() -> EffectName {
        EffectName::new("media.cut").unwrap()
    }

    fn acme() -> TenantId {
        TenantId::new("acme").unwrap()
    }

    fn request(tenant: &str) -> ClaimRequest {
        ClaimRequest { tenant: TenantId::new(tenant).unwrap(), effects: vec![name()], worker: "w".to_owned() }
    }

    fn posted(board: &Arc<JobBoard>, number: u128) -> tokio::task::JoinHandle<Result<Reply, ProviderError>> {
        let (board, item) = (Arc::clone(board), item(&name(), number));
        tokio::spawn(async move { board.post(&item).await.result })
    }

    async fn claim(board: &JobBoard, clock: &SimClock) -> ClaimedJob {
        let wait = Duration::from_hours(1);
        let mut claimed = board.claim(clock, &request("acme"), 1, ClaimOptions::default(), wait).await;
        claimed.pop().expect("there is one")
    }

    fn now_or_none(board: &JobBoard, clock: &SimClock, tenant: &str) -> usize {
        let (options, wait) = (ClaimOptions::default(), Duration::ZERO);
        futures::executor::block_on(board.claim(clock, &request(tenant), 9, options, wait)).len()
    }

    #[tokio::test]
    async fn result_reaches_the_poster_and_a_second_one_is_a_duplicate() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        assert_eq!(
            (claimed.claim_count, claimed.expires_at),
            (1, START.saturating_add(Duration::from_mins(5)))
        );
        assert_eq!(now_or_none(&board, &clock, "acme"), 0);
        let complete = || board.complete(&acme(), claimed.item.id, claimed.claim, Ok(Reply::from(json!(7))));
        assert_eq!((complete(), complete()), (Ok(ResultAck::Accepted), Ok(ResultAck::Duplicate)));
        assert_eq!(job.await.unwrap().unwrap().payload, json!(7));
    }

    #[tokio::test]
    async fn expired_claim_returns_the_job() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let expired = claim(&board, &clock).await;
        let until = START.saturating_add(Duration::from_mins(7));
        let heartbeat = || {
            board.heartbeat(clock.as_ref(), &acme(), expired.item.id, expired.claim, Duration::from_mins(7))
        };
        assert_eq!(heartbeat(), Ok(until));
        let (waiting, time) = (Arc::clone(&board), Arc::clone(&clock));
        let next = tokio::spawn(async move { claim(&waiting, &time).await });
        let due = clock.due_within(Duration::from_hours(1)).await;
        assert_eq!(due, until);
        clock.advance_to(due);
        let next = next.await.unwrap();
        assert_eq!((next.item.id, next.claim_count), (expired.item.id, 2));
        let late = board.complete(&acme(), expired.item.id, expired.claim, Ok(Reply::from(json!("late"))));
        assert_eq!(late, Err(ClaimLost));
        assert_eq!(heartbeat(), Err(ClaimLost));
        board.complete(&acme(), next.item.id, next.claim, Ok(Reply::from(json!("done")))).unwrap();
        assert_eq!(job.await.unwrap().unwrap().payload, json!("done"));
    }

    #[tokio::test]
    async fn non_retryable_job_of_a_silent_worker_is_in_doubt() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let mut item = item(&name(), 1);
        if let Work::Effect(effect) = &mut item.work {
            effect.in_doubt = Some(InDoubtPolicy::Ask);
        }
        let poster_board = Arc::clone(&board);
        let job = tokio::spawn(async move { poster_board.post(&item).await.result });
        let expired = claim(&board, &clock).await;
        clock.advance_to(expired.expires_at);
        assert_eq!(now_or_none(&board, &clock, "acme"), 0);
        let error = job.await.unwrap().expect_err("it is in doubt");
        assert!(
            matches!(&error, ProviderError::Transient { trouble: TransientCause::ResponseLost, .. }),
            "{error:?}"
        );
        let late = board.complete(&acme(), expired.item.id, expired.claim, Ok(Reply::from(json!("late"))));
        assert_eq!(late, Err(ClaimLost));
    }

    #[tokio::test]
    async fn result_from_before_a_restart_is_accepted_if_unclaimed() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        while board.list(clock.as_ref(), &acme()).is_empty() {
            tokio::task::yield_now().await;
        }
        let completed =
            board.complete(&acme(), item(&name(), 1).id, Uuid::from_u128(9), Ok(Reply::default()));
        assert_eq!((completed, job.await.unwrap().is_ok()), (Ok(ResultAck::Accepted), true));
    }

    #[tokio::test]
    async fn cancelled_job_is_removed_and_its_worker_gets_claim_lost() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        job.abort();
        assert!(job.await.is_err());
        let (job, claim) = (claimed.item.id, claimed.claim);
        let heartbeat = board.heartbeat(clock.as_ref(), &acme(), job, claim, Duration::ZERO);
        assert_eq!(heartbeat, Err(ClaimLost));
        assert_eq!(
            board.complete(&acme(), claimed.item.id, claimed.claim, Ok(Reply::default())),
            Err(ClaimLost)
        );
    }

    #[tokio::test]
    async fn jobs_are_isolated_by_tenant() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _job = posted(&board, 1);
        while board.list(clock.as_ref(), &acme()).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(now_or_none(&board, &clock, "beta"), 0);
        let beta = TenantId::new("beta").unwrap();
        assert!(board.list(clock.as_ref(), &beta).is_empty());
        let stolen = board.complete(&beta, item(&name(), 1).id, Uuid::nil(), Ok(Reply::from(Value::Null)));
        assert_eq!(stolen, Err(ClaimLost));
        assert_eq!(now_or_none(&board, &clock, "acme"), 1);
    }

    #[tokio::test]
    async fn job_log_is_bounded() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        for n in 0..MAX_LINES_PER_JOB + 3 {
            board.append_log(&acme(), claimed.item.id, claimed.claim, &[n.to_string()], START).unwrap();
        }
        let seen = board.list(clock.as_ref(), &acme()).pop().unwrap();
        assert_eq!(
            (seen.log.len(), seen.log[0].text.as_str(), seen.claim.is_some()),
            (MAX_LINES_PER_JOB, "3", true)
        );
    }

    #[tokio::test]
    async fn claim_expires_in_time_when_the_clock_is_set_back() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        clock.set_back(Duration::from_hours(1));
        clock.advance(ClaimOptions::default().claim_ttl);
        let next = claim(&board, &clock).await;
        assert_eq!((next.item.id, next.claim_count), (claimed.item.id, 2));
    }

    #[tokio::test]
    async fn worker_that_beats_at_the_recommended_interval_keeps_its_claim() {
        let (board, clock, options) =
            (Arc::new(JobBoard::default()), SimClock::new(START), ClaimOptions::default());
        let _job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        assert_eq!(claimed.heartbeat_interval, Duration::from_mins(2));
        for _ in 0..10 {
            clock.advance(claimed.heartbeat_interval);
            assert_eq!(now_or_none(&board, &clock, "acme"), 0, "another worker gets the job");
            let (job, claim) = (claimed.item.id, claimed.claim);
            let until = board.heartbeat(clock.as_ref(), &acme(), job, claim, options.claim_ttl);
            assert_eq!(until, Ok(clock.now().saturating_add(Duration::from_mins(5))));
        }
    }
}
