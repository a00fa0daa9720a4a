//! Instance registry of a shard: delivers every input to the mailbox of its instance.
//!
//! [`InstanceRegistry::deliver`] finds or creates the mailbox, appends the input, and wakes the
//! saga actor or starts it. The registry survives restarts of the shard; its mailboxes do not. Each
//! run of the shard is an [`Incarnation`].

pub(crate) mod completion;
pub(crate) mod decision_pool;
pub(crate) mod fair_queue;
pub(crate) mod idle_actors;
pub(crate) mod live_instances;
pub(crate) mod mailbox;
pub(crate) mod owned_program;
pub(crate) mod program_registry;
pub(crate) mod recordings;
pub(crate) mod saga;
pub(crate) mod waiters;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use orlog_effect::LeaseEnd;
use orlog_model::count::{Operation, count};
use orlog_model::{Change, InstanceKey};
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use ractor::{ActorCell, ActorId, ActorRef, ActorRuntime};
use tokio::sync::oneshot;

use crate::instance::completion::{Completion, ControlReply};
use crate::instance::live_instances::LiveInstances;
use crate::instance::mailbox::{Envelope, Mailbox, PushResult, SagaMessage};
use crate::instance::saga::SagaActor;
use crate::instance::saga::state::SagaDependencies;
use crate::instance::waiters::{Awaited, InstanceWaiter, InstanceWaiters};
use crate::shard::epoch::ShardEpoch;
use crate::shard::stream_progress::ShardStreams;
use crate::shard::submission::{CommitterHandle, ShardUnavailable, Submission};
use crate::telemetry::log_instance;

/// Instance registry of one shard.
pub(crate) struct InstanceRegistry {
    live: Arc<LiveInstances>,
    /// The current incarnation; `None` while the shard is down.
    open: RwLock<Option<Incarnation>>,
    /// Epoch of the current or the last incarnation.
    epoch: RwLock<Arc<ShardEpoch>>,
    /// End of the lease of this process.
    lease: LeaseEnd,
    /// Another process owns the shard.
    lost: AtomicBool,
    /// The shard was released and does not open again.
    released: AtomicBool,
    /// Number of incarnations so far.
    incarnations: AtomicU64,
    /// Counts the delivered inputs.
    inputs: Counter,
    /// Requests that wait for the end of an instance.
    pub(crate) waiters: Arc<InstanceWaiters>,
}

/// One run of the shard, from start to failure.
pub(crate) struct Incarnation {
    /// Supervisor of the saga actors.
    pub(crate) shard: ActorCell,
    /// Dependencies of the saga actors, with the committer.
    pub(crate) sagas: Arc<SagaDependencies>,
    /// Progress in the streams that the incarnation reads.
    pub(crate) streams: Arc<ShardStreams>,
}

impl Incarnation {
    fn committer(&self) -> &CommitterHandle {
        &self.sagas.committer
    }

    /// Makes a saga actor serve a mailbox: an idle one or a new one. Returns `None` if this is not
    /// possible.
    fn start_saga(&self, mailbox: &Arc<Mailbox>) -> Option<ActorRef<SagaMessage>> {
        while let Some(idle) = self.sagas.idle_actors.take() {
            if mailbox::send(&idle, SagaMessage::Serve(Arc::clone(mailbox))) {
                return Some(idle);
            }
        }

        count(Operation::ActorStart);
        let arguments = Arc::clone(&self.sagas);
        let spawned =
            ActorRuntime::spawn_linked_instant(None, SagaActor, arguments, self.shard.clone());
        match spawned {
            Ok((actor, _)) => {
                // If the new actor crashed immediately, its supervisor notifies the shard.
                mailbox::send(&actor, SagaMessage::Serve(Arc::clone(mailbox)));
                Some(actor)
            }
            Err(error) => {
                log_instance!(ERROR, mailbox.key, None, %error, "cannot start a saga actor");
                None
            }
        }
    }
}

impl InstanceRegistry {
    pub(crate) fn new(live: Arc<LiveInstances>, lease: LeaseEnd, inputs: Counter) -> Arc<Self> {
        Arc::new(Self {
            live,
            open: RwLock::new(None),
            epoch: RwLock::new(Arc::new(ShardEpoch::new(lease.clone()))),
            lease,
            lost: AtomicBool::new(false),
            released: AtomicBool::new(false),
            incarnations: AtomicU64::new(0),
            inputs,
            waiters: Arc::default(),
        })
    }

    /// Starts a new incarnation; no state of the previous one is in memory. Returns its number.
    pub(crate) fn open(&self, incarnation: Incarnation) -> u64 {
        self.close();
        let mut open = self.open.write();

        let number = self.incarnations.fetch_add(1, Ordering::AcqRel) + 1;
        *self.epoch.write() = Arc::new(ShardEpoch::new(self.lease.clone()));

        // A release can overtake a restart: the shard must not open again under a lease that has
        // ended.
        if self.released.load(Ordering::Acquire) {
            incarnation.committer().stop();
        } else {
            *open = Some(incarnation);
        }
        number
    }

