//! One shard: its store, its committer, and the actors that use them.
//!
//! Children start in reverse order of the data flow. A crashed saga actor is replaced; a crash of
//! another child stops the shard, and its supervisor restarts it from durable state.

pub(crate) mod armed_timers;
mod attention;
pub(crate) mod buffer_activation;
pub(crate) mod committer;
pub(crate) mod dead_letter_publisher;
pub(crate) mod epoch;
mod event_admission;
pub(crate) mod event_source;
pub(crate) mod fresh_queue;
pub(crate) mod ingester;
pub(crate) mod lifecycle;
pub(crate) mod local_shards;
pub(crate) mod outbox_queues;
pub(crate) mod relay;
pub(crate) mod running;
pub(crate) mod stream_progress;
pub(crate) mod submission;
pub(crate) mod subscribe;
pub(crate) mod timer;
mod undeliverable;
mod worker_dead_letter;

use std::collections::BTreeMap;
use std::sync::Arc;

use orlog_bus::MaxInFlight;
use orlog_model::Change;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::sync::{Notify, oneshot};

use crate::instance::completion::Completion;
use crate::instance::idle_actors::IdleActors;
use crate::instance::saga::EXCESS;
use crate::instance::saga::state::SagaDependencies;
use crate::shard::armed_timers::TimerChange;
use crate::shard::dead_letter_publisher::DeadLetterPublisher;
use crate::shard::event_source::EventSource;
use crate::shard::fresh_queue::{FreshQueue, FreshRows, StoredWork};
use crate::shard::ingester::Ingester;
use crate::shard::lifecycle::Incarnation;
use crate::shard::relay::RelayActor;
use crate::shard::running::{RunningShard, ShardTemplate};
use crate::shard::stream_progress::ShardStreams;
use crate::shard::submission::{CommitterHandle, Submission};
use crate::shard::subscribe::SubscriptionArguments;
use crate::shard::timer::TimerActor;
use crate::supervision::{ActorTask, TaskActor, exit_of};
use crate::telemetry::metrics::{ActorKind, GaugeGuard};

/// Shard actor.
pub(crate) struct ShardActor;

/// Messages of a shard.
pub(crate) enum Message {
    /// Passivate idle instances and remove expired dedupe keys.
    Housekeeping,
    /// Stop ingestion and timers; reply when done.
    Quiesce(oneshot::Sender<()>),
    /// All instances with buffered inputs are active, or their activation failed.
    Activated(Result<(), String>),
}

/// State of a shard.
pub(crate) struct State {
    shard: Arc<RunningShard>,
    committer: CommitterHandle,
    /// Children other than saga actors.
    children: BTreeMap<ActorId, (ActorKind, ActorCell)>,
    quiescing: bool,
    _activating: ActorTask,
    _alive: GaugeGuard,
}

impl Actor for ShardActor {
    type Msg = Message;
    type State = State;
    type Arguments = Arc<RunningShard>;

