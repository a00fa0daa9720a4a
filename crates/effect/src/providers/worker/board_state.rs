//! State of a job board: its jobs, the queue of each effect of a tenant, the expiry times of
//! claims, and the claim requests that wait.
//!
//! If a queue has both jobs and waiting requests, at least one of these requests was notified and
//! did not run yet.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use orlog_model::{
    Clock, JobClaim, JobClaimUpdate, Priority, PriorityTurns, SteadyTime, TenantId, WorkItem,
};
use tokio::sync::{Notify, oneshot, watch};
use uuid::Uuid;

use super::board_job::{BoardJob, Claim, PostOptions};
use super::claim::{
    AvailableJob, ClaimLost, ClaimOptions, ClaimRejection, ClaimRequest, ClaimedJob,
    JobClaimRequest,
};
use super::held_claims::HeldClaims;
use super::job_queue::JobQueues;
use super::report::ResultAck;
use super::result_log::ResultLog;
use super::waiting::WaitingJobs;
use super::withdrawn::{WithdrawnJobs, withdrawn};
use crate::attempt_start::{AttemptStart, StoredClaim};
use crate::provider::{ProviderError, RemoteResult};
use crate::receipt::{ReceiptWatch, ResultReceipt};

#[derive(Default)]
pub(super) struct BoardState {
    jobs: BTreeMap<Uuid, BoardJob>,
    /// Jobs of each tenant by position, for its pages.
    by_position: BTreeMap<TenantId, BTreeMap<u64, Uuid>>,
    queues: JobQueues,
    /// Number of jobs that have come to wait for a worker so far.
    pub(super) arrivals: watch::Sender<u64>,
    /// Turns of the priorities of each tenant.
    turns: BTreeMap<TenantId, PriorityTurns>,
    /// Expiry times of the claims.
    expiries: BTreeSet<(SteadyTime, Uuid)>,
    /// Claims that have not expired, by worker.
    pub(super) held: HeldClaims,
    next: u64,
    results: ResultLog,
    /// Jobs whose claims changed since the last call of [`BoardState::take_claim_updates`].
    changed_claims: BTreeSet<Uuid>,
    /// Changes that delete the stored claims of jobs that have ended since then.
    ended_claims: Vec<JobClaimUpdate>,
    /// Jobs that are withdrawn before they are posted.
    pub(super) withdrawn: WithdrawnJobs,
    /// No request reaches the board any more.
    is_closed: bool,
}

impl BoardState {
    /// Adds a job and returns its position; it replaces an earlier one of the same item. A closed
    /// board ends it.
    pub(super) fn post(
        &mut self,
        item: Arc<WorkItem>,
        options: PostOptions,
        start: AttemptStart,
        reply: oneshot::Sender<RemoteResult>,
    ) -> u64 {
        let id = item.id;
        let position = self.next_number();

        // The later posting task executes the item now. The earlier one must not wait for ever.
        if let Some(earlier) = self.remove(id) {
            earlier.end();
        }

        if self.withdrawn.take(id) {
            // An error means that the posting task was cancelled.
            drop(reply.send(withdrawn(options.in_doubt)));
            return position;
        }

        let stored = start.claim().cloned();
        let mut job = BoardJob::new(position, item, options, start, reply);

        // The executor read the upstream before the board was closed. The end lets it continue
        // elsewhere.
        if self.is_closed {
            job.end();
            return position;
        }

        let Some(StoredClaim { claim, until }) = stored else {
            self.insert(job);
            self.enqueue(id);
            return position;
        };

        // The job has been claimed. If the claim has expired, the next request finds that.
        job.claims = claim.number;
        job.claim = Some(Claim {
            id: claim.id,
            worker: claim.worker,
            until,
        });
        job.is_claim_stored = true;
        // The worker may be executing the job, so the timeout of the attempt counts from now on.
        job.start.start();
        self.insert(job);
        self.begin_claim(until, id);
        position
    }

    /// Returns the changes of the stored claims since the last call. Claims of jobs that ended in
    /// between are not among them.
    pub(super) fn take_claim_updates(&mut self, clock: &dyn Clock) -> Vec<JobClaimUpdate> {
        let mut updates = std::mem::take(&mut self.ended_claims);
        for id in std::mem::take(&mut self.changed_claims) {
            // The job has ended since. If a claim of it is stored, `ended_claims` deletes it.
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if let Some(update) = job.claim_update(clock) {
                job.is_claim_stored = true;
                updates.push(update);
            }
        }
        updates
    }

