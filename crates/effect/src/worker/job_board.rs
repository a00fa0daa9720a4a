//! The board on which jobs for workers hang: who has claimed which, until when, and how far it is.
//!
//! | a job is | claim | heartbeat, lines | result |
//! |---|---|---|---|
//! | waiting | claimed | lost | taken: whoever did it did it, its claim may be from before a crash |
//! | claimed by the caller | – | extended | taken |
//! | claimed by another | – | lost | lost |
//! | claimed, and the claim has expired | claimed anew, or in doubt | extended, if nobody else has it | taken |
//! | done or gone | – | lost | a duplicate where it is the same claim's, else lost |
//!
//! A job whose definition does not want it tried again (`in_doubt: fail` or `ask`) is not given to a second worker: when its
//! claim has expired and somebody asks for work, it comes back in doubt.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use orlog_model::{Clock, EffectName, InDoubt, TenantId, Timestamp, TraceParent, Work, WorkItem};
use tokio::sync::{Notify, oneshot};
use uuid::Uuid;

use crate::job_logs::{Line, Lines};
use crate::provider;
use crate::provider::{Refusal, Reply};

/// Results that are remembered, so that a second one is told to be a duplicate.
const REMEMBERED: usize = 10_000;

/// How long claims last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// From the claim on.
    pub claim: Duration,
    /// From a heartbeat on.
    pub heartbeat: Duration,
    /// Jobs that one claim takes at most where the worker does not say.
    pub batch: usize,
}

impl Default for Terms {
    fn default() -> Self {
        Self { claim: Duration::from_mins(5), heartbeat: Duration::from_mins(2), batch: 1 }
    }
}

/// What a worker asks for.
#[derive(Clone, Debug)]
pub struct Ask {
    /// For whom it works.
    pub tenant: TenantId,
    /// What it can do.
    pub effects: Vec<EffectName>,
    /// Its name, for people.
    pub worker: String,
}

/// A job in a worker's hands.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    /// The work item; its id names the job and is the idempotency key.
    pub item: WorkItem,
    /// Names this claim.
    pub claim: Uuid,
    /// Which claim of the job it is, from 1.
    pub number: u32,
    /// When the claim expires.
    pub until: Timestamp,
}

/// A job as people see it.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The work item.
    pub item: WorkItem,
    /// Who has it and until when; `None`: it waits.
    pub held: Option<(String, Timestamp)>,
    /// How often it was claimed.
    pub claims: u32,
    /// What its workers wrote.
    pub lines: Vec<Line>,
}

/// What a worker brings.
#[derive(Clone, Debug)]
pub struct Answer {
    /// What it came to.
    pub result: Result<Reply, Refusal>,
    /// The span in which the worker did it, where it says so.
    pub trace: Option<TraceParent>,
}

impl From<Result<Reply, Refusal>> for Answer {
    fn from(result: Result<Reply, Refusal>) -> Self {
        Self { result, trace: None }
    }
}

/// What became of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// It counts.
    Taken,
    /// The same claim has brought one before.
    Duplicate,
}

/// The job is not this worker's any more: it is done, given up, or another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the claim is lost: the job is done, was given up, or another worker has it")]
pub struct Lost;

/// See the table above.
#[derive(Default)]
pub struct Board {
    state: Mutex<State>,
    changed: Notify,
    lines: Arc<Lines>,
}

#[derive(Default)]
struct State {
    /// In the order in which they were posted.
    order: BTreeMap<u64, Uuid>,
    jobs: BTreeMap<Uuid, Job>,
    next: u64,
    done: VecDeque<(Uuid, Uuid)>,
}

struct Job {
    place: u64,
    item: WorkItem,
    claim: Option<Claim>,
    claims: u32,
    answer: oneshot::Sender<Answer>,
}

struct Claim {
    id: Uuid,
    worker: String,
    until: Timestamp,
}

impl Board {
    /// Hangs a job up and waits for its result. Dropping the future takes it down.
    pub(crate) async fn post(&self, item: &WorkItem) -> Result<Reply, Refusal> {
        let (answer, result) = oneshot::channel();
        let posted = {
            let mut state = self.lock();
            let place = state.next;
            state.next += 1;
            state.order.insert(place, item.id);
            let (id, item) = (item.id, item.clone());
            let earlier = state.jobs.insert(id, Job { place, item, claim: None, claims: 0, answer });
            if let Some(earlier) = earlier {
                state.order.remove(&earlier.place);
            }
            Posted { board: self, id, place }
        };
        self.changed.notify_waiters();
        let result = result.await;
        drop(posted);
        let Ok(Answer { result, trace }) = result else {
            return Err(Refusal::retry("board_closed", "its upstream was taken away"));
        };
        provider::note(trace);
        result
    }

