//! Registry of the running provider actors; routes work items to them.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use compact_str::CompactString;
use orlog_effect::{Catalog, CatalogChange, EffectExecutor};
use orlog_model::{Destination, WorkKind};
use ractor::{ActorId, ActorRef};
use tokio::sync::oneshot;

use crate::effects::publisher;
use crate::effects::window::WindowKey;
use crate::effects::work_dispatch::{InFlightItems, WorkDispatch};
use crate::telemetry::metrics::{ActorKind, MailboxGuard};

/// Providers by effect executor, the publisher, and all items in flight.
pub(crate) struct ProviderRegistry {
    catalog: Arc<Catalog>,
    present: RwLock<RegisteredActors>,
    in_flight_items: Arc<InFlightItems>,
}

#[derive(Default)]
struct RegisteredActors {
    /// By [`EffectExecutor::id`]: after a reload, an old and a new provider of one name coexist for a
    /// while.
    providers: BTreeMap<u64, (Arc<EffectExecutor>, ActorRef<ProviderMessage>)>,
    publisher: Option<ActorRef<publisher::Message>>,
    supervisor: Option<ActorRef<ReloadCatalog>>,
}

/// Role of an actor.
pub(crate) enum ActorRole {
    Provider(Arc<EffectExecutor>),
    Publisher,
    /// Unknown: the actor is already replaced.
    Unknown,
}

impl ProviderRegistry {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self { catalog, present: RwLock::default(), in_flight_items: Arc::default() })
    }

    /// Routes work items of one destination to their provider. If there is no provider at the moment, the
    /// items are returned.
    pub(crate) fn route(&self, destination: &Destination, dispatches: Vec<WorkDispatch>) {
        if matches!(destination.kind, WorkKind::Fact | WorkKind::Saga) {
            let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
            let Some(waiting) = waiting(ActorKind::Publisher, &dispatches) else { return };
            // On an error the items are dropped and return to the relay.
            let sent = present
                .publisher
                .as_ref()
                .map(|publisher| publisher.cast(publisher::Message::Dispatches(dispatches, waiting)));
            return drop(sent);
        }
        let Some(executor) = self.catalog.executor_for(destination) else {
            return dispatches.into_iter().for_each(|dispatch| {
                let outcome = self.catalog.unroutable_outcome(&dispatch.item);
                dispatch.complete(orlog_effect::ExecutionResult::without_attempt(outcome), false);
            });
        };
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        let provider = present.providers.get(&executor.id()).map(|(_, provider)| provider);
        if let (Some(provider), Some(waiting)) = (provider, waiting(ActorKind::Provider, &dispatches)) {
            drop(provider.cast(ProviderMessage::Dispatch(dispatches, waiting)));
        }
    }

    /// Returns the window of a destination and its weight.
    pub(crate) fn window(&self, destination: &Destination) -> (WindowKey, usize) {
        let executor = self.catalog.executor_for(destination);
        let upstream = executor.as_ref().map(|executor| executor.upstream());
        let name = upstream.map_or_else(CompactString::default, |upstream| upstream.name.as_str().into());
        let weight = upstream.map_or(1, |upstream| upstream.policy.tenant_limits.weight(&destination.tenant));
        ((destination.tenant.clone(), name), weight as usize)
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Returns the items in flight of all providers.
    pub(crate) fn in_flight(&self) -> &Arc<InFlightItems> {
        &self.in_flight_items
    }

    pub(crate) fn add_provider(&self, executor: Arc<EffectExecutor>, actor: ActorRef<ProviderMessage>) {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        present.providers.insert(executor.id(), (executor, actor));
    }

    /// Notifies the provider of an effect executor that it is replaced.
    pub(crate) fn retire(&self, executor: &EffectExecutor) {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, actor)) = present.providers.get(&executor.id()) {
            // An error means that it has already stopped.
            drop(actor.cast(ProviderMessage::Retire));
        }
    }

    pub(crate) fn remove_provider(&self, executor: &EffectExecutor) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).providers.remove(&executor.id());
    }

    pub(crate) fn set_publisher(&self, actor: ActorRef<publisher::Message>) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).publisher = Some(actor);
    }

    pub(crate) fn set_supervisor(&self, actor: ActorRef<ReloadCatalog>) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).supervisor = Some(actor);
    }

    pub(crate) fn supervisor(&self) -> Option<ActorRef<ReloadCatalog>> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).supervisor.clone()
    }

    pub(crate) fn role_of(&self, id: ActorId) -> ActorRole {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        if present.publisher.as_ref().is_some_and(|publisher| publisher.get_id() == id) {
            return ActorRole::Publisher;
        }
        let mut providers = present.providers.values();
        let found = providers.find(|(_, actor)| actor.get_id() == id);
        found.map_or(ActorRole::Unknown, |(executor, _)| ActorRole::Provider(Arc::clone(executor)))
    }
}

/// Counts work items as queued for an actor of this kind; returns `None` if there are none.
fn waiting(kind: ActorKind, dispatches: &[WorkDispatch]) -> Option<MailboxGuard> {
    dispatches
        .first()
        .map(|dispatch| dispatch.instances.context.metrics.messages_enqueued(kind, dispatches.len()))
}

/// Messages of the provider of one upstream.
pub(crate) enum ProviderMessage {
    /// Execute these work items.
    Dispatch(Vec<WorkDispatch>, MailboxGuard),
    /// Retire: finish attempts that cannot be interrupted, hand over the rest, and stop.
    Retire,
    /// No attempt is in flight any more.
    Ended,
}

/// Message to the supervisor: activates another catalog and returns the change.
pub(crate) struct ReloadCatalog(pub(crate) Arc<Catalog>, pub(crate) oneshot::Sender<CatalogChange>);
