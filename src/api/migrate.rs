//! `POST /v1/definitions/{saga}/migrate`: moves instances of a tenant to another definition of their saga.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use orlog_engine::Plan;
use orlog_model::{CorrelationId, Instance, InstanceKey, ProgramRef, SagaName, Status, TenantId};
use orlog_program::Program;
use orlog_store::InstanceQuery;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body;
use super::context::Api;
use super::deploy::name_of;
use super::errors::bad_parameter;
use super::extract::{Part, Tenant, page_limit};
use super::problem::{Code, Problem};
use super::sagas::{find, hex, resume};
use crate::app::{App, Move, Moved};
use crate::auth::Caller;

/// The shortest beginning of a hash that names a definition.
const SHORTEST_HASH: usize = 6;
/// Statuses of instances that have not ended.
const LIVE: [Status; 3] = [Status::Running, Status::Compensating, Status::Stuck];

/// Which instances go where.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Migration {
    /// The definition they go by now: its version, or the beginning of its hash.
    from: String,
    /// The definition they are to go by, in the same way; the one in force where nothing is said.
    to: Option<String>,
    /// Only these instances, by correlation id.
    #[serde(default)]
    #[schema(value_type = Vec<String>)]
    only: Vec<CorrelationId>,
    /// Say what would become of each, and change nothing.
    #[serde(default)]
    dry_run: bool,
    /// Who says so, for the record.
    by: Option<String>,
    /// Instances of a page; 100 where nothing is said.
    limit: Option<usize>,
    /// The `next` of the page before.
    cursor: Option<String>,
}

/// A page of instances, and what became of each.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Migrated {
    /// The version of the definition that they go to.
    to_version: u32,
    /// Its identity, in hexadecimal.
    to_hash: String,
    /// The instances that went by the definition named in `from`.
    items: Vec<One>,
    /// Where the next page begins; absent after the last one.
    next: Option<String>,
}

/// An instance.
#[derive(Debug, Serialize, ToSchema)]
struct One {
    correlation: String,
    /// `safe`: nothing of it goes by another name. `mapped`: something does, or is no more. `blocked`: it must stay.
    class: &'static str,
    /// It goes by the new definition now.
    migrated: bool,
    /// Why it must stay.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    reasons: Vec<String>,
}

impl One {
    fn of(moved: Moved) -> Self {
        let (class, reasons) = match moved.plan {
            Plan::Safe => ("safe", Vec::new()),
            Plan::Mapped => ("mapped", Vec::new()),
            Plan::Blocked(reasons) => ("blocked", reasons),
        };
        Self { correlation: moved.key.correlation.to_string(), class, migrated: moved.done, reasons }
    }
}

