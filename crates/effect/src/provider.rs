//! The contract of everything that acts on the world.
//!
//! A provider makes one attempt at one work item. It may be asked again with the same [`WorkItem::id`], after a crash also
//! for an item it has already done: the id is the idempotency key and must reach the upstream where it can use one.
//! Retrying, deadlines, breaking and limiting are not the provider's business.

use orlog_model::TraceParent;
use std::cell::RefCell;
use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EventType, Fact, Failure, Timestamp, Verdict, WorkItem};
use serde_json::Value;

/// Something that acts on the world.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Makes one attempt. Dropping the future cancels it, and that is how the caller ends an attempt that takes too long.
    ///
    /// # Errors
    /// [`Refusal::Final`] when trying again is pointless, [`Refusal::Transient`] when it may help.
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal>;

    /// The configuration was read anew: what was fetched of the upstream itself may be old, though nothing changed here.
    fn refresh(&self) {}

    /// Asks the upstream what became of an earlier attempt whose answer was lost.
    async fn probe(&self, _item: &WorkItem) -> Probe {
        Probe::Unknown
    }

    /// Hears that nobody will try the item any more, and how that is to be told. Where the end is decided elsewhere, what was
    /// decided there comes back and counts.
    async fn give_up(&self, _item: &WorkItem, _verdict: &Verdict) -> Probe {
        Probe::Unknown
    }
}

/// Which attempt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first since the process started; an upstream that is replaced by a reload does not begin anew.
    pub number: u32,
    /// The time allowed for this attempt; the caller sees to it.
    pub timeout: Duration,
    /// When it began.
    pub at: Timestamp,
}

/// It was done.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Reply {
    /// The success event, where the provider names one.
    pub event: Option<EventType>,
    /// What the upstream answered.
    pub payload: Value,
    /// What there is to tell everybody besides.
    pub facts: Vec<Fact>,
}

impl Reply {
    /// Done, and the success event is this one.
    #[must_use]
    pub fn event(event: EventType, payload: Value) -> Self {
        Self { event: Some(event), payload, facts: Vec::new() }
    }

    /// Besides, this is to be told to everybody. The facts of the attempt that counts go out, exactly once and whatever
    /// becomes of the saga, when its outcome is stored.
    #[must_use]
    pub fn telling(mut self, facts: impl IntoIterator<Item = Fact>) -> Self {
        self.facts.extend(facts);
        self
    }
}

impl From<Value> for Reply {
    fn from(payload: Value) -> Self {
        Self { event: None, payload, facts: Vec::new() }
    }
}

/// It was not done, or nobody knows.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Trying again is pointless.
    Final {
        /// Why.
        failure: Failure,
        /// The failure event, where the provider names one.
        event: Option<EventType>,
        /// What the upstream answered.
        payload: Value,
        /// What there is to tell everybody besides.
        facts: Box<[Fact]>,
    },
    /// Whoever was asked tried, and has given up: nobody knows whether it was done, and trying again is pointless.
    GaveUp {
        /// Why.
        failure: Failure,
    },
    /// Trying again may help.
    Transient {
        /// Why.
        failure: Failure,
        /// What it says about the upstream.
        trouble: Trouble,
        /// The upstream asked to wait this long.
        retry_after: Option<Duration>,
    },
}

/// What a transient refusal says about the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It works and asks for patience: not done, and no fault that a breaker counts.
    Busy,
    /// It cannot be reached or says that it is ill: not done.
    Down,
    /// The answer was lost: done or not, nobody knows. Probed before the next attempt.
    Lost,
}

impl Refusal {
    /// It cannot be done.
    pub fn failed(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Final {
            failure: failure(code, message),
            event: None,
            payload: Value::Null,
            facts: Box::default(),
        }
    }

    /// It was decided against, and this event says so.
    pub fn declined(event: EventType, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Final {
            failure: failure(code, message),
            event: Some(event),
            payload: Value::Null,
            facts: Box::default(),
        }
    }

    /// It was not done; another attempt may help.
    pub fn retry(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(Trouble::Down, code, message)
    }

    /// It was not done because the upstream has too much to do.
    pub fn busy(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(Trouble::Busy, code, message)
    }

    /// Nobody knows whether it was done.
    pub fn lost(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::transient(Trouble::Lost, code, message)
    }

    /// What the upstream answered along with a final refusal; a transient one has no place for it.
    #[must_use]
    pub fn with_payload(mut self, answer: Value) -> Self {
        match &mut self {
            Self::Final { payload, .. } => *payload = answer,
            Self::GaveUp { .. } | Self::Transient { .. } => {}
        }
        self
    }

    /// As [`Reply::telling`]; after a transient refusal there is nothing to tell.
    #[must_use]
    pub fn telling(mut self, told: impl IntoIterator<Item = Fact>) -> Self {
        match &mut self {
            Self::Final { facts, .. } => *facts = std::mem::take(facts).into_iter().chain(told).collect(),
            Self::GaveUp { .. } | Self::Transient { .. } => {}
        }
        self
    }

    /// The least time to wait before the next attempt; a final refusal has no next.
    #[must_use]
    pub fn after(mut self, pause: Duration) -> Self {
        match &mut self {
            Self::Final { .. } | Self::GaveUp { .. } => {}
            Self::Transient { retry_after, .. } => *retry_after = Some(pause),
        }
        self
    }

    fn transient(trouble: Trouble, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Transient { failure: failure(code, message), trouble, retry_after: None }
    }
}

fn failure(code: impl Into<String>, message: impl Into<String>) -> Failure {
    Failure { code: code.into(), message: message.into() }
}

/// What became of an earlier attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Probe {
    /// It was done.
    Done(Reply),
    /// It was refused, or given up, for good.
    Over(Refusal),
    /// It was not done.
    NotDone,
    /// Nobody knows.
    Unknown,
}

tokio::task_local! {
    static ANSWERED: RefCell<Option<TraceParent>>;
}

/// Notes where it was done. Outside of an attempt nobody asks.
pub fn note(trace: Option<TraceParent>) {
    // An error means that no attempt is under way in this task.
    ANSWERED.try_with(|place| *place.borrow_mut() = trace).ok();
}

/// Performs, and hears what the provider noted meanwhile.
pub(crate) async fn listen<T>(performing: impl Future<Output = T>) -> (T, Option<TraceParent>) {
    let heard = async move {
        let answer = performing.await;
        (answer, ANSWERED.with(RefCell::take))
    };
    ANSWERED.scope(RefCell::new(None), heard).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_a_provider_notes_is_heard_by_its_own_attempt_only() {
        let trace = TraceParent::new("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
        note(trace.clone());
        let (answer, heard) = listen(async {
            note(trace.clone());
            7
        })
        .await;
        assert_eq!((answer, heard), (7, trace));
        assert_eq!(listen(async {}).await.1, None);
    }
}
