//! Dry run of a batch: the number of instances that match, the first of them, and those to which
//! the instruction does not apply.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use orlog_engine::{MigrationPlan, forbidden};
use orlog_model::{Instance, InstanceKey, TenantId};
use orlog_program::Program;
use orlog_sagas::batch::{BatchAction, BatchSpec};
use serde::Serialize;
use utoipa::ToSchema;

use crate::resources::sagas::{InstanceSummary, hidden_values};
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::batches::selection::{self, Part};

/// Number of instances in the response.
const SHOWN: usize = 20;
/// Instances per read.
const CHUNK: usize = 256;

/// Result of a dry run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRunView {
    /// Number of instances that match.
    matched: u64,
    /// All instances were scanned; otherwise more can match. False also if other pods have
    /// instances of the tenant.
    exact: bool,
    /// Number of matching instances to which the instruction does not apply; the batch skips them.
    not_applicable: u64,
    /// First matching instances, at most 20.
    items: Vec<DryRunItem>,
    /// Number of instances for which the filter failed; they do not match.
    filter_errors: u64,
    /// Reason of the first filter error.
    first_filter_error: Option<String>,
}

/// Instance that matches.
#[derive(Debug, Serialize, ToSchema)]
struct DryRunItem {
    #[serde(flatten)]
    instance: InstanceSummary,
    /// Why the instruction does not apply; null if it does.
    not_applicable: Option<String>,
}

/// Runs a dry run, within the limits of a query.
pub(super) async fn respond(
    instances: &Instances,
    tenant: TenantId,
    spec: BatchSpec,
) -> Result<Json<DryRunView>, Problem> {
    let api = &instances.request;
    let permit = api.queries().acquire(&tenant)?;
    let timer = api.begin_query()?;
    let checked = instances.clone();
    let found = api.read(move |scope| {
        let _permit = permit;
        timer.run(|| run(scope, &checked, &tenant, &spec))
    });

    found.await.map(Json)
}

/// Searches within the limits of one request. Blocks.
fn run(
    scope: &ReadScope,
    instances: &Instances,
    tenant: &TenantId,
    spec: &BatchSpec,
) -> Result<DryRunView, Problem> {
    let until = Instant::now() + selection::timeout(scope.stores());
    let check = Check::of(scope, &spec.action)?;
    let mut result = DryRunView {
        matched: 0,
        exact: false,
        not_applicable: 0,
        items: Vec::new(),
        filter_errors: 0,
        first_filter_error: None,
    };

    let mut cursor = None;
    let mut scanned = 0;
    loop {
        let part = Part {
            cursor: cursor.as_deref(),
            limit: CHUNK,
            shard: None,
        };
        let found = selection::next(scope.stores(), tenant, &spec.selection, &part)?;
        for located in found.items {
            let key = &located.found.key;
            let instance = &located.found.instance;
            let reason = check.reason(instances, key, instance);
            result.matched += 1;
            result.not_applicable += u64::from(reason.is_some());

            if result.items.len() < SHOWN {
                let hidden = hidden_values(scope.stores(), instance);
                let reason = reason.map(|reason| hidden.remove_from(&reason));
                let instance = InstanceSummary::of(key, instance, &hidden);
                result.items.push(DryRunItem {
                    instance,
                    not_applicable: reason,
                });
            }
        }

        result.filter_errors += found.filter_errors;
        result.first_filter_error = result
            .first_filter_error
            .take()
            .or(found.first_filter_error);
        (cursor, scanned) = (found.next, scanned + found.scanned);
        let is_end = cursor.is_none();
        if is_end || scanned >= scope.http().scan_limit || Instant::now() > until {
            result.exact = is_end && instances.cluster.has_all_shards_of(tenant);
            return Ok(result);
        }
    }
}

/// What decides whether the instruction applies.
enum Check<'a> {
    Status(&'a BatchAction),
    Migration(Arc<dyn Program>),
}

impl<'a> Check<'a> {
    fn of(scope: &ReadScope, action: &'a BatchAction) -> Result<Self, Problem> {
        let BatchAction::Migrate { version, hash } = action else {
            return Ok(Self::Status(action));
        };

        let missing = || {
            Problem::new(
                Code::DefinitionNotFound,
                format!("the definition, version {version}, is not loaded"),
            )
        };

        scope
            .programs()
            .by_hash(hash)
            .map(Self::Migration)
            .ok_or_else(missing)
    }

    /// Returns why the instruction does not apply to an instance.
    fn reason(
        &self,
        instances: &Instances,
        key: &InstanceKey,
        instance: &Instance,
    ) -> Option<String> {
        let to = match self {
            Self::Status(action) => {
                return forbidden(instance, &action.control(None)).map(str::to_owned);
            }
            Self::Migration(to) => to,
        };
        if instance.definition.hash == to.definition_ref().hash {
            return Some("the instance already uses this definition".to_owned());
        }

        match instances
            .plan_migration(key.clone(), instance, to.as_ref())?
            .plan
        {
            MigrationPlan::Safe | MigrationPlan::Mapped => None,
            MigrationPlan::Blocked(reasons) => Some(reasons.join("; ")),
        }
    }
}
