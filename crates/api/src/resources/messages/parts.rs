//! Parts of the node that deliveries and reports of messages use, for a request of a peer and for
//! the effects of this node.

use std::convert::Infallible;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;

use crate::server::context::ApiState;
use crate::server::parts::access::Access;
use crate::server::parts::instances::Instances;
use crate::server::parts::peer_network::PeerNetwork;

/// What an exchange of messages between nodes uses.
pub(crate) struct MessageParts {
    /// Sent and received messages, on this pod and on others.
    pub(super) instances: Instances,
    /// Contexts, whose lists decide which messages they accept.
    pub(super) access: Access,
    /// This node, and the nodes of the other contexts.
    pub(super) peers: PeerNetwork,
}

impl FromRequestParts<ApiState> for MessageParts {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Infallible> {
        let instances = Instances::from_request_parts(parts, api).await?;
        Ok(Self::of(api, instances))
    }
}

impl MessageParts {
    /// Returns the parts for work that does not belong to a request.
    pub(super) fn detached(api: &ApiState) -> Self {
        Self::of(api, Instances::detached(api))
    }

    fn of(api: &ApiState, instances: Instances) -> Self {
        Self {
            instances,
            access: Access::from_ref(api),
            peers: PeerNetwork::from_ref(api),
        }
    }
}
