//! The hands that are there now, and what goes to whom.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use orlog_effect::{Catalog, Performer};
use orlog_model::{Lane, WorkKind};
use ractor::{ActorId, ActorRef};

use crate::offer::Offer;
use crate::{provider, publisher};

/// Providers by upstream, and the publisher.
pub(crate) struct Hands {
    catalog: Arc<Catalog>,
    present: RwLock<Present>,
}

#[derive(Default)]
struct Present {
    providers: BTreeMap<String, ActorRef<provider::Message>>,
    publisher: Option<ActorRef<publisher::Message>>,
}

impl Hands {
    pub(crate) fn new(catalog: Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self { catalog, present: RwLock::default() })
    }

    /// Hands offers of one lane to whoever sees them through. Where nobody is there at the moment they go back.
    pub(crate) fn take(&self, lane: &Lane, offers: Vec<Offer>) {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        if matches!(lane.kind, WorkKind::Fact | WorkKind::Saga) {
            // An error gives the offers back to be dropped, and dropped they return to the relay.
            let taken =
                present.publisher.as_ref().map(|publisher| publisher.cast(publisher::Message(offers)));
            return drop(taken);
        }
        match self.catalog.performer(lane) {
            Some(performer) => {
                let provider = present.providers.get(&performer.upstream().name);
                drop(provider.map(|provider| provider.cast(provider::Message(offers))));
            }
            None => offers.into_iter().for_each(|offer| {
                let verdict = self.catalog.nobody(&offer.item);
                offer.conclude(verdict, 0, false);
            }),
        }
    }

    pub(crate) fn performers(&self) -> impl Iterator<Item = &Arc<Performer>> {
        self.catalog.performers()
    }

    pub(crate) fn put_provider(&self, upstream: String, actor: ActorRef<provider::Message>) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).providers.insert(upstream, actor);
    }

    pub(crate) fn put_publisher(&self, actor: ActorRef<publisher::Message>) {
        self.present.write().unwrap_or_else(PoisonError::into_inner).publisher = Some(actor);
    }

    /// The upstream whose provider this is; `None` for the publisher.
    pub(crate) fn upstream_of(&self, id: ActorId) -> Option<String> {
        let present = self.present.read().unwrap_or_else(PoisonError::into_inner);
        let mut providers = present.providers.iter();
        providers.find(|(_, actor)| actor.get_id() == id).map(|(name, _)| name.clone())
    }
}