    /// Claims up to `most` jobs, the oldest first, as soon as there is one; none when `patience` is over.
    pub async fn claim(
        &self,
        clock: &dyn Clock,
        ask: &Ask,
        most: usize,
        terms: Terms,
        until: Timestamp,
    ) -> Vec<Claimed> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            let now = clock.now();
            let (claimed, expiry) = self.lock().claim(ask, most, terms, now);
            if !claimed.is_empty() || now >= until {
                return claimed;
            }
            tokio::select! {
                () = changed => {}
                () = clock.sleep_until(expiry.map_or(until, |expiry| expiry.min(until))) => {}
            }
        }
    }

    /// The worker lives: its claim lasts longer. Returns until when.
    ///
    /// # Errors
    /// When the claim is lost; then the worker should stop.
    pub fn heartbeat(
        &self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        until: Timestamp,
    ) -> Result<Timestamp, Lost> {
        let mut state = self.lock();
        let held = state.held(tenant, job, claim)?;
        let claim = held.claim.as_mut().expect("it is held");
        claim.until = claim.until.max(until);
        Ok(claim.until)
    }

    /// The worker tells how far it is.
    ///
    /// # Errors
    /// When the claim is lost.
    pub fn write(
        &self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        lines: &[String],
        at: Timestamp,
    ) -> Result<(), Lost> {
        let mut state = self.lock();
        self.lines.write(&state.held(tenant, job, claim)?.item, at, lines);
        Ok(())
    }

    /// The worker brings the result.
    ///
    /// # Errors
    /// When the claim is lost.
    pub fn bring(
        &self,
        tenant: &TenantId,
        job: Uuid,
        claim: Uuid,
        answer: impl Into<Answer>,
    ) -> Result<Brought, Lost> {
        let job = {
            let mut state = self.lock();
            if state.done.contains(&(job, claim)) {
                return Ok(Brought::Duplicate);
            }
            let found =
                state.jobs.get(&job).filter(|found| found.item.instance.tenant == *tenant).ok_or(Lost)?;
            if found.claim.as_ref().is_some_and(|held| held.id != claim) {
                return Err(Lost);
            }
            let taken = state.jobs.remove(&job).ok_or(Lost)?;
            state.order.remove(&taken.place);
            if state.done.len() == REMEMBERED {
                state.done.pop_front();
            }
            state.done.push_back((job, claim));
            taken
        };
        // Whoever posted it may have gone away this moment; then the result is lost as an answer on a broken line is.
        job.answer.send(answer.into()).map_err(|_| Lost)?;
        Ok(Brought::Taken)
    }

    /// The jobs of a tenant, the oldest first.
    #[must_use]
    pub fn look(&self, tenant: &TenantId, now: Timestamp) -> Vec<Seen> {
        let state = self.lock();
        let jobs = state.order.values().filter_map(|id| state.jobs.get(id));
        let jobs = jobs.filter(|job| job.item.instance.tenant == *tenant);
        jobs.map(|job| Seen {
            item: job.item.clone(),
            held: job.claim.as_ref().filter(|c| c.until > now).map(|c| (c.worker.clone(), c.until)),
            claims: job.claims,
            lines: self.lines.of(tenant, job.item.id).unwrap_or_default(),
        })
        .collect()
    }

    /// What workers write.
    #[must_use]
    pub fn lines(&self) -> Arc<Lines> {
        Arc::clone(&self.lines)
    }

    /// Takes every job down; whoever posted them goes on elsewhere.
    pub(crate) fn close(&self) {
        let jobs = std::mem::take(&mut self.lock().jobs);
        drop(jobs);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Whole between any two statements that can panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The jobs that are free, and when the first of those that are not becomes free.
    fn claim(
        &mut self,
        ask: &Ask,
        most: usize,
        terms: Terms,
        now: Timestamp,
    ) -> (Vec<Claimed>, Option<Timestamp>) {
        self.give_back(now);
        let (mut claimed, mut expiry) = (Vec::new(), None::<Timestamp>);
        for id in self.order.values() {
            if claimed.len() == most {
                break;
            }
            let Some(job) = self.jobs.get_mut(id).filter(|job| job.suits(ask)) else { continue };
            match &job.claim {
                Some(held) if held.until > now => {
                    expiry = Some(expiry.map_or(held.until, |first| first.min(held.until)));
                }
                Some(_) | None => claimed.push(job.give(ask, now.after(terms.claim))),
            }
        }
        (claimed, expiry)
    }

    /// Jobs that were in the hands of somebody who has gone silent, and that nobody may do a second time.
    fn give_back(&mut self, now: Timestamp) {
        let silent = |job: &Job| job.claim.as_ref().is_some_and(|held| held.until <= now);
        let left: Vec<_> = self
            .jobs
            .extract_if(.., |_, job| silent(job) && !job.may_be_repeated())
            .map(|(_, job)| job)
            .collect();
        for job in left {
            self.order.remove(&job.place);
            let worker = job.claim.map(|held| held.worker).unwrap_or_default();
            let message = format!("the worker {worker} took it and has not been heard of since");
            // An error means that whoever posted it has gone away; then it is offered again.
            drop(job.answer.send(Err(Refusal::lost("claim_expired", message)).into()));
        }
    }

    fn held(&mut self, tenant: &TenantId, job: Uuid, claim: Uuid) -> Result<&mut Job, Lost> {
        let job = self.jobs.get_mut(&job).filter(|job| job.item.instance.tenant == *tenant);
        job.filter(|job| job.claim.as_ref().is_some_and(|held| held.id == claim)).ok_or(Lost)
    }
}

