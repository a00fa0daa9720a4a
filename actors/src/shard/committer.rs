//! Single writer of a shard: groups commits and makes each group durable with one write.
//!
//! A dedicated thread owns the store's `Writer`, because a commit blocks. While the disk writes one
//! group, the next group collects in the mailbox (`submission.rs`). The actor only watches the
//! thread: when the thread ends, the actor fails, and with it the shard. The end of the incarnation
//! stops the thread.
//!
//! Each group contains the checkpoint of each stream: state, outbox, dedupe keys and checkpoint are
//! one transaction.
//!
//! A full store is not a failure, nor is a journal that cannot create a segment: the group is
//! retried until it is committed; accepted inputs are kept. An unavailable log is not a failure
//! either: the group waits until its result is known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::RecvTimeoutError;
use orlog_model::{Change, Clock, Commit};
use orlog_store::{Error as StoreError, Reader, Writer};
use ractor::{ActorCell, ActorProcessingErr};
use tokio::sync::{Mutex, Notify, OwnedMutexGuard, oneshot};

use crate::effects::providers::ProviderRegistry;
use crate::instance::InstanceRegistry;
use crate::instance::completion::Completion;
use crate::instance::live_instances::LiveInstances;
use crate::instance::mailbox::Mailbox;
use crate::instance::waiters::InstanceWaiters;
use crate::shard::attention;
use crate::shard::fresh_queue::FreshRows;
use crate::shard::stream_progress::{ShardStreams, StreamProgress};
use crate::shard::submission::{CommitterHandle, CommitterMailbox, CommitterRequest, Submission};
use crate::supervision::{TaskActor, TaskKind};
use crate::telemetry::metrics::{ActorKind, CommitCounters, Metrics};
use crate::telemetry::tracer::{CommitGroupSpan, Tracer, TransitionSpan};

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

/// Committer actor: watches the thread.
pub(crate) struct Committer;

impl TaskKind for Committer {
    const KIND: ActorKind = ActorKind::Committer;
}

/// Arguments of the committer.
pub(crate) struct Arguments {
    pub(crate) writer: SharedWriter,
    pub(crate) reader: Reader,
    /// Maximum number of changes in a group.
    pub(crate) max_group_commit: usize,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) observer: Option<Arc<dyn CommitObserver>>,
    /// Streams whose checkpoints are committed.
    pub(crate) streams: Arc<ShardStreams>,
    /// Instances that become idle when their last commit is durable.
    pub(crate) live: Arc<LiveInstances>,
    /// Requests that wait for the end of an instance.
    pub(crate) waiters: Arc<InstanceWaiters>,
    pub(crate) fresh: FreshRows,
    /// Notified when dead letters must be published.
    pub(crate) dead_letters_added: Arc<Notify>,
    /// Providers of abandoned jobs.
    pub(crate) providers: Arc<ProviderRegistry>,
}

/// Starts the committer; returns its actor and its handle when the store is verified.
pub(crate) async fn start(
    arguments: Arguments,
    registry: Arc<InstanceRegistry>,
    supervisor: ActorCell,
) -> Result<(ActorCell, CommitterHandle), ActorProcessingErr> {
    let state = Arc::clone(&arguments.writer).lock_owned().await;

    let (handle, mailbox) = CommitterMailbox::new();
    let (started, is_started) = oneshot::channel();
    let (done, ended) = oneshot::channel();

    let metrics = Arc::clone(&arguments.metrics);
    let thread = CommitterThread {
        state,
        mailbox,
        arguments,
        counters: CommitCounters::default(),
        sequences: Vec::new(),
    };
    std::thread::Builder::new()
        .name("orlog-committer".to_owned())
        .spawn(move || {
            // An error means that the actor has stopped.
            done.send(thread.run(started, handle)).ok();
        })?;

    // Without a handle the thread has ended: its store cannot be read, so the shard must not start.
    let Ok(handle) = is_started.await else {
        return Err(end_of(ended, &registry).await.into());
    };
    let watch = async move { Err(end_of(ended, &registry).await) };
    Ok((
        TaskActor::<Committer>::spawn(supervisor, &metrics, watch).await?,
        handle,
    ))
}

/// Waits for the end of the thread and returns its reason.
async fn end_of(
    ended: oneshot::Receiver<Result<(), StoreError>>,
    registry: &InstanceRegistry,
) -> String {
    match ended.await {
        Ok(Ok(())) => "the committer thread ended".to_owned(),
        Ok(Err(error)) => {
            match &error {
                // The next owner continues the shard: no error of this process.
                StoreError::Fenced { .. } => registry.lifecycle.mark_lost(),
                error => tracing::error!(%error, "commit failed"),
            }
            error.to_string()
        }
        Err(_) => "the committer thread panicked".to_owned(),
    }
}

