//! The hands that are there now, and what goes to whom.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use orlog_effect::{Catalog, Performer, Renewal};
use orlog_model::{Lane, WorkKind};
use ractor::{ActorId, ActorRef};
use tokio::sync::oneshot;

use crate::effects::publisher;
use crate::effects::work_dispatch::{Offer, UnderWay};
use crate::telemetry::metrics::{ActorKind, Waiting};

/// Providers by performer, the publisher, and what is under way anywhere.
pub(crate) struct Hands {
    catalog: Arc<Catalog>,
    present: RwLock<Present>,
    under_way: Arc<UnderWay>,
}

#[derive(Default)]
struct Present {
    /// By [`Performer::serial`]: after a reload an old and a new one of the same name stand side by side for a while.
    providers: BTreeMap<u64, (Arc<Performer>, ActorRef<Provide>)>,
    publisher: Option<ActorRef<publisher::Message>>,
    supervisor: Option<ActorRef<Renew>>,
}

/// Who an actor is.
pub(crate) enum Who {
    Provider(Arc<Performer>),
    Publisher,
    /// Another one has taken its place already.
    Nobody,
}

impl Hands {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self { catalog, present: RwLock::default(), under_way: Arc::default() })
    }

    /// Hands offers of one lane to whoever sees them through. Where nobody is there at the moment they go back.
    pub(crate) fn take(&self, lane: &Lane, offers: Vec<Offer>) {
        if matches!(lane.kind, WorkKind::Fact | WorkKind::Saga) {
            let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
            let Some(waiting) = waiting(ActorKind::Publisher, &offers) else { return };
            // An error gives the offers back to be dropped, and dropped they return to the relay.
            let taken = present
                .publisher
                .as_ref()
                .map(|publisher| publisher.cast(publisher::Message::Offers(offers, waiting)));
            return drop(taken);
        }
        let mut parts: BTreeMap<u64, Vec<Offer>> = BTreeMap::new();
        for offer in offers {
            if let Some(performer) = self.catalog.performer_of(&offer.item) {
                parts.entry(performer.serial()).or_default().push(offer);
            } else {
                let done = orlog_effect::Done::nothing(self.catalog.nobody(&offer.item));
                offer.conclude(done, false);
            }
        }
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        for (serial, offers) in parts {
            let provider = present.providers.get(&serial).map(|(_, provider)| provider);
            if let (Some(provider), Some(waiting)) = (provider, waiting(ActorKind::Provider, &offers)) {
                drop(provider.cast(Provide::Offers(offers, waiting)));
            }
        }
    }

    pub(crate) fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// What is under way, whichever provider has it.
    pub(crate) fn under_way(&self) -> &Arc<UnderWay> {
        &self.under_way
    }

    pub(crate) fn put_provider(&self, performer: Arc<Performer>, actor: ActorRef<Provide>) {
        let mut present = self.present.write().unwrap_or_else(PoisonError::into_inner);
        present.providers.insert(performer.serial(), (performer, actor));
    }

    /// Tells the provider of a performer that another one has taken its place.
    pub(crate) fn retire(&self, performer: &Performer) {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, actor)) = present.providers.get(&performer.serial()) {
            // An error means that it is gone already.
            drop(actor.cast(Provide::Retire));
        }
    }

    pub(crate) fn remove_provider(&self, performer: &Performer) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).providers.remove(&performer.serial());
    }

    pub(crate) fn put_publisher(&self, actor: ActorRef<publisher::Message>) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).publisher = Some(actor);
    }

    pub(crate) fn put_supervisor(&self, actor: ActorRef<Renew>) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).supervisor = Some(actor);
    }

    pub(crate) fn supervisor(&self) -> Option<ActorRef<Renew>> {
        self.present.read().unwrap_or_else(PoisonError::into_inner).supervisor.clone()
    }

    pub(crate) fn who(&self, id: ActorId) -> Who {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        if present.publisher.as_ref().is_some_and(|publisher| publisher.get_id() == id) {
            return Who::Publisher;
        }
        let mut providers = present.providers.values();
        let found = providers.find(|(_, actor)| actor.get_id() == id);
        found.map_or(Who::Nobody, |(performer, _)| Who::Provider(Arc::clone(performer)))
    }
}

/// Counts offers as waiting for an actor of this kind; `None` where there are none.
fn waiting(kind: ActorKind, offers: &[Offer]) -> Option<Waiting> {
    offers.first().map(|offer| offer.directory.context.metrics.wait(kind, offers.len()))
}

/// For the provider of one upstream.
pub(crate) enum Provide {
    /// Take these.
    Offers(Vec<Offer>, Waiting),
    /// Another one has taken its place: end what cannot be interrupted, hand over the rest, and stop.
    Retire,
    /// Nothing is under way any more.
    Ended,
}

/// For the supervisor: put another catalog in force, and tell what that came to.
pub(crate) struct Renew(pub(crate) Arc<Catalog>, pub(crate) oneshot::Sender<Renewal>);
