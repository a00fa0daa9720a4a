//! What the hands are told.
//!
//! It stands below them: whoever hands work out, and whoever does it, need it both.

use std::sync::Arc;

use orlog_effect::{Catalog, Renewal};
use tokio::sync::oneshot;

use crate::effects::work_dispatch::Offer;
use crate::telemetry::metrics::Waiting;

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