impl Job {
    fn suits(&self, ask: &Ask) -> bool {
        let Work::Effect(effect) = &self.item.work else { return false };
        self.item.instance.tenant == ask.tenant && ask.effects.contains(&effect.name)
    }

    fn may_be_repeated(&self) -> bool {
        let Work::Effect(effect) = &self.item.work else { return true };
        matches!(effect.in_doubt, None | Some(InDoubt::Retry))
    }

    fn give(&mut self, ask: &Ask, until: Timestamp) -> Claimed {
        let claim = Uuid::new_v4();
        self.claims += 1;
        self.claim = Some(Claim { id: claim, worker: ask.worker.clone(), until });
        Claimed { item: self.item.clone(), claim, number: self.claims, until }
    }
}

/// A job that hangs; dropping it takes it down, unless another has taken its place.
struct Posted<'a> {
    board: &'a Board,
    id: Uuid,
    place: u64,
}

impl Drop for Posted<'_> {
    fn drop(&mut self) {
        let mut state = self.board.lock();
        state.order.remove(&self.place);
        if state.jobs.get(&self.id).is_some_and(|job| job.place == self.place) {
            state.jobs.remove(&self.id);
        }
    }
}

#[cfg(test)]
mod tests {
    use orlog_testkit::SimClock;
    use orlog_testkit::provider_suite::{START, item};
    use serde_json::{Value, json};

    use super::*;
    use crate::job_logs::LINES;
    use crate::provider::Trouble;

    fn name() -> EffectName {
        EffectName::new("media.cut").unwrap()
    }

    fn acme() -> TenantId {
        TenantId::new("acme").unwrap()
    }

    fn ask(tenant: &str) -> Ask {
        Ask { tenant: TenantId::new(tenant).unwrap(), effects: vec![name()], worker: "w".to_owned() }
    }

    fn posted(board: &Arc<Board>, number: u128) -> tokio::task::JoinHandle<Result<Reply, Refusal>> {
        let (board, item) = (Arc::clone(board), item(&name(), number));
        tokio::spawn(async move { board.post(&item).await })
    }

    async fn claim(board: &Board, clock: &SimClock) -> Claimed {
        let far = clock.now().after(Duration::from_hours(1));
        let mut claimed = board.claim(clock, &ask("acme"), 1, Terms::default(), far).await;
        claimed.pop().expect("there is one")
    }

    fn now_or_none(board: &Board, clock: &SimClock, tenant: &str) -> usize {
        let now = clock.now();
        futures::executor::block_on(board.claim(clock, &ask(tenant), 9, Terms::default(), now)).len()
    }

