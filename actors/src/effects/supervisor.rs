//! Supervisor of effect execution: one provider actor for each upstream, and the publisher of facts.
//!
//! Providers are not part of a shard: circuit breakers and limits apply to an upstream, for all shards.

use std::sync::Arc;
use std::time::Instant;

use orlog_bus::Bus;
use orlog_effect::{Catalog, CatalogChange, EffectExecutor};
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::effects::provider::{self, ProviderActor};
use crate::effects::provider_registry::ReloadCatalog;
use crate::effects::provider_registry::{ActorRole, ProviderRegistry};
use crate::effects::publisher::{self, PublisherActor};
use crate::restart::{RestartIntensity, RestartTracker};
use crate::telemetry::metrics::{ActorKind, LiveActorGuard, Metrics};

/// Effects supervisor actor.
pub(crate) struct EffectsSupervisorActor;

/// Arguments of the effects supervisor.
#[derive(Clone)]
pub(crate) struct Arguments {
    pub(crate) registry: Arc<ProviderRegistry>,
    pub(crate) bus: Arc<dyn Bus>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) intensity: RestartIntensity,
}

/// State of the effects supervisor.
pub(crate) struct State {
    arguments: Arguments,
    restarts: RestartTracker,
    _alive: LiveActorGuard,
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
        let state = State { arguments, restarts: RestartTracker::default(), _alive: alive };
        for executor in state.arguments.registry.catalog().executors() {
            state.start_provider(executor, myself.get_cell()).await?;
        }
        state.start_publisher(myself.get_cell()).await?;
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
        match event {
            SupervisionEvent::ActorFailed(crashed, _) | SupervisionEvent::ActorTerminated(crashed, _, _) => {
                state.replace(&crashed, myself.get_cell()).await
            }
            SupervisionEvent::ActorStarted(_) | SupervisionEvent::ProcessGroupChanged(_) => Ok(()),
        }
    }
}

impl State {
    /// Reloads the catalog. New providers start before the new catalog dispatches to them. Old providers
    /// hand over after the new catalog is active, so that every dispatch finds a provider.
    async fn renew(&self, next: &Catalog, me: ActorCell) -> Result<CatalogChange, ActorProcessingErr> {
        let registry = &self.arguments.registry;
        for executor in registry.catalog().added_in(next) {
            self.start_provider(executor, me.clone()).await?;
        }
        let renewal = registry.catalog().replace_with(next);
        renewal.retired.iter().for_each(|executor| registry.retire(executor));
        Ok(renewal)
    }

    async fn start_provider(
        &self,
        executor: Arc<EffectExecutor>,
        me: ActorCell,
    ) -> Result<(), ActorProcessingErr> {
        let arguments = provider::Arguments {
            executor: Arc::clone(&executor),
            registry: Arc::clone(&self.arguments.registry),
            metrics: Arc::clone(&self.arguments.metrics),
        };
        let (actor, _) = Actor::spawn_linked(None, ProviderActor, arguments, me).await?;
        self.arguments.registry.add_provider(executor, actor);
        Ok(())
    }

    async fn start_publisher(&self, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let needs = publisher::Arguments {
            bus: Arc::clone(&self.arguments.bus),
            metrics: Arc::clone(&self.arguments.metrics),
        };
        let (actor, _) = Actor::spawn_linked(None, PublisherActor, needs, me).await?;
        self.arguments.registry.set_publisher(actor);
        Ok(())
    }

    /// Restarts a crashed actor within the restart limit. A retired provider already has a successor.
    async fn replace(&mut self, crashed: &ActorCell, me: ActorCell) -> Result<(), ActorProcessingErr> {
        let role = self.arguments.registry.role_of(crashed.get_id());
        if let ActorRole::Provider(executor) = &role
            && executor.is_retired()
        {
            tracing::info!(upstream = executor.upstream().name, "replaced provider stopped");
            self.arguments.registry.remove_provider(executor);
            return Ok(());
        }
        if !self.restarts.admit(self.arguments.intensity, Instant::now()) {
            return Err("providers exceeded the restart limit".into());
        }
        match role {
            ActorRole::Provider(executor) => {
                let upstream = &executor.upstream().name;
                tracing::warn!(upstream, "provider crashed; restarting");
                self.arguments.metrics.count_restart(ActorKind::Effects, ActorKind::Provider);
                self.start_provider(executor, me).await
            }
            ActorRole::Publisher => {
                tracing::warn!("publisher crashed; restarting");
                self.arguments.metrics.count_restart(ActorKind::Effects, ActorKind::Publisher);
                self.start_publisher(me).await
            }
            ActorRole::Unknown => Ok(()),
        }
    }
}
