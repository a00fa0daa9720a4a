//! Callers of a node, and the nodes that it calls: authentication, identity and peers.

use std::sync::Arc;

use orlog_bus::nats::Connection;
use orlog_model::Clock;

use crate::access::{AccessRegistry, SignedEvents};
use crate::auth::{Authenticator, SessionToken, SignedRequests, SignerKeys};
use crate::config::Config;
use crate::peers::{NodeIdentity, PeerClient, Peers};

/// Authentication of the requests and signed events of a node, and the client for its requests to
/// peers.
pub(super) struct Callers {
    pub(super) authenticator: Authenticator,
    pub(super) signed_events: Arc<SignedEvents>,
    pub(super) peer_client: PeerClient,
}

impl Callers {
    /// Creates them; the registry has keys of actors and peers, too, and the node has its own.
    ///
    /// # Errors
    /// If a secret or a key file cannot be used, or if the nonces of signed requests are not
    /// available.
    pub(super) async fn open(
        config: &Config,
        connection: Option<&Connection>,
        clock: &Arc<dyn Clock>,
        access: &Arc<AccessRegistry>,
        session: Option<SessionToken>,
    ) -> anyhow::Result<Self> {
        let identity = NodeIdentity::open(config)?;
        let peers = Arc::new(Peers::new(
            identity,
            config.peers.clone(),
            Arc::clone(access),
        ));
        let keys = Arc::clone(&peers) as Arc<dyn SignerKeys>;
        let signed = SignedRequests::open(config, connection, clock, keys).await?;
        let events = SignedEvents::new(config, Arc::clone(access), Arc::clone(signed.configured()));
        let authenticator = Authenticator::new(config, session, signed).await?;
        let peer_client = PeerClient::new(config, connection, peers, Arc::clone(clock))?;

        Ok(Self {
            authenticator,
            signed_events: Arc::new(events),
            peer_client,
        })
    }
}