/// Move instances to another definition
///
/// Those that have not ended and go by the definition named in `from`. Each is moved by an instruction of its own that its
/// history records; what is blocked stays as it is, and says why. A page may be short and have a `next` all the same. The same
/// call again is harmless: what has moved already is left alone.
#[utoipa::path(
    post,
    path = "/v1/definitions/{saga}/migrate",
    tag = "definitions",
    params(("saga" = String, Path, description = "Its name")),
    request_body = Migration,
    responses((status = 200, description = "A page", body = Migrated))
)]
pub(super) async fn migrate(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    Part(saga): Part,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Migrated>, Problem> {
    let saga = SagaName::new(saga).map_err(|error| bad_parameter("saga", error.to_string()))?;
    let http = &api.app.config.http;
    let bytes = body::read(&headers, body, http.max_body_size, http.request_timeout).await?;
    let migration: Migration = body::parse(&bytes)?;
    let (limit, scan_limit) = (page_limit(migration.limit, &api), http.scan_limit);
    let by = name_of(caller.acts_as(migration.by.clone())?)?;
    let dry_run = migration.dry_run;
    let found = api.read(move |app| concerned(app, tenant, saga, &migration, (limit, scan_limit))).await?;
    let Concerned { to, instances, next } = found;
    let reference = to.reference().clone();
    let moved = api.app.migrate(instances, Move { to, by, dry_run }).await?;
    Ok(Json(Migrated {
        to_version: reference.version,
        to_hash: hex(&reference.hash),
        items: moved.into_iter().map(One::of).collect(),
        next,
    }))
}

struct Concerned {
    to: Arc<dyn Program>,
    instances: Vec<(InstanceKey, Instance)>,
    next: Option<String>,
}

fn concerned(
    app: &App,
    tenant: TenantId,
    saga: SagaName,
    migration: &Migration,
    (limit, scan_limit): (usize, usize),
) -> Result<Concerned, Problem> {
    let to = target(app, &saga, migration.to.as_deref())?;
    let from = Which::read("from", &migration.from)?;
    let is_concerned = |instance: &Instance| {
        from.names(&instance.program)
            && instance.program.hash != to.reference().hash
            && !instance.status.is_final()
    };
    if !migration.only.is_empty() {
        let mut instances = Vec::new();
        for correlation in &migration.only {
            let key =
                InstanceKey { tenant: tenant.clone(), saga: saga.clone(), correlation: correlation.clone() };
            let missing = || Problem::new(Code::NoInstance, format!("there is no instance {key}"));
            let reader = app.runtime.reader(&key).ok_or_else(missing)?;
            let instance = reader.instance(&key)?.ok_or_else(missing)?;
            instances.push((key, instance));
        }
        instances.retain(|(_, instance)| is_concerned(instance));
        return Ok(Concerned { to, instances, next: None });
    }
    let (shard, cursor) = resume(migration.cursor.as_deref())?;
    let (saga, statuses) = (Some(saga), LIVE.to_vec());
    let query =
        InstanceQuery { tenant, saga, statuses, cursor, limit, scan_limit, ..InstanceQuery::default() };
    let page = find(app, query, shard)?;
    let instances = page.items.into_iter().filter(|(_, instance)| is_concerned(instance)).collect();
    Ok(Concerned { to, instances, next: page.next })
}

/// The definition that instances go to.
fn target(app: &App, saga: &SagaName, named: Option<&str>) -> Result<Arc<dyn Program>, Problem> {
    let missing = |what: String| Problem::new(Code::NoDefinition, what);
    let Some(named) = named else {
        let in_force = app.definitions.in_force();
        let found = in_force.iter().find(|definition| definition.program.reference().saga == *saga);
        let program = found.map(|definition| Arc::clone(&definition.program));
        return program
            .ok_or_else(|| missing(format!("no definition of {saga} is in force; name one with `to`")));
    };
    let which = Which::read("to", named)?;
    let mut programs = app.programs.all();
    programs.retain(|program| program.reference().saga == *saga && which.names(program.reference()));
    match &programs[..] {
        [program] => Ok(Arc::clone(program)),
        [] => Err(missing(format!("there is no definition {named} of {saga}"))),
        several => {
            let hashes: Vec<_> = several.iter().map(|program| hex(&program.reference().hash)).collect();
            Err(bad_parameter(
                "to",
                format!("{named} is not the name of one alone; there are {}", hashes.join(", ")),
            ))
        }
    }
}

/// How a definition of a saga is named.
enum Which {
    Version(u32),
    Hash(String),
}

impl Which {
    /// A number is a version; six and more hexadecimal digits that are no small number are the beginning of a hash.
    fn read(parameter: &str, text: &str) -> Result<Self, Problem> {
        let is_hash = text.len() >= SHORTEST_HASH && text.chars().all(|c| c.is_ascii_hexdigit());
        match text.parse() {
            Ok(version) if text.len() <= SHORTEST_HASH => Ok(Self::Version(version)),
            _ if is_hash => Ok(Self::Hash(text.to_ascii_lowercase())),
            _ => {
                let known = format!("{SHORTEST_HASH} or more digits of a hash");
                Err(bad_parameter(parameter, format!("{text:?} is neither a version nor {known}")))
            }
        }
    }

    fn names(&self, program: &ProgramRef) -> bool {
        match self {
            Which::Version(version) => program.version == *version,
            Which::Hash(beginning) => hex(&program.hash).starts_with(beginning),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_named_by_its_version_or_its_hash() {
        let program = ProgramRef { saga: SagaName::new("order").unwrap(), version: 12, hash: [0x12; 16] };
        for (text, names) in
            [("12", true), ("1", false), ("1212121", true), ("121212aa", false), ("12121212", true)]
        {
            assert_eq!(Which::read("from", text).unwrap().names(&program), names, "{text}");
        }
        for wrong in ["", "v1", "-1", "abc", "12 "] {
            assert!(Which::read("from", wrong).is_err(), "{wrong}");
        }
    }
}
