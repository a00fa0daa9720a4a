//! The performer: sees one upstream's work items through, attempt by attempt, to a verdict.
//!
//! For each item: admission (retry budget, rates, a place, the breaker's leave), an attempt with a time limit, and then the
//! verdict or a pause and the next one. While the breaker is open items wait; they do not fail. No attempt begins after the
//! deadline. Dropping the future gives up every place it holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use orlog_model::{Clock, Failure, IN_DOUBT, InDoubt, Timestamp, Verdict, WorkItem};
use tokio::sync::watch;

use crate::backoff::{Exhausted, Next, Tried};
use crate::execution::{
    Course, Done, End, Progress, Step, after_attempts, code, done, ending, health, known, over,
};
use crate::limits::admission::{Admission, Admitted, Asker};
use crate::limits::breaker::State;
use crate::observer::{Attempted, Ending, Observer, Silent};
use crate::provider;
use crate::provider::{Attempt, Probe, Refusal, Reply, Trouble};
use crate::upstream::Upstream;

/// One for each upstream, shared by all who have work for it.
pub struct Performer {
    upstream: Upstream,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
    admission: Admission,
    retired: watch::Sender<bool>,
    serial: u64,
}

/// How an upstream does at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Its name.
    pub upstream: String,
    /// Where its breaker stands; `None` without one.
    pub breaker: Option<State>,
    /// How often its breaker has opened since the process started.
    pub opened: u64,
    /// Items that hold a place: attempts under way and items that wait for the breaker.
    pub in_flight: usize,
    /// Retries that its budget allows at once; `None`: any number.
    pub retries_left: Option<u64>,
    /// For whom it works; `None`: for all tenants.
    pub tenants: Option<Vec<String>>,
}

static SERIAL: AtomicU64 = AtomicU64::new(0);

impl Performer {
    /// With nobody listening.
    #[must_use]
    pub fn new(upstream: Upstream, clock: Arc<dyn Clock>) -> Arc<Self> {
        Self::observed(upstream, clock, Arc::new(Silent))
    }

    /// Tells `observer` of every attempt and every change of the breaker.
    #[must_use]
    pub fn observed(upstream: Upstream, clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Arc<Self> {
        let admission = Admission::new(&upstream.name, &upstream.policy, &clock, Arc::clone(&observer));
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let retired = watch::Sender::new(false);
        Arc::new(Self { upstream, clock, observer, admission, retired, serial })
    }

    /// Tells performers of one upstream apart: after a reload there may be an old one and a new one.
    #[must_use]
    pub fn serial(&self) -> u64 {
        self.serial
    }

    /// Another one takes its place: attempts under way go on to their end, everything else is handed over.
    pub fn retire(&self) {
        self.retired.send_replace(true);
    }

    /// Whether another one has taken its place.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        *self.retired.borrow()
    }

    /// What it performs for.
    #[must_use]
    pub fn upstream(&self) -> &Upstream {
        &self.upstream
    }

    /// How the upstream does at the moment.
    #[must_use]
    pub fn condition(&self) -> Condition {
        let state = self.admission.breaker();
        let tenants = self.upstream.tenants.as_ref();
        Condition {
            upstream: self.upstream.name.clone(),
            breaker: state.map(|(state, _)| state),
            opened: state.map_or(0, |(_, opened)| opened),
            in_flight: self.admission.in_flight(),
            retries_left: self.admission.retries_left(),
            tenants: tenants.map(|tenants| tenants.iter().map(ToString::to_string).collect()),
        }
    }

    /// Sees an item through, also when another performer takes this one's place meanwhile. Returns when there is a verdict;
    /// dropping the future cancels.
    pub async fn perform(&self, item: &WorkItem) -> Done {
        self.insist(item.clone(), Progress::default()).await
    }

    /// Sees an item through of which an earlier attempt may have been under way when the process died: the provider is
    /// asked first what became of it.
    pub async fn resume(&self, item: &WorkItem) -> Done {
        self.insist(item.clone(), Progress { attempts: 0, in_doubt: true }).await
    }

    /// Goes on where another performer stopped. When this one is retired meanwhile, the item comes back with how far it
    /// has come, as soon as no attempt is under way. The item is changed for the time of an attempt: its trace is the span of that.
    ///
    /// # Errors
    /// Its progress, when another performer has to go on.
    pub async fn go_on(&self, item: &mut WorkItem, progress: Progress) -> Result<Done, Progress> {
        self.run(item, progress, true).await
    }

