//! `GET /v1/overview`: state of a node and counts of a tenant in one response, cheap enough to poll
//! every few seconds.

pub(crate) mod counts;

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use orlog_model::{Destination, TenantId};
use orlog_store::{CountKey, UnchangedInstance};
use serde::Serialize;
use utoipa::ToSchema;

use super::work::kind;
use crate::server::context::RequestContext;
use crate::server::extract::{NodeAccess, Tenant};
use crate::server::overview_cache::{DeadLetterCounts, OverviewCache, TaskCounts, TenantCounts};
use crate::server::parts::operations::Operations;
use crate::server::problem::Problem;
use crate::server::read_scope::ReadScope;

/// Maximum number of destinations in the response.
const MAX_DESTINATIONS: usize = 100;

/// State of the node and counts of the tenant.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Overview {
    /// Current time of the node.
    #[schema(format = "date-time")]
    now: String,
    node: NodeView,
    /// Totals since the start of the node, for all tenants; two requests give the rates. Null if
    /// the caller has no access to all tenants.
    totals: Option<Totals>,
    /// Null if the caller has no access to all tenants.
    depths: Option<Depths>,
    /// Destinations with pending work, oldest first; at most 100.
    destinations: Vec<DestinationView>,
    /// Latest counts of instances, tasks and dead letters of the tenant; null until the first count
    /// is complete.
    counts: Option<OverviewCounts>,
}

/// State of the responding node.
#[derive(Debug, Serialize, ToSchema)]
struct NodeView {
    name: String,
    version: &'static str,
    #[schema(format = "date-time")]
    started_at: String,
    /// The node accepts new work.
    accepting: bool,
    /// Every shard is up.
    healthy: bool,
    /// The store has free space.
    has_capacity: bool,
}

/// Counters.
#[derive(Debug, Serialize, ToSchema)]
struct Totals {
    events: u64,
    transitions: u64,
    commits: u64,
    attempts: u64,
    timers: u64,
    dead_letters: u64,
}

/// Queue depths, for all tenants.
#[derive(Debug, Serialize, ToSchema)]
struct Depths {
    /// Uncompleted work items.
    outbox: u64,
    /// Instances in memory.
    live_instances: i64,
    /// Inputs in the deepest mailbox.
    deepest_mailbox: usize,
    /// Due time of the next timer.
    #[schema(format = "date-time")]
    next_timer: Option<String>,
}

/// Pending work of one destination.
#[derive(Debug, Serialize, ToSchema)]
struct DestinationView {
    /// `command`, `effect`, `fact` or `saga`.
    kind: &'static str,
    /// Aggregate type, effect or saga; empty for facts.
    name: String,
    /// `high`, `normal` or `low`.
    priority: &'static str,
    /// Creation time of the oldest item.
    #[schema(format = "date-time")]
    oldest: String,
}

/// Counts of a tenant.
#[derive(Debug, Serialize, ToSchema)]
struct OverviewCounts {
    /// Time of the count.
    #[schema(format = "date-time")]
    at: String,
    /// Duration of the count in milliseconds.
    duration_ms: u64,
    /// The counts of instances are exact; after an unreadable instance was deleted they are not,
    /// until the next start.
    complete: bool,
    instances: Vec<InstanceGroupView>,
    /// Stuck instances, the longest stuck first; at most 20.
    stuck: Vec<UnchangedInstanceView>,
    /// Instances with a result that could not be applied, the longest first; at most 20.
    unapplied: Vec<UnchangedInstanceView>,
    /// Running or compensating instances that are unchanged for the longest time; at most 20.
    longest_unchanged: Vec<UnchangedInstanceView>,
    tasks: TaskCounts,
    dead_letters: DeadLetterCounts,
}

/// Instances of one definition with one status.
#[derive(Debug, Serialize, ToSchema)]
struct InstanceGroupView {
    saga: String,
    version: u32,
    /// Hash of the definition, in hexadecimal.
    hash: String,
    status: &'static str,
    paused: bool,
    count: u64,
}

/// Unchanged instance.
#[derive(Debug, Serialize, ToSchema)]
struct UnchangedInstanceView {
    saga: String,
    correlation: String,
    status: &'static str,
    paused: bool,
    /// Time of the last change.
    #[schema(format = "date-time")]
    since: String,
}

