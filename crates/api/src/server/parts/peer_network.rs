//! Peers: the identity of the node, the nodes that it knows, and requests to them.

use std::sync::Arc;

use axum::extract::FromRef;
use orlog_model::NodeName;

use crate::server::context::ApiState;
use orlog_node::app::App;
use orlog_node::peers::{PeerClient, Peers};

/// This node among its peers.
#[derive(Clone)]
pub(crate) struct PeerNetwork {
    app: Arc<App>,
}

impl FromRef<ApiState> for PeerNetwork {
    fn from_ref(api: &ApiState) -> Self {
        Self {
            app: Arc::clone(&api.shared.app),
        }
    }
}

impl PeerNetwork {
    /// Returns the identity of the node, and its peers.
    pub(crate) fn known(&self) -> &Peers {
        &self.app.peers
    }

    /// Returns the client for requests to peers.
    pub(crate) fn client(&self) -> &PeerClient {
        &self.app.peer_client
    }

    /// Returns whether a name is that of this node.
    pub(crate) fn is_own(&self, name: &NodeName) -> bool {
        self.app
            .config
            .identity_name()
            .is_ok_and(|own| own == *name)
    }

    /// Returns whether the node has a connection to NATS, over which it can reach peers.
    pub(crate) fn has_nats(&self) -> bool {
        self.app.transport.connection().is_some()
    }
}
