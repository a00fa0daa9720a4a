//! State of a saga actor: what it uses, and what it has in memory of its instance.
//!
//! The memory is never ahead of the changes that the actor has submitted to the committer.

use std::borrow::Cow;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use orlog_engine::{BufferedInputRef, MAX_EARLY_INPUTS};
use orlog_model::{
    Change, Clock, Commit, DeadLetterOriginal, DedupeKey, Input, Instance, InstanceKey, Status,
    Timestamp, TraceParent,
};
use orlog_store::{Error as StoreError, Reader};
use parking_lot::Mutex;

use crate::instance::completion::{Completion, ControlError, ControlReply, ControlResult};
use crate::instance::decision_pool::DecisionPool;
use crate::instance::idle_actors::IdleActors;
use crate::instance::ignored_events::{IgnoredEvent, IgnoredEvents};
use crate::instance::live_instances::LiveInstances;
use crate::instance::mailbox::Mailbox;
use crate::instance::program_registry::ProgramRegistry;
use crate::instance::saga::decision::Subject;
use crate::runtime::live_limits::LiveLimits;
use crate::shard::submission::{CommitterHandle, Submission};
use crate::telemetry::metrics::{ActorKind, GaugeGuard, Metrics};
use crate::telemetry::tracer::{IgnoredInput, Tracer, TransitionSpan};
use crate::telemetry::{log_instance, trace_context};

/// Maximum size of the states of one instance that wait for their commits, in bytes. One state may
/// be larger.
const MAX_PENDING_STATE_BYTES: usize = 1 << 20;
/// Size below which a state is not large.
const LARGE_STATE_BYTES: usize = 16 << 10;

/// Dependencies of the saga actors of one incarnation of a shard.
pub(crate) struct SagaDependencies {
    pub(crate) committer: CommitterHandle,
    pub(crate) idle_actors: IdleActors,
    /// Receives the mailbox of an actor that has no more inputs.
    pub(crate) live: Arc<LiveInstances>,
    pub(crate) quarantined: Arc<QuarantinedInstances>,
    pub(crate) ignored_events: Arc<IgnoredEvents>,
    pub(crate) reader: Reader,
    pub(crate) programs: Arc<ProgramRegistry>,
    /// Pool of the decisions that are too costly for the thread of the actor.
    pub(crate) decisions: Arc<DecisionPool>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: String,
    pub(crate) live_limits: Arc<LiveLimits>,
    /// Maximum size of each payload in the history, in bytes.
    pub(crate) history_payload_bytes: usize,
    /// Maximum number of inputs that wait in memory; further inputs are spilled.
    pub(crate) max_queued_inputs: usize,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
}

impl SagaDependencies {
    /// Returns what is required to decide the next input of an instance.
    pub(super) fn subject<'a>(
        &'a self,
        key: &'a InstanceKey,
        instance: Option<&'a Instance>,
        early: &'a [BufferedInputRef],
        now: Timestamp,
    ) -> Subject<'a> {
        Subject {
            key,
            instance,
            early,
            programs: &self.programs,
            now,
            node: &self.node,
            max_state_size: self.live_limits.max_state_size(),
            max_cost: self.live_limits.max_transition_cost(),
            max_attempts: self.live_limits.max_attempts_per_input(),
            history_payload_bytes: self.history_payload_bytes,
            metrics: &self.metrics,
        }
    }
}

/// Instances of a shard whose stored data could not be read.
#[derive(Default)]
pub(crate) struct QuarantinedInstances(Mutex<BTreeSet<InstanceKey>>);

impl QuarantinedInstances {
    /// Records that the stored data of an instance cannot be read. Returns whether this was not
    /// known.
    pub(super) fn start(&self, key: &InstanceKey, metrics: &Metrics) -> bool {
        let is_new = self.0.lock().insert(key.clone());
        if is_new {
            metrics.quarantined_instances.inc();
        }
        is_new
    }

    /// Records that the data of an instance was replaced or dropped.
    pub(super) fn end(&self, key: &InstanceKey, metrics: &Metrics) {
        if self.0.lock().remove(key) {
            metrics.quarantined_instances.dec();
        }
    }
}