    /// Removes a job whose posting task has ended, unless another one has replaced it.
    pub(super) fn abandon(&mut self, job: Uuid, position: u64) {
        if self
            .jobs
            .get(&job)
            .is_some_and(|job| job.position == position)
        {
            self.remove(job);
        }
    }

    /// Withdraws a job that its saga no longer awaits. A job without a claim ends at once. A
    /// claimed one, whose worker may be executing it, ends with its result, with the next heartbeat
    /// or log line, which tells the worker to stop, or with the claim. Returns false if the job is
    /// not here.
    pub(super) fn withdraw(&mut self, now: SteadyTime, tenant: &TenantId, job: Uuid) -> bool {
        // A job can be withdrawn before it is posted: see `JobBoard::withdraw_later`.
        let Some(found) = self
            .jobs
            .get_mut(&job)
            .filter(|found| found.item.instance.tenant == *tenant)
        else {
            return false;
        };

        match found
            .claim
            .as_ref()
            .map(|claim| claim.until)
            .filter(|until| *until > now)
        {
            // The worker may be executing the job. Its next heartbeat tells it to stop.
            Some(until) => {
                found.is_withdrawn = true;
                found.start.end_at(until);
            }
            None => self.end_withdrawn(job),
        }
        true
    }

    /// Ends a job that no worker has ever claimed.
    pub(super) fn recall(&mut self, job: Uuid) {
        if self
            .jobs
            .get(&job)
            .is_some_and(|found| found.claim.is_none())
            && let Some(removed) = self.remove(job)
        {
            removed.end();
        }
    }

    fn end_withdrawn(&mut self, job: Uuid) {
        if let Some(removed) = self.remove(job) {
            removed.withdraw();
        }
    }

    /// Claims available jobs. The priorities take turns; of one priority, the oldest job is first.
    pub(super) fn claim(
        &mut self,
        clock: &dyn Clock,
        request: &ClaimRequest,
        limit: usize,
        terms: ClaimOptions,
    ) -> Vec<ClaimedJob> {
        self.expire(clock.steady());

        let limit = limit.min(self.held.free(request));
        let mut claimed = Vec::new();
        while claimed.len() < limit
            && let Some(id) = self.next(request)
        {
            claimed.extend(self.hand_over(clock, id, &request.worker, terms));
        }

        claimed
    }

    /// Claims this job, if it is available to the worker.
    pub(super) fn claim_job(
        &mut self,
        clock: &dyn Clock,
        request: &JobClaimRequest,
        terms: ClaimOptions,
    ) -> Result<ClaimedJob, ClaimRejection> {
        self.expire(clock.steady());

        let job = self.jobs.get(&request.job).ok_or(ClaimLost)?;
        let key = job.queue();
        // A claimed job is in no queue.
        let is_queued = self
            .queues
            .get(&key)
            .is_some_and(|queue| queue.contains(&job.place()));
        let is_meant = job.is_meant_for(&request.worker, &request.labels);

        let (tenant, _, requires_probe) = key;
        if tenant != request.tenant || !is_queued || !is_meant || requires_probe && !request.probes
        {
            return Err(ClaimLost.into());
        }

        self.held
            .check(&request.tenant, &request.worker, request.capacity)?;

        Ok(self
            .hand_over(clock, request.job, &request.worker, terms)
            .ok_or(ClaimLost)?)
    }

    /// Returns jobs that the worker of a request can claim: of the higher priority first, then the
    /// oldest.
    pub(super) fn available(
        &mut self,
        now: SteadyTime,
        request: &ClaimRequest,
        limit: usize,
    ) -> Vec<AvailableJob> {
        self.expire(now);

        let limit = limit.min(self.held.free(request));
        let mut places: Vec<_> = self
            .queues
            .of(request)
            .flat_map(|queue| {
                queue.places(limit, |id: &Uuid| {
                    self.jobs
                        .get(id)
                        .is_some_and(|job| job.is_meant_for(&request.worker, &request.labels))
                })
            })
            .collect();
        // The queues of several effects are merged by priority, then by age.
        places.sort_unstable();

        let mut available = Vec::with_capacity(places.len().min(limit));
        for (_, id) in places.into_iter().take(limit) {
            if let Some(job) = self.jobs.get(&id) {
                available.push(AvailableJob {
                    item: Arc::clone(&job.item),
                    claim_count: job.claims,
                    in_doubt: job.options.in_doubt,
                });
            }
        }
        available
    }

