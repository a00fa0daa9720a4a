//! State of a shadow and its transitions. At most one page is in flight.
//!
//! | phase | page in each shard | next phase |
//! |---|---|---|
//! | compare | instances that ended since the previous page | at the end of the time: unfinished |
//! | unfinished | instances that have not ended, once | drain |
//! | drain | instances that ended before the phase *unfinished* | when there are none: end |
//! | end | end of the recording | the final status |
//!
//! A stop, a promotion, another active definition, and the limit of instances lead to *end* at
//! once. The pause between pages limits the computation to a tenth of the time.

use std::collections::BTreeMap;
use std::time::Duration;

use orlog_model::{CorrelationId, InstanceKey, Timestamp, Work};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::PAGES;
use super::page::{KindOutcome, PageOutcome, PageRequest, PageTask, Position};
use super::spec::ShadowSpec;

/// Version of the state.
pub(super) const FORMAT: u16 = 1;
/// Maximum number of kinds of differences with examples.
const MAX_KINDS: usize = 32;
/// Maximum number of examples of a kind.
const MAX_EXAMPLES: usize = 5;
/// Pause after a page that was the last one for now.
const IDLE_PAUSE: Duration = Duration::from_secs(2);
/// Minimum pause after any other page.
const MIN_PAUSE: Duration = Duration::from_millis(200);
/// Pause in relation to the time of the page.
const PAUSE_FACTOR: u64 = 9;

/// State of a shadow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ShadowState {
    /// Version of the state.
    pub(super) format: u16,
    /// Specification.
    pub spec: ShadowSpec,
    /// Status.
    pub status: ShadowStatus,
    /// Number of equal instances.
    pub equal: u64,
    /// Number of different instances.
    pub different: u64,
    /// Number of compared instances that had not ended.
    pub unfinished: u64,
    /// Number of instances that were not compared, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// Kinds of differences, in the order of their first instances.
    pub kinds: Vec<DifferenceKind>,
    /// Number of differences of further kinds.
    pub other_differences: u64,
    /// Whether the instances of all shards are recorded.
    pub is_recording: bool,
    /// Reason of the status `failed`.
    pub error: Option<String>,
    /// Time before which no page starts.
    pub(super) next_at: Option<Timestamp>,
    phase: Phase,
    /// Status after the phase *end*.
    outcome: ShadowStatus,
    /// Shard of the next page.
    shard: usize,
    shards: Vec<ShardProgress>,
    pub(super) in_flight: Option<PageInFlight>,
    /// Number of requested pages.
    pages: u64,
}

/// Status of a shadow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShadowStatus {
    /// Records and compares instances.
    Running,
    /// Ends: compares the remaining instances, or ends the recording.
    Ending,
    /// The time is over, or the limit of instances is reached.
    Completed,
    /// A user stopped it.
    Stopped,
    /// The candidate was deployed.
    Promoted,
    /// Another definition was deployed.
    Superseded,
    /// A page failed.
    Failed,
}

impl ShadowStatus {
    /// Returns whether the shadow has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Running | Self::Ending)
    }

    /// Returns the name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ending => "ending",
            Self::Completed => "completed",
            Self::Stopped => "stopped",
            Self::Promoted => "promoted",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Phase {
    Compare,
    Unfinished,
    Drain,
    End,
}

/// Page in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PageInFlight {
    phase: Phase,
    shard: usize,
}

/// Progress in one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct ShardProgress {
    after: Option<Position>,
    /// Time at which the unfinished instances were read.
    unfinished_at: Option<Timestamp>,
}

/// Kind of a difference, with examples.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DifferenceKind {
    /// Kind: `step charge: payload of payments.charge differs at .amount`.
    pub kind: String,
    /// Number of instances.
    pub count: u64,
    /// First instances.
    pub instances: Vec<CorrelationId>,
    /// Value of the first instance, as it may be displayed.
    pub live: Option<Value>,
    /// Value of the candidate, as it may be displayed.
    pub candidate: Option<Value>,
}

impl ShadowState {
    pub(super) fn new(spec: ShadowSpec) -> Self {
        let shards = vec![ShardProgress::default(); spec.shards.len().max(1)];
        Self {
            format: FORMAT,
            spec,
            status: ShadowStatus::Running,
            equal: 0,
            different: 0,
            unfinished: 0,
            skipped: BTreeMap::new(),
            kinds: Vec::new(),
            other_differences: 0,
            is_recording: false,
            error: None,
            next_at: None,
            phase: Phase::Compare,
            outcome: ShadowStatus::Completed,
            shard: 0,
            shards,
            in_flight: None,
            pages: 0,
        }
    }

    /// Returns the number of compared instances.
    #[must_use]
    pub fn compared(&self) -> u64 {
        self.equal + self.different
    }