    async fn insist(&self, mut item: WorkItem, progress: Progress) -> Done {
        self.run(&mut item, progress, false).await.expect("it comes back only where retirement is heeded")
    }

    async fn run(&self, item: &mut WorkItem, progress: Progress, heed: bool) -> Result<Done, Progress> {
        let mut course = Course {
            limits: self.upstream.policy.limits(item),
            attempts: progress.attempts,
            pause: None,
            in_doubt: progress.in_doubt,
            last: None,
            trace: item.trace.clone(),
        };
        loop {
            if heed && self.is_retired() {
                return Err(course.progress());
            }
            let admission = self.admission(item, &course);
            let Some(admitted) = self.unless_retired(heed, admission).await else { continue };
            match self.step(item, &mut course, admitted).await {
                Step::End(End { verdict, facts }) => {
                    return Ok(Done { verdict, attempts: course.attempts, facts, trace: course.trace });
                }
                Step::Again(pause) => {
                    course.pause = Some(pause);
                    let over = self.clock.sleep_until(self.clock.now().after(pause));
                    self.unless_retired(heed, over).await;
                }
            }
        }
    }

    /// Does it; `None` when the performer is retired first. What is ready at once never asks.
    async fn unless_retired<T>(&self, heed: bool, work: impl Future<Output = T>) -> Option<T> {
        let retirement = async {
            // An error cannot be: the sender lives as long as `self`.
            drop(self.retired.subscribe().wait_for(|retired| heed && *retired).await);
        };
        tokio::select! {
            biased;
            out = work => Some(out),
            () = retirement => None,
        }
    }

    /// One attempt, once there is leave for it or the deadline has passed.
    async fn step(&self, item: &mut WorkItem, course: &mut Course, admitted: Option<Admitted<'_>>) -> Step {
        let Some(admitted) = admitted else {
            return Step::End(self.give_up(item, course, Exhausted::Time).await);
        };
        if let Some(end) = self.resolve_doubt(item, course).await {
            return Step::End(end);
        }
        course.attempts += 1;
        let answer = self.attempt(item, course).await;
        admitted.report(health(&answer));
        self.judge(item, course, answer).await
    }

