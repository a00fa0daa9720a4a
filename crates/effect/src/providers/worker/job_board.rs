//! The job board: jobs for workers with their claims, expiry times and logs.
//!
//! | job state | claim | heartbeat, log lines | result |
//! |---|---|---|---|
//! | waiting | claimed | lost | accepted: maybe executed under a claim before a crash |
//! | claimed by the caller | – | extended | accepted |
//! | claimed by another | – | lost | lost |
//! | claim expired | claimed again, or in doubt | extended, if no other worker has it | accepted |
//! | claimed, and withdrawn | – | lost: the job leaves the board in doubt | accepted |
//! | completed or abandoned | – | lost | a duplicate if the claim is the same, else lost |
//!
//! If workers probe, a job that may have been executed is available only to workers that state so.
//! Otherwise, if the definition of a job or its upstream forbids a retry (`in_doubt: fail` or
//! `ask`), a second worker never receives it: it returns in doubt when its claim has expired and a
//! worker requests jobs.
//!
//! Every call locks the board once, also for many jobs, and takes time for the jobs that it
//! concerns only.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use orlog_model::{Clock, JobClaimUpdate, SteadyTime, TenantId, Timestamp, WorkItem};
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot, watch};
use uuid::Uuid;

use super::board_job::PostOptions;
use super::board_state::BoardState;
use super::claim::{
    AvailableJob, ClaimOptions, ClaimRejection, ClaimRequest, ClaimedJob, JobClaimRequest,
};
use super::report::{JobReport, ReportAck, ReportContent, ReportRejection, ReportRules, Reports};
use super::waiting::WaitingJobs;
use crate::attempt_start::AttemptStart;
use crate::job_logs::JobLogs;
use crate::provider::RemoteResult;

/// Maximum number of recorded tenants whose workers requested effects, and of the effects of each:
/// one tenant takes no space of another.
const MAX_TENANTS: usize = 10_000;
const MAX_EFFECTS: usize = 1000;

/// Public view of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct JobView {
    /// Work item.
    pub item: Arc<WorkItem>,
    /// Worker of the claim and its expiry; `None`: the job waits.
    pub claim: Option<(String, Timestamp)>,
    /// Number of claims so far.
    pub claims: u32,
    /// Whether its saga no longer awaits it.
    pub is_withdrawn: bool,
    /// Position on the board: older jobs have lower ones.
    pub position: u64,
}

/// Job board; see the table above.
#[derive(Default)]
pub struct JobBoard {
    state: Mutex<BoardState>,
    lines: Arc<JobLogs>,
    /// Effects of each tenant that a worker has requested since the start, if they decide about the
    /// route of jobs.
    requested: Option<Mutex<BTreeMap<TenantId, BTreeSet<String>>>>,
}

impl JobBoard {
    /// Creates a board that records which effects workers request.
    pub(super) fn of_runners() -> Self {
        Self {
            requested: Some(Mutex::default()),
            ..Self::default()
        }
    }

    /// Returns whether a worker has requested jobs of an effect since the start.
    pub(crate) fn is_requested(&self, tenant: &TenantId, effect: &str) -> bool {
        let Some(requested) = &self.requested else {
            return true;
        };
        let requested = requested.lock();
        requested
            .get(tenant)
            .is_some_and(|effects| effects.contains(effect))
    }

    fn note_request(&self, request: &ClaimRequest) {
        let Some(requested) = &self.requested else {
            return;
        };

        let mut requested = requested.lock();

        // Workers choose the names that they request, so the memory for them is bounded.
        if requested.len() >= MAX_TENANTS && !requested.contains_key(&request.tenant) {
            return;
        }

        let of_tenant = requested.entry(request.tenant.clone()).or_default();
        for effect in &request.effects {
            if of_tenant.len() < MAX_EFFECTS && !of_tenant.contains(effect.as_str()) {
                of_tenant.insert(effect.to_string());
            }
        }
    }

    /// Posts a job and waits for its result. A job is abandoned when the future is dropped. `start`
    /// receives each claim.
    pub(super) async fn post(
        &self,
        item: &WorkItem,
        options: PostOptions,
        start: &AttemptStart,
    ) -> RemoteResult {
        let (reply, result) = oneshot::channel();
        let position =
            self.state
                .lock()
                .post(Arc::new(item.clone()), options, start.clone(), reply);

        let mut posted = PostedJob {
            board: self,
            job: item.id,
            position: Some(position),
        };

        let result = result.await;

        // The sender of the result removed the job.
        posted.position = None;
        result.expect("a job leaves the board with a result while its posting task waits")
    }

    /// Claims up to `limit` jobs as soon as one is available, oldest first within turns of the
    /// priorities; returns none after `wait`. Dropping the future claims none.
    pub async fn claim(
        &self,
        clock: &dyn Clock,
        request: &ClaimRequest,
        limit: usize,
        terms: ClaimOptions,
        wait: Duration,
    ) -> Vec<ClaimedJob> {
        self.when_available(clock, request, wait, |state| {
            state.claim(clock, request, limit, terms)
        })
        .await
    }

    /// Returns up to `limit` jobs that the worker can claim, as soon as one is available; returns
    /// none after `wait`. Claims none.
    pub async fn fetch(
        &self,
        clock: &dyn Clock,
        request: &ClaimRequest,
        limit: usize,
        wait: Duration,
    ) -> Vec<AvailableJob> {
        self.when_available(clock, request, wait, |state: &mut BoardState| {
            state.available(clock.steady(), request, limit)
        })
        .await
    }

    /// Returns whether the worker of a request can claim a job now.
    #[must_use]
    pub fn has_available(&self, now: SteadyTime, request: &ClaimRequest) -> bool {
        !self.state.lock().available(now, request, 1).is_empty()
    }

    /// Claims one job.
    ///
    /// # Errors
    /// If it is not available, because another worker has claimed it or it is completed or
    /// abandoned, or if the worker has reached its capacity.
    pub fn claim_job(
        &self,
        clock: &dyn Clock,
        request: &JobClaimRequest,
        terms: ClaimOptions,
    ) -> Result<ClaimedJob, ClaimRejection> {
        self.state.lock().claim_job(clock, request, terms)
    }

    /// Withdraws a job that its saga no longer awaits. It leaves the board at once, or, if a worker
    /// has claimed it, with its result, the next heartbeat or log line, or the claim. Returns false
    /// if it is not on this board.
    #[must_use]
    pub fn withdraw(&self, now: SteadyTime, tenant: &TenantId, job: Uuid) -> bool {
        self.state.lock().withdraw(now, tenant, job)
    }

    /// Removes a job that no worker has ever claimed; its posting task continues elsewhere.
    pub(super) fn recall(&self, job: Uuid) {
        self.state.lock().recall(job);
    }

