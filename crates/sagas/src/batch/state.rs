//! State of a batch and its transitions. At most one page is in flight, and the cursor moves with
//! its outcome.
//!
//! | input | counting | running | paused, or canary done | ended |
//! |---|---|---|---|---|
//! | outcome of a count | count on, then select | – | keep the position | – |
//! | outcome of a selection | – | instruct the instances | drop it; it is repeated | – |
//! | outcome of an instruction | – | move the cursor; select later | move the cursor | – |
//! | timer | – | select | not armed | not armed |
//! | pause | change | change | ignore, or keep paused | reject |
//! | resume | ignore | ignore | continue | reject |
//! | stop, cancel | end after the page in flight | the same | the same | ignore |
//!
//! A selection is instructed at once, so that its instances still match. A page that was in flight
//! during a crash is repeated: the ids of its control requests are equal, so no instance applies
//! the instruction twice.

use std::time::Duration;

use orlog_model::{CorrelationId, InstanceKey, Timestamp, Work};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::PAGES;
use super::page::{InstanceReason, PageOutcome, PageRequest, PageTask};
use super::spec::BatchSpec;

/// Version of the state.
pub(super) const FORMAT: u16 = 1;
/// Maximum number of instances of a page: a bound for the repetition after a crash, and for the
/// delay of a pause.
const MAX_PAGE: u32 = 100;
/// Maximum number of instances with their reasons, failed and skipped ones each.
const MAX_REASONS: usize = 20;

/// State of a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BatchState {
    /// Version of the state.
    pub(super) format: u16,
    /// Specification.
    pub spec: BatchSpec,
    /// Status.
    pub status: BatchStatus,
    /// Whether the number of matching instances is complete.
    pub is_counted: bool,
    /// Number of instances that matched when they were counted.
    pub matched: u64,
    /// Number of instances for which the filter failed when they were counted.
    pub filter_errors: u64,
    /// Reason of the first filter error.
    pub first_filter_error: Option<String>,
    /// Number of instances that applied the instruction.
    pub done: u64,
    /// Number of instances to which the instruction did not apply.
    pub skipped: u64,
    /// Number of instances that failed.
    pub failed: u64,
    /// First instances to which the instruction did not apply.
    pub skips: Vec<InstanceReason>,
    /// First instances that failed.
    pub failures: Vec<InstanceReason>,
    /// Instances of the canary.
    pub canary: Vec<CorrelationId>,
    /// Whether the canary was approved, or the batch has none.
    pub is_approved: bool,
    /// Reason of the status `failed`.
    pub error: Option<String>,
    /// Time before which no page of instructions starts.
    pub next_at: Option<Timestamp>,
    /// Position of the next page.
    pub(super) position: Position,
    /// Page in flight.
    pub(super) in_flight: Option<PageInFlight>,
    /// Number of requested pages.
    pub(super) pages: u64,
}

/// Status of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchStatus {
    /// Counts the instances, then instructs them.
    Running,
    /// A user paused it.
    Paused,
    /// The canary is done; a user approves the rest with a resume.
    AwaitingApproval,
    /// A user stopped it; a page is in flight.
    Stopping,
    /// A user stopped it.
    Stopped,
    /// Every instance received the instruction.
    Completed,
    /// A page failed.
    Failed,
}

impl BatchStatus {
    /// Returns whether the batch has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Stopped | Self::Completed | Self::Failed)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Paused => "paused",
            Self::AwaitingApproval => "awaiting_approval",
            Self::Stopping => "stopping",
            Self::Stopped => "stopped",
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Position in the instances: a shard of the specification, and a cursor within it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Position {
    shard: usize,
    cursor: Option<String>,
}

/// Page in flight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum PageInFlight {
    Count,
    Select,
    /// Has the position after these instances, and their number.
    Apply {
        next: Position,
        instances: u32,
        since: Timestamp,
    },
}

impl BatchState {
    pub(super) fn new(spec: BatchSpec) -> Self {
        Self {
            format: FORMAT,
            is_approved: spec.canary.is_none(),
            spec,
            status: BatchStatus::Running,
            is_counted: false,
            matched: 0,
            filter_errors: 0,
            first_filter_error: None,
            done: 0,
            skipped: 0,
            failed: 0,
            skips: Vec::new(),
            failures: Vec::new(),
            canary: Vec::new(),
            error: None,
            next_at: None,
            position: Position::default(),
            in_flight: None,
            pages: 0,
        }
    }

    /// Returns the number of instances that received the instruction.
    #[must_use]
    pub fn processed(&self) -> u64 {
        self.done + self.skipped + self.failed
    }

