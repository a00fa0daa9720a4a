//! The one writer of a shard: collects commits into groups and makes each group durable at once.
//!
//! A thread of its own holds the store's `Writer`, because a commit blocks. While the disk is busy with one group, the
//! next one gathers. The actor beside it only watches the thread: when it ends, the actor fails, and with it the shard.
//!
//! A full store is not a failure: the group waits and is tried again until there is room; what was accepted stays. A log that
//! does not answer is none either: the group waits until its fate is known.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender};
use orlog_model::{Change, Clock, Commit};
use orlog_store::{Error as StoreError, Writer};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::{Mutex, OwnedMutexGuard, oneshot};

use crate::instance::completion::Done;
use crate::instance::mailbox::Cell;
use crate::instance::registry::Directory;
use crate::shard::submission::{Committer, Order, Submission};
use crate::telemetry::metrics::{ActorKind, Alive, Metrics, Passing};
use crate::telemetry::tracer::{Decided, Group};

/// How long a group waits before it is tried again on a full store.
const FULL_PAUSE: Duration = Duration::from_millis(200);

/// How long a group waits before its log is tried again.
const LOG_PAUSE: Duration = Duration::from_millis(50);

/// The writer between two lives of a committer.
pub(crate) type WriterSlot = Arc<Mutex<Slot>>;

/// See [`WriterSlot`].
pub(crate) struct Slot {
    pub(crate) writer: Writer,
    /// The last commit failed: what is durable must be looked up before the next.
    pub(crate) failed: bool,
}

/// The actor.
pub(crate) struct CommitterActor;

/// What it needs.
pub(crate) struct Arguments {
    pub(crate) slot: WriterSlot,
    pub(crate) directory: Arc<Directory>,
    pub(crate) observer: Option<Arc<dyn CommitObserver>>,
    /// Receives the way to the committer once it runs and the store is known to be sound.
    pub(crate) started: oneshot::Sender<Committer>,
}

/// What it is told.
pub(crate) enum Message {
    /// The thread ended; why, where it failed.
    Ended(Option<String>),
}

/// Stops the thread when it goes.
pub(crate) struct State {
    orders: Sender<Order>,
    stop: Arc<AtomicBool>,
    _alive: Alive,
}

impl Drop for State {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // An error means that the thread has ended by itself.
        drop(self.orders.send(Order::Stop));
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
        let slot = arguments.slot.lock_owned().await;
        let (orders, received) = crossbeam_channel::unbounded();
        let stop = Arc::new(AtomicBool::new(false));
        let alive = arguments.directory.context.metrics.begin(ActorKind::Committer);
        let thread = Thread {
            slot,
            received,
            group: arguments.directory.context.limits.group,
            clock: Arc::clone(&arguments.directory.context.clock),
            metrics: Arc::clone(&arguments.directory.context.metrics),
            passing: Passing::default(),
            directory: arguments.directory,
            stop: Arc::clone(&stop),
            observer: arguments.observer,
        };
        let ready = (arguments.started, Committer::new(orders.clone()));
        std::thread::Builder::new().name("orlog-committer".to_owned()).spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(|| thread.run(ready)));
            let why = ended.unwrap_or_else(|_| Err("the committer thread panicked".to_owned())).err();
            drop(myself.cast(Message::Ended(why)));
        })?;
        Ok(State { orders, stop, _alive: alive })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        _: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Message::Ended(why) = message;
        Err(why.unwrap_or_else(|| "the committer thread ended".to_owned()).into())
    }
}

struct Thread {
    slot: OwnedMutexGuard<Slot>,
    received: Receiver<Order>,
    group: usize,
    clock: Arc<dyn Clock>,
    metrics: Arc<Metrics>,
    passing: Passing,
    directory: Arc<Directory>,
    stop: Arc<AtomicBool>,
    observer: Option<Arc<dyn CommitObserver>>,
}

/// The rest of a submission, for after the commit.
type Completion = (Done, Option<Arc<Cell>>);

/// What is gathered to be committed at once.
#[derive(Default)]
struct Gathered {
    changes: Vec<Change>,
    completions: Vec<Completion>,
    /// What somebody follows, and which of the changes it is.
    followed: Vec<(usize, Box<Decided>)>,
}

impl Thread {
    fn run(mut self, (started, committer): (oneshot::Sender<Committer>, Committer)) -> Result<(), String> {
        if self.slot.failed {
            if let Err(error) = self.slot.writer.recover() {
                return Err(self.failed(&error));
            }
            self.slot.failed = false;
        }
        // Not before: while a store is being recovered it cannot be read. An error means that the shard is gone.
        drop(started.send(committer));
        // Set for as long as a panic could leave the writer in doubt.
        self.slot.failed = true;
        let ended = self.serve();
        self.slot.failed = ended.is_err();
        ended
    }