    /// Withdraws a job that may be posted soon.
    pub fn withdraw_later(&self, job: Uuid) {
        self.state.lock().withdrawn.add(job);
    }

    /// Returns the number of jobs that a worker holds: its valid claims.
    #[must_use]
    pub fn held(&self, tenant: &TenantId, worker: &str) -> usize {
        self.state.lock().held.count(tenant, worker)
    }

    /// Returns the worker that has claimed the job; `None` if there is no claim, or it has expired.
    #[must_use]
    pub fn worker_of(&self, clock: &dyn Clock, job: Uuid) -> Option<String> {
        self.state
            .lock()
            .worker_of(clock.steady(), job)
            .map(str::to_owned)
    }

    /// Returns the number of jobs that no worker has claimed.
    pub(crate) fn unclaimed(&self, now: SteadyTime) -> usize {
        self.state.lock().unclaimed(now)
    }

    /// Returns the number of jobs that have come to wait for a worker so far, as it changes.
    #[must_use]
    pub fn arrivals(&self) -> watch::Receiver<u64> {
        self.state.lock().arrivals.subscribe()
    }

    /// Returns the kinds of jobs of a tenant that no worker has claimed, at most `max_kinds`.
    #[must_use]
    pub fn waiting(
        &self,
        now: SteadyTime,
        tenant: &TenantId,
        max_kinds: usize,
    ) -> Vec<WaitingJobs> {
        self.state.lock().waiting(now, tenant, max_kinds)
    }

    /// Returns the changes of the stored claims since the last call. A claim that ended in between
    /// is not among them: short jobs are not stored.
    #[must_use]
    pub fn take_claim_updates(&self, clock: &dyn Clock) -> Vec<JobClaimUpdate> {
        self.state.lock().take_claim_updates(clock)
    }

    /// Waits until jobs are available to a request, at most for `wait`.
    async fn when_available<T>(
        &self,
        clock: &dyn Clock,
        request: &ClaimRequest,
        wait: Duration,
        take: impl Fn(&mut BoardState) -> Vec<T>,
    ) -> Vec<T> {
        // Before the wait: the first request of an effect decides that runners execute its jobs.
        self.note_request(request);

        let until = clock.steady().saturating_add(wait);
        let mut waiter: Option<Waiter<'_>> = None;
        loop {
            // Taking jobs and starting to wait are one step under the lock: a job that is posted in
            // between would not be noticed.
            let expiry = {
                let mut state = self.state.lock();
                let claimed = take(&mut state);
                if !claimed.is_empty() || clock.steady() >= until {
                    if let Some(waiter) = waiter.as_mut() {
                        waiter.leave(&mut state);
                    }
                    return claimed;
                }
                let waiter =
                    waiter.get_or_insert_with(|| Waiter::new(self, request, state.next_number()));
                state.wait(request, waiter.id, &waiter.wake);
                state.next_expiry()
            };

            let waiter = waiter
                .as_ref()
                .expect("the loop continues only with a waiter");

            tokio::select! {
                () = waiter.wake.notified() => {}
                () = clock.sleep_until(expiry.map_or(until, |expiry| expiry.min(until))) => {}
            }
        }
    }

    /// Acknowledges the reports about jobs of this board; the others stay pending.
    pub fn report(
        &self,
        clock: &dyn Clock,
        tenant: &TenantId,
        rules: ReportRules<'_>,
        reports: &mut Reports,
    ) {
        let until = clock.steady().saturating_add(rules.claim_ttl);
        let mut state = self.state.lock();

        let Reports { pending, acks } = reports;
        let all = std::mem::take(pending);

        for (index, report) in all {
            let JobReport {
                job,
                claim,
                content,
            } = report;
            // Another board may have the job. The caller offers it the reports that stay pending.
            if !state.has(tenant, job, claim) {
                pending.push((
                    index,
                    JobReport {
                        job,
                        claim,
                        content,
                    },
                ));

                continue;
            }

            acks[index] = match content {
                ReportContent::Heartbeat => {
                    let extended = state.extend(tenant, job, claim, until);
                    extended
                        .map(|until| ReportAck::Extended(clock.wall_at(until)))
                        .map_err(Into::into)
                }
                ReportContent::Log(lines) => state
                    .active(tenant, job, claim)
                    .map(|job| {
                        self.lines.append(&job.item, clock.now(), &lines);
                        ReportAck::Logged
                    })
                    .map_err(Into::into),
                ReportContent::Result(result) => {
                    match rules.facts.first_undeclared(result.facts()) {
                        // The job stays with the worker, which can send the result without the
                        // fact.
                        Some(kind) => Err(ReportRejection::UndeclaredFact(kind.clone())),
                        None => state
                            .complete(tenant, job, claim, *result)
                            .map(|(ack, receipt)| ReportAck::Completed(ack, receipt))
                            .map_err(Into::into),
                    }
                }
            };
        }
    }

    /// Returns all jobs of a tenant, oldest first.
    #[must_use]
    pub fn list(&self, clock: &dyn Clock, tenant: &TenantId) -> Vec<JobView> {
        self.page(clock, tenant, None, usize::MAX)
    }

    /// Returns the jobs of a tenant after a position, oldest first, at most `limit`. Their logs are
    /// in [`JobBoard::job_logs`].
    #[must_use]
    pub fn page(
        &self,
        clock: &dyn Clock,
        tenant: &TenantId,
        after: Option<u64>,
        limit: usize,
    ) -> Vec<JobView> {
        let state = self.state.lock();
        let now = clock.steady();

        // The first position is 1.
        state
            .of_tenant(tenant, after.unwrap_or_default())
            .take(limit)
            .map(|job| JobView {
                item: Arc::clone(&job.item),
                claim: job
                    .claim
                    .as_ref()
                    .filter(|c| c.until > now)
                    .map(|c| (c.worker.clone(), clock.wall_at(c.until))),
                claims: job.claims,
                is_withdrawn: job.is_withdrawn,
                position: job.position,
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
        self.state.lock().close();
    }
}

/// Removes a job from the board if its future is dropped.
struct PostedJob<'a> {
    board: &'a JobBoard,
    job: Uuid,
    /// `None`: the job has left the board.
    position: Option<u64>,
}

impl Drop for PostedJob<'_> {
    fn drop(&mut self) {
        if let Some(position) = self.position {
            self.board.state.lock().abandon(self.job, position);
        }
    }
}

/// A claim request that waits. Its drop passes a notification that it has not used to the next one.
struct Waiter<'a> {
    board: &'a JobBoard,
    request: &'a ClaimRequest,
    id: u64,
    wake: Arc<Notify>,
    is_waiting: bool,
}

