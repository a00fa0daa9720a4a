//! Single writer of a shard: groups commits and makes each group durable with one write.
//!
//! A dedicated thread owns the store's `Writer`, because a commit blocks. While the disk writes one
//! group, the next group collects. The actor only watches the thread: when the thread ends, the actor
//! fails, and with it the shard.
//!
//! Each group contains the checkpoint of each stream: state, outbox, dedupe keys and checkpoint are one
//! transaction.
//!
//! A full store is not a failure, nor is a journal that cannot create a segment: the group is retried until
//! it is committed; accepted inputs are kept. An unavailable log is not a failure either: the group waits until its result is known.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, RecvTimeoutError, Sender};
use orlog_model::{Change, Clock, Commit};
use orlog_store::{Error as StoreError, Writer};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use crate::instance::completion::Completion;
use crate::instance::mailbox::Mailbox;
use crate::instance::registry::InstanceRegistry;
use crate::shard::fresh_rows::FreshRows;
use crate::shard::stream_progress::StreamProgress;
use crate::shard::submission::{CommitterHandle, CommitterRequest, Submission};
use crate::telemetry::metrics::{ActorKind, LiveActorGuard, Metrics, TenantCache};
use crate::telemetry::tracer::{CommitGroupSpan, TransitionSpan};

/// Delay before a group is retried on a store that is full or cannot create a segment.
const STORE_RETRY_DELAY: Duration = Duration::from_millis(200);

/// Interval at which the checkpoint is committed alone, if messages without consequences moved it.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(250);

/// Delay before the log of a group is retried.
const LOG_RETRY_DELAY: Duration = Duration::from_millis(50);

/// The writer while no committer owns it.
pub(crate) type SharedWriter = Arc<Mutex<WriterState>>;

/// State of a [`SharedWriter`].
pub(crate) struct WriterState {
    pub(crate) writer: Writer,
    /// The last commit failed: read the durable state before the next commit.
    pub(crate) failed: bool,
}

/// Committer actor.
pub(crate) struct CommitterActor;

/// Arguments of the committer actor.
pub(crate) struct Arguments {
    pub(crate) writer: SharedWriter,
    pub(crate) instances: Arc<InstanceRegistry>,
    pub(crate) observer: Option<Arc<dyn CommitObserver>>,
    pub(crate) fresh: FreshRows,
    /// Receives the committer handle when the committer runs and the store is verified.
    pub(crate) started: oneshot::Sender<CommitterHandle>,
}

/// Messages of the committer actor.
pub(crate) enum Message {
    /// The thread ended; contains the reason if it failed.
    Ended(Option<String>),
}

/// State of the committer actor. Stops the thread when it is dropped.
pub(crate) struct State {
    requests: Sender<CommitterRequest>,
    stop: Arc<AtomicBool>,
    _alive: LiveActorGuard,
}

impl Drop for State {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // An error means that the thread has already ended.
        drop(self.requests.send(CommitterRequest::Stop));
    }
}

impl Actor for CommitterActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let state = arguments.writer.lock_owned().await;
        let (requests, received) = crossbeam_channel::unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let alive = arguments.instances.context.metrics.actor_started(ActorKind::Committer);
        let thread = CommitterThread {
            state,
            received,
            group: arguments.instances.context.limits.max_group_commit,
            clock: Arc::clone(&arguments.instances.context.clock),
            metrics: Arc::clone(&arguments.instances.context.metrics),
            tenant_cache: TenantCache::default(),
            instances: arguments.instances,
            stop: Arc::clone(&stop),
            observer: arguments.observer,
            sequences: Vec::new(),
            fresh: arguments.fresh,
        };
        let ready = (arguments.started, CommitterHandle::new(requests.clone()));
        std::thread::Builder::new().name("orlog-committer".to_owned()).spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| thread.run(ready)));
            let reason = ended.unwrap_or_else(|_| Err("the committer thread panicked".to_owned())).err();
            drop(myself.cast(Message::Ended(reason)));
        })?;
        Ok(State { requests, stop, _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Message::Ended(reason) = message;
        Err(reason.unwrap_or_else(|| "the committer thread ended".to_owned()).into())
    }
}