/// State of a saga actor.
pub(crate) struct State {
    pub(super) mailbox: Arc<Mailbox>,
    pub(super) shared: Arc<SagaDependencies>,
    pub(super) loaded: bool,
    /// Buffered inputs must be applied before the next input.
    pub(super) unbuffers: bool,
    /// The spilled inputs were looked up. Before, an input must not overtake them.
    pub(super) knows_spilled: bool,
    /// Reason why the stored data of the instance cannot be read.
    pub(super) quarantine: Option<String>,
    pub(super) instance: Option<Arc<Instance>>,
    /// Inputs buffered while the instance does not exist. Inputs buffered by this actor have no
    /// stored number yet.
    pub(super) early: Vec<BufferedInputRef>,
    /// Events applied since the last time all commits were durable; the store may not have them
    /// yet.
    recent: VecDeque<DedupeKey>,
    /// Position of the saga in the estimates of the pool.
    pub(super) saga_position: usize,
    _alive: GaugeGuard,
}

impl State {
    pub(super) fn new(mailbox: Arc<Mailbox>, shared: Arc<SagaDependencies>) -> Self {
        let alive = shared.metrics.actor_started(ActorKind::Saga);
        let saga_position = shared.decisions.heavy_sagas().position(&mailbox.key);
        Self {
            mailbox,
            shared,
            loaded: false,
            unbuffers: false,
            knows_spilled: false,
            quarantine: None,
            instance: None,
            early: Vec::new(),
            recent: VecDeque::new(),
            saga_position,
            _alive: alive,
        }
    }

