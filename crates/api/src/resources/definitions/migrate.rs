//! `POST /v1/definitions/{saga}/migrate`: migrates instances of a tenant to another definition of
//! their saga.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use orlog_engine::MigrationPlan;
use orlog_model::{
    CorrelationId, DefinitionRef, Instance, InstanceKey, SagaName, Status, TenantId,
};
use orlog_program::Program;
use orlog_store::InstanceQuery;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::deploy::user_name;
use crate::server::body::JsonBody;
use crate::server::context::RequestContext;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{LastSegment, Tenant, page_limit};
use crate::server::parts::cluster::Cluster;
use crate::server::parts::definitions::Definitions;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::auth::Caller;
use orlog_node::definitions::migrate::{MigrateRequest, MigrateResult};
use orlog_node::sagas::instance_pages::{find, parse_cursor};

/// Minimum length of a hash prefix.
const SHORTEST_HASH: usize = 6;
/// Statuses of live instances.
const LIVE: [Status; 3] = [Status::Running, Status::Compensating, Status::Stuck];

/// Instances and target of a migration.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MigrateBody {
    /// Current definition: version or hash prefix.
    from: String,
    /// Target definition: version or hash prefix. Default: the active one.
    to: Option<String>,
    /// Migrate only these instances, by correlation id; at most `http.max_page_size`.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    only: Vec<CorrelationId>,
    /// Return the plan without migrating.
    #[serde(default)]
    dry_run: bool,
    /// User name recorded in the history.
    user: Option<String>,
    /// Maximum number of instances of a page. Default: 100.
    limit: Option<usize>,
    /// The `next` of the previous page.
    cursor: Option<String>,
}

/// Page of instances with their results.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MigratePage {
    /// Version of the target definition.
    to_version: u32,
    /// Hash of the target definition, in hexadecimal.
    to_hash: String,
    /// Instances of the definition in `from`.
    items: Vec<MigratedInstance>,
    /// Cursor of the next page; absent after the last one.
    next_cursor: Option<String>,
}

/// Result for one instance.
#[derive(Debug, Serialize, ToSchema)]
struct MigratedInstance {
    correlation: String,
    /// `safe`: no renamed elements. `mapped`: some elements are renamed or removed. `blocked`: it
    /// cannot migrate.
    class: &'static str,
    /// The instance was migrated to the target definition.
    migrated: bool,
    /// Reasons why the migration is blocked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

impl MigratedInstance {
    fn of(moved: MigrateResult) -> Self {
        let (class, reasons) = match moved.plan {
            MigrationPlan::Safe => ("safe", Vec::new()),
            MigrationPlan::Mapped => ("mapped", Vec::new()),
            MigrationPlan::Blocked(reasons) => ("blocked", reasons),
        };
        Self {
            correlation: moved.key.correlation.to_string(),
            class,
            migrated: moved.done,
            reasons,
        }
    }
}

/// Migrate instances to another definition
///
/// Applies to live instances of the definition in `from`. Each instance migrates by its own control
/// request, which its history records. Blocked instances stay unchanged, with reasons. A page can
/// be short and still have a `next`. The request is idempotent: migrated instances are skipped. In
/// a cluster, a page of a key-sharded tenant has the instances of one pod.
#[utoipa::path(
    post,
    path = "/v1/definitions/{saga}/migrate",
    tag = "definitions",
    params(("saga" = String, Path, description = "Its name")),
    request_body = MigrateBody,
    responses((status = 200, description = "A page", body = MigratePage))
)]
pub(crate) async fn migrate(
    api: RequestContext,
    cluster: Cluster,
    State(definitions): State<Definitions>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    LastSegment(saga): LastSegment,
    JsonBody(migration): JsonBody<MigrateBody>,
) -> Result<Json<MigratePage>, Problem> {
    let saga = SagaName::new(saga).map_err(|error| invalid_parameter("saga", error.to_string()))?;
    let limit = page_limit(migration.limit, &api);
    check_named(&migration.only, api.http().max_page_size)?;
    let by = user_name(caller.check_user(migration.user.clone())?)?;
    let dry_run = migration.dry_run;
    let known = definitions.clone();
    let owner = InstanceOwner {
        is_spread: cluster.is_clustered() && cluster.slots().is_key_sharded(&tenant),
        tenant,
        saga,
    };
    let found = api
        .read(move |scope| select_instances(scope, &known, owner, &migration, limit))
        .await?;
    let MigrationBatch {
        to,
        instances,
        next,
    } = found;

    let reference = to.definition_ref().clone();
    let moved = definitions
        .migrations()
        .migrate(
            instances,
            MigrateRequest {
                to,
                user: by,
                dry_run,
            },
        )
        .await?;

    Ok(Json(MigratePage {
        to_version: reference.version,
        to_hash: hex::encode(reference.hash),
        items: moved.into_iter().map(MigratedInstance::of).collect(),
        next_cursor: next,
    }))
}