    /// Applies the outcome of the page in flight; returns the work that follows.
    pub(super) fn page_ended(
        &mut self,
        page: PageInFlight,
        outcome: PageOutcome,
        own: &InstanceKey,
        now: Timestamp,
    ) -> Vec<Work> {
        match page {
            PageInFlight::Count => {
                self.matched += outcome.matched;
                self.filter_errors += outcome.filter_errors;
                self.first_filter_error = self
                    .first_filter_error
                    .take()
                    .or(outcome.first_filter_error);
                self.position = self.after(outcome.cursor);
            }
            PageInFlight::Select
                if self.status == BatchStatus::Running && !outcome.instances.is_empty() =>
            {
                let next = self.after(outcome.cursor);
                return vec![self.request_instruction(outcome.instances, next, own, now)];
            }
            // A selection is instructed at once or dropped.
            PageInFlight::Select if !outcome.instances.is_empty() => {}
            PageInFlight::Select => self.position = self.after(outcome.cursor),
            // A page that a crash repeats has the same control requests, so its counts are exact
            // (ADR 0063).
            PageInFlight::Apply {
                next,
                instances,
                since,
            } => {
                self.position = next;

                // The rate counts from the start of the page, so its own time is a part of the
                // pause.
                let pause = Duration::from_millis(
                    u64::from(instances) * 1_000 / u64::from(self.spec.rate.max(1)),
                );
                self.next_at = Some(since.saturating_add(pause));
                self.record(outcome);
            }
        }

        self.advance(own, now).into_iter().collect()
    }

    /// Decides what is next; returns the page that is requested.
    pub(super) fn advance(&mut self, own: &InstanceKey, now: Timestamp) -> Option<Work> {
        if self.in_flight.is_some() {
            return None;
        }

        if self.status == BatchStatus::Stopping {
            self.status = BatchStatus::Stopped;
        }
        if self.status != BatchStatus::Running {
            return None;
        }

        let is_end = self.position.shard >= self.spec.shards.len().max(1);
        if is_end && self.is_counted {
            self.status = BatchStatus::Completed;
            return None;
        }
        if is_end {
            self.is_counted = true;
            self.position = Position::default();
        }

        let cursor = self.position.cursor.clone();
        if !self.is_counted {
            self.in_flight = Some(PageInFlight::Count);
            return Some(self.request(own, PageTask::Count { cursor }));
        }

        // The canary is done: a user decides about the rest.
        if !self.is_approved && self.processed() >= u64::from(self.spec.canary.unwrap_or_default())
        {
            self.status = BatchStatus::AwaitingApproval;
            return None;
        }

        if self.next_at.is_some_and(|next| next > now) {
            return None;
        }

        self.next_at = None;
        self.in_flight = Some(PageInFlight::Select);
        Some(self.request(
            own,
            PageTask::Select {
                cursor,
                limit: self.page_limit(),
            },
        ))
    }

    /// Returns the number of instances of the next page: those of one second, within the limit and
    /// the canary.
    fn page_limit(&self) -> u32 {
        let limit = self.spec.rate.clamp(1, MAX_PAGE);
        let canary = self.spec.canary.filter(|_| !self.is_approved);
        canary.map_or(limit, |canary| {
            let remaining = u64::from(canary).saturating_sub(self.processed());
            limit.min(u32::try_from(remaining).unwrap_or(u32::MAX))
        })
    }

    fn request_instruction(
        &mut self,
        instances: Vec<CorrelationId>,
        next: Position,
        own: &InstanceKey,
        now: Timestamp,
    ) -> Work {
        if !self.is_approved {
            self.canary.extend(instances.iter().cloned());
        }

        let count = u32::try_from(instances.len()).unwrap_or(u32::MAX);

        // The position moves only when the instances have received the instruction.
        self.in_flight = Some(PageInFlight::Apply {
            next,
            instances: count,
            since: now,
        });

        let BatchSpec {
            action,
            user,
            reason,
            ..
        } = self.spec.clone();
        self.request(
            own,
            PageTask::Apply {
                action,
                user,
                reason,
                instances,
            },
        )
    }

    /// Adds the counts of an instruction.
    fn record(&mut self, outcome: PageOutcome) {
        self.done += outcome.done;
        self.skipped += outcome.skipped;
        self.failed += outcome.failed;
        for (all, more) in [
            (&mut self.skips, outcome.skips),
            (&mut self.failures, outcome.failures),
        ] {
            all.extend(more);
            all.truncate(MAX_REASONS);
        }
    }

    /// Returns the position after a page.
    fn after(&self, cursor: Option<String>) -> Position {
        let shard = self.position.shard + usize::from(cursor.is_none());
        Position { shard, cursor }
    }

    /// Requests a page in the shard of the position: as an effect in the own shard, otherwise from
    /// a child saga there.
    fn request(&mut self, own: &InstanceKey, task: PageTask) -> Work {
        let request = json!(PageRequest {
            selection: self.spec.selection.clone(),
            task
        });
        self.pages += 1;
        let slots = self.spec.shards.get(self.position.shard);
        PAGES.request(own, slots, self.pages, request)
    }
}