    /// Returns what is required to decide the next input.
    pub(super) fn subject(&self) -> Subject<'_> {
        self.subject_at(self.shared.clock.now())
    }

    /// Returns what is required to decide the next input at a time.
    pub(super) fn subject_at(&self, now: Timestamp) -> Subject<'_> {
        self.shared.subject(
            &self.mailbox.key,
            self.instance.as_deref(),
            &self.early,
            now,
        )
    }

    /// Keeps the mailbox open while buffered inputs must be applied: the actor waits for its
    /// commits meanwhile, and the queue is empty. If the mailbox closed, a second actor would serve
    /// the instance.
    pub(super) fn keep_open(&self, is_required: bool) {
        self.mailbox.set_unbuffering(is_required);
    }

    /// Loads the snapshot after the commits of a crashed predecessor are durable.
    pub(super) async fn load(&mut self) -> Result<(), StoreError> {
        self.mailbox.wait_durable().await;
        self.instance = self
            .shared
            .reader
            .instance(&self.mailbox.key)?
            .map(Arc::new);
        if self.instance.is_none() {
            self.load_early_inputs().await?;
        }

        self.loaded = true;
        self.unbuffers = self.instance.is_some() && !self.is_paused();
        self.keep_open(self.unbuffers);
        Ok(())
    }

    /// Loads the buffered inputs of an instance that does not exist, with their numbers.
    pub(super) async fn load_early_inputs(&mut self) -> Result<(), StoreError> {
        self.mailbox.wait_durable().await;
        let rows = self
            .shared
            .reader
            .buffered_inputs(&self.mailbox.key, MAX_EARLY_INPUTS)?;

        self.early = Vec::with_capacity(rows.len());
        for (number, input) in rows {
            if let Input::Early(early) = input {
                self.early.push(BufferedInputRef {
                    number,
                    key: early.input.identity(),
                    expires_at: early.expires_at,
                });
            }
        }
        Ok(())
    }

    /// Returns true if buffered inputs may exist that wait for the start or resume of the instance.
    pub(super) fn has_buffered(&self) -> bool {
        self.instance
            .as_ref()
            .map_or(!self.early.is_empty(), |instance| instance.paused)
    }

    /// Returns true if the input was applied before. Only events and control requests have ids that
    /// can repeat; for an instance that does not exist, no input was applied. Also loads the early
    /// inputs that a timer can delete.
    pub(super) async fn is_repeated(&mut self, input: &Input) -> Result<bool, StoreError> {
        if self.instance.is_none() && matches!(input, Input::Timer(_)) {
            self.load_early_inputs().await?;
        }

        if self.instance.is_none() || !input.has_dedupe_key() {
            return Ok(false);
        }

        // Commits become durable in their order, each with at most one key: the store has the
        // earlier ones.
        let durable = self.recent.len().saturating_sub(self.mailbox.pending());
        self.recent.drain(..durable);

        let id = input.identity();
        if self.recent.contains(&id) {
            return Ok(true);
        }
        self.shared
            .reader
            .is_duplicate(&self.mailbox.key, id, self.shared.clock.now())
    }

    /// Removes the first input and submits its consequences; `ignored` is the reason if there is no
    /// transition, only cleanup.
    pub(super) fn finish_with(
        &mut self,
        mut commit: Box<Commit>,
        decided: Option<Box<TransitionSpan>>,
        ignored: Option<Cow<'static, str>>,
    ) {
        // First: the reply contains the version after this commit.
        self.install(&mut commit);
        let Some(envelope) = self.mailbox.finish(1, self.has_ended()) else {
            return;
        };
        let done = envelope
            .completion
            .with_reply(|| self.control_reply(&commit, ignored));
        self.submit(commit, decided, envelope.extra_change, done);
    }

    /// Records an event that the instance ignores, and counts one that starts instances: the
    /// instance exists.
    pub(super) fn record_ignored(&self, input: &Input, reason: &str) {
        // Also that of an early input, and of a signal of the bus, whose sender gets no answer.
        let Some(event) = input.event().filter(|_| self.instance.is_some()) else {
            return;
        };

        let ignored = IgnoredEvent {
            kind: event.kind.clone(),
            id: event.id.clone(),
            at: self.shared.clock.now(),
            reason: reason.to_owned(),
        };
        self.shared
            .ignored_events
            .record(self.mailbox.key.clone(), ignored);

        let InstanceKey { tenant, saga, .. } = &self.mailbox.key;
        let program = self.shared.programs.active(tenant, saga);
        if program.is_some_and(|program| program.start_event(Some(&event.kind)).is_some()) {
            self.shared.metrics.existing_starts.inc();
        }
    }

    pub(super) fn finish_without_commit(
        &mut self,
        reason: Cow<'static, str>,
        rejection: Option<ControlError>,
    ) {
        self.shared.metrics.ignored.inc();
        log_instance!(DEBUG, self.mailbox.key, self.trace(), %reason, "ignored");

        // A rejection changes nothing: a dead letter that its instance rejects stays stored.
        let drops = rejection.is_none() && self.mailbox.has_own_change();
        // The cause of this result may not be durable yet, so the result must not be reported
        // before.
        let waits = drops || !self.mailbox.is_durable();

        let Some(envelope) = self.mailbox.finish(usize::from(waits), self.has_ended()) else {
            return;
        };
        let done = envelope.completion.with_reply(|| {
            rejection.map_or_else(|| Ok(self.control_result(false, Some(reason))), Err)
        });

        match envelope.extra_change.filter(|_| drops) {
            Some(change) => {
                let mailbox = Some(Arc::clone(&self.mailbox));
                self.send(Submission {
                    change,
                    extra: None,
                    done,
                    mailbox,
                    decided: None,
                });
            }
            None if waits => {
                let nothing = Commit::empty(self.mailbox.key.clone(), envelope.input.at());
                self.submit(Box::new(nothing), None, None, done);
            }
            None => done.complete(),
        }
    }

    /// Makes the state after a decision the current one, before it is committed.
    pub(super) fn install(&mut self, commit: &mut Commit) {
        // The store computes the difference of its indexes and counts from the snapshot before.
        commit.before.clone_from(&self.instance);
        match commit.buffer.as_deref() {
            Some(Input::Early(early)) => {
                self.shared.metrics.inputs_buffered.inc();
                self.early.push(BufferedInputRef {
                    number: 0,
                    key: early.input.identity(),
                    expires_at: early.expires_at,
                });
            }
            _ if self.instance.is_none() && !commit.unbuffer.is_empty() => {
                self.expired(&commit.unbuffer);
            }
            _ => {}
        }

        if let Some(instance) = &commit.instance {
            // A new instance has no spilled inputs.
            self.knows_spilled |= self.instance.is_none();
            self.instance = Some(Arc::clone(instance));
        }

        self.recent.extend(commit.dedupe_key);

        // A redrive delivers a dead-lettered input again under the same id; it must not be a
        // duplicate.
        if let Some(DeadLetterOriginal::Input(input)) = commit
            .dead_letter
            .as_ref()
            .map(|dead_letter| &dead_letter.original)
        {
            let key = input.identity();
            self.recent.retain(|recent| *recent != key);
        }
    }

    fn expired(&mut self, numbers: &[u64]) {
        self.shared
            .metrics
            .buffered_expired
            .inc_by(numbers.len() as u64);
        let count = numbers.len();
        log_instance!(
            INFO,
            self.mailbox.key,
            None,
            count,
            "dropped early inputs: the instance did not start in time"
        );

        self.early
            .retain(|buffered| !numbers.contains(&buffered.number));
    }

    pub(super) fn is_paused(&self) -> bool {
        self.instance
            .as_ref()
            .is_some_and(|instance| instance.paused)
    }

    pub(super) fn has_ended(&self) -> bool {
        self.instance
            .as_ref()
            .is_none_or(|instance| instance.status.is_final())
    }

    pub(super) fn submit(
        &self,
        commit: Box<Commit>,
        decided: Option<Box<TransitionSpan>>,
        extra: Option<Change>,
        done: Completion,
    ) {
        let change = Change::Apply(commit);
        self.send(Submission {
            change,
            extra,
            done,
            mailbox: Some(Arc::clone(&self.mailbox)),
            decided,
        });
    }

    pub(super) fn send(&self, submission: Submission) {
        if self.shared.committer.submit(submission).is_err() {
            log_instance!(
                DEBUG,
                self.mailbox.key,
                self.trace(),
                "the shard is restarting; the input will be redelivered"
            );
        }
    }

    fn control_reply(&self, commit: &Commit, ignored: Option<Cow<'static, str>>) -> ControlReply {
        match &commit.dead_letter {
            Some(dead_letter) => Err(ControlError::DeadLettered(dead_letter.message.clone())),
            None if commit.buffer.is_some() => Ok(ControlResult {
                is_deferred: true,
                ..self.control_result(true, None)
            }),
            None => Ok(self.control_result(ignored.is_none(), ignored)),
        }
    }

    pub(super) fn control_result(
        &self,
        applied: bool,
        reason: Option<Cow<'static, str>>,
    ) -> ControlResult {
        ControlResult {
            applied,
            reason,
            version: self.instance.as_ref().map_or(0, |i| i.version),
            status: self.instance.as_ref().map_or(Status::Running, |i| i.status),
            paused: self.is_paused(),
            is_deferred: false,
        }
    }

    /// Continues with this state instead of the stored one; the caller submits the change of the
    /// store.
    pub(super) fn reset(&mut self, instance: Option<Instance>) {
        if self.quarantine.take().is_some() {
            self.shared
                .quarantined
                .end(&self.mailbox.key, &self.shared.metrics);
        }

        self.instance = instance.map(Arc::new);
        self.loaded = true;
        self.unbuffers = false;
        self.keep_open(false);
        self.early.clear();
        self.recent.clear();
    }

    /// Waits until the pending commits of a large instance are durable, so that other instances
    /// find place in the next group.
    pub(super) async fn limit_pending_state(&self) {
        let size = self
            .instance
            .as_ref()
            .map_or(0, |instance| instance.state.len());
        if size > LARGE_STATE_BYTES && size * (self.mailbox.pending() + 1) > MAX_PENDING_STATE_BYTES
        {
            self.mailbox.wait_durable().await;
        }
    }

    /// Returns the current time if the input is traced.
    pub(super) fn trace_start(&self, input: &Input) -> Option<Instant> {
        self.shared.tracer.as_ref()?;
        trace_context::is_traced(input, self.instance.as_deref()).then(Instant::now)
    }

    /// Records the transition for shadows, and creates its span if the input is traced.
    pub(super) fn follow(
        &self,
        commit: &mut Commit,
        input: &Input,
        started: Option<Instant>,
    ) -> Option<Box<TransitionSpan>> {
        self.shared.programs.recordings().record(commit, input);
        trace_context::start_transition_span(commit, input, self.instance.as_deref(), started?)
    }

    /// Reports an ignored input to the tracer.
    pub(super) fn trace_ignored(&self, input: &Input, started: Option<Instant>, reason: &str) {
        let parent = input.trace().filter(|trace| trace.is_sampled());
        if let (Some(tracer), Some(started), Some(parent)) = (&self.shared.tracer, started, parent)
        {
            tracer.ignored(&IgnoredInput {
                key: &self.mailbox.key,
                input: input.label(),
                parent,
                reason,
                started,
            });
        }
    }

    /// Returns the trace of the instance, for log records.
    pub(super) fn trace(&self) -> Option<&TraceParent> {
        self.instance.as_ref()?.trace.as_ref()
    }
}