/// Checks the number of named instances: they are read and migrated as one page.
fn check_named(only: &[CorrelationId], max_page_size: usize) -> Result<(), Problem> {
    if only.len() <= max_page_size {
        return Ok(());
    }
    let detail = format!(
        "{} instances are named, the limit is {max_page_size} (http.max_page_size); name the \
         others in further requests",
        only.len()
    );
    Err(invalid_parameter("only", detail))
}

/// Saga of a tenant whose instances migrate.
struct InstanceOwner {
    tenant: TenantId,
    saga: SagaName,
    /// Whether other pods have instances of the tenant, too. The response names these pods.
    is_spread: bool,
}

struct MigrationBatch {
    to: Arc<dyn Program>,
    instances: Vec<(InstanceKey, Instance)>,
    next: Option<String>,
}

fn select_instances(
    scope: &ReadScope,
    definitions: &Definitions,
    owner: InstanceOwner,
    migration: &MigrateBody,
    limit: usize,
) -> Result<MigrationBatch, Problem> {
    let InstanceOwner { tenant, saga, .. } = &owner;
    let to = target(definitions, tenant, saga, migration.to.as_deref())?;
    let from = DefinitionSelector::read("from", &migration.from)?;
    // Instances with the target definition do not match, so that a repeated request continues where
    // it was interrupted.
    let is_selected = |instance: &Instance| {
        from.names(&instance.definition)
            && instance.definition.hash != to.definition_ref().hash
            && !instance.status.is_final()
    };

    if !migration.only.is_empty() {
        let mut instances = named_instances(scope, &owner, &migration.only)?;
        // A named instance that has migrated or ended is skipped, as in a page.
        instances.retain(|(_, instance)| is_selected(instance));
        return Ok(MigrationBatch {
            to,
            instances,
            next: None,
        });
    }

    let (shard, cursor) = parse_cursor(migration.cursor.as_deref())?;
    let InstanceOwner { tenant, saga, .. } = owner;
    let saga = Some(saga);
    let statuses = LIVE.to_vec();
    let query = InstanceQuery {
        tenant,
        saga,
        statuses,
        cursor,
        limit,
        scan_limit: scope.http().scan_limit,
        ..InstanceQuery::default()
    };

    // The cursor follows the scan, not the selection: a page whose instances have other definitions
    // is empty and has a next one.
    let page = find(scope.stores(), query, shard)?;
    let instances = page
        .items
        .into_iter()
        .map(|located| (located.found.key, located.found.instance));
    let instances = instances
        .filter(|(_, instance)| is_selected(instance))
        .collect();

    Ok(MigrationBatch {
        to,
        instances,
        next: page.next,
    })
}

/// Returns the named instances, without those of other pods.
fn named_instances(
    scope: &ReadScope,
    owner: &InstanceOwner,
    only: &[CorrelationId],
) -> Result<Vec<(InstanceKey, Instance)>, Problem> {
    let mut instances = Vec::with_capacity(only.len());
    for correlation in only {
        let key = InstanceKey {
            tenant: owner.tenant.clone(),
            saga: owner.saga.clone(),
            correlation: correlation.clone(),
        };
        let Some(reader) = scope.reader(&key) else {
            // Its pod is among those that the response names.
            if owner.is_spread {
                continue;
            }
            return Err(Problem::moving());
        };

        // A name that does not exist is an error, in contrast to one that no longer matches: it can
        // be a typing error.
        let missing = || Problem::new(Code::InstanceNotFound, format!("no instance {key}"));
        let instance = reader.instance(&key)?.ok_or_else(missing)?;
        instances.push((key, instance));
    }

    Ok(instances)
}

