//! Supervisor of effect execution: one provider actor for each upstream, and the publisher of
//! facts.
//!
//! Providers are not part of a shard: circuit breakers and limits apply to an upstream, for all
//! shards.

pub(crate) mod providers;
pub(crate) mod publisher;
pub(crate) mod queue_provider;
pub(crate) mod work_dispatch;
pub(crate) mod work_mailbox;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use orlog_bus::Bus;
use orlog_effect::{Catalog, CatalogChange, EffectExecutor};
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::effects::providers::{Provider, ProviderRegistry, ReloadCatalog, provide};
use crate::effects::publisher::{Publisher, PublisherBatch, publish_all};
use crate::supervision::{RestartIntensity, RestartTracker, TaskActor, exit_of};
use crate::telemetry::metrics::{ActorKind, GaugeGuard, Metrics};

/// Effects supervisor actor.
pub(crate) struct EffectsSupervisorActor;

/// Arguments of the effects supervisor.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) registry: Arc<ProviderRegistry>,
    pub(crate) bus: Arc<dyn Bus>,
    /// Batch of the publisher.
    pub(crate) batch: PublisherBatch,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) intensity: RestartIntensity,
}

/// State of the effects supervisor.
pub(crate) struct State {
    arguments: Arguments,
    /// The providers with their executors, and the publisher.
    children: BTreeMap<ActorId, Option<Arc<EffectExecutor>>>,
    restarts: RestartTracker,
    _alive: GaugeGuard,
}

impl Actor for EffectsSupervisorActor {
    type Msg = ReloadCatalog;
    type State = State;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<ReloadCatalog>,
        arguments: Arguments,
    ) -> Result<State, ActorProcessingErr> {
        let alive = arguments.metrics.actor_started(ActorKind::Effects);
        let mut state = State {
            arguments,
            children: BTreeMap::new(),
            restarts: RestartTracker::default(),
            _alive: alive,
        };

        for executor in state.arguments.registry.catalog().executors() {
            state.start(Some(executor), myself.get_cell()).await?;
        }
        state.start(None, myself.get_cell()).await?;

        state.arguments.registry.set_supervisor(myself);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<ReloadCatalog>,
        ReloadCatalog(next, reply): ReloadCatalog,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let renewal = state.renew(&next, myself.get_cell()).await?;
        // An error means that the caller no longer waits for the response.
        drop(reply.send(renewal));
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<ReloadCatalog>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let Some((crashed, _)) = exit_of(event) else {
            return Ok(());
        };
        state.replace(crashed.get_id(), myself.get_cell()).await
    }
}

impl State {
    /// Reloads the catalog.
    async fn renew(
        &mut self,
        next: &Catalog,
        me: ActorCell,
    ) -> Result<CatalogChange, ActorProcessingErr> {
        let registry = Arc::clone(&self.arguments.registry);

        // Before the new catalog dispatches to them.
        for executor in registry.catalog().added_in(next) {
            self.start(Some(executor), me.clone()).await?;
        }

        let renewal = registry.catalog().replace_with(next);
        // After the new catalog is active, so that every dispatch finds a provider.
        for executor in &renewal.retired {
            registry.retire(executor);
        }
        Ok(renewal)
    }

    /// Starts the provider of an executor, or, without one, the publisher.
    async fn start(
        &mut self,
        executor: Option<Arc<EffectExecutor>>,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let Arguments {
            registry,
            bus,
            batch,
            metrics,
            ..
        } = &self.arguments;

        let actor = if let Some(executor) = &executor {
            let mailbox = registry.mailbox(executor);
            let task = provide(Arc::clone(executor), mailbox, Arc::clone(registry));
            TaskActor::<Provider>::spawn(me, metrics, task).await?
        } else {
            let task = publish_all(
                Arc::clone(bus),
                Arc::clone(registry.publisher()),
                Arc::clone(batch),
            );
            TaskActor::<Publisher>::spawn(me, metrics, task).await?
        };

        self.children.insert(actor.get_id(), executor);
        Ok(())
    }

    /// Restarts a crashed actor within the restart limit. A retired provider already has a
    /// successor.
    async fn replace(&mut self, crashed: ActorId, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let Some(executor) = self.children.remove(&crashed) else {
            return Ok(());
        };

        if let Some(executor) = executor.as_ref().filter(|executor| executor.is_retired()) {
            tracing::info!(
                upstream = executor.upstream().name,
                "replaced provider stopped"
            );
            return Ok(());
        }

        if !self
            .restarts
            .admit(self.arguments.intensity, Instant::now())
        {
            return Err("providers exceeded the restart limit".into());
        }

        let kind = if let Some(executor) = &executor {
            tracing::warn!(
                upstream = executor.upstream().name,
                "provider crashed; restarting"
            );
            ActorKind::Provider
        } else {
            tracing::warn!("publisher crashed; restarting");
            ActorKind::Publisher
        };

        self.arguments
            .metrics
            .count_restart(ActorKind::Effects, kind);
        self.start(executor, me).await
    }
}