    async fn pre_start(
        &self,
        myself: ActorRef<Message>,
        shard: Arc<RunningShard>,
    ) -> Result<State, ActorProcessingErr> {
        let me = myself.get_cell();
        let template = &shard.shared;
        let capacity = template.limits.max_fresh_rows;
        let work = Arc::new(FreshQueue::new(capacity));
        let timers = Arc::new(FreshQueue::new(capacity));
        let dead_letters_added = Arc::new(Notify::new());
        let streams = Arc::new(ShardStreams::default());
        let fresh = FreshRows::new(Arc::clone(&work), Arc::clone(&timers));

        let committing = committer_arguments(&shard, &streams, fresh, &dead_letters_added);
        let (committing, committer) =
            committer::start(committing, Arc::clone(&shard.registry), me.clone()).await?;

        // The committer has read the durable state. The sagas come next: the others deliver to
        // them.
        let number = shard.registry.open(Incarnation {
            shard: me.clone(),
            sagas: Arc::new(saga_dependencies(&shard, committer.clone())),
            streams: Arc::clone(&streams),
        });

        let (relay, _) =
            Actor::spawn_linked(None, RelayActor, relay_arguments(&shard, work), me.clone())
                .await?;
        let (timer, _) = Actor::spawn_linked(
            None,
            TimerActor,
            timer_arguments(&shard, timers),
            me.clone(),
        )
        .await?;

        // Published from the store, so that no dead letter is lost with the process.
        let publishing = dead_letter_publisher::Arguments {
            reader: shard.reader.clone(),
            committer: committer.clone(),
            added: dead_letters_added,
            bus: Arc::clone(&template.bus),
            encoder: Arc::clone(&template.dead_letter_encoder),
        };
        let publishing = dead_letter_publisher::publish_all(publishing);
        let publisher =
            TaskActor::<DeadLetterPublisher>::spawn(me.clone(), &template.metrics, publishing)
                .await?;

        let mut children = vec![
            (ActorKind::Committer, committing),
            (ActorKind::Relay, relay.get_cell()),
            (ActorKind::Timer, timer.get_cell()),
            (ActorKind::DeadLetterPublisher, publisher),
        ];

        // Last: each event that they read needs all others.
        for source in &template.sources {
            let ingesting =
                ingester_arguments(&shard, source.clone(), number, Arc::clone(&streams));
            let ingesting = ingester::ingest(ingesting);
            let ingester =
                TaskActor::<Ingester>::spawn(me.clone(), &template.metrics, ingesting).await?;
            children.push((ActorKind::Ingester, ingester));
        }

        drop(myself.send_interval(template.limits.idle_timeout / 4, || Message::Housekeeping));
        let activating =
            buffer_activation::activate_buffered(Arc::clone(&shard.registry), shard.reader.clone());

        Ok(State {
            committer,
            children: children
                .into_iter()
                .map(|child| (child.1.get_id(), child))
                .collect(),
            quiescing: false,
            _activating: ActorTask::spawn(&myself, activating, Message::Activated),
            _alive: template.metrics.actor_started(ActorKind::Shard),
            shard,
        })
    }

    async fn handle(
        &self,
        _: ActorRef<Message>,
        message: Message,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Housekeeping => state.tidy()?,
            Message::Quiesce(done) => {
                state.quiesce().await;
                done.send(()).ok();
            }
            Message::Activated(result) => result?,
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<Message>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match exit_of(event) {
            Some((_, reason)) if reason == EXCESS => Ok(()),
            Some((child, reason)) => state.handle_crash(&child, &reason),
            None => Ok(()),
        }
    }

    async fn post_stop(
        &self,
        _: ActorRef<Message>,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        state.shard.registry.close();
        Ok(())
    }
}

fn committer_arguments(
    shard: &RunningShard,
    streams: &Arc<ShardStreams>,
    fresh: FreshRows,
    dead_letters_added: &Arc<Notify>,
) -> committer::Arguments {
    let ShardTemplate {
        limits,
        clock,
        metrics,
        tracer,
        observer,
        providers,
        ..
    } = &*shard.shared;
    committer::Arguments {
        writer: Arc::clone(&shard.writer),
        reader: shard.reader.clone(),
        max_group_commit: limits.max_group_commit,
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
        tracer: tracer.clone(),
        observer: observer.clone(),
        streams: Arc::clone(streams),
        live: Arc::clone(&shard.live),
        waiters: Arc::clone(&shard.registry.waiters),
        fresh,
        dead_letters_added: Arc::clone(dead_letters_added),
        providers: Arc::clone(providers),
    }
}

fn saga_dependencies(shard: &RunningShard, committer: CommitterHandle) -> SagaDependencies {
    let ShardTemplate {
        programs,
        decisions,
        clock,
        node,
        limits,
        live_limits,
        metrics,
        tracer,
        ..
    } = &*shard.shared;
    SagaDependencies {
        committer,
        idle_actors: IdleActors::default(),
        live: Arc::clone(&shard.live),
        quarantined: Arc::clone(&shard.quarantined),
        ignored_events: Arc::clone(&shard.ignored_events),
        reader: shard.reader.clone(),
        programs: Arc::clone(programs),
        decisions: Arc::clone(decisions),
        clock: Arc::clone(clock),
        node: node.clone(),
        live_limits: Arc::clone(live_limits),
        history_payload_bytes: limits.history_payload_bytes,
        max_queued_inputs: limits.max_in_flight_per_instance,
        metrics: Arc::clone(metrics),
        tracer: tracer.clone(),
    }
}

