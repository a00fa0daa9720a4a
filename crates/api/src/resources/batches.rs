//! `/v1/batches`: creates, lists and controls batches. The response to a change arrives after its
//! commit is durable.

mod create;
mod dry_run;
mod view;

use orlog_model::{Instance, InstanceKey, TenantId};
use orlog_sagas::batch::{self, BatchAction};

use crate::resources::access::check_signed;
use crate::resources::sagas::built_in;
use crate::resources::sagas::resource::{
    Changes, ListedResource, Resource, Verb, missing, resource,
};
use crate::server::parts::access::Access;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
pub(crate) use create::{__path_create, create};
use orlog_node::auth::{Caller, Right};
use orlog_node::batches;
use view::{BatchPage, BatchView, decoded};

/// Batches as a resource.
pub(crate) struct Batch;

impl Resource for Batch {
    const NOT_FOUND: Code = Code::BatchNotFound;
    type View = BatchView;

    fn key(tenant: TenantId, id: &str) -> Result<InstanceKey, String> {
        batches::key(tenant, id)
    }

    fn missing(key: &InstanceKey) -> String {
        format!("no batch \"{}\"", key.correlation)
    }

    fn view(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<BatchView>, Problem> {
        BatchView::read(scope, key, instance)
    }

    /// A batch needs the rights that its instruction requires for one instance.
    async fn permit(changes: &Changes, key: &InstanceKey, verb: Verb) -> Result<(), Problem> {
        let api = &changes.instances.request;
        let read = built_in::show(api, key.clone(), missing::<Batch>, |_, key, instance| {
            decoded(key, instance).map(|state| Some(state.spec.action))
        });
        let instruction = read.await?;
        permit(&changes.caller, &instruction)?;

        if verb == Verb::Signal(batch::RESUME) {
            check_signals(&changes.access, &changes.caller, &key.tenant, &instruction)?;
        }
        Ok(())
    }
}

impl ListedResource for Batch {
    const SAGA: &'static str = batch::SAGA;
    type Entry = BatchView;

    fn entry(
        scope: &ReadScope,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Result<Option<BatchView>, Problem> {
        BatchView::read(scope, key, instance)
    }
}

resource! {
    Batch, "batches", BatchPath { id: "Id of the batch, percent-encoded" }

    list "/v1/batches" -> BatchPage {
        /// List batches
        ///
        /// Ordered by id. A page can be short and still have a `next_cursor`; the last page has
        /// none.
    }

    show "/v1/batches/{id}" -> BatchView, "The batch" {
        /// Show a batch
        ///
        /// Its specification, its progress and its first failures.
    }

    change pause "/v1/batches/{id}/pause" -> BatchView = Verb::Signal(batch::PAUSE), {
        /// Pause a batch: no further instance receives the instruction until it is resumed
        ///
        /// A page of at most 100 instances that is in flight ends.
    }

    change resume "/v1/batches/{id}/resume" -> BatchView = Verb::Signal(batch::RESUME), {
        /// Resume a batch that is paused, or approve its canary
    }

    change stop "/v1/batches/{id}/stop" -> BatchView = Verb::Signal(batch::STOP), {
        /// Stop a batch: no further instance receives the instruction
        ///
        /// A page of at most 100 instances that is in flight ends. A stopped batch cannot be
        /// resumed.
    }
}

/// Rejects callers without the right that the instruction requires for one instance. The route
/// requires the right `control`.
fn permit(caller: &Caller, action: &BatchAction) -> Result<(), Problem> {
    if matches!(action, BatchAction::Migrate { .. }) && !caller.roles.allow(Right::Admin) {
        let detail = "a batch that migrates instances requires the right to administer, like the \
                      migration of one instance";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    Ok(())
}

/// Rejects an unsigned request that starts or continues a batch of signals, if the context requires
/// signed events.
fn check_signals(
    access: &Access,
    caller: &Caller,
    tenant: &TenantId,
    action: &BatchAction,
) -> Result<(), Problem> {
    if matches!(action, BatchAction::Signal { .. }) {
        check_signed(access, caller, tenant)?;
    }
    Ok(())
}
