//! The contract of everything that acts on the world.
//!
//! A provider makes one attempt at one work item. It may be asked again with the same [`WorkItem::id`], after a crash also
//! for an item it has already done: the id is the idempotency key and must reach the upstream where it can use one.
//! Retrying, deadlines, breaking and limiting are not the provider's business.

use std::time::Duration;

use async_trait::async_trait;
use orlog_model::{EventType, Failure, WorkItem};
use serde_json::Value;

/// Something that acts on the world.
#[async_trait]
pub trait Provider: Send + Sync + 'static {
    /// Makes one attempt. Dropping the future cancels it.
    ///
    /// # Errors
    /// [`Refusal::Final`] when trying again is pointless, [`Refusal::Transient`] when it may help.
    async fn perform(&self, item: &WorkItem, attempt: Attempt) -> Result<Reply, Refusal>;

    /// Asks the upstream what became of an earlier attempt whose answer was lost.
    async fn probe(&self, _item: &WorkItem) -> Probe {
        Probe::Unknown
    }
}

/// Which attempt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// 1 for the first since the process started.
    pub number: u32,
    /// The time allowed for this attempt; the caller enforces it too.
    pub timeout: Duration,
}

/// It was done.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Reply {
    /// The success event, where the provider names one.
    pub event: Option<EventType>,
    /// What the upstream answered.
    pub payload: Value,
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
    },
    /// Trying again may help.
    Transient {
        /// Why.
        failure: Failure,
        /// The upstream asked to wait this long.
        retry_after: Option<Duration>,
    },
}

/// What became of an earlier attempt.
#[derive(Clone, Debug, PartialEq)]
pub enum Probe {
    /// It was done.
    Done(Reply),
    /// It was not done.
    NotDone,
    /// Nobody knows.
    Unknown,
}