/// Returns the target definition: one of the context of the tenant, or a shared one.
pub(crate) fn target(
    definitions: &Definitions,
    tenant: &TenantId,
    saga: &SagaName,
    named: Option<&str>,
) -> Result<Arc<dyn Program>, Problem> {
    let missing = |detail: String| Problem::new(Code::DefinitionNotFound, detail);
    // Without a name, the definition that a new instance of this tenant would use: of its context,
    // or a shared one.
    let Some(named) = named else {
        let active = definitions.active().usable(tenant);
        let found = active.iter().find(|definition| definition.saga() == saga);
        let program = found.map(|definition| Arc::clone(&definition.program));
        return program.ok_or_else(|| {
            missing(format!(
                "saga {saga} has no active definition; set the target with `to`"
            ))
        });
    };

    let which = DefinitionSelector::read("to", named)?;
    // Retired definitions are loaded, too, so that instances can return to an earlier version.
    let mut programs = definitions.programs().usable(tenant);
    programs.retain(|program| {
        program.definition_ref().saga == *saga && which.names(program.definition_ref())
    });

    match &programs[..] {
        [program] => Ok(Arc::clone(program)),
        [] => Err(missing(format!("no definition {named} of saga {saga}"))),
        several => {
            let hashes: Vec<_> = several
                .iter()
                .map(|program| hex::encode(program.definition_ref().hash))
                .collect();
            Err(invalid_parameter(
                "to",
                format!("{named} is ambiguous; matches: {}", hashes.join(", ")),
            ))
        }
    }
}

/// Selector of a definition of a saga.
enum DefinitionSelector {
    Version(u32),
    Hash(String),
}

impl DefinitionSelector {
    /// Parses a selector. A number is a version; six or more hexadecimal digits that are not a
    /// small number are a hash prefix.
    fn read(parameter: &str, text: &str) -> Result<Self, Problem> {
        let is_hash = text.len() >= SHORTEST_HASH && text.chars().all(|c| c.is_ascii_hexdigit());
        // Six digits can be a version and a hash prefix; the version takes precedence.
        match text.parse() {
            Ok(version) if text.len() <= SHORTEST_HASH => Ok(Self::Version(version)),
            _ if is_hash => Ok(Self::Hash(text.to_ascii_lowercase())),
            _ => {
                let known = format!("a hash prefix of {SHORTEST_HASH} or more digits");
                Err(invalid_parameter(
                    parameter,
                    format!("{text:?} is neither a version nor {known}"),
                ))
            }
        }
    }

    fn names(&self, program: &DefinitionRef) -> bool {
        match self {
            DefinitionSelector::Version(version) => program.version == *version,
            DefinitionSelector::Hash(beginning) => hex::encode(program.hash).starts_with(beginning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_of_named_instances_has_the_limit_of_a_page() {
        let only = |count: usize| {
            let ids = (0..count).map(|number| CorrelationId::new(format!("o-{number}")).unwrap());
            ids.collect::<Vec<_>>()
        };
        check_named(&only(2), 2).unwrap();
        let problem = check_named(&only(3), 2).unwrap_err();
        assert!(
            problem.detail().contains("http.max_page_size"),
            "{problem:?}"
        );
    }

    #[test]
    fn definition_is_selected_by_version_or_hash() {
        let program = DefinitionRef {
            saga: SagaName::new("order").unwrap(),
            version: 12,
            hash: [0x12; 16],
        };
        for (text, names) in [
            ("12", true),
            ("1", false),
            ("1212121", true),
            ("121212aa", false),
            ("12121212", true),
        ] {
            assert_eq!(
                DefinitionSelector::read("from", text)
                    .unwrap()
                    .names(&program),
                names,
                "{text}"
            );
        }
        for invalid in ["", "v1", "-1", "abc", "12 "] {
            assert!(
                DefinitionSelector::read("from", invalid).is_err(),
                "{invalid}"
            );
        }
    }
}