    fn serve(&mut self) -> Result<(), String> {
        let mut gathered = Gathered::default();
        while let Ok(Order::Submit(first)) = self.received.recv() {
            let mut stop = false;
            gathered.add(*first);
            while gathered.changes.len() < self.group && !stop {
                match self.received.try_recv() {
                    Ok(Order::Submit(next)) => gathered.add(*next),
                    Ok(Order::Stop) => stop = true,
                    Err(_) => break,
                }
            }
            let begun = Instant::now();
            if !self.commit(&gathered.changes)? {
                return Ok(());
            }
            let ended = Instant::now();
            self.complete(&gathered.changes, &mut gathered.completions);
            // Nobody waits for this any more.
            self.trace(&mut gathered, begun, ended);
            gathered.changes.clear();
            if stop {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes the group durable. `false` when told to stop while there is no room; nothing of the group is committed then.
    fn commit(&mut self, changes: &[Change]) -> Result<bool, String> {
        let begun = Instant::now();
        while let Err(error) = self.slot.writer.commit(changes, self.clock.now()) {
            match error {
                StoreError::Full { .. } => {
                    if !self.metrics.set_store_full(true) {
                        tracing::error!(%error, "no room: nothing is accepted until there is");
                    }
                    if self.stop.load(Ordering::Acquire) {
                        return Ok(false);
                    }
                    std::thread::park_timeout(FULL_PAUSE);
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
        if self.metrics.set_store_full(false) {
            tracing::info!("there is room again");
        }
        self.metrics.commits.inc();
        self.metrics.commit_changes.observe(count(changes.len()));
        self.metrics.commit_seconds.observe(begun.elapsed().as_secs_f64());
        Ok(true)
    }

    /// Goes on with the commit whose log does not answer, until it does. Told to stop meanwhile it fails: whether the group is
    /// committed is found out with the next opening.
    fn await_log(&mut self, error: &StoreError) -> Result<(), String> {
        tracing::error!(%error, "the log of the shard is away: commits wait for it");
        let begun = Instant::now();
        while let Err(error) = self.slot.writer.resume() {
            if !matches!(error, StoreError::Unavailable { .. }) {
                return Err(self.failed(&error));
            }
            if self.stop.load(Ordering::Acquire) {
                return Err(error.to_string());
            }
            std::thread::park_timeout(LOG_PAUSE);
        }
        tracing::info!(waited = ?begun.elapsed(), "the log of the shard is back");
        Ok(())
    }

    fn failed(&self, error: &StoreError) -> String {
        match error {
            StoreError::Fenced { .. } => self.directory.lose(),
            error => tracing::error!(%error, "a commit failed"),
        }
        error.to_string()
    }

    fn complete(&mut self, changes: &[Change], completions: &mut Vec<Completion>) {
        let commits = changes.iter().filter_map(|change| match change {
            Change::Apply(commit) => Some(commit),
            _ => None,
        });
        for commit in commits.clone() {
            self.metrics.count_commit(commit, &mut self.passing);
        }
        if let Some(observer) = &self.observer {
            commits.for_each(|commit| observer.committed(commit));
        }
        if changes.iter().any(keeps_letter) {
            self.directory.context.letters.notify_one();
        }
        for (done, cell) in completions.drain(..) {
            done.complete();
            if let Some(cell) = cell {
                cell.committed();
                self.directory.rest(&cell);
            }
        }
    }

    /// Tells whoever makes spans.
    fn trace(&self, gathered: &mut Gathered, begun: Instant, ended: Instant) {
        let Gathered { changes, followed, .. } = gathered;
        if let Some(tracer) = self.directory.context.tracer.as_ref().filter(|_| !followed.is_empty()) {
            tracer.committed(&Group { followed, changes, begun, ended });
        }
        followed.clear();
    }
}

fn keeps_letter(change: &Change) -> bool {
    match change {
        Change::Apply(commit) => commit.dead_letter.is_some(),
        Change::PutDeadLetter(_) => true,
        _ => false,
    }
}

impl Gathered {
    fn add(&mut self, submission: Submission) {
        let Submission { change, extra, done, cell, decided } = submission;
        self.changes.extend(extra);
        self.followed.extend(decided.map(|decided| (self.changes.len(), decided)));
        self.changes.push(change);
        self.completions.push((done, cell));
    }
}

fn count(length: usize) -> f64 {
    f64::from(u32::try_from(length).unwrap_or(u32::MAX))
}

/// Hears of every commit, after it is durable. Called on the committer's thread: it must be quick.
pub trait CommitObserver: Send + Sync + 'static {
    /// The commit is durable.
    fn committed(&self, commit: &Commit);
}
