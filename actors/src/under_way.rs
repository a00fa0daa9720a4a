//! The items under way, whichever provider has them: none is performed twice at once.
//!
//! An item that is offered again while it is under way waits for the end of the first offer and then goes back to the
//! relay, which knows whether the item still lies in the outbox. That holds across providers too: a reload can move an
//! effect to another upstream while an attempt at the old one is under way.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use uuid::Uuid;

use crate::effects::work_dispatch::Offer;

/// The items under way, each with the later offers of it.
#[derive(Default)]
pub(crate) struct UnderWay {
    items: DashMap<Uuid, Vec<Offer>>,
}

/// An item's place among those under way. When it is given up, the later offers go back to their relay: the first one may
/// belong to a relay that is gone, and then nobody else would ask again.
pub(crate) struct Place {
    all: Arc<UnderWay>,
    id: Uuid,
}

impl UnderWay {
    /// A place for an offer; `None` when its item is under way already.
    pub(crate) fn begin(self: &Arc<Self>, mut offer: Offer) -> Option<(Place, Offer)> {
        let id = offer.item.id;
        match self.items.entry(id) {
            Entry::Occupied(mut later) => {
                // Whatever the first one comes to, there may have been an attempt.
                offer.progress.in_doubt = true;
                later.get_mut().push(offer);
                None
            }
            Entry::Vacant(place) => {
                place.insert(Vec::new());
                Some((Place { all: Arc::clone(self), id }, offer))
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Dropped outside the map's lock.
        let later = self.all.items.remove(&self.id);
        drop(later);
    }
}