impl<'a> Waiter<'a> {
    fn new(board: &'a JobBoard, request: &'a ClaimRequest, id: u64) -> Self {
        Self {
            board,
            request,
            id,
            wake: Arc::new(Notify::new()),
            is_waiting: true,
        }
    }

    fn leave(&mut self, state: &mut BoardState) {
        state.leave(self.request, self.id);
        self.is_waiting = false;
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        if self.is_waiting {
            let board = self.board;
            self.leave(&mut board.state.lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use orlog_model::{EffectName, InDoubtPolicy, JobClaim, Priority, Work};
    use orlog_testkit::SimClock;
    use orlog_testkit::provider_suite::{START, item};
    use serde_json::{Value, json};

    use super::*;
    use crate::attempt_start::StoredClaim;
    use crate::dispatcher::StopToken;
    use crate::fact_types::FactTypes;
    use crate::job_logs::MAX_LINES_PER_JOB;
    use crate::provider::{Attempt, Provider as _, ProviderError, Reply, TransientCause};
    use crate::receipt::ReceiptWatch;
    use crate::worker::{ClaimLost, ResultAck, WorkerProvider};

    /// Rules of an upstream that declares no facts.
    const RULES: ReportRules<'static> = ReportRules {
        claim_ttl: Duration::from_mins(5),
        facts: &FactTypes::none(),
    };

    const NEW: PostOptions = PostOptions {
        in_doubt: false,
        probes: false,
        forbids_retry: false,
    };

    fn name() -> EffectName {
        EffectName::new("media.cut").unwrap()
    }

    fn acme() -> TenantId {
        TenantId::new("acme").unwrap()
    }

    fn request(tenant: &str) -> ClaimRequest {
        let (tenant, worker) = (TenantId::new(tenant).unwrap(), "w".to_owned());
        ClaimRequest {
            tenant,
            effects: vec![name()],
            worker,
            probes: false,
            labels: BTreeMap::new(),
            capacity: None,
        }
    }

    fn posted(
        board: &Arc<JobBoard>,
        number: u128,
    ) -> tokio::task::JoinHandle<Result<Reply, ProviderError>> {
        let (board, item) = (Arc::clone(board), item(&name(), number));
        tokio::spawn(async move {
            board
                .post(&item, NEW, &AttemptStart::default())
                .await
                .result
        })
    }

    async fn claim(board: &JobBoard, clock: &SimClock) -> ClaimedJob {
        let wait = Duration::from_hours(1);
        let mut claimed = board
            .claim(clock, &request("acme"), 1, ClaimOptions::default(), wait)
            .await;
        claimed.pop().expect("there is one")
    }

    fn now_or_none(board: &JobBoard, clock: &SimClock, tenant: &str) -> usize {
        let (options, wait) = (ClaimOptions::default(), Duration::ZERO);
        futures::executor::block_on(board.claim(clock, &request(tenant), 9, options, wait)).len()
    }

    fn report(
        board: &JobBoard,
        clock: &SimClock,
        tenant: &TenantId,
        claim: (Uuid, Uuid),
        content: ReportContent,
    ) -> Result<ReportAck, ReportRejection> {
        let mut reports = Reports::new([JobReport {
            job: claim.0,
            claim: claim.1,
            content,
        }]);
        board.report(clock, tenant, RULES, &mut reports);
        reports.into_acks().remove(0)
    }

    fn complete_for(
        tenant: &TenantId,
        board: &JobBoard,
        claim: (Uuid, Uuid),
        reply: Reply,
    ) -> Result<(ResultAck, ReceiptWatch), ClaimLost> {
        let content = ReportContent::Result(Box::new(Ok(reply).into()));
        match report(board, &SimClock::new(START), tenant, claim, content) {
            Ok(ReportAck::Completed(ack, receipt)) => Ok((ack, receipt)),
            Err(ReportRejection::Lost(lost)) => Err(lost),
            other => panic!("{other:?}"),
        }
    }

    fn complete(
        board: &JobBoard,
        job: Uuid,
        claim: Uuid,
        reply: Reply,
    ) -> Result<ResultAck, ClaimLost> {
        complete_for(&acme(), board, (job, claim), reply).map(|(ack, _)| ack)
    }

    fn heartbeat(
        board: &JobBoard,
        clock: &SimClock,
        claimed: &ClaimedJob,
    ) -> Result<Timestamp, ClaimLost> {
        let claim = (claimed.item.id, claimed.claim);
        match report(board, clock, &acme(), claim, ReportContent::Heartbeat) {
            Ok(ReportAck::Extended(until)) => Ok(until),
            Err(ReportRejection::Lost(lost)) => Err(lost),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn result_with_an_undeclared_fact_is_rejected_and_the_claim_stays() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        let kind = |name: &str| orlog_model::EventType::new(name).unwrap();
        let facts = |name: &str| [orlog_model::Fact::new(kind(name), Value::Null)];
        let declared = FactTypes::Declared([kind("PointsEarned")].into());
        let rules = ReportRules {
            facts: &declared,
            ..RULES
        };
        let complete = |result: RemoteResult| {
            let mut reports = Reports::new([JobReport {
                job: claimed.item.id,
                claim: claimed.claim,
                content: ReportContent::Result(Box::new(result)),
            }]);
            board.report(clock.as_ref(), &acme(), rules, &mut reports);
            reports.into_acks().remove(0)
        };

        let paid = Reply::default().with_facts(facts("OrderPaid"));
        let rejected = complete(Ok(paid).into());
        assert!(
            matches!(&rejected, Err(ReportRejection::UndeclaredFact(it)) if *it == kind("OrderPaid")),
            "{rejected:?}"
        );
        let declined = ProviderError::permanent("declined", "").with_facts(facts("OrderPaid"));
        assert!(complete(Err(declined).into()).is_err(), "also of a failure");

        let earned = Reply::default().with_facts(facts("PointsEarned"));
        let accepted = complete(Ok(earned.clone()).into());
        assert!(
            matches!(accepted, Ok(ReportAck::Completed(ResultAck::Accepted, _))),
            "the worker still has the claim: {accepted:?}"
        );
        assert_eq!(job.await.unwrap(), Ok(earned));
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
        let complete = || {
            complete(
                &board,
                claimed.item.id,
                claimed.claim,
                Reply::from(json!(7)),
            )
        };
        assert_eq!(
            (complete(), complete()),
            (Ok(ResultAck::Accepted), Ok(ResultAck::Duplicate))
        );
        assert_eq!(job.await.unwrap().unwrap().payload, json!(7));
    }

    #[tokio::test]
    async fn expired_claim_returns_the_job() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let expired = claim(&board, &clock).await;
        clock.advance(Duration::from_mins(2));
        let until = START.saturating_add(Duration::from_mins(7));
        assert_eq!(heartbeat(&board, &clock, &expired), Ok(until));
        let (waiting, time) = (Arc::clone(&board), Arc::clone(&clock));
        let next = tokio::spawn(async move { claim(&waiting, &time).await });
        let due = clock.due_within(Duration::from_hours(1)).await;
        assert_eq!(due, until);
        clock.advance_to(due);
        let next = next.await.unwrap();
        assert_eq!((next.item.id, next.claim_count), (expired.item.id, 2));
        let late = complete(
            &board,
            expired.item.id,
            expired.claim,
            Reply::from(json!("late")),
        );
        assert_eq!(late, Err(ClaimLost));
        assert_eq!(heartbeat(&board, &clock, &expired), Err(ClaimLost));
        complete(&board, next.item.id, next.claim, Reply::from(json!("done"))).unwrap();
        assert_eq!(job.await.unwrap().unwrap().payload, json!("done"));
    }

    #[tokio::test]
    async fn request_that_waits_receives_a_job_whose_later_claim_expires() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let waiting = [(); 2].map(|()| {
            let (board, clock) = (Arc::clone(&board), Arc::clone(&clock));
            tokio::spawn(async move { claim(&board, &clock).await })
        });
        tokio::task::yield_now().await;
        let _job = posted(&board, 1);
        let (first, _, mut others) = futures::future::select_all(waiting).await;
        let expiry = first.unwrap().expires_at;
        assert_eq!(clock.due_within(Duration::from_hours(1)).await, expiry);
        clock.advance_to(expiry);
        assert_eq!(others.remove(0).await.unwrap().claim_count, 2);
    }

    #[tokio::test]
    async fn request_that_waits_receives_an_expired_job_beside_an_earlier_expiry_of_another_queue()
    {
        let board = Arc::new(JobBoard::default());
        let clock = SimClock::new(START);
        let waiting = [(); 2].map(|()| {
            let board = Arc::clone(&board);
            let clock = Arc::clone(&clock);
            tokio::spawn(async move { claim(&board, &clock).await })
        });
        tokio::task::yield_now().await;

        let other = EffectName::new("media.join").unwrap();
        let short = ClaimOptions::new(Duration::from_mins(1));
        let poster = Arc::clone(&board);
        let other_item = item(&other, 1);
        let _other_job = tokio::spawn(async move {
            poster
                .post(&other_item, NEW, &AttemptStart::default())
                .await
                .result
        });
        let other_request = ClaimRequest {
            effects: vec![other],
            ..request("acme")
        };
        let wait = Duration::from_hours(1);
        let claimed = board
            .claim(clock.as_ref(), &other_request, 1, short, wait)
            .await;
        let earlier = claimed[0].expires_at;

        let _job = posted(&board, 2);
        let (first, _, mut others) = futures::future::select_all(waiting).await;
        let expiry = first.unwrap().expires_at;
        assert!(earlier < expiry);

        let claim_ttl = Duration::from_mins(5);
        for due in [earlier, expiry] {
            assert_eq!(clock.due_within(claim_ttl).await, due);
            clock.advance_to(due);
        }
        assert_eq!(others.remove(0).await.unwrap().claim_count, 2);
    }

    #[tokio::test]
    async fn request_that_waits_receives_an_expired_job_after_the_end_of_the_notified_request() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let wait = || {
            let (board, clock) = (Arc::clone(&board), Arc::clone(&clock));
            tokio::spawn(async move { claim(&board, &clock).await })
        };
        let [first, second, third] = [wait(), wait(), wait()];
        tokio::task::yield_now().await;

        // The first request claims the job. The second one is notified of the expiry, and ends.
        let _job = posted(&board, 1);
        let expiry = first.await.unwrap().expires_at;
        let claim_ttl = Duration::from_mins(5);
        assert_eq!(clock.due_within(claim_ttl).await, expiry);
        second.abort();
        assert!(second.await.unwrap_err().is_cancelled());

        assert_eq!(clock.due_within(claim_ttl).await, expiry);
        clock.advance_to(expiry);
        assert_eq!(third.await.unwrap().claim_count, 2);
    }