struct CommitterThread {
    state: OwnedMutexGuard<WriterState>,
    received: Receiver<CommitterRequest>,
    group: usize,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    tenant_cache: TenantCache,
    instances: Arc<InstanceRegistry>,
    stop: Arc<AtomicBool>,
    observer: Option<Arc<dyn CommitObserver>>,
    /// Outbox sequences of the work items of the group.
    sequences: Vec<u64>,
    fresh: FreshRows,
}

/// The part of a submission that is processed after the commit.
type PendingCompletion = (Completion, Option<Arc<Mailbox>>);

/// Changes of one group commit.
#[derive(Default)]
struct CommitGroup {
    changes: Vec<Change>,
    completions: Vec<PendingCompletion>,
    /// Traced changes with their position in the group.
    followed: Vec<(usize, Box<TransitionSpan>)>,
}

impl CommitterThread {
    fn run(
        mut self,
        (started, committer): (oneshot::Sender<CommitterHandle>, CommitterHandle),
    ) -> Result<(), String> {
        if self.state.failed {
            if let Err(error) = self.state.writer.recover() {
                return Err(self.failed(&error));
            }
            self.state.failed = false;
        }
        // Not earlier: a store that is being recovered cannot be read. An error means that the shard has
        // stopped.
        drop(started.send(committer));
        // Set while a panic could leave the state of the writer unknown.
        self.state.failed = true;
        let ended = self.serve();
        self.state.failed = ended.is_err();
        ended
    }