    #[tokio::test]
    async fn a_result_goes_to_whoever_posted_the_job_and_a_second_one_is_a_duplicate() {
        let (board, clock) = (Arc::new(Board::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        assert_eq!((claimed.number, claimed.until), (1, START.after(Duration::from_mins(5))));
        assert_eq!(now_or_none(&board, &clock, "acme"), 0);
        let bring = || board.bring(&acme(), claimed.item.id, claimed.claim, Ok(Reply::from(json!(7))));
        assert_eq!((bring(), bring()), (Ok(Brought::Taken), Ok(Brought::Duplicate)));
        assert_eq!(job.await.unwrap().unwrap().payload, json!(7));
    }

    #[tokio::test]
    async fn the_claim_of_a_worker_that_died_expires_and_another_takes_the_job() {
        let (board, clock) = (Arc::new(Board::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let dead = claim(&board, &clock).await;
        let until = START.after(Duration::from_mins(7));
        assert_eq!(board.heartbeat(&acme(), dead.item.id, dead.claim, until), Ok(until));
        let (waiting, time) = (Arc::clone(&board), Arc::clone(&clock));
        let next = tokio::spawn(async move { claim(&waiting, &time).await });
        let due = clock.due_within(Duration::from_hours(1)).await;
        assert_eq!(due, until);
        clock.advance_to(due);
        let next = next.await.unwrap();
        assert_eq!((next.item.id, next.number), (dead.item.id, 2));
        let late = board.bring(&acme(), dead.item.id, dead.claim, Ok(Reply::from(json!("late"))));
        assert_eq!(late, Err(Lost));
        assert_eq!(board.heartbeat(&acme(), dead.item.id, dead.claim, until), Err(Lost));
        board.bring(&acme(), next.item.id, next.claim, Ok(Reply::from(json!("done")))).unwrap();
        assert_eq!(job.await.unwrap().unwrap().payload, json!("done"));
    }

    #[tokio::test]
    async fn a_job_that_nobody_may_do_twice_comes_back_in_doubt_when_its_worker_goes_silent() {
        let (board, clock) = (Arc::new(Board::default()), SimClock::new(START));
        let mut careful = item(&name(), 1);
        if let Work::Effect(effect) = &mut careful.work {
            effect.in_doubt = Some(InDoubt::Ask);
        }
        let there = Arc::clone(&board);
        let job = tokio::spawn(async move { there.post(&careful).await });
        let dead = claim(&board, &clock).await;
        clock.advance_to(dead.until);
        assert_eq!(now_or_none(&board, &clock, "acme"), 0);
        let refusal = job.await.unwrap().expect_err("it is in doubt");
        assert!(matches!(&refusal, Refusal::Transient { trouble: Trouble::Lost, .. }), "{refusal:?}");
        let late = board.bring(&acme(), dead.item.id, dead.claim, Ok(Reply::from(json!("late"))));
        assert_eq!(late, Err(Lost));
    }

    #[tokio::test]
    async fn a_result_from_before_a_restart_counts_if_nobody_else_is_at_it() {
        let (board, clock) = (Arc::new(Board::default()), SimClock::new(START));
        let job = posted(&board, 1);
        while board.look(&acme(), clock.now()).is_empty() {
            tokio::task::yield_now().await;
        }
        let brought = board.bring(&acme(), item(&name(), 1).id, Uuid::from_u128(9), Ok(Reply::default()));
        assert_eq!((brought, job.await.unwrap().is_ok()), (Ok(Brought::Taken), true));
    }

    #[tokio::test]
    async fn a_job_that_is_given_up_is_gone_and_its_worker_hears_of_it() {
        let (board, clock) = (Arc::new(Board::default()), SimClock::new(START));
        let job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        job.abort();
        assert!(job.await.is_err());
        assert_eq!(board.heartbeat(&acme(), claimed.item.id, claimed.claim, START), Err(Lost));
        assert_eq!(board.bring(&acme(), claimed.item.id, claimed.claim, Ok(Reply::default())), Err(Lost));
    }

    #[tokio::test]
    async fn a_tenant_sees_and_takes_its_own_jobs_only() {
        let (board, clock) = (Arc::new(Board::default()), SimClock::new(START));
        let _job = posted(&board, 1);
        while board.look(&acme(), clock.now()).is_empty() {
            tokio::task::yield_now().await;
        }
        assert_eq!(now_or_none(&board, &clock, "beta"), 0);
        let beta = TenantId::new("beta").unwrap();
        assert!(board.look(&beta, clock.now()).is_empty());
        let stolen = board.bring(&beta, item(&name(), 1).id, Uuid::nil(), Ok(Reply::from(Value::Null)));
        assert_eq!(stolen, Err(Lost));
        assert_eq!(now_or_none(&board, &clock, "acme"), 1);
    }

    #[tokio::test]
    async fn lines_are_kept_up_to_a_limit() {
        let (board, clock) = (Arc::new(Board::default()), SimClock::new(START));
        let _job = posted(&board, 1);
        let claimed = claim(&board, &clock).await;
        for n in 0..LINES + 3 {
            board.write(&acme(), claimed.item.id, claimed.claim, &[n.to_string()], START).unwrap();
        }
        let seen = board.look(&acme(), START).pop().unwrap();
        assert_eq!((seen.lines.len(), seen.lines[0].text.as_str(), seen.held.is_some()), (LINES, "3", true));
    }
}