struct CommitterThread {
    state: OwnedMutexGuard<WriterState>,
    mailbox: CommitterMailbox,
    arguments: Arguments,
    counters: CommitCounters,
    /// Outbox sequences of the work items of the group.
    sequences: Vec<u64>,
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
        started: oneshot::Sender<CommitterHandle>,
        committer: CommitterHandle,
    ) -> Result<(), StoreError> {
        // The last commit can be in the journal although its result was not received.
        if self.state.failed {
            self.state.writer.recover()?;
            self.state.failed = false;
        }

        // Not earlier: a store that is being recovered cannot be read.
        if started.send(committer).is_err() {
            return Ok(());
        }

        // Set while a panic could leave the state of the writer unknown.
        self.state.failed = true;
        let ended = self.serve();
        self.state.failed = ended.is_err();
        ended
    }

    fn serve(&mut self) -> Result<(), StoreError> {
        let mut gathered = CommitGroup::default();
        let mut stop = false;

        while !stop {
            let mut is_due = false;
            match self.mailbox.requests.recv_timeout(CHECKPOINT_INTERVAL) {
                Ok(CommitterRequest::Submit(first)) => stop = self.gather(*first, &mut gathered),
                Ok(CommitterRequest::Stop) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
                // A purge continues with empty groups if there are no others.
                Err(RecvTimeoutError::Timeout) => is_due = self.state.writer.is_purging(),
            }

            let streams = self.arguments.streams.all();

            // The checkpoint that includes this group, not the one before: state and position are
            // one transaction, so that a restart reads no applied message again.
            gathered
                .changes
                .extend(streams.iter().filter_map(|stream| stream.checkpoint()));
            if is_due || !gathered.changes.is_empty() {
                let started = Instant::now();
                if !self.commit(&gathered.changes)? {
                    return Ok(());
                }
                self.finish(&mut gathered, &streams, started);
            }

            // The cursors of the bus follow the disk, not the commit: with the durability
            // `interval`, a power failure can still lose this group.
            let durable = self.arguments.reader.durable_position();
            let durable = durable.map_or(u64::MAX, |durable| durable.position);
            for stream in &streams {
                stream.synced(durable);
            }
        }
        Ok(())
    }

    /// Adds the first submission and all waiting ones to the group; returns whether a stop was
    /// requested.
    fn gather(&self, first: Submission, gathered: &mut CommitGroup) -> bool {
        gathered.add(first);

        // All that wait, without a delay: while the disk writes one group, the next one collects.
        while gathered.changes.len() < self.arguments.max_group_commit {
            match self.mailbox.requests.try_recv() {
                Ok(CommitterRequest::Submit(next)) => gathered.add(*next),
                Ok(CommitterRequest::Stop) => return true,
                Err(_) => break,
            }
        }
        false
    }

    /// Completes the inputs of a committed group.
    fn finish(
        &mut self,
        gathered: &mut CommitGroup,
        streams: &[Arc<StreamProgress>],
        started: Instant,
    ) {
        let ended = Instant::now();
        // The streams first: a completion can stop the process that reads their positions.
        let position = self.arguments.reader.position();
        for stream in streams {
            stream.committed(position);
        }
        self.complete(&gathered.changes, &mut gathered.completions);
        self.trace(gathered, started, ended);

        // Last, and without waiting: the relay and the timer read the store if their queues
        // overflow.
        self.arguments
            .fresh
            .hand_over(gathered.changes.drain(..), self.sequences.drain(..));
    }

    /// Makes the group durable. Returns `false` if a stop is requested while the store cannot
    /// commit; then none of these changes is acknowledged. A group that was divided can be
    /// committed in part: its inputs are delivered again, and recognized as duplicates.
    fn commit(&mut self, changes: &[Change]) -> Result<bool, StoreError> {
        // An accepted input is kept: the group is retried until the store can commit it.
        let started = Instant::now();
        let mut is_blocked = false;
        while let Err(error) = self
            .state
            .writer
            .commit(changes, self.arguments.clock.now())
        {
            match error {
                StoreError::Full { .. } => {
                    if !self.arguments.metrics.set_store_full(true) {
                        tracing::error!(%error, "store is full; rejecting commits");
                    }
                    if self.mailbox.is_stopping() {
                        // Operators must be able to stop a node whose disk is full.
                        return Ok(false);
                    }
                    std::thread::park_timeout(STORE_RETRY_DELAY);
                }
                StoreError::Rotation { .. } => {
                    if !std::mem::replace(&mut is_blocked, true) {
                        tracing::error!(%error, "commits are blocked; retrying");
                        self.arguments
                            .metrics
                            .set_commit_failure(Some(error.to_string()));
                    }
                    if self.mailbox.is_stopping() {
                        return Ok(false);
                    }
                    std::thread::park_timeout(STORE_RETRY_DELAY);
                }
                StoreError::TooLarge { .. } if changes.len() > 1 => {
                    // The group was gathered without its size in bytes, which only the store
                    // determines.
                    let (first, rest) = changes.split_at(division(changes));
                    return Ok(self.commit(first)? && self.commit(rest)?);
                }
                StoreError::Unavailable { .. } => {
                    self.await_log(&error)?;
                    break;
                }
                error => return Err(error),
            }
        }

        // Recorded only now: the sequences belong to the changes that are committed.
        self.sequences
            .extend_from_slice(self.state.writer.work_sequences());

        if is_blocked {
            self.arguments.metrics.set_commit_failure(None);
            tracing::info!("commits continue");
        }
        if self.arguments.metrics.set_store_full(false) {
            tracing::info!("store has free space again");
        }
        self.arguments.metrics.commits.inc();
        self.arguments
            .metrics
            .commit_changes
            .observe(count(changes.len()));
        self.arguments
            .metrics
            .commit_seconds
            .observe(started.elapsed().as_secs_f64());
        Ok(true)
    }

    /// Retries the commit until its log responds. Fails if a stop is requested meanwhile: the next
    /// opening determines whether the group is committed.
    fn await_log(&mut self, error: &StoreError) -> Result<(), StoreError> {
        tracing::error!(%error, "replicated log unavailable; commits are blocked");

        let started = Instant::now();

        // The log may have stored the entry although its response was lost, so only the same entry
        // is sent again: another one could be a second commit of the group.
        while let Err(error) = self.state.writer.retry_commit() {
            if !matches!(error, StoreError::Unavailable { .. }) || self.mailbox.is_stopping() {
                return Err(error);
            }
            std::thread::park_timeout(LOG_RETRY_DELAY);
        }

        tracing::info!(waited = ?started.elapsed(), "replicated log available again");
        Ok(())
    }

    fn complete(&mut self, changes: &[Change], completions: &mut Vec<PendingCompletion>) {
        let commits = changes.iter().filter_map(|change| match change {
            Change::Apply(commit) => Some(commit),
            _ => None,
        });
        for commit in commits.clone() {
            self.arguments
                .metrics
                .count_commit(commit, &mut self.counters);
            attention::log_change(commit);
            let abandoned = commit.abandoned_work();
            if !abandoned.is_empty() {
                let now = self.arguments.clock.steady();
                self.arguments
                    .providers
                    .withdraw(&commit.key.tenant, &abandoned, now);
            }
        }

        if let Some(observer) = &self.arguments.observer {
            commits.for_each(|commit| observer.on_commit(commit));
        }

        for change in changes {
            self.arguments.waiters.committed(change);
        }

        // One notification for each group, whatever the number of its dead letters.
        if changes.iter().any(stores_dead_letter) {
            self.arguments.dead_letters_added.notify_one();
        }

        // No input is completed and no work handed over before this: the changes are committed, and
        // as durable as the store is configured.
        for (done, mailbox) in completions.drain(..) {
            done.complete();
            if let Some(mailbox) = mailbox {
                mailbox.committed();
                self.arguments.live.check_idle(&mailbox);
            }
        }
    }

    /// Reports the group to the tracer.
    fn trace(&self, gathered: &mut CommitGroup, started: Instant, ended: Instant) {
        let CommitGroup {
            changes, followed, ..
        } = gathered;
        if let Some(tracer) = &self.arguments.tracer
            && !followed.is_empty()
        {
            tracer.committed(&CommitGroupSpan {
                traced: followed,
                changes,
                started,
                ended,
            });
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
        let Submission {
            change,
            extra,
            done,
            mailbox,
            decided,
        } = submission;

        // Before the change that it belongs to: a group that is too large is divided elsewhere.
        self.changes.extend(extra);
        self.followed
            .extend(decided.map(|decided| (self.changes.len(), decided)));
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

/// Returns where a group that is too large is divided, near its middle. An extra change stays in
/// the group of the change after it: without that change, its input or message would be lost.
fn division(changes: &[Change]) -> usize {
    let half = changes.len() / 2;

    let mut places = (half..changes.len()).chain((1..half).rev());
    places
        .find(|at| !is_extra(&changes[at - 1]))
        .unwrap_or(half)
}

fn is_extra(change: &Change) -> bool {
    matches!(
        change,
        Change::Settle(_)
            | Change::DropDeadLetter { .. }
            | Change::JobResult { .. }
            | Change::RequestKey { .. }
    )
}

#[cfg(test)]
mod tests {
    use orlog_model::{TenantId, Timestamp};
    use uuid::Uuid;

    use super::*;

    #[test]
    fn extra_change_is_not_divided_from_the_change_after_it() {
        let extra = || Change::DropDeadLetter {
            tenant: TenantId::new("acme").unwrap(),
            id: Uuid::nil(),
        };
        let other = || Change::PurgeDedupe {
            before: Timestamp::from_millis(0),
        };
        let divided = |kinds: &str| {
            let changes: Vec<_> = kinds
                .chars()
                .map(|kind| if kind == 'e' { extra() } else { other() })
                .collect();
            division(&changes)
        };
        for (kinds, expected) in [
            ("cc", 1),
            ("cccc", 2),
            ("cecc", 3),
            ("ccec", 2),
            ("eccc", 2),
            ("ccecec", 4),
        ] {
            assert_eq!(divided(kinds), expected, "{kinds}");
        }
        // There is no other place.
        assert_eq!(divided("ec"), 1);
        assert_eq!(divided("eeee"), 2);
    }
}
