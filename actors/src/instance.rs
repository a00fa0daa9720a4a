//! Instance registry of a shard: delivers every input to the mailbox of its instance.
//!
//! [`InstanceRegistry::deliver`] finds or creates the mailbox, appends the input, and wakes the
//! saga actor or starts it. The registry survives restarts of the shard; its mailboxes do not.

pub(crate) mod completion;
pub(crate) mod decision_pool;
pub(crate) mod fair_queue;
pub(crate) mod idle_actors;
pub(crate) mod ignored_events;
pub(crate) mod live_instances;
pub(crate) mod mailbox;
pub(crate) mod owned_program;
pub(crate) mod program_registry;
pub(crate) mod recordings;
pub(crate) mod saga;
pub(crate) mod waiters;

use std::sync::Arc;

use orlog_effect::LeaseEnd;
use orlog_model::count::{Operation, count};
use orlog_model::{Change, InstanceKey};
use prometheus_client::metrics::counter::Counter;
use ractor::{ActorId, ActorRef, ActorRuntime};
use tokio::sync::oneshot;

use crate::instance::completion::{Completion, ControlReply};
use crate::instance::live_instances::LiveInstances;
use crate::instance::mailbox::{Envelope, Mailbox, PushResult, SagaMessage};
use crate::instance::saga::SagaActor;
use crate::instance::waiters::{Awaited, InstanceWaiter, InstanceWaiters};
use crate::shard::lifecycle::{Incarnation, ShardLifecycle};
use crate::shard::submission::{ShardUnavailable, Submission};
use crate::telemetry::log_instance;

/// Instance registry of one shard.
pub(crate) struct InstanceRegistry {
    /// Lifecycle of the shard: inputs are delivered while it is open.
    pub(crate) lifecycle: ShardLifecycle,
    live: Arc<LiveInstances>,
    /// Counts the delivered inputs.
    inputs: Counter,
    /// Requests that wait for the end of an instance.
    pub(crate) waiters: Arc<InstanceWaiters>,
}

/// Makes a saga actor serve a mailbox: an idle one or a new one. Returns `None` if this is not
/// possible.
fn start_saga(incarnation: &Incarnation, mailbox: &Arc<Mailbox>) -> Option<ActorRef<SagaMessage>> {
    while let Some(idle) = incarnation.sagas.idle_actors.take() {
        if mailbox::send(&idle, SagaMessage::Serve(Arc::clone(mailbox))) {
            return Some(idle);
        }
    }

    count(Operation::ActorStart);
    let arguments = Arc::clone(&incarnation.sagas);
    let supervisor = incarnation.shard.clone();
    let spawned = ActorRuntime::spawn_linked_instant(None, SagaActor, arguments, supervisor);
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

impl InstanceRegistry {
    pub(crate) fn new(live: Arc<LiveInstances>, lease: LeaseEnd, inputs: Counter) -> Arc<Self> {
        Arc::new(Self {
            lifecycle: ShardLifecycle::new(lease),
            live,
            inputs,
            waiters: Arc::default(),
        })
    }

    /// Starts a new incarnation; no state of the previous one is in memory. Returns its number.
    pub(crate) fn open(&self, incarnation: Incarnation) -> u64 {
        self.close();
        self.lifecycle.begin(incarnation)
    }

    /// Ends the incarnation, its epoch and its committer: queued inputs are dropped without
    /// acknowledgement and delivered again.
    pub(crate) fn close(&self) {
        let ended = self.lifecycle.end();

        // After the incarnation has ended: senders that saw it have appended, and a mailbox that is
        // closed before could be created again.
        self.live.close();
        self.waiters.close();
        if let Some(incarnation) = ended {
            incarnation.committer().stop();
        }
    }

    /// Ends the shard in this process at once: no further input is accepted and no transition is
    /// decided.
    pub(crate) fn release(&self) {
        self.lifecycle.mark_released();
        self.close();
    }

    /// Registers a request that waits for the end of an instance. The end of the incarnation ends
    /// it.
    pub(crate) fn watch(
        &self,
        key: &InstanceKey,
        awaited: Awaited,
    ) -> Result<InstanceWaiter, ShardUnavailable> {
        self.lifecycle
            .with_incarnation(|_| Ok(self.waiters.register(key, awaited)))
    }

    /// Delivers an input to its instance and activates the instance if it is not live.
    pub(crate) fn deliver(
        &self,
        key: &InstanceKey,
        envelope: Envelope,
    ) -> Result<(), ShardUnavailable> {
        self.lifecycle.with_incarnation(|incarnation| {
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
        self.lifecycle.with_incarnation_of(number, |incarnation| {
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
                    return mailbox.ensure_actor(|| start_saga(incarnation, &mailbox));
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
        self.lifecycle.with_incarnation(|incarnation| {
            let mailbox = self.live.mailbox(key);
            mailbox.ensure_actor(|| start_saga(incarnation, &mailbox));
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
        self.lifecycle.with_incarnation(|incarnation| {
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
        let restarted = self.lifecycle.with_incarnation(|incarnation| {
            // The inputs are in the mailbox, not in the actor: its successor continues with the
            // same queue.
            let mailbox = self.live.served_by(crashed).ok_or(ShardUnavailable)?;
            mailbox.actor_crashed();
            mailbox.ensure_actor(|| start_saga(incarnation, &mailbox));
            Ok(())
        });
        restarted.is_ok()
    }
}