    /// Ends the shard in this process at once: no further input is accepted and no transition is
    /// decided.
    pub(crate) fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.close();
    }

    /// Returns true if the shard was released.
    pub(crate) fn is_released(&self) -> bool {
        self.released.load(Ordering::Acquire)
    }

    /// Records that another process owns the shard: it must not be restarted here, and its attempts
    /// are cancelled.
    pub(crate) fn mark_lost(&self) {
        self.epoch().cancel();
        self.lost.store(true, Ordering::Release);
    }

    /// Returns true if another process owns the shard.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    /// Returns the epoch of the current or the last incarnation.
    pub(crate) fn epoch(&self) -> Arc<ShardEpoch> {
        Arc::clone(&self.epoch.read())
    }

    /// Ends the incarnation, its epoch and its committer: queued inputs are dropped without
    /// acknowledgement and delivered again.
    pub(crate) fn close(&self) {
        // The epoch first: no attempt starts for a shard that can no longer store its result.
        self.epoch().end();
        let ended = self.open.write().take();

        // After the lock is free: senders that saw the incarnation have appended, and a mailbox
        // that is closed before could be created again.
        self.live.close();
        self.waiters.close();
        if let Some(incarnation) = ended {
            incarnation.committer().stop();
        }
    }

    /// Registers a request that waits for the end of an instance. The end of the incarnation ends
    /// it.
    pub(crate) fn watch(
        &self,
        key: &InstanceKey,
        awaited: Awaited,
    ) -> Result<InstanceWaiter, ShardUnavailable> {
        self.with_incarnation(|_| Ok(self.waiters.register(key, awaited)))
    }

    /// Calls `act` with the current incarnation, which does not end meanwhile.
    fn with_incarnation<T>(
        &self,
        act: impl FnOnce(&Incarnation) -> Result<T, ShardUnavailable>,
    ) -> Result<T, ShardUnavailable> {
        let open = self.open.read();
        open.as_ref().ok_or(ShardUnavailable).and_then(act)
    }

    /// Returns the committer of the current incarnation.
    pub(crate) fn committer(&self) -> Result<CommitterHandle, ShardUnavailable> {
        self.with_incarnation(|incarnation| Ok(incarnation.committer().clone()))
    }

    /// Submits a change to the committer of the current incarnation.
    pub(crate) fn submit(&self, submission: Submission) -> Result<(), ShardUnavailable> {
        self.with_incarnation(|incarnation| incarnation.committer().submit(submission))
    }

    /// Returns the ack floor of a stream; `None` if the shard does not read it.
    pub(crate) fn ack_floor(&self, stream: &str) -> Option<u64> {
        let streams = self
            .with_incarnation(|incarnation| Ok(incarnation.streams.all()))
            .ok()?;

        streams
            .iter()
            .find(|progress| progress.stream() == stream)
            .map(|progress| progress.acker.ack_floor())
    }

    /// Delivers an input to its instance and activates the instance if it is not live.
    pub(crate) fn deliver(
        &self,
        key: &InstanceKey,
        envelope: Envelope,
    ) -> Result<(), ShardUnavailable> {
        self.with_incarnation(|incarnation| {
            self.push(incarnation, key, envelope);
            Ok(())
        })
    }

    /// Delivers an input within one incarnation. A stopped task may run for a moment; its inputs
    /// would overtake the inputs that are delivered again in the next incarnation.
    pub(crate) fn deliver_in_incarnation(
        &self,
        number: u64,
        key: &InstanceKey,
        envelope: Envelope,
    ) -> Result<(), ShardUnavailable> {
        self.with_incarnation(|incarnation| {
            if self.incarnations.load(Ordering::Acquire) != number {
                return Err(ShardUnavailable);
            }
            self.push(incarnation, key, envelope);
            Ok(())
        })
    }

    /// Appends an input to its mailbox. The incarnation must not end meanwhile: the mailbox would
    /// outlive it.
    fn push(&self, incarnation: &Incarnation, key: &InstanceKey, mut envelope: Envelope) {
        self.inputs.inc();
        loop {
            let mailbox = self.live.mailbox(key);
            // The mailbox can close between its lookup and the push, when its instance is
            // passivated. The input then waits in a new one.
            match mailbox.push(envelope) {
                PushResult::Queued => return,
                PushResult::NeedsActorStart => {
                    return mailbox.ensure_actor(|| incarnation.start_saga(&mailbox));
                }
                PushResult::Closed(back) => {
                    envelope = back;
                    self.live.remove(&mailbox);
                }
            }
        }
    }

    /// Activates an instance that has buffered inputs to apply.
    pub(crate) fn activate(&self, key: &InstanceKey) -> Result<(), ShardUnavailable> {
        self.with_incarnation(|incarnation| {
            let mailbox = self.live.mailbox(key);
            mailbox.ensure_actor(|| incarnation.start_saga(&mailbox));
            Ok(())
        })
    }

    /// Commits a change that purges data of an instance. Returns `None` if the instance is live.
    /// Inputs that arrive meanwhile wait for the commit.
    pub(crate) fn purge(
        &self,
        key: &InstanceKey,
        change: Change,
    ) -> Result<Option<oneshot::Receiver<ControlReply>>, ShardUnavailable> {
        self.with_incarnation(|incarnation| {
            let Some(mailbox) = self.live.reserve(key) else {
                return Ok(None);
            };

            // The reserved mailbox counts this commit and ends with it.
            let (done, response) = Completion::for_caller();
            let submission = Submission {
                mailbox: Some(mailbox),
                ..Submission::new(change, done)
            };
            incarnation.committer().submit(submission)?;
            Ok(Some(response))
        })
    }

    /// Starts a new actor for the mailbox of a crashed saga actor; returns `false` if it served no
    /// mailbox.
    pub(crate) fn restart_saga(&self, crashed: ActorId) -> bool {
        let restarted = self.with_incarnation(|incarnation| {
            // The inputs are in the mailbox, not in the actor: its successor continues with the
            // same queue.
            let mailbox = self.live.served_by(crashed).ok_or(ShardUnavailable)?;
            mailbox.actor_crashed();
            mailbox.ensure_actor(|| incarnation.start_saga(&mailbox));
            Ok(())
        });
        restarted.is_ok()
    }
}
