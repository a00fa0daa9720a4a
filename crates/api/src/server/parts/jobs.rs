//! Jobs: the boards on which they wait, the runners, and the executors of effects.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::Extensions;
use axum::http::request::Parts;
use orlog_effect::Catalog;

use crate::server::context::{ApiState, RequestContext};
use crate::server::other_boards::OtherBoards;
use crate::server::parts::cluster::Cluster;
use orlog_node::app::App;
use orlog_node::jobs::runners::Runners;

/// Jobs of this pod, and those of key-sharded tenants on the boards of other pods.
#[derive(Clone)]
pub(crate) struct Jobs {
    app: Arc<App>,
    other_boards: Arc<OtherBoards>,
    /// Context of the request of a worker.
    pub(crate) request: RequestContext,
    /// Pods whose boards have jobs of key-sharded tenants.
    pub(crate) cluster: Cluster,
}

impl FromRequestParts<ApiState> for Jobs {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Infallible> {
        Ok(Self::for_request(api, &parts.extensions))
    }
}

impl Jobs {
    /// Returns the jobs for the caller of a request.
    pub(crate) fn for_request(api: &ApiState, extensions: &Extensions) -> Self {
        let request = api.for_request(extensions);
        Self {
            app: Arc::clone(&api.shared.app),
            other_boards: Arc::clone(&api.shared.other_boards),
            cluster: Cluster::in_name_of(api, request.scope.key),
            request,
        }
    }

    /// Returns the upstreams, with their executors and job boards.
    pub(crate) fn catalog(&self) -> &Catalog {
        &self.app.catalog
    }

    /// Returns the registered runners.
    pub(crate) fn runners(&self) -> &Runners {
        &self.app.runners
    }

    /// Returns the boards of the other pods.
    pub(crate) fn other_boards(&self) -> &OtherBoards {
        &self.other_boards
    }
}