    /// Returns the number of jobs that no worker has claimed.
    pub(super) fn unclaimed(&mut self, now: SteadyTime) -> usize {
        self.expire(now);
        // Each claim that has not expired has one expiry time.
        self.jobs.len() - self.expiries.len()
    }

    /// Returns the kinds of jobs of a tenant that no worker has claimed, at most a number of them.
    pub(super) fn waiting(
        &mut self,
        now: SteadyTime,
        tenant: &TenantId,
        max_kinds: usize,
    ) -> Vec<WaitingJobs> {
        self.expire(now);

        let mut kinds = BTreeSet::new();
        for ((_, effect, requires_probe), queue) in self.queues.of_tenant(tenant) {
            let kind = |runner| WaitingJobs {
                effect: effect.clone(),
                requires_probe: *requires_probe,
                runner,
            };
            if !queue.jobs.is_empty() {
                kinds.insert(kind(None));
            }

            let selective = queue.selective.values().filter_map(|id| self.jobs.get(id));
            for job in selective {
                // Bounded while it collects: each job of a tenant can name another runner.
                if kinds.len() >= max_kinds {
                    break;
                }
                kinds.insert(kind(job.selector.clone()));
            }
        }

        kinds.into_iter().take(max_kinds).collect()
    }

    /// Returns the worker that has claimed the job.
    pub(super) fn worker_of(&self, now: SteadyTime, job: Uuid) -> Option<&str> {
        let claim = self
            .jobs
            .get(&job)?
            .claim
            .as_ref()
            .filter(|claim| claim.until > now)?;
        Some(&claim.worker)
    }

    /// Removes a job from its queue and gives it to a worker; `None` if the job belongs to another
    /// process now.
    fn hand_over(
        &mut self,
        clock: &dyn Clock,
        id: Uuid,
        worker: &str,
        terms: ClaimOptions,
    ) -> Option<ClaimedJob> {
        self.unqueue(id);
        let until = clock.steady().saturating_add(terms.claim_ttl);

        let job = self
            .jobs
            .get_mut(&id)
            .expect("a queue contains jobs of the board");

        // The shard may have moved since the job was posted. Its new owner offers the job, too.
        if !job.start.is_allowed() {
            self.remove(id)?.end();
            return None;
        }

        // The id contains the slot of the instance, so that any pod finds the owner for a report.
        let claim = JobClaim::id_for(&job.item.instance, Uuid::new_v4());
        job.claims += 1;
        job.claim = Some(Claim {
            id: claim,
            worker: worker.to_owned(),
            until,
        });
        job.start.start();

        let claimed = ClaimedJob {
            item: Arc::clone(&job.item),
            claim,
            claim_count: job.claims,
            in_doubt: job.options.in_doubt,
            expires_at: clock.wall_at(until),
            heartbeat_interval: terms.heartbeat_interval,
        };

        self.begin_claim(until, id);
        self.changed_claims.insert(id);
        Some(claimed)
    }