    fn serve(&mut self) -> Result<(), String> {
        let mut gathered = CommitGroup::default();
        let mut stop = false;
        while !stop {
            let mut is_due = false;
            match self.received.recv_timeout(CHECKPOINT_INTERVAL) {
                Ok(CommitterRequest::Submit(first)) => stop = self.gather(*first, &mut gathered),
                Ok(CommitterRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                // A purge continues with empty groups if there are no others.
                Err(RecvTimeoutError::Timeout) => is_due = self.state.writer.is_purging(),
            }
            let streams = self.instances.streams();
            gathered.changes.extend(streams.iter().filter_map(|stream| stream.checkpoint()));
            if is_due || !gathered.changes.is_empty() {
                let started = Instant::now();
                if !self.commit(&gathered.changes)? {
                    return Ok(());
                }
                self.finish(&mut gathered, &streams, started);
            }
            let durable = self.instances.context.reader.durable_position();
            let durable = durable.map_or(u64::MAX, |durable| durable.position);
            for stream in &streams {
                stream.synced(durable);
            }
        }
        Ok(())
    }

    /// Adds the first submission and all waiting ones to the group; returns whether a stop was requested.
    fn gather(&self, first: Submission, gathered: &mut CommitGroup) -> bool {
        gathered.add(first);
        while gathered.changes.len() < self.group {
            match self.received.try_recv() {
                Ok(CommitterRequest::Submit(next)) => gathered.add(*next),
                Ok(CommitterRequest::Stop) => return true,
                Err(_) => break,
            }
        }
        false
    }

    /// Completes the inputs of a committed group.
    fn finish(&mut self, gathered: &mut CommitGroup, streams: &[Arc<StreamProgress>], started: Instant) {
        let ended = Instant::now();
        let position = self.instances.context.reader.position();
        for stream in streams {
            stream.committed(position);
        }
        self.complete(&gathered.changes, &mut gathered.completions);
        self.trace(gathered, started, ended);
        self.fresh.hand_over(gathered.changes.drain(..), self.sequences.drain(..));
    }

    /// Makes the group durable. Returns `false` if a stop is requested while the store cannot commit; then no
    /// change of the group is committed.
    fn commit(&mut self, changes: &[Change]) -> Result<bool, String> {
        let started = Instant::now();
        let mut is_blocked = false;
        while let Err(error) = self.state.writer.commit(changes, self.clock.now()) {
            match error {
                StoreError::Full { .. } => {
                    if !self.metrics.set_store_full(true) {
                        tracing::error!(%error, "store is full; rejecting commits");
                    }
                    if self.stop.load(Ordering::Acquire) {
                        return Ok(false);
                    }
                    std::thread::park_timeout(STORE_RETRY_DELAY);
                }
                StoreError::Rotation { .. } => {
                    if !std::mem::replace(&mut is_blocked, true) {
                        tracing::error!(%error, "commits are blocked; retrying");
                        self.metrics.set_commit_failure(Some(error.to_string()));
                    }
                    if self.stop.load(Ordering::Acquire) {
                        return Ok(false);
                    }
                    std::thread::park_timeout(STORE_RETRY_DELAY);
                }
                StoreError::TooLarge { .. } if changes.len() > 1 => {
                    let (first, rest) = changes.split_at(changes.len() / 2);
                    return Ok(self.commit(first)? && self.commit(rest)?);
                }
                StoreError::Unavailable { .. } => {
                    self.await_log(&error)?;
                    break;
                }
                error => return Err(self.failed(&error)),
            }
        }
        self.sequences.extend_from_slice(self.state.writer.work_sequences());
        if is_blocked {
            self.metrics.set_commit_failure(None);
            tracing::info!("commits continue");
        }
        if self.metrics.set_store_full(false) {
            tracing::info!("store has free space again");
        }
        self.metrics.commits.inc();
        self.metrics.commit_changes.observe(count(changes.len()));
        self.metrics.commit_seconds.observe(started.elapsed().as_secs_f64());
        Ok(true)
    }

    /// Retries the commit until its log responds. Fails if a stop is requested meanwhile: the next opening
    /// determines whether the group is committed.
    fn await_log(&mut self, error: &StoreError) -> Result<(), String> {
        tracing::error!(%error, "replicated log unavailable; commits are blocked");
        let started = Instant::now();
        while let Err(error) = self.state.writer.retry_commit() {
            if !matches!(error, StoreError::Unavailable { .. }) {
                return Err(self.failed(&error));
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(error.to_string());
            }
            std::thread::park_timeout(LOG_RETRY_DELAY);
        }
        tracing::info!(waited = ?started.elapsed(), "replicated log available again");
        Ok(())
    }

    fn failed(&self, error: &StoreError) -> String {
        match error {
            StoreError::Fenced { .. } => self.instances.mark_lost(),
            error => tracing::error!(%error, "commit failed"),
        }
        error.to_string()
    }

    fn complete(&mut self, changes: &[Change], completions: &mut Vec<PendingCompletion>) {
        let commits = changes.iter().filter_map(|change| match change {
            Change::Apply(commit) => Some(commit),
            _ => None,
        });
        for commit in commits.clone() {
            self.metrics.count_commit(commit, &mut self.tenant_cache);
        }
        if let Some(observer) = &self.observer {
            commits.for_each(|commit| observer.on_commit(commit));
        }
        if changes.iter().any(stores_dead_letter) {
            self.instances.context.dead_letters_added.notify_one();
        }
        for (done, mailbox) in completions.drain(..) {
            done.complete();
            if let Some(mailbox) = mailbox {
                mailbox.committed();
                self.instances.check_idle(&mailbox);
            }
        }
    }

    /// Reports the group to the tracer.
    fn trace(&self, gathered: &mut CommitGroup, started: Instant, ended: Instant) {
        let CommitGroup { changes, followed, .. } = gathered;
        if let Some(tracer) = self.instances.context.tracer.as_ref().filter(|_| !followed.is_empty()) {
            tracer.committed(&CommitGroupSpan { traced: followed, changes, started, ended });
        }
        followed.clear();
    }
}

fn stores_dead_letter(change: &Change) -> bool {
    match change {
        Change::Apply(commit) => commit.dead_letter.is_some(),
        Change::PutDeadLetter(_) => true,
        _ => false,
    }
}

impl CommitGroup {
    fn add(&mut self, submission: Submission) {
        let Submission { change, extra, done, mailbox, decided } = submission;
        self.changes.extend(extra);
        self.followed.extend(decided.map(|decided| (self.changes.len(), decided)));
        self.changes.push(change);
        self.completions.push((done.stage(), mailbox));
    }
}

fn count(length: usize) -> f64 {
    f64::from(u32::try_from(length).unwrap_or(u32::MAX))
}

/// Observer of durable commits. Called on the committer thread: it must return quickly.
pub trait CommitObserver: Send + Sync + 'static {
    /// Called when the commit is durable.
    fn on_commit(&self, commit: &Commit);
}
