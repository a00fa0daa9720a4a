//! State of a schedule and its transitions. Each due time is decided once: the cursor only
//! increases, until the schedule is deleted and created again.
//!
//! | input | active | paused | ended or deleted |
//! |---|---|---|---|
//! | put | decide the due times, then replace them | replace; stay paused | start again |
//! | timer | decide the due times | not armed | not armed |
//! | end of a run | record it; start queued and delayed runs | record it | record it |
//! | trigger | decide a run, now | the same | reject |
//! | pause, resume | change; resume continues after now | change | reject |
//! | delete, cancel | end; runs continue | end; runs continue | ignore |
//!
//! A due time that is decided is started, queued, skipped because of an overlap, or missed because
//! it is older than the catch-up window.

use std::collections::VecDeque;
use std::time::Duration;

use orlog_model::{
    CancelChild, CorrelationId, Failure, Name, ParentEndPolicy, SagaName, StartChild, Timestamp,
    Work,
};
use orlog_program::TransitionBuilder;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::spec::{CompiledSchedule, Overlap, ScheduleSpec};

/// Version of the state.
pub(super) const FORMAT: u16 = 1;
/// Maximum number of runs in progress with the policy `allow`. At the limit, due times wait for the
/// end of a run.
pub const MAX_RUNNING: usize = 100;
/// Maximum number of due times that one transition decides to start, queue or skip.
const MAX_DECIDED: usize = 100;
/// Maximum number of missed due times that one transition counts; older ones are passed over.
const MAX_COUNTED: u64 = 10_000;
/// Number of ended runs that are kept.
const RECENT: usize = 10;

/// State of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleState {
    /// Version of the state.
    pub(super) format: u16,
    /// Specification.
    pub spec: ScheduleSpec,
    /// Name of its file, if a deployment created the schedule.
    #[serde(default)]
    pub file: Option<String>,
    /// Whether due times are ignored.
    pub paused: bool,
    /// Whether the schedule was deleted.
    pub deleted: bool,
    /// Due times up to here are decided.
    pub(super) cursor: Timestamp,
    /// Time at which the timer fires: the next due time and its jitter.
    pub fires_at: Option<Timestamp>,
    /// Time of the last run that a user triggered.
    pub(super) triggered_at: Timestamp,
    /// Runs in progress, oldest first.
    pub running: Vec<Run>,
    /// Run that waits for the end of another.
    pub queued: Option<DueRun>,
    /// Ended runs, newest first.
    pub recent: VecDeque<EndedRun>,
    /// Counters since the schedule was created.
    pub counts: Counts,
    /// Number of times that the schedule was created again.
    #[serde(default)]
    pub(super) recreations: u64,
}

/// Due time, or the time at which a user triggered a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DueRun {
    /// Due time, without jitter.
    pub at: Timestamp,
    /// Whether a user triggered the run.
    pub triggered: bool,
}

/// Run in progress.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Due time.
    pub due: DueRun,
    /// Started saga.
    pub saga: SagaName,
    /// Correlation id of the started instance.
    pub correlation: CorrelationId,
    /// Time of the start.
    pub started_at: Timestamp,
    /// Whether the schedule cancelled it.
    pub cancelling: bool,
}

/// Ended run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedRun {
    /// The run.
    pub run: Run,
    /// Time of the end.
    pub ended_at: Timestamp,
    /// Failure; `None` if the instance completed.
    pub failure: Option<Failure>,
}

/// Numbers of decided due times and ended runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Started runs.
    pub started: u64,
    /// Completed runs.
    pub completed: u64,
    /// Runs that failed, were cancelled or could not start.
    pub failed: u64,
    /// Due times that were skipped because an earlier run had not ended.
    pub skipped: u64,
    /// Due times that were older than the catch-up window.
    pub missed: u64,
}

/// What a transition requests, and its note.
#[derive(Debug, Default)]
pub(super) struct Requests {
    pub(super) work: Vec<Work>,
    pub(super) notes: Vec<String>,
}

impl ScheduleState {
    pub(super) fn new(spec: ScheduleSpec, file: Option<String>, now: Timestamp) -> Self {
        Self {
            format: FORMAT,
            spec,
            file,
            paused: false,
            deleted: false,
            cursor: now,
            fires_at: None,
            triggered_at: Timestamp::from_millis(0),
            running: Vec::new(),
            queued: None,
            recent: VecDeque::new(),
            counts: Counts::default(),
            recreations: 0,
        }
    }