/// Show an overview of the node and the tenant
///
/// A cheap request: instances are counted in the background, only after a request, and less often
/// if a count takes longer.
#[utoipa::path(
    get,
    path = "/v1/overview",
    tag = "node",
    responses((
        status = 200,
        description = "State of the node and counts of the tenant",
        body = Overview
    ))
)]
pub(crate) async fn overview(
    api: RequestContext,
    State(operations): State<Operations>,
    State(cache): State<Arc<OverviewCache>>,
    Tenant(tenant): Tenant,
    NodeAccess(sees_node): NodeAccess,
) -> Result<Json<Overview>, Problem> {
    // Outside of the read: a count reads the stores itself, and one request must not wait for a
    // second place.
    let counts = counts::counts(&api, &cache, &tenant)
        .await
        .map(|counted| OverviewCounts::of(&counted));
    let health = api.health();
    let overview = api.read(move |scope| {
        let destinations = destinations(scope, &tenant)?;
        Ok(Overview {
            now: scope.now().to_string(),
            node: NodeView {
                name: operations.node_name(),
                version: env!("CARGO_PKG_VERSION"),
                started_at: operations.started_at().to_string(),
                accepting: health.accepting,
                healthy: health.is_running,
                has_capacity: health.has_capacity,
            },
            totals: sees_node.then(|| Totals::of(&operations)),
            depths: sees_node
                .then(|| Depths::of(scope, &operations))
                .transpose()?,
            destinations,
            counts,
        })
    });
    overview.await.map(Json)
}

/// Returns the destinations of a tenant that have work, by the age of the oldest.
fn destinations(scope: &ReadScope, tenant: &TenantId) -> Result<Vec<DestinationView>, Problem> {
    let mut destinations = Vec::new();
    for reader in scope.readers() {
        // All of them, because their order is not that of their ages.
        for destination in reader.tenant_destinations(tenant)? {
            // The rows of a destination are in the order of their creation, so that the first one
            // is the oldest.
            let oldest = reader.outbox(&destination, 0, 1)?.pop();
            destinations.extend(oldest.map(|(_, item)| (item.created_at, destination)));
        }
    }

    destinations.sort();
    Ok(destinations
        .into_iter()
        .take(MAX_DESTINATIONS)
        .map(|(oldest, destination)| DestinationView::of(&destination, oldest.to_string()))
        .collect())
}

impl Totals {
    fn of(operations: &Operations) -> Self {
        let metrics = operations.metrics();
        Self {
            events: metrics.ingested(),
            transitions: metrics.transitions(),
            commits: metrics.commits(),
            attempts: operations.attempt_metrics().total(),
            timers: metrics.timers_fired(),
            dead_letters: metrics.dead_letters(),
        }
    }
}

impl Depths {
    fn of(scope: &ReadScope, operations: &Operations) -> Result<Self, Problem> {
        let mut outbox = 0;
        let mut next_timer = None;
        for reader in scope.readers() {
            outbox += reader.outbox_depth()?;
            next_timer = next_timer.into_iter().chain(reader.next_timer()?).min();
        }

        Ok(Self {
            outbox,
            live_instances: operations.metrics().live_instances(),
            deepest_mailbox: operations
                .deepest_mailboxes(1)
                .first()
                .map_or(0, |(_, depth)| *depth),
            next_timer: next_timer.map(|at| at.to_string()),
        })
    }
}

impl DestinationView {
    fn of(destination: &Destination, oldest: String) -> Self {
        let Destination {
            kind: of,
            name,
            priority,
            ..
        } = destination;
        Self {
            kind: kind(*of),
            name: name.to_string(),
            priority: priority.as_str(),
            oldest,
        }
    }
}

impl OverviewCounts {
    fn of(counted: &TenantCounts) -> Self {
        let TenantCounts {
            instances: instance_counts,
            dead_letters: letters,
            tasks,
            at,
            duration: took,
            ..
        } = counted;
        Self {
            at: at.to_string(),
            duration_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            complete: instance_counts.complete,
            instances: instance_counts
                .groups
                .iter()
                .map(|(group, count)| InstanceGroupView::of(group, *count))
                .collect(),
            stuck: instance_counts
                .stuck
                .iter()
                .map(UnchangedInstanceView::of)
                .collect(),
            unapplied: instance_counts
                .unapplied
                .iter()
                .map(UnchangedInstanceView::of)
                .collect(),
            longest_unchanged: instance_counts
                .longest_unchanged
                .iter()
                .map(UnchangedInstanceView::of)
                .collect(),
            tasks: tasks.clone(),
            dead_letters: letters.clone(),
        }
    }
}

impl InstanceGroupView {
    fn of(group: &CountKey, count: u64) -> Self {
        Self {
            saga: group.saga.to_string(),
            version: group.version,
            hash: hex::encode(group.hash),
            status: group.status.as_str(),
            paused: group.paused,
            count,
        }
    }
}

impl UnchangedInstanceView {
    fn of(unchanged: &UnchangedInstance) -> Self {
        Self {
            saga: unchanged.key.saga.to_string(),
            correlation: unchanged.key.correlation.to_string(),
            status: unchanged.status.as_str(),
            paused: unchanged.paused,
            since: unchanged.since.to_string(),
        }
    }
}