    /// The leave for an attempt; `None` when the deadline passes first.
    async fn admission(&self, item: &WorkItem, course: &Course) -> Option<Admitted<'_>> {
        let deadline = course.limits.deadline;
        if deadline.is_some_and(|deadline| self.clock.now() >= deadline) {
            return None;
        }
        let asker = Asker { tenant: &item.instance.tenant, retries: course.attempts > 0 };
        self.before(deadline, self.admission.admit(asker)).await
    }

    async fn attempt(&self, item: &mut WorkItem, course: &mut Course) -> Result<Reply, Refusal> {
        let (timeout, until) = self.time_for_one(course.limits.deadline);
        let begun = Instant::now();
        let attempt = Attempt { number: course.attempts, timeout, at: self.clock.now() };
        let parent = self.observer.attempting(item).and_then(|span| item.trace.replace(span));
        let performing = provider::listen(self.upstream.provider.perform(item, attempt));
        let (answer, answered) = self.before(until, performing).await.unzip();
        let answered = answered.flatten();
        self.observer.attempted(&Attempted {
            upstream: &self.upstream.name,
            item,
            parent: parent.as_ref(),
            answered: answered.as_ref(),
            number: course.attempts,
            ending: answer.as_ref().map_or(Ending::TimedOut, ending),
            code: answer.as_ref().map_or(Some("timeout"), code),
            took: begun.elapsed(),
        });
        course.was_at(item.trace.as_ref(), answered);
        if parent.is_some() {
            item.trace = parent;
        }
        answer.unwrap_or_else(|| {
            Err(Refusal::lost("timeout", format!("{} did not answer within {timeout:?}", self.upstream.name)))
        })
    }

    /// The time one attempt may take and when it is over; `None`: never.
    fn time_for_one(&self, deadline: Option<Timestamp>) -> (Duration, Option<Timestamp>) {
        let allowed = self.upstream.policy.attempt_timeout;
        if deadline.is_none() && allowed == Duration::MAX {
            return (allowed, None);
        }
        let now = self.clock.now();
        let until = now.after(allowed).min(deadline.unwrap_or(Timestamp::MAX));
        (until.since(now), Some(until))
    }

    async fn judge(&self, item: &WorkItem, course: &mut Course, answer: Result<Reply, Refusal>) -> Step {
        let (failure, trouble, retry_after) = match answer {
            Ok(reply) => return Step::End(done(item, reply)),
            Err(refusal) => match over(refusal) {
                Ok(end) => return Step::End(end),
                Err(transient) => transient,
            },
        };
        course.in_doubt |= trouble == Trouble::Lost;
        course.last = Some(failure);
        let tried = Tried { attempts: course.attempts, pause: course.pause, retry_after };
        match course.next(&self.upstream.policy.pauses(item), tried, item, self.clock.now()) {
            Next::Retry(pause) => Step::Again(pause),
            Next::GiveUp(why) => Step::End(self.give_up(item, course, why).await),
        }
    }

    /// The verdict when there will be no further attempt. What is in doubt is asked for a last time.
    async fn give_up(&self, item: &WorkItem, course: &mut Course, why: Exhausted) -> End {
        if let Some(end) = self.resolve_doubt(item, course).await {
            return end;
        }
        let failure =
            course.last.take().map_or_else(|| self.not_begun(), |last| after_attempts(last, course.attempts));
        let verdict = match why {
            Exhausted::Attempts if !course.in_doubt => {
                Verdict::Failed { event: None, failure, payload: serde_json::Value::Null }
            }
            Exhausted::Attempts | Exhausted::Time => Verdict::TimedOut { failure },
        };
        self.last_word(item, verdict).await
    }

    /// Asks what became of earlier attempts, where that is not known; `None`: it is not over.
    async fn resolve_doubt(&self, item: &WorkItem, course: &mut Course) -> Option<End> {
        if !course.in_doubt {
            return None;
        }
        match self.probe(item).await {
            Probe::NotDone => course.in_doubt = false,
            Probe::Unknown if self.leaves_in_doubt(item) => {
                let unknown = self.unknown(item, course);
                return Some(self.last_word(item, unknown).await);
            }
            Probe::Unknown => {}
            answer => return known(item, answer),
        }
        None
    }

    /// Tells the provider that this is the end, unless it knows of another one.
    async fn last_word(&self, item: &WorkItem, verdict: Verdict) -> End {
        let answer = self.upstream.provider.give_up(item, &verdict).await;
        known(item, answer).unwrap_or_else(|| verdict.into())
    }

    /// Nothing is tried again of which nobody knows whether it was done. Whether a person is asked then is the saga's affair.
    fn leaves_in_doubt(&self, item: &WorkItem) -> bool {
        match self.upstream.policy.in_doubt(item) {
            InDoubt::Retry => false,
            InDoubt::Fail | InDoubt::Ask => true,
        }
    }

    fn unknown(&self, item: &WorkItem, course: &mut Course) -> Verdict {
        let name = &self.upstream.name;
        let last = course.last.take().map_or_else(
            || "the process died while an attempt was under way".to_owned(),
            |last| format!("{}: {}", last.code, last.message),
        );
        let message = format!(
            "nobody knows whether {name} did it, under the key {}, and it is not tried again: {last}",
            item.id
        );
        Verdict::TimedOut { failure: Failure { code: IN_DOUBT.to_owned(), message } }
    }

    fn not_begun(&self) -> Failure {
        let name = &self.upstream.name;
        let reason = match self.admission.breaker() {
            Some((State::Open | State::HalfOpen, _)) => format!("the breaker of {name} is open"),
            Some((State::Closed, _)) | None => format!("{name} was never asked"),
        };
        Failure { code: "deadline_passed".to_owned(), message: format!("the deadline passed: {reason}") }
    }

    /// Asks the provider what became of earlier attempts, for as long as an attempt may take.
    async fn probe(&self, item: &WorkItem) -> Probe {
        let (_, until) = self.time_for_one(None);
        self.before(until, self.upstream.provider.probe(item)).await.unwrap_or(Probe::Unknown)
    }

    /// Does it unless `until` comes first. What is ready at once never arms a timer.
    async fn before<T>(&self, until: Option<Timestamp>, work: impl Future<Output = T>) -> Option<T> {
        let Some(until) = until else { return Some(work.await) };
        tokio::select! {
            biased;
            out = work => Some(out),
            () = async { self.clock.sleep_until(until).await } => None,
        }
    }
}