    /// Returns whether the schedule has no further due time and no run.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.deleted
            || !self.paused
                && self.fires_at.is_none()
                && self.running.is_empty()
                && self.queued.is_none()
    }

    /// Returns the start times after `now`: due times with their jitter.
    ///
    /// # Errors
    /// If this release cannot read the specification.
    pub fn upcoming(
        &self,
        name: &str,
        now: Timestamp,
        count: usize,
    ) -> Result<Vec<Timestamp>, String> {
        if self.paused || self.deleted {
            return Ok(Vec::new());
        }

        let compiled = compile_spec(&self.spec)?;
        let times = compiled
            .times
            .after(self.cursor)
            .map(|due| fire_time(&compiled, name, due));
        Ok(times.filter(|time| *time > now).take(count).collect())
    }

    /// Starts the queued run if no other is in progress, decides the due times up to `now`, and
    /// sets the time of the timer.
    pub(super) fn advance(&mut self, own: &Schedule<'_>, requests: &mut Requests, now: Timestamp) {
        // A specification with another overlap policy may have queued it.
        let has_room = self.spec.overlap == Overlap::Allow && self.running.len() < MAX_RUNNING;
        if !self.paused
            && (self.running.is_empty() || has_room)
            && let Some(queued) = self.queued.take()
        {
            self.start(own, requests, queued, now);
        }

        self.fires_at = None;
        let mut decided = 0;
        let mut missed = 0;
        while !self.paused && !self.deleted {
            let Some(due) = own.compiled.times.next_after(self.cursor) else {
                break;
            };

            let fires = fire_time(own.compiled, own.name, due);
            if fires > now {
                self.fires_at = Some(fires);
                break;
            }

            // The due time is older than the catch-up window, for example after an outage.
            if now.duration_since(fires) > own.compiled.catch_up {
                missed += 1;
                self.cursor = due;
                if missed == MAX_COUNTED {
                    let window = own.compiled.catch_up + own.compiled.jitter;
                    self.cursor = self.cursor.max(now.saturating_sub(window));
                }
                continue;
            }

            // The end of a run continues.
            if self.spec.overlap == Overlap::Allow && self.running.len() >= MAX_RUNNING {
                break;
            }

            // The timer is due at once, so that the next transition decides the rest.
            if decided == MAX_DECIDED {
                self.fires_at = Some(fires);
                break;
            }

            decided += 1;
            self.cursor = due;
            self.decide(
                own,
                requests,
                DueRun {
                    at: due,
                    triggered: false,
                },
                now,
            );
        }

        if missed > 0 {
            self.counts.missed += missed;
            requests.notes.push(format!("missed {missed}"));
        }
    }

    /// Decides the due times up to `now`, because a specification with other due times replaces
    /// this one.
    pub(super) fn finish(
        &mut self,
        own: &Schedule<'_>,
        next: &CompiledSchedule,
        requests: &mut Requests,
        now: Timestamp,
    ) {
        self.advance(own, requests, now);
        if self.paused {
            return;
        }

        let mut open = own
            .compiled
            .times
            .after(self.cursor)
            .take_while(|due| *due <= now);

        // Jitter delays the start of this due time. The next specification starts it; if it does
        // not contain it, it is decided now.
        if let Some(due) = open.next() {
            let before = due.saturating_sub(Duration::from_millis(1));

            // Its other due times up to now, if there are any, lie before the change.
            let until_now = |times: &CompiledSchedule| {
                times
                    .times
                    .after(before)
                    .take_while(|due| *due <= now)
                    .collect::<Vec<_>>()
            };

            if until_now(own.compiled) == until_now(next) {
                self.cursor = before;
                return;
            }

            self.decide(
                own,
                requests,
                DueRun {
                    at: due,
                    triggered: false,
                },
                now,
            );

            // The rest is more than one transition decides, or more than can run.
            self.counts.missed += open
                .zip(1..=MAX_COUNTED)
                .last()
                .map_or(0, |(_, count)| count);
        }

        self.cursor = self.cursor.max(now);
    }

    /// Passes over the due times whose start time is not after `now`.
    pub(super) fn pass(&mut self, own: &Schedule<'_>, now: Timestamp) {
        self.cursor = self.cursor.max(now.saturating_sub(own.compiled.jitter));
        let due = |cursor| own.compiled.times.next_after(cursor);
        while let Some(due) =
            due(self.cursor).filter(|due| fire_time(own.compiled, own.name, *due) <= now)
        {
            self.cursor = due;
        }
    }

    /// Starts, queues or skips a run.
    pub(super) fn decide(
        &mut self,
        own: &Schedule<'_>,
        requests: &mut Requests,
        due: DueRun,
        now: Timestamp,
    ) {
        let is_idle = self.running.is_empty() && self.queued.is_none();

        match self.spec.overlap {
            _ if is_idle => self.start(own, requests, due, now),
            Overlap::Allow if self.running.len() < MAX_RUNNING => {
                self.start(own, requests, due, now);
            }
            // One due time waits; further ones would pile up behind a run that does not end.
            Overlap::Queue if self.queued.is_none() => {
                requests.notes.push(format!("queued {}", due.at));
                self.queued = Some(due);
            }
            Overlap::Cancel => {
                let cancelled: Vec<_> = self
                    .running
                    .iter_mut()
                    .filter(|run| !run.cancelling)
                    .map(cancel)
                    .collect();
                requests.work.extend(cancelled);
                if let Some(replaced) = self.queued.replace(due) {
                    self.skip(requests, replaced);
                }
                requests
                    .notes
                    .push(format!("cancelling the run in progress, queued {}", due.at));
            }
            Overlap::Skip | Overlap::Queue | Overlap::Allow => self.skip(requests, due),
        }
    }

    fn skip(&mut self, requests: &mut Requests, due: DueRun) {
        self.counts.skipped += 1;
        requests
            .notes
            .push(format!("skipped {}: a run is in progress", due.at));
    }

    fn start(&mut self, own: &Schedule<'_>, requests: &mut Requests, due: DueRun, now: Timestamp) {
        let correlation = run_id(own.name, due);
        let run = Run {
            due,
            saga: own.compiled.saga.clone(),
            correlation,
            started_at: now,
            cancelling: false,
        };

        self.counts.started += 1;

        // The run of a deleted schedule with the same due time can still be in progress.
        if self
            .running
            .iter()
            .any(|open| open.correlation == run.correlation)
        {
            let message = format!("{} is in progress", run.correlation);
            let failure = Failure {
                code: "already_exists".to_owned(),
                message,
            };
            requests.notes.push(format!("not started: {failure}"));
            return self.end(run, Some(failure), now);
        }

        match own.compiled.data(own.name, due.at, &run.correlation) {
            Ok(data) => {
                requests.notes.push(format!("started {}", run.correlation));
                requests.work.push(Work::StartChild(StartChild {
                    tag: tag(&run.correlation),
                    // A run of the deleted schedule rejects the command, and does not ignore it as
                    // a duplicate.
                    round: self.recreations,
                    saga: run.saga.clone(),
                    correlation: run.correlation.clone(),
                    event: own.compiled.event.clone(),
                    data,
                    on_parent_end: ParentEndPolicy::default(),
                }));
                self.running.push(run);
            }
            Err(message) => {
                let failure = Failure {
                    code: "data".to_owned(),
                    message,
                };
                requests.notes.push(format!("not started: {failure}"));
                self.end(run, Some(failure), now);
            }
        }
    }

    /// Records the end of the run of a tag. Returns false if the run is unknown.
    pub(super) fn run_ended(
        &mut self,
        requests: &mut Requests,
        tag_of_run: &str,
        failure: Option<Failure>,
        now: Timestamp,
    ) -> bool {
        let Some(index) = self
            .running
            .iter()
            .position(|open| tag(&open.correlation).as_str() == tag_of_run)
        else {
            return false;
        };

        let run = self.running.remove(index);
        let outcome = if failure.is_some() {
            "failed"
        } else {
            "completed"
        };
        requests
            .notes
            .push(format!("{} {outcome}", run.correlation));
        self.end(run, failure, now);
        true
    }

    fn end(&mut self, run: Run, failure: Option<Failure>, now: Timestamp) {
        match failure {
            None => self.counts.completed += 1,
            Some(_) => self.counts.failed += 1,
        }

        self.recent.truncate(RECENT - 1);
        self.recent.push_front(EndedRun {
            run,
            ended_at: now,
            failure,
        });
    }
}

