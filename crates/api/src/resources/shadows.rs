//! `/v1/shadows`: starts, lists, shows, stops and promotes shadows. The response to a change
//! arrives after its commit is durable.

mod promote;
mod start;
mod view;

use orlog_model::{Instance, InstanceKey, TenantId};
use orlog_sagas::shadow::{self, ShadowState};

use crate::resources::sagas::built_in;
use crate::resources::sagas::resource::{
    Changes, ListedResource, Resource, Verb, missing, resource,
};
use crate::server::context::RequestContext;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::shadows;
pub(crate) use promote::{__path_promote, promote};
pub(crate) use start::{__path_start, start};
use view::{ShadowPage, ShadowView, decoded};

/// Shadows as a resource.
pub(crate) struct Shadow;

impl Resource for Shadow {
    const NOT_FOUND: Code = Code::ShadowNotFound;
    type View = ShadowView;

    fn key(tenant: TenantId, saga: &str) -> Result<InstanceKey, String> {
        shadows::key(tenant, saga)
    }

    fn missing(key: &InstanceKey) -> String {
        let saga = &key.correlation;
        format!("no shadow of saga \"{saga}\"; start one with POST /v1/shadows")
    }

    fn view(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<ShadowView>, Problem> {
        ShadowView::read(scope, key, instance)
    }

    /// A control request would create the instance of a shadow that was never started.
    async fn permit(changes: &Changes, key: &InstanceKey, _: Verb) -> Result<(), Problem> {
        state(&changes.instances.request, key).await?;
        Ok(())
    }
}

impl ListedResource for Shadow {
    const SAGA: &'static str = shadow::SAGA;
    type Entry = ShadowView;

    fn entry(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<ShadowView>, Problem> {
        ShadowView::read(scope, key, instance)
    }
}

resource! {
    Shadow, "shadows", ShadowPath { saga: "Saga of the shadow, percent-encoded" }

    list "/v1/shadows" -> ShadowPage {
        /// List shadows
        ///
        /// Ordered by saga. A page can be short and still have a `next_cursor`; the last page has
        /// none.
    }

    show "/v1/shadows/{saga}" -> ShadowView, "The shadow" {
        /// Show a shadow
        ///
        /// Its definitions, its progress, and the report: the number of instances of each kind of
        /// difference, with examples.
    }

    change stop "/v1/shadows/{saga}/stop" -> ShadowView = Verb::Signal(shadow::STOP), {
        /// Stop a shadow
        ///
        /// The page in flight ends; then the inputs of new instances are no longer recorded. The
        /// report remains.
    }
}

async fn state(api: &RequestContext, key: &InstanceKey) -> Result<ShadowState, Problem> {
    built_in::show(api, key.clone(), missing::<Shadow>, |_, key, instance| {
        decoded(key, instance).map(Some)
    })
    .await
}