    /// Requirements: S3.
    #[tokio::test]
    async fn fetched_job_is_claimed_by_its_id_once() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _jobs = [posted(&board, 1), posted(&board, 2), posted(&board, 3)];
        let fetch = |limit| {
            let (board, clock) = (Arc::clone(&board), Arc::clone(&clock));
            async move {
                board
                    .fetch(&*clock, &request("acme"), limit, Duration::from_hours(1))
                    .await
            }
        };
        let fetched = fetch(1).await;
        let [first] = fetched.as_slice() else {
            panic!("{fetched:?}")
        };
        assert_eq!((first.item.id, first.claim_count), (item(&name(), 1).id, 0));
        tokio::task::yield_now().await;
        assert_eq!(fetch(9).await.len(), 3, "a fetch claims none");
        let claim = |tenant: &str| {
            let request = JobClaimRequest {
                tenant: TenantId::new(tenant).unwrap(),
                job: first.item.id,
                worker: "w".to_owned(),
                probes: false,
                labels: BTreeMap::new(),
                capacity: None,
            };
            board.claim_job(&*clock, &request, ClaimOptions::default())
        };
        assert_eq!(claim("other"), Err(ClaimLost.into()));
        assert_eq!(board.worker_of(&*clock, first.item.id), None);
        let claimed = claim("acme").unwrap();
        assert_eq!(
            board.worker_of(&*clock, first.item.id).as_deref(),
            Some("w")
        );
        assert_eq!(
            (claim("acme"), fetch(9).await.len()),
            (Err(ClaimLost.into()), 2)
        );
        complete(&board, first.item.id, claimed.claim, Reply::default()).unwrap();
        assert_eq!(claim("acme"), Err(ClaimLost.into()));
    }

    /// Requirements: R10.
    #[tokio::test]
    async fn job_in_doubt_requires_a_worker_that_probes() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let poster = Arc::clone(&board);
        let options = PostOptions {
            probes: true,
            ..NEW
        };
        let job = tokio::spawn(async move {
            poster
                .post(&item(&name(), 1), options, &AttemptStart::default())
                .await
                .result
        });
        let silent = claim(&board, &clock).await;
        assert!(!silent.in_doubt);
        clock.advance_to(silent.expires_at);
        assert_eq!(
            now_or_none(&board, &clock, "acme"),
            0,
            "this worker does not probe"
        );
        let probing = ClaimRequest {
            probes: true,
            ..request("acme")
        };
        let (terms, wait) = (ClaimOptions::default(), Duration::ZERO);
        let claimed = board
            .claim(&*clock, &probing, 1, terms, wait)
            .await
            .pop()
            .expect("it is available");
        assert!(claimed.in_doubt && claimed.claim_count == 2, "{claimed:?}");
        complete(
            &board,
            claimed.item.id,
            claimed.claim,
            Reply::from(json!("found")),
        )
        .unwrap();
        assert_eq!(job.await.unwrap().unwrap().payload, json!("found"));
    }

    #[tokio::test]
    async fn non_retryable_job_of_a_silent_worker_is_in_doubt() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let (poster_board, item) = (Arc::clone(&board), item(&name(), 1));
        let options = PostOptions {
            forbids_retry: true,
            ..NEW
        };
        let job = tokio::spawn(async move {
            poster_board
                .post(&item, options, &AttemptStart::default())
                .await
                .result
        });
        let expired = claim(&board, &clock).await;
        clock.advance_to(expired.expires_at);
        assert_eq!(now_or_none(&board, &clock, "acme"), 0);
        let error = job.await.unwrap().expect_err("it is in doubt");
        assert!(
            matches!(
                &error,
                ProviderError::Transient {
                    trouble: TransientCause::ResponseLost,
                    ..
                }
            ),
            "{error:?}"
        );
        let late = complete(
            &board,
            expired.item.id,
            expired.claim,
            Reply::from(json!("late")),
        );
        assert_eq!(late, Err(ClaimLost));
    }

    /// Requirements: R10.
    #[tokio::test]
    async fn policy_of_the_upstream_forbids_a_second_claim_unless_the_effect_permits_it() {
        for (of_effect, is_available) in [(None, false), (Some(InDoubtPolicy::Retry), true)] {
            let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
            let provider = WorkerProvider::new(Arc::clone(&board), false, InDoubtPolicy::Fail);
            let mut item = item(&name(), 1);
            if let Work::Effect(effect) = &mut item.work {
                effect.in_doubt = of_effect;
            }
            let attempt = Attempt {
                number: 1,
                timeout: Duration::from_hours(1),
                at: START,
                in_doubt: false,
            };
            let job = tokio::spawn(async move { provider.execute(&item, attempt).await });
            let expired = claim(&board, &clock).await;
            clock.advance_to(expired.expires_at);
            assert_eq!(now_or_none(&board, &clock, "acme") > 0, is_available);
            if !is_available {
                let error = job.await.unwrap().expect_err("it is in doubt");
                assert_eq!(error.failure().code, "claim_expired");
            }
        }
    }

    #[tokio::test]
    async fn result_from_before_a_restart_is_accepted_if_unclaimed() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        while board.list(clock.as_ref(), &acme()).is_empty() {
            tokio::task::yield_now().await;
        }
        let completed = complete(
            &board,
            item(&name(), 1).id,
            Uuid::from_u128(9),
            Reply::default(),
        );
        assert_eq!(
            (completed, job.await.unwrap().is_ok()),
            (Ok(ResultAck::Accepted), true)
        );
    }

    /// Posts a job whose claim the store contains.
    fn posted_with_claim(
        board: &Arc<JobBoard>,
        claim: JobClaim,
        until: SteadyTime,
    ) -> tokio::task::JoinHandle<Result<Reply, ProviderError>> {
        let board = Arc::clone(board);
        let item = item(&name(), 1);
        let stored = StoredClaim { claim, until };
        tokio::spawn(async move {
            let start = AttemptStart::default().with_claim(Some(Box::new(stored)));
            let options = PostOptions {
                in_doubt: true,
                ..NEW
            };
            board.post(&item, options, &start).await.result
        })
    }

    async fn until_posted(board: &JobBoard, clock: &SimClock) {
        while board.list(clock, &acme()).is_empty() {
            tokio::task::yield_now().await;
        }
    }

    /// Requirements: F5.
    #[tokio::test]
    async fn stored_claim_is_valid_after_a_restart_and_its_expiry_keeps_the_count() {
        let clock = SimClock::new(START);
        let before = Arc::new(JobBoard::default());
        let _lost = posted(&before, 1);
        let held = claim(&before, &clock).await;
        let updates = before.take_claim_updates(&*clock);
        let [update] = updates.as_slice() else {
            panic!("{updates:?}")
        };
        assert_eq!(update.job, held.item.id);
        let stored = update.claim.clone().expect("the claim is stored");
        assert_eq!(
            (
                stored.id,
                stored.worker.as_str(),
                stored.number,
                stored.until
            ),
            (held.claim, "w", 1, held.expires_at)
        );
        assert_eq!(before.take_claim_updates(&*clock), [], "nothing changed");

        // The node restarts, and posts the job again.
        clock.advance(Duration::from_secs(4));
        let after = Arc::new(JobBoard::default());
        let job = posted_with_claim(&after, stored.clone(), clock.steady_at(stored.until));
        until_posted(&after, &clock).await;
        assert_eq!(now_or_none(&after, &clock, "acme"), 0, "the claim is valid");
        assert_eq!(after.held(&acme(), "w"), 1);
        let extended = heartbeat(&after, &clock, &held).unwrap();
        assert_eq!(extended, clock.now().saturating_add(Duration::from_mins(5)));

        clock.advance_to(extended);
        let next = claim(&after, &clock).await;
        assert_eq!((next.item.id, next.claim_count), (held.item.id, 2));
        assert_eq!(heartbeat(&after, &clock, &held), Err(ClaimLost));
        complete(&after, next.item.id, next.claim, Reply::from(json!(7))).unwrap();
        assert_eq!(job.await.unwrap().unwrap().payload, json!(7));
    }

    #[tokio::test]
    async fn worker_of_a_stored_claim_reports_its_result_after_a_restart() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let stored = JobClaim {
            id: Uuid::from_u128(9),
            worker: "w".to_owned(),
            number: 3,
            until: START.saturating_add(Duration::from_mins(1)),
        };
        let job = posted_with_claim(&board, stored.clone(), clock.steady_at(stored.until));
        until_posted(&board, &clock).await;

        let id = item(&name(), 1).id;
        let other = complete(&board, id, Uuid::from_u128(8), Reply::default());
        assert_eq!(other, Err(ClaimLost));
        let own = complete(&board, id, stored.id, Reply::default());
        assert_eq!(own, Ok(ResultAck::Accepted));
        assert!(job.await.unwrap().is_ok());

        let updates = board.take_claim_updates(&*clock);
        let [ended] = updates.as_slice() else {
            panic!("{updates:?}")
        };
        assert_eq!((ended.job, &ended.claim), (id, &None));
    }

    #[tokio::test]
    async fn short_claims_are_not_stored_and_the_end_of_a_shard_keeps_the_stored_ones() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _short = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        complete(&board, claimed.item.id, claimed.claim, Reply::default()).unwrap();
        assert_eq!(board.take_claim_updates(&*clock), []);

        let stop = StopToken::default();
        let own_board = Arc::clone(&board);
        let start = AttemptStart::until(Some(&stop));
        let posted = tokio::spawn(async move {
            let item = item(&name(), 2);
            own_board.post(&item, NEW, &start).await.result
        });
        let _held = claim(&board, &clock).await;
        assert_eq!(board.take_claim_updates(&*clock).len(), 1);
        stop.stop();
        posted.abort();
        assert!(posted.await.is_err());
        assert_eq!(board.list(&*clock, &acme()), []);
        assert_eq!(board.take_claim_updates(&*clock), []);
    }

    #[tokio::test]
    async fn cancelled_job_is_removed_and_its_worker_gets_claim_lost() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        job.abort();
        assert!(job.await.is_err());
        assert_eq!(heartbeat(&board, &clock, &claimed), Err(ClaimLost));
        assert_eq!(
            complete(&board, claimed.item.id, claimed.claim, Reply::default()),
            Err(ClaimLost)
        );
    }

    /// Requirements: F5.
    #[tokio::test]
    async fn job_that_names_a_runner_waits_for_it_and_for_its_labels() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let kind = EffectName::new("job.t").unwrap();
        let post = |number, runner: Value| {
            let (board, mut item) = (Arc::clone(&board), item(&kind, number));
            if let Work::Effect(effect) = &mut item.work {
                effect.payload = json!({ "runner": runner });
            }
            tokio::spawn(async move {
                board
                    .post(&item, NEW, &AttemptStart::default())
                    .await
                    .result
            })
        };
        let request = |worker: &str, labels: &[(&str, &str)]| ClaimRequest {
            effects: vec![kind.clone()],
            worker: worker.to_owned(),
            labels: labels
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..request("acme")
        };
        let (options, hour) = (ClaimOptions::default(), Duration::from_hours(1));
        let (other, wanted) = (
            request("r-1", &[("zone", "us")]),
            request("r-2", &[("zone", "eu"), ("gpu", "1")]),
        );
        let mut waits = Box::pin(board.claim(&*clock, &other, 1, options, hour));
        let mut meant = Box::pin(board.claim(&*clock, &wanted, 1, options, hour));
        assert_eq!(
            (waits.as_mut().now_or_never(), meant.as_mut().now_or_never()),
            (None, None)
        );
        let _jobs = [
            post(1, json!({ "name": "r-2" })),
            post(2, json!({ "labels": { "zone": "eu" } })),
            post(3, Value::Null),
        ];
        let ids = |jobs: Vec<ClaimedJob>| jobs.iter().map(|job| job.item.id).collect::<Vec<_>>();
        assert_eq!(
            ids(waits.await),
            [item(&kind, 3).id],
            "each runner may claim it"
        );
        let mut claimed = ids(meant.await);
        claimed.extend(ids(board
            .claim(&*clock, &wanted, 9, options, Duration::ZERO)
            .await));
        assert_eq!(claimed, [item(&kind, 1).id, item(&kind, 2).id]);
        assert!(
            board
                .claim(&*clock, &other, 9, options, Duration::ZERO)
                .await
                .is_empty()
        );
    }

    /// Requirements: F5.
    #[tokio::test]
    async fn job_that_names_a_runner_is_fetched_and_claimed_by_this_runner() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let mut item = item(&EffectName::new("job.t").unwrap(), 1);
        if let Work::Effect(effect) = &mut item.work {
            effect.payload = json!({ "runner": { "labels": { "zone": "eu" } } });
        }
        let (poster, job) = (Arc::clone(&board), item.id);
        let _posted =
            tokio::spawn(async move { poster.post(&item, NEW, &AttemptStart::default()).await });
        while board.list(&*clock, &acme()).is_empty() {
            tokio::task::yield_now().await;
        }
        for (zone, is_meant) in [("us", false), ("eu", true)] {
            let labels = BTreeMap::from([("zone".to_owned(), zone.to_owned())]);
            let effects = vec![EffectName::new("job.t").unwrap()];
            let fetching = ClaimRequest {
                effects,
                labels: labels.clone(),
                ..request("acme")
            };
            let found = board.fetch(&*clock, &fetching, 9, Duration::ZERO).await;
            assert_eq!(found.len(), usize::from(is_meant), "{zone}");
            let worker = "w".to_owned();
            let claiming = JobClaimRequest {
                tenant: acme(),
                job,
                worker,
                probes: false,
                labels,
                capacity: None,
            };
            let claimed = board.claim_job(&*clock, &claiming, ClaimOptions::default());
            assert_eq!(claimed.is_ok(), is_meant, "{zone}");
        }
    }

    /// Requirements: F5.
    #[tokio::test]
    async fn waiting_jobs_are_listed_by_kind_until_workers_claim_them() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let arrivals = board.arrivals();
        let _jobs = post_all(&board, &clock, 1..=3).await;
        let kind = EffectName::new("job.t").unwrap();
        let mut meant = item(&kind, 4);
        if let Work::Effect(effect) = &mut meant.work {
            effect.payload = json!({ "runner": { "name": "r-1" } });
        }
        let poster = Arc::clone(&board);
        let _meant =
            tokio::spawn(async move { poster.post(&meant, NEW, &AttemptStart::default()).await });
        while *arrivals.borrow() < 4 {
            tokio::task::yield_now().await;
        }

        let waiting = || board.waiting(clock.steady(), &acme(), 10);
        assert_eq!(waiting().len(), 2, "{:?}", waiting());
        let other = TenantId::new("beta").unwrap();
        assert_eq!(board.waiting(clock.steady(), &other, 10), []);
        assert_eq!(board.waiting(clock.steady(), &acme(), 1).len(), 1);
        let runner = |worker: &str| ClaimRequest {
            effects: vec![kind.clone()],
            worker: worker.to_owned(),
            ..request("acme")
        };
        let is_for = |request: &ClaimRequest| waiting().iter().any(|jobs| jobs.is_for(request));
        assert!(is_for(&request("acme")) && is_for(&runner("r-1")));
        assert!(!is_for(&runner("r-2")));

        assert_eq!(now_or_none(&board, &clock, "acme"), 3);
        assert!(!is_for(&request("acme")) && is_for(&runner("r-1")));
        assert_eq!(board.unclaimed(clock.steady()), 1);
        clock.advance(ClaimOptions::default().claim_ttl);
        assert!(is_for(&request("acme")), "the claims have expired");
        assert_eq!(board.unclaimed(clock.steady()), 4);
    }

    #[test]
    fn requests_of_one_tenant_take_no_space_of_another() {
        let board = JobBoard::of_runners();
        let many = (0..20_000).map(|number| EffectName::new(format!("job.t{number}")).unwrap());
        board.note_request(&ClaimRequest {
            effects: many.collect(),
            ..request("acme")
        });
        board.note_request(&ClaimRequest {
            effects: vec![name()],
            ..request("beta")
        });
        assert!(board.is_requested(&TenantId::new("beta").unwrap(), name().as_str()));
        assert!(!board.is_requested(&acme(), name().as_str()));
        assert!(
            board.is_requested(&acme(), "job.t0") && !board.is_requested(&acme(), "job.t19999")
        );
    }

    #[tokio::test]
    async fn worker_never_holds_more_jobs_than_its_capacity() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _jobs = post_all(&board, &clock, 1..=5).await;
        let limited = ClaimRequest {
            capacity: Some(2),
            ..request("acme")
        };
        let other = ClaimRequest {
            worker: "v".to_owned(),
            ..request("acme")
        };
        let (options, hour) = (ClaimOptions::default(), Duration::from_hours(1));
        let held = || board.held(&acme(), "w");
        let claimed = board.claim(&*clock, &limited, 9, options, hour).await;
        assert_eq!((claimed.len(), held()), (2, 2));
        // A second connection receives nothing until the worker answers; other workers do.
        let mut waits = Box::pin(board.claim(&*clock, &limited, 9, options, hour));
        assert_eq!(waits.as_mut().now_or_never(), None);
        assert_eq!(
            board.claim(&*clock, &other, 1, options, hour).await.len(),
            1
        );
        assert_eq!(waits.as_mut().now_or_never(), None);
        let job = JobClaimRequest {
            tenant: acme(),
            job: item(&name(), 4).id,
            worker: "w".to_owned(),
            probes: false,
            labels: BTreeMap::new(),
            capacity: Some(2),
        };
        let rejected = ClaimRejection::AtCapacity {
            held: 2,
            capacity: 2,
        };
        assert_eq!(board.claim_job(&*clock, &job, options), Err(rejected));
        let done = &claimed[0];
        assert_eq!(
            complete(&board, done.item.id, done.claim, Reply::default()),
            Ok(ResultAck::Accepted)
        );
        assert_eq!(waits.await.len(), 1, "the result makes room for one job");
        assert_eq!(held(), 2);
        clock.advance(options.claim_ttl);
        let renewed = board.claim(&*clock, &limited, 9, options, hour).await;
        assert_eq!(
            (renewed.len(), held()),
            (2, 2),
            "expired claims do not count"
        );
    }

    #[tokio::test]
    async fn worker_at_its_capacity_leaves_a_job_to_the_next_request() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let limited = ClaimRequest {
            capacity: Some(1),
            ..request("acme")
        };
        let other = ClaimRequest {
            worker: "v".to_owned(),
            ..request("acme")
        };
        let (options, hour) = (ClaimOptions::default(), Duration::from_hours(1));
        let mut first = Box::pin(board.claim(&*clock, &limited, 1, options, hour));
        let mut second = Box::pin(board.claim(&*clock, &limited, 1, options, hour));
        let mut third = Box::pin(board.claim(&*clock, &other, 1, options, hour));
        for waiting in [&mut first, &mut second, &mut third] {
            assert_eq!(waiting.as_mut().now_or_never(), None);
        }
        let _jobs = post_all(&board, &clock, 1..=2).await;
        assert_eq!(first.await.len(), 1);
        assert_eq!(
            second.as_mut().now_or_never(),
            None,
            "it was notified of the second job"
        );
        assert_eq!(third.await.len(), 1);
    }

    #[tokio::test]
    async fn withdrawn_job_leaves_the_board_unless_its_worker_may_execute_it() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let jobs = post_all(&board, &clock, 1..=4).await;
        let mut claimed = Vec::new();
        for _ in 0..3 {
            claimed.push(claim(&board, &clock).await);
        }
        for number in 1..=4 {
            let id = item(&name(), number).id;
            assert!(!board.withdraw(clock.steady(), &TenantId::new("beta").unwrap(), id));
            assert!(board.withdraw(clock.steady(), &acme(), id));
        }
        assert_eq!(
            board.list(&*clock, &acme()).len(),
            3,
            "workers may execute the claimed ones"
        );
        assert_eq!(
            heartbeat(&board, &clock, &claimed[0]),
            Err(ClaimLost),
            "the worker stops"
        );
        let (done, ack) = (&claimed[1], Ok(ResultAck::Accepted));
        assert_eq!(
            complete(&board, done.item.id, done.claim, Reply::default()),
            ack,
            "the worker has finished"
        );
        clock.advance(ClaimOptions::default().claim_ttl);
        assert_eq!(
            now_or_none(&board, &clock, "acme"),
            0,
            "no worker receives a withdrawn job"
        );
        assert_eq!(board.list(&*clock, &acme()), []);
        let mut ended = Vec::new();
        for job in jobs {
            ended.push(
                job.await
                    .unwrap()
                    .map_err(|error| error.failure().code.clone()),
            );
        }
        let withdrawn = || Err("withdrawn".to_owned());
        assert_eq!(
            ended,
            [withdrawn(), Ok(Reply::default()), withdrawn(), withdrawn()]
        );
    }

    #[tokio::test]
    async fn withdrawn_job_is_in_doubt_if_a_worker_may_have_executed_it() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let post = |number| {
            let (board, item) = (Arc::clone(&board), item(&name(), number));
            tokio::spawn(async move { board.post(&item, NEW, &AttemptStart::default()).await })
        };
        let claimed = post(1);
        let of_worker = claim(&board, &clock).await;
        assert!(board.withdraw(clock.steady(), &acme(), of_worker.item.id));
        assert_eq!(heartbeat(&board, &clock, &of_worker), Err(ClaimLost));
        board.withdraw_later(item(&name(), 2).id);
        for (job, in_doubt) in [(claimed, true), (post(2), false)] {
            let ended = job.await.unwrap();
            assert_eq!(ended.result.unwrap_err().failure().code, "withdrawn");
            assert_eq!(ended.in_doubt, in_doubt);
        }
    }

    #[tokio::test]
    async fn claimed_job_of_a_closed_board_is_in_doubt() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let post = |number| {
            let (board, item) = (Arc::clone(&board), item(&name(), number));
            tokio::spawn(async move { board.post(&item, NEW, &AttemptStart::default()).await })
        };
        let claimed = post(1);
        claim(&board, &clock).await;
        let waiting = post(2);
        while board.list(&*clock, &acme()).len() < 2 {
            tokio::task::yield_now().await;
        }
        board.close();
        for (job, in_doubt) in [(claimed, true), (waiting, false)] {
            let ended = job.await.unwrap();
            assert!(ended.result.is_err());
            assert_eq!(ended.in_doubt, in_doubt);
        }
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
        let stolen = complete_for(
            &beta,
            &board,
            (item(&name(), 1).id, Uuid::nil()),
            Reply::from(Value::Null),
        );
        assert_eq!(stolen.map(|(ack, _)| ack), Err(ClaimLost));
        assert_eq!(now_or_none(&board, &clock, "acme"), 1);
    }

    #[tokio::test]
    async fn job_log_is_bounded() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        for n in 0..MAX_LINES_PER_JOB + 3 {
            let claim = (claimed.item.id, claimed.claim);
            report(
                &board,
                &clock,
                &acme(),
                claim,
                ReportContent::Log(vec![n.to_string()]),
            )
            .unwrap();
        }
        let seen = board.list(clock.as_ref(), &acme()).pop().unwrap();
        assert!(seen.claim.is_some());
        let log = board.job_logs().tail(&acme(), seen.item.id, usize::MAX);
        assert_eq!(
            (log.lines.len(), log.lines[0].text.as_str()),
            (MAX_LINES_PER_JOB, "3")
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
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        assert_eq!(claimed.heartbeat_interval, Duration::from_mins(2));
        for _ in 0..10 {
            clock.advance(claimed.heartbeat_interval);
            assert_eq!(
                now_or_none(&board, &clock, "acme"),
                0,
                "another worker gets the job"
            );
            let until = heartbeat(&board, &clock, &claimed);
            assert_eq!(
                until,
                Ok(clock.now().saturating_add(Duration::from_mins(5)))
            );
        }
    }

    /// Waits until `number` jobs are on the board, and returns their posting tasks.
    async fn post_all(
        board: &Arc<JobBoard>,
        clock: &SimClock,
        numbers: impl IntoIterator<Item = u128>,
    ) -> Vec<tokio::task::JoinHandle<Result<Reply, ProviderError>>> {
        let before = board.list(clock, &acme()).len();
        let tasks: Vec<_> = numbers
            .into_iter()
            .map(|number| posted(board, number))
            .collect();
        while board.list(clock, &acme()).len() < before + tasks.len() {
            tokio::task::yield_now().await;
        }
        tasks
    }

    #[tokio::test]
    async fn one_report_concerns_many_jobs_and_returns_the_others() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let tasks = post_all(&board, &clock, 1..=3).await;
        let options = ClaimOptions::default();
        let jobs = board
            .claim(clock.as_ref(), &request("acme"), 9, options, Duration::ZERO)
            .await;
        let ids: Vec<_> = jobs.iter().map(|job| job.item.id).collect();
        assert_eq!(
            ids,
            [1, 2, 3].map(|number| item(&name(), number).id),
            "oldest first"
        );
        let claim = |index: usize| (jobs[index].item.id, jobs[index].claim);
        let result = || ReportContent::Result(Box::new(Ok(Reply::default()).into()));
        let report = |(job, claim), content| JobReport {
            job,
            claim,
            content,
        };
        let unknown = (Uuid::from_u128(99), Uuid::nil());
        let mut reports = Reports::new([
            report(claim(0), result()),
            report(unknown, result()),
            report(claim(1), ReportContent::Heartbeat),
            report(claim(0), result()),
            report((claim(2).0, Uuid::nil()), result()),
        ]);
        board.report(clock.as_ref(), &acme(), RULES, &mut reports);
        assert!(
            !reports.is_complete(),
            "another board may have the unknown job"
        );
        let acks = reports.into_acks();
        assert!(
            matches!(&acks[0], Ok(ReportAck::Completed(ResultAck::Accepted, _))),
            "{acks:?}"
        );
        assert!(matches!(&acks[2], Ok(ReportAck::Extended(_))), "{acks:?}");
        assert!(
            matches!(&acks[3], Ok(ReportAck::Completed(ResultAck::Duplicate, _))),
            "{acks:?}"
        );
        assert!(
            [&acks[1], &acks[4]]
                .iter()
                .all(|ack| matches!(ack, Err(ReportRejection::Lost(ClaimLost)))),
            "{acks:?}"
        );
        for task in tasks.into_iter().take(1) {
            task.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn high_job_passes_the_backlog_and_no_job_starves() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let _backlog = post_all(&board, &clock, 1..=60).await;
        let post = |number, priority| {
            let (board, item) = (
                Arc::clone(&board),
                WorkItem {
                    priority,
                    ..item(&name(), number)
                },
            );
            tokio::spawn(async move {
                board
                    .post(&item, NEW, &AttemptStart::default())
                    .await
                    .result
            })
        };
        let mut tasks: Vec<_> = (101..=120)
            .map(|number| post(number, Priority::High))
            .collect();
        tasks.extend((201..=205).map(|number| post(number, Priority::Low)));
        while board.list(&*clock, &acme()).len() < 85 {
            tokio::task::yield_now().await;
        }
        let mut claimed = Vec::new();
        for _ in 0..85 {
            claimed.push(claim(&board, &clock).await.item.priority);
        }
        let count = |range: std::ops::Range<usize>, of| {
            claimed[range].iter().filter(|it| **it == of).count()
        };
        assert_eq!(
            [Priority::High, Priority::Normal, Priority::Low].map(|of| count(0..21, of)),
            [16, 4, 1]
        );
        assert_eq!(
            count(0..25, Priority::High),
            20,
            "a round has 5 jobs of the other priorities"
        );
        assert_eq!(count(0..46, Priority::Low), 5, "{claimed:?}");
    }

    #[tokio::test]
    async fn lost_result_is_accepted_again() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let first = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        let (job, claim) = (claimed.item.id, claimed.claim);
        let (_, receipt) = complete_for(&acme(), &board, (job, claim), Reply::default()).unwrap();
        // The shard stops before the commit, and the next one posts the job again.
        drop(first.await);
        assert!(!receipt.is_stored().await);
        let _second = post_all(&board, &clock, [1]).await;
        assert_eq!(
            complete(&board, job, claim, Reply::default()),
            Ok(ResultAck::Accepted)
        );
    }

    #[tokio::test]
    async fn each_job_wakes_one_of_the_requests_that_wait() {
        let (board, clock) = (Arc::new(JobBoard::default()), SimClock::new(START));
        let (request, options, wait) = (
            request("acme"),
            ClaimOptions::default(),
            Duration::from_hours(1),
        );
        let waits = || Box::pin(board.claim(clock.as_ref(), &request, 1, options, wait));
        let (mut first, mut second, mut third) = (waits(), waits(), waits());
        for waiting in [&mut first, &mut second, &mut third] {
            assert_eq!(waiting.now_or_never(), None);
        }
        let _jobs = post_all(&board, &clock, 1..=2).await;
        // A request that ends leaves its job to the next one.
        drop(first);
        assert_eq!(second.await.len(), 1);
        assert_eq!(third.await.len(), 1);
        assert_eq!(now_or_none(&board, &clock, "acme"), 0);
    }
}