/// What the transitions of a schedule read.
pub(super) struct Schedule<'a> {
    name: &'a str,
    compiled: &'a CompiledSchedule,
}

impl<'a> Schedule<'a> {
    /// Returns the schedule of the instance of a transition.
    pub(super) fn of(compiled: &'a CompiledSchedule, transition: &TransitionBuilder<'a>) -> Self {
        Self {
            name: transition.context().key.correlation.as_str(),
            compiled,
        }
    }
}

pub(super) fn compile_spec(spec: &ScheduleSpec) -> Result<CompiledSchedule, String> {
    spec.compile().map_err(|errors| {
        let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
        errors.join("; ")
    })
}

/// Returns the start time of a due time: later by a delay that derives from the schedule and the
/// time, and before the next due time.
fn fire_time(compiled: &CompiledSchedule, name: &str, due: Timestamp) -> Timestamp {
    if compiled.jitter.is_zero() {
        return due;
    }

    // A start is never delayed beyond the next due time.
    let gap = compiled
        .times
        .next_after(due)
        .map_or(Duration::MAX, |next| next.duration_since(due));
    let limit = u64::try_from(compiled.jitter.min(gap).as_millis())
        .unwrap_or(u64::MAX)
        .max(1);

    // All nodes and every repetition of the transition compute the same delay.
    let digest = Sha256::new()
        .chain_update(name)
        .chain_update(due.as_millis().to_be_bytes())
        .finalize();
    let hash = digest
        .iter()
        .take(8)
        .fold(0, |hash, byte| hash << 8 | u64::from(*byte));

    due.saturating_add(Duration::from_millis(hash % limit))
}

/// Returns the correlation id of a run: the name of the schedule and the due time.
fn run_id(name: &str, due: DueRun) -> CorrelationId {
    CorrelationId::new(format!("{name}-{}", due.at).replace(".000Z", "Z"))
        .expect("a name that check_name accepts and a time are a valid correlation id")
}

fn tag(run: &CorrelationId) -> Name {
    Name::new(run.as_str()).expect("a correlation id is a valid name: the limits are equal")
}

fn cancel(run: &mut Run) -> Work {
    run.cancelling = true;
    let reason = "a later time of the schedule is due".to_owned();
    Work::CancelChild(CancelChild {
        saga: run.saga.clone(),
        correlation: run.correlation.clone(),
        reason,
    })
}