    /// Ends the shadow with this status, after the page in flight.
    pub(super) fn end(&mut self, outcome: ShadowStatus) {
        if self.phase != Phase::End {
            self.phase = Phase::End;
            self.shard = 0;
            self.next_at = None;
        }
        self.status = ShadowStatus::Ending;
        self.outcome = outcome;
    }

    /// Applies the outcome of the page in flight; returns the page that follows.
    pub(super) fn page_ended(
        &mut self,
        page: PageInFlight,
        outcome: PageOutcome,
        own: &InstanceKey,
        now: Timestamp,
    ) -> Option<Work> {
        let PageInFlight { phase, shard } = page;
        let pause = Duration::from_millis(outcome.elapsed_ms.saturating_mul(PAUSE_FACTOR));
        let active = outcome.active;
        let has_more = outcome.has_more;
        let read_at = outcome.read_at;

        let progress = &mut self.shards[shard];
        progress.after = outcome.position.clone().or(progress.after.take());
        if phase == Phase::Unfinished {
            progress.unfinished_at = Some(read_at);
        }

        self.record(outcome);

        // The first round over the shards starts the recording in each of them.
        let is_last = shard + 1 == self.shards.len();
        self.is_recording |= is_last;
        let repeats = self.phase == Phase::Drain && has_more;
        let is_idle = self.phase == Phase::Compare && !has_more && is_last;

        if !repeats {
            self.shard = (shard + 1) % self.shards.len();
        }

        // The phase can have ended while its page was in flight, by a stop or a promotion.
        if self.phase != Phase::End {
            let pause = pause.max(if is_idle { IDLE_PAUSE } else { MIN_PAUSE });
            self.next_at = Some(now.saturating_add(pause));
            match active {
                // New instances have another definition than the live one, so there is nothing to
                // compare.
                Some(active) if active == self.spec.candidate.hash => {
                    self.end(ShadowStatus::Promoted);
                }
                Some(active) if active != self.spec.live.hash => self.end(ShadowStatus::Superseded),
                Some(_) | None if self.compared() >= self.spec.max_instances => {
                    self.end(ShadowStatus::Completed);
                }
                Some(_) | None if !repeats && is_last => self.leave_phase(now),
                Some(_) | None => {}
            }
        } else if phase == Phase::End && is_last {
            self.status = self.outcome;
        } else if phase != Phase::End {
            // The recording ends in every shard, from the first one.
            self.shard = 0;
        }

        self.advance(own, now)
    }

    /// Leaves a phase after its page in the last shard.
    fn leave_phase(&mut self, now: Timestamp) {
        match self.phase {
            Phase::Compare if now >= self.spec.until => {
                self.phase = Phase::Unfinished;
                self.status = ShadowStatus::Ending;
            }
            Phase::Unfinished => self.phase = Phase::Drain,
            Phase::Drain => self.end(ShadowStatus::Completed),
            Phase::Compare | Phase::End => {}
        }
    }

    /// Decides what is next; returns the page that is requested.
    pub(super) fn advance(&mut self, own: &InstanceKey, now: Timestamp) -> Option<Work> {
        if self.in_flight.is_some()
            || self.status.is_final()
            || self.next_at.is_some_and(|next| next > now)
        {
            return None;
        }

        self.next_at = None;
        self.in_flight = Some(PageInFlight {
            phase: self.phase,
            shard: self.shard,
        });
        self.pages += 1;

        let slots = self.spec.shards.get(self.shard);

        // A page in another shard has no access to the instance of the shadow, which has the
        // specification.
        let spec = slots.map(|_| self.spec.clone());
        let request = json!(PageRequest {
            spec,
            task: self.task()
        });
        Some(PAGES.request(own, slots, self.pages, request))
    }

    /// Returns the task of the next page.
    fn task(&self) -> PageTask {
        let progress = &self.shards[self.shard];
        match self.phase {
            Phase::Compare | Phase::Drain => PageTask::Ended {
                after: progress.after.clone(),
                until: progress.unfinished_at,
            },
            Phase::Unfinished => PageTask::Unfinished,
            Phase::End => PageTask::End,
        }
    }

    /// Adds the counts and the differences of a page.
    fn record(&mut self, outcome: PageOutcome) {
        self.equal += outcome.equal;
        self.different += outcome.different;
        self.unfinished += outcome.unfinished;
        for (reason, count) in outcome.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }

        for KindOutcome {
            kind,
            count,
            instances,
            live,
            candidate,
        } in outcome.kinds
        {
            if let Some(known) = self.kinds.iter_mut().find(|known| known.kind == kind) {
                known.count += count;
                known.instances.extend(instances);
                known.instances.truncate(MAX_EXAMPLES);
            } else if self.kinds.len() < MAX_KINDS {
                // The state of the shadow contains the examples, so both numbers are limited.
                let mut instances = instances;
                instances.truncate(MAX_EXAMPLES);
                self.kinds.push(DifferenceKind {
                    kind,
                    count,
                    instances,
                    live,
                    candidate,
                });
            } else {
                self.other_differences += count;
            }
        }
    }
}
