//! How far an item has come, and what it came to.

use std::time::Duration;

use orlog_model::{Fact, Failure, Timestamp, TraceParent, Verdict, Work, WorkItem};

use crate::backoff::{self, Backoff, Limits, Next, Tried};
use crate::limits::breaker::Health;
use crate::observer::Ending;
use crate::provider::{Probe, Refusal, Reply, Trouble};

/// How far an item has come in the hands of another performer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Attempts made so far.
    pub attempts: u32,
    /// An attempt may have been done without our knowing.
    pub in_doubt: bool,
}

/// What an item came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Done {
    /// How it ended.
    pub verdict: Verdict,
    /// Attempts made by this call.
    pub attempts: u32,
    /// What there is to tell everybody besides.
    pub facts: Vec<Fact>,
    /// The span of the last attempt, where somebody follows it.
    pub trace: Option<TraceParent>,
}

impl Done {
    /// Over without an attempt.
    #[must_use]
    pub fn nothing(verdict: Verdict) -> Self {
        Self { verdict, attempts: 0, facts: Vec::new(), trace: None }
    }
}

/// How far an item has come.
pub(crate) struct Course {
    pub(crate) limits: Limits,
    pub(crate) attempts: u32,
    pub(crate) pause: Option<Duration>,
    /// An attempt may have been done without our knowing.
    pub(crate) in_doubt: bool,
    pub(crate) last: Option<Failure>,
    /// The span of the last attempt.
    pub(crate) trace: Option<TraceParent>,
}

impl Course {
    pub(crate) fn progress(&self) -> Progress {
        Progress { attempts: self.attempts, in_doubt: self.in_doubt }
    }

    /// Where the last attempt was made. What others say of it counts as long as they stay in the trace they were given.
    pub(crate) fn was_at(&mut self, own: Option<&TraceParent>, theirs: Option<TraceParent>) {
        let theirs = theirs.filter(|theirs| own.is_some_and(|own| own.trace_id() == theirs.trace_id()));
        self.trace = theirs.or_else(|| own.cloned());
    }

    /// Jitter comes from the item and the number of the attempt: items differ, and the same run gives the same pauses.
    pub(crate) fn next(&self, backoff: &Backoff, tried: Tried, item: &WorkItem, now: Timestamp) -> Next {
        let (high, low) = item.id.as_u64_pair();
        let seed = high.rotate_left(17) ^ low ^ u64::from(tried.attempts).rotate_right(16);
        backoff::next(backoff, tried, self.limits, now, &mut fastrand::Rng::with_seed(seed))
    }
}

/// What follows an attempt.
pub(crate) enum Step {
    End(End),
    Again(Duration),
}

/// How it ended, and what there is to tell besides.
pub(crate) struct End {
    pub(crate) verdict: Verdict,
    pub(crate) facts: Vec<Fact>,
}

impl From<Verdict> for End {
    fn from(verdict: Verdict) -> Self {
        Self { verdict, facts: Vec::new() }
    }
}

pub(crate) fn done(item: &WorkItem, reply: Reply) -> End {
    let Reply { event, payload, facts } = reply;
    match item.work {
        Work::Effect(_) => End { verdict: Verdict::Succeeded { event, payload }, facts },
        Work::Command(_) | Work::Fact(_) | Work::Start(_) | Work::Stop(_) | Work::End(_) => {
            Verdict::Accepted.into()
        }
    }
}

/// The end that a refusal means; a transient one means none, and comes back.
pub(crate) fn over(refusal: Refusal) -> Result<End, (Failure, Trouble, Option<Duration>)> {
    match refusal {
        Refusal::Final { failure, event, payload, facts } => {
            Ok(End { verdict: Verdict::Failed { event, failure, payload }, facts: facts.into_vec() })
        }
        Refusal::GaveUp { failure } => Ok(Verdict::TimedOut { failure }.into()),
        Refusal::Transient { failure, trouble, retry_after } => Err((failure, trouble, retry_after)),
    }
}

/// The end that an upstream knows of; `None` when it knows of none.
pub(crate) fn known(item: &WorkItem, probe: Probe) -> Option<End> {
    match probe {
        Probe::Done(reply) => Some(done(item, reply)),
        Probe::Over(refusal) => over(refusal).ok(),
        Probe::NotDone | Probe::Unknown => None,
    }
}

pub(crate) fn after_attempts(last: Failure, attempts: u32) -> Failure {
    let plural = if attempts == 1 { "" } else { "s" };
    Failure {
        code: last.code,
        message: format!("given up after {attempts} attempt{plural}: {}", last.message),
    }
}

pub(crate) fn ending(answer: &Result<Reply, Refusal>) -> Ending {
    match answer {
        Ok(_) => Ending::Done,
        Err(Refusal::Final { .. } | Refusal::GaveUp { .. }) => Ending::Refused,
        Err(Refusal::Transient { trouble: Trouble::Busy, .. }) => Ending::Busy,
        Err(Refusal::Transient { trouble: Trouble::Down, .. }) => Ending::Down,
        Err(Refusal::Transient { trouble: Trouble::Lost, .. }) => Ending::Lost,
    }
}

pub(crate) fn code(answer: &Result<Reply, Refusal>) -> Option<&str> {
    match answer {
        Ok(_) => None,
        Err(
            Refusal::Final { failure, .. } | Refusal::GaveUp { failure } | Refusal::Transient { failure, .. },
        ) => Some(&failure.code),
    }
}

pub(crate) fn health(answer: &Result<Reply, Refusal>) -> Health {
    match ending(answer) {
        Ending::Done | Ending::Refused | Ending::Busy => Health::Well,
        Ending::Down | Ending::Lost | Ending::TimedOut => Health::Ill,
    }
}