    /// Registers the claim of a job.
    fn begin_claim(&mut self, until: SteadyTime, id: Uuid) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };

        if let Some(claim) = &job.claim {
            self.held.add(&job.item.instance.tenant, &claim.worker);
        }

        // The requests that wait for this queue do not know the expiry yet. They cannot rely on an
        // earlier one either: it may be that of another queue, whose requests alone were notified.
        self.queues.notify(&job.queue());
        self.expiries.insert((until, id));
    }

    /// Returns the next waiting job for a request, and uses the turn of its priority.
    fn next(&mut self, request: &ClaimRequest) -> Option<Uuid> {
        let queues: Vec<_> = self.queues.of(request).collect();

        // Jobs for certain runners first: no other worker can claim them.
        let mut selective = queues.iter().flat_map(|queue| queue.selective.values());
        let meant = selective.find(|id| {
            self.jobs
                .get(id)
                .is_some_and(|job| job.is_meant_for(&request.worker, &request.labels))
        });
        if let Some(id) = meant {
            return Some(*id);
        }

        let oldest = |priority| {
            queues
                .iter()
                .filter_map(|queue| queue.first(priority))
                .min()
        };
        let oldest = Priority::ALL.map(oldest);

        oldest.iter().flatten().next()?;

        let turns = self.turns.entry(request.tenant.clone()).or_default();
        let (priority, _) = turns.next(|priority| oldest[priority as usize].is_some())?;
        turns.take(priority, 1);
        oldest[priority as usize].map(|(_, id)| id)
    }

    /// Lets a request wait for jobs of its effects, or for the end of a claim if its worker has
    /// reached its capacity.
    pub(super) fn wait(&mut self, request: &ClaimRequest, waiter: u64, wake: &Arc<Notify>) {
        if self.held.free(request) == 0 {
            // It may have been notified of a job, which another request can claim.
            self.leave(request, waiter);
            return self
                .held
                .wait(&request.tenant, &request.worker, waiter, wake);
        }
        self.queues.wait(request, waiter, wake);
    }

    /// Ends the wait of a request. The next one is notified, because this one may have been
    /// instead.
    pub(super) fn leave(&mut self, request: &ClaimRequest, waiter: u64) {
        self.held.leave(&request.tenant, &request.worker, waiter);
        let has_claims = !self.expiries.is_empty();
        self.queues.leave(request, waiter, has_claims);
    }

    /// Returns the time at which the next claim expires.
    pub(super) fn next_expiry(&self) -> Option<SteadyTime> {
        self.expiries.first().map(|(until, _)| *until)
    }

    /// Returns true if a report about the job belongs to this board.
    pub(super) fn has(&self, tenant: &TenantId, job: Uuid, claim: Uuid) -> bool {
        let is_here = self
            .jobs
            .get(&job)
            .is_some_and(|job| job.item.instance.tenant == *tenant);
        is_here || self.results.get(job, claim).is_some()
    }

    /// Extends a claim to `until`, if that is later. Returns the expiry.
    pub(super) fn extend(
        &mut self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        until: SteadyTime,
    ) -> Result<SteadyTime, ClaimLost> {
        let active = self
            .active(tenant, job, claim)?
            .claim
            .as_mut()
            .ok_or(ClaimLost)?;
        let before = active.until;
        // A heartbeat never shortens a claim, for example after a reload with a shorter
        // `claim_ttl`.
        let until = before.max(until);
        active.until = until;

        // The claim had expired, and the job waits again. The worker is still alive, so it keeps
        // the job.
        if !self.expiries.remove(&(before, job)) {
            if let Some(claim) = self.jobs.get(&job).and_then(|job| job.claim.as_ref()) {
                self.held.add(tenant, &claim.worker);
            }
            self.unqueue(job);
        }

        self.expiries.insert((until, job));
        self.changed_claims.insert(job);
        Ok(until)
    }

    /// Returns the job that the worker has claimed.
    pub(super) fn active(
        &mut self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
    ) -> Result<&mut BoardJob, ClaimLost> {
        let held = self
            .jobs
            .get(&job)
            .filter(|found| found.is_claimed(tenant, claim))
            .ok_or(ClaimLost)?;

        if held.is_withdrawn {
            self.end_withdrawn(job);
            return Err(ClaimLost);
        }

        self.jobs
            .get_mut(&job)
            // The posting task has ended, but its guard has not removed the job yet.
            .filter(|job| !job.reply.is_closed())
            .ok_or(ClaimLost)
    }

    /// Completes a job with the result of a worker.
    pub(super) fn complete(
        &mut self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        mut result: RemoteResult,
    ) -> Result<(ResultAck, ReceiptWatch), ClaimLost> {
        // First, because the job of a repeated result has already left the board.
        if let Some(receipt) = self.results.get(job, claim) {
            return Ok((ResultAck::Duplicate, receipt));
        }

        // A job without a claim also accepts the result of a claim before a crash, a claimed one
        // only that of its own claim.
        let found = self
            .jobs
            .get(&job)
            .filter(|found| found.item.instance.tenant == *tenant);
        if found
            .ok_or(ClaimLost)?
            .claim
            .as_ref()
            .is_some_and(|active| active.id != claim)
        {
            return Err(ClaimLost);
        }

        let (receipt, watch) = ResultReceipt::of_claim(claim);
        // The receipt travels to the commit. The worker receives its response when the commit is
        // durable.
        result.receipt = Some(receipt);
        let removed = self.remove(job).ok_or(ClaimLost)?;

        // The worker knows the outcome of its claim, not of the earlier ones.
        result.in_doubt |= removed.options.in_doubt;

        // The posting task may be cancelled; the result is then lost, as after a lost connection.
        removed.reply.send(result).map_err(|_| ClaimLost)?;
        self.results.add(job, claim, watch.clone());
        Ok((ResultAck::Accepted, watch))
    }

    /// Returns the jobs of a tenant after a position, oldest first.
    pub(super) fn of_tenant(
        &self,
        tenant: &TenantId,
        after: u64,
    ) -> impl Iterator<Item = &BoardJob> {
        let positions = self.by_position.get(tenant).into_iter();
        positions
            .flat_map(move |jobs| jobs.range((Bound::Excluded(after), Bound::Unbounded)))
            .filter_map(|(_, id)| self.jobs.get(id))
    }

    fn insert(&mut self, job: BoardJob) {
        let tenant = &job.item.instance.tenant;
        self.by_position
            .entry(tenant.clone())
            .or_default()
            .insert(job.position, job.item.id);
        self.jobs.insert(job.item.id, job);
    }

    /// Removes all jobs; their attempts end, and so do those of later jobs.
    pub(super) fn close(&mut self) {
        self.is_closed = true;

        // One by one: the end of a claim wakes the requests of a worker at its capacity.
        while let Some(&(until, id)) = self.expiries.first() {
            self.end_claim(until, id);
        }

        self.queues.remove_jobs();
        self.by_position.clear();
        std::mem::take(&mut self.jobs)
            .into_values()
            .for_each(BoardJob::end);
    }

    /// Returns jobs with an expired claim to their queues, or in doubt if they must not be retried.
    fn expire(&mut self, now: SteadyTime) {
        // Claims expire when a request looks for jobs: without one, no worker could take the job
        // anyway.
        while let Some(&(until, id)) = self.expiries.first().filter(|(until, _)| *until <= now) {
            self.end_claim(until, id);
            let Some(job) = self.jobs.get_mut(&id) else {
                continue;
            };
            if job.is_withdrawn {
                self.end_withdrawn(id);
            } else if job.may_be_repeated() {
                // The worker may have executed it.
                job.options.in_doubt = true;
                self.enqueue(id);
            } else if let Some(job) = self.remove(id) {
                let worker = job.claim.map(|active| active.worker).unwrap_or_default();
                let message = format!("worker {worker} claimed it and sent nothing since");
                // An error means that the posting task was cancelled; the job is then dispatched
                // again.
                drop(
                    job.reply
                        .send(Err(ProviderError::response_lost("claim_expired", message)).into()),
                );
            }
        }
    }

    /// Returns the number of a new job, or of a claim request that waits.
    pub(super) fn next_number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Adds a job to its queue, and notifies the first request that waits for it.
    fn enqueue(&mut self, id: Uuid) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };

        self.arrivals.send_modify(|number| *number += 1);
        let queue = self.queues.queue(job.queue());

        if job.selector.is_some() {
            queue.selective.insert(job.place(), id);
            return queue.notify_all();
        }

        queue.jobs.insert(job.place(), id);
        queue.notify();
    }

    fn unqueue(&mut self, id: Uuid) {
        let Some(job) = self.jobs.get(&id) else {
            return;
        };
        self.queues.remove(&job.queue(), &job.place());
    }

    fn remove(&mut self, id: Uuid) -> Option<BoardJob> {
        let until = self.jobs.get(&id)?.claim.as_ref().map(|claim| claim.until);
        if !until.is_some_and(|until| self.end_claim(until, id)) {
            self.unqueue(id);
        }

        let removed = self.jobs.remove(&id)?;
        self.changed_claims.remove(&id);
        let tenant = &removed.item.instance.tenant;
        if let Some(jobs) = self.by_position.get_mut(tenant) {
            jobs.remove(&removed.position);
            if jobs.is_empty() {
                self.by_position.remove(tenant);
            }
        }

        // After the end of its shard the job is posted again, and the claim is still valid.
        if removed.is_claim_stored && removed.start.is_allowed() {
            self.ended_claims.push(JobClaimUpdate {
                instance: removed.item.instance.clone(),
                job: id,
                claim: None,
            });
        }
        Some(removed)
    }

    /// Ends a claim that has not expired before; returns false if there is none.
    fn end_claim(&mut self, until: SteadyTime, id: Uuid) -> bool {
        let is_valid = self.expiries.remove(&(until, id));
        let job = self.jobs.get(&id).filter(|_| is_valid);
        if let Some((job, claim)) = job.and_then(|job| Some((job, job.claim.as_ref()?))) {
            self.held.release(&job.item.instance.tenant, &claim.worker);
        }
        is_valid
    }
}