fn relay_arguments(shard: &RunningShard, fresh: Arc<FreshQueue<StoredWork>>) -> relay::Arguments {
    let ShardTemplate {
        providers,
        clock,
        node,
        limits,
        metrics,
        tracer,
        publishes_results,
        ..
    } = &*shard.shared;
    relay::Arguments {
        registry: Arc::clone(&shard.registry),
        providers: Arc::clone(providers),
        fresh,
        reader: shard.reader.clone(),
        window_size: limits.max_in_flight_per_window,
        clock: Arc::clone(clock),
        node: node.clone(),
        publishes_results: *publishes_results,
        metrics: Arc::clone(metrics),
        tracer: tracer.clone(),
    }
}

fn timer_arguments(shard: &RunningShard, fresh: Arc<FreshQueue<TimerChange>>) -> timer::Arguments {
    let ShardTemplate {
        clock,
        slots,
        limits,
        metrics,
        ..
    } = &*shard.shared;
    timer::Arguments {
        registry: Arc::clone(&shard.registry),
        fresh,
        reader: shard.reader.clone(),
        slots: slots.clone(),
        max_firing_timers: limits.max_firing_timers,
        clock: Arc::clone(clock),
        metrics: Arc::clone(metrics),
    }
}

fn ingester_arguments(
    shard: &RunningShard,
    source: EventSource,
    incarnation_number: u64,
    streams: Arc<ShardStreams>,
) -> ingester::Arguments {
    let ShardTemplate {
        bus,
        programs,
        clock,
        node,
        slots,
        limits,
        metrics,
        tracer,
        ..
    } = &*shard.shared;
    let is_optional = source.has_dead_letters();
    let subscription = SubscriptionArguments {
        source,
        name: shard.name(),
        slots: shard.slots.clone(),
        slot_assigner: slots.clone(),
        max_in_flight: MaxInFlight {
            total: limits.max_in_flight_per_ingester,
            per_tenant: Some(limits.max_in_flight_per_tenant),
        },
        // The limits of their stream drop dead letters, and operators purge them.
        accept_data_loss: shard.shared.accept_data_loss || is_optional,
        lost_streams: Arc::clone(&shard.lost_streams),
        metrics: Arc::clone(metrics),
    };
    ingester::Arguments {
        subscription,
        registry: Arc::clone(&shard.registry),
        incarnation_number,
        streams,
        bus: Arc::clone(bus),
        reader: shard.reader.clone(),
        programs: Arc::clone(programs),
        clock: Arc::clone(clock),
        node: node.clone(),
        tracer: tracer.clone(),
    }
}

impl State {
    fn tidy(&self) -> Result<(), ActorProcessingErr> {
        self.shard.live.passivate_idle();

        let before = self
            .shard
            .reader
            .dedupe_horizon(self.shard.shared.clock.now())?;
        if self.shard.reader.is_dedupe_purge_due(before)? {
            let reader = self.shard.reader.clone();
            let committer = self.committer.clone();
            // Counting reads all expired keys.
            drop(tokio::task::spawn_blocking(move || {
                if let Err(error) = reader.count_expired_dedupe_keys(before) {
                    tracing::warn!(%error, "expired dedupe keys cannot be counted");
                }

                // An error means that the shard has stopped.
                drop(committer.submit(Submission::new(
                    Change::PurgeDedupe { before },
                    Completion::None,
                )));
            }));
        }
        Ok(())
    }

    /// Stops ingestion, then timers.
    async fn quiesce(&mut self) {
        self.quiescing = true;
        for kind in [ActorKind::Ingester, ActorKind::Timer] {
            for (_, child) in self.children.values().filter(|(child, _)| *child == kind) {
                // An error means that it has already stopped.
                drop(child.stop_and_wait(None, None).await);
            }
        }
    }

    /// Handles the crash of a child: a saga actor is replaced; any other child stops the shard.
    fn handle_crash(&self, crashed: &ActorCell, reason: &str) -> Result<(), ActorProcessingErr> {
        match self.children.get(&crashed.get_id()) {
            Some((ActorKind::Ingester | ActorKind::Timer, _)) if self.quiescing => Ok(()),
            Some((kind, _)) => Err(format!("{} crashed: {reason}", kind.as_str()).into()),
            None => {
                if self.shard.registry.restart_saga(crashed.get_id()) {
                    self.shard
                        .shared
                        .metrics
                        .count_restart(ActorKind::Shard, ActorKind::Saga);
                    tracing::warn!(reason, "saga actor crashed; restarting");
                }
                Ok(())
            }
        }
    }
}
