//! `GET /v1/overview`: how a node does and what a tenant has, in one answer that may be asked for every few seconds.

pub(crate) mod cache;
pub(crate) mod counts;

use axum::Json;
use axum::extract::State;
use orlog_model::{Lane, WorkKind};
use orlog_store::{Group, Still};
use serde::Serialize;
use utoipa::ToSchema;

use super::context::Api;
use super::extract::Tenant;
use super::problem::Problem;
use super::sagas::hex;
use crate::app::App;
use cache::Counted;

/// Lanes that are shown.
const LANES: usize = 100;

/// How it goes.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Overview {
    /// The time of the node.
    now: String,
    node: NodeView,
    /// Since the node started, of all tenants; who asks twice knows the rates.
    totals: Totals,
    depths: Depths,
    /// Where work waits, the oldest first.
    lanes: Vec<LaneView>,
    /// The tenant's instances, tasks and dead letters as they were counted last; null while the first count is made.
    counts: Option<Counts>,
}

/// The node that answers.
#[derive(Debug, Serialize, ToSchema)]
struct NodeView {
    name: String,
    version: &'static str,
    started_at: String,
    /// It takes new work.
    accepting: bool,
    /// Every shard is up.
    up: bool,
    /// There is room in the store.
    room: bool,
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

/// What lies and waits, of all tenants.
#[derive(Debug, Serialize, ToSchema)]
struct Depths {
    /// Work items that are not done.
    outbox: u64,
    /// Instances in memory.
    live_instances: i64,
    /// Inputs in the deepest mailbox.
    deepest_mailbox: usize,
    /// When the next timer falls due.
    next_timer: Option<String>,
}

/// Work of one kind for one destination.
#[derive(Debug, Serialize, ToSchema)]
struct LaneView {
    /// `command`, `effect`, `fact` or `saga`.
    kind: &'static str,
    /// The aggregate type, the effect or the saga; empty for facts.
    name: String,
    /// Since when its oldest item waits.
    oldest: String,
}

/// What a tenant has.
#[derive(Debug, Serialize, ToSchema)]
struct Counts {
    /// When it was counted.
    at: String,
    /// How long that took, in milliseconds.
    took_ms: u64,
    /// Instances that were looked at.
    looked_at: u64,
    /// All of them; otherwise every count says "at least".
    complete: bool,
    instances: Vec<GroupView>,
    /// The instances that are stuck, the longest first; 20 at most.
    stuck: Vec<StillView>,
    /// Those that run or undo and have not changed for longest; 20 at most.
    quiet: Vec<StillView>,
    tasks: TaskCounts,
    dead_letters: LetterCounts,
}

/// Instances of one definition in one status.
#[derive(Debug, Serialize, ToSchema)]
struct GroupView {
    saga: String,
    version: u32,
    /// The definition's identity, in hexadecimal.
    hash: String,
    status: &'static str,
    paused: bool,
    count: u64,
}

/// An instance that stands still.
#[derive(Debug, Serialize, ToSchema)]
struct StillView {
    saga: String,
    correlation: String,
    status: &'static str,
    paused: bool,
    /// When it changed last.
    since: String,
}

/// Tasks of people.
#[derive(Debug, Serialize, ToSchema)]
struct TaskCounts {
    /// Open or claimed.
    waiting: usize,
    /// Of those, past their due date.
    overdue: usize,
    /// All were looked at.
    complete: bool,
}

/// Dead letters.
#[derive(Debug, Serialize, ToSchema)]
struct LetterCounts {
    count: u64,
    /// All were looked at.
    complete: bool,
}

/// How it goes
///
/// Cheap: instances are counted in the background, the more rarely the longer it takes, and only while somebody asks.
#[utoipa::path(
    get,
    path = "/v1/overview",
    tag = "node",
    responses((status = 200, description = "The node, and what the tenant has", body = Overview))
)]
pub(super) async fn overview(
    State(api): State<Api>,
    Tenant(tenant): Tenant,
) -> Result<Json<Overview>, Problem> {
    let counts = counts::of(&api, &tenant).await.map(|counted| Counts::of(&counted));
    let overview = api.read(move |app| look(app, counts));
    overview.await.map(Json)
}

fn look(app: &App, counts: Option<Counts>) -> Result<Overview, Problem> {
    let (runtime, health) = (&app.runtime, app.runtime.health());
    let metrics = runtime.metrics();
    let (mut outbox, mut next_timer, mut lanes) = (0, None, Vec::new());
    for reader in runtime.readers() {
        outbox += reader.outbox_depth()?;
        next_timer = next_timer.into_iter().chain(reader.next_timer()?).min();
        for lane in reader.lanes()?.into_iter().take(LANES) {
            let oldest = reader.outbox(&lane, 0, 1)?.pop();
            lanes.extend(oldest.map(|(_, item)| (item.created_at, lane)));
        }
    }
    lanes.sort();
    Ok(Overview {
        now: app.clock.now().to_string(),
        node: NodeView {
            name: app.config.node_name(),
            version: env!("CARGO_PKG_VERSION"),
            started_at: app.started_at.to_string(),
            accepting: health.accepting,
            up: health.up,
            room: health.room,
        },
        totals: Totals {
            events: metrics.ingested(),
            transitions: metrics.transitions(),
            commits: metrics.commits(),
            attempts: app.counted.total(),
            timers: metrics.timers_fired(),
            dead_letters: metrics.dead_letters(),
        },
        depths: Depths {
            outbox,
            live_instances: metrics.live_instances(),
            deepest_mailbox: runtime.deepest_mailboxes(1).first().map_or(0, |(_, depth)| *depth),
            next_timer: next_timer.map(|at| at.to_string()),
        },
        lanes: lanes.into_iter().map(|(oldest, lane)| LaneView::of(&lane, oldest.to_string())).collect(),
        counts,
    })
}

impl LaneView {
    fn of(lane: &Lane, oldest: String) -> Self {
        let kind = match lane.kind {
            WorkKind::Command => "command",
            WorkKind::Effect => "effect",
            WorkKind::Fact => "fact",
            WorkKind::Saga => "saga",
        };
        Self { kind, name: lane.name.to_string(), oldest }
    }
}

impl Counts {
    fn of(counted: &Counted) -> Self {
        let Counted { census, letters, tasks, at, took, .. } = counted;
        Self {
            at: at.to_string(),
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            looked_at: census.looked_at,
            complete: census.complete,
            instances: census.groups.iter().map(|(group, count)| GroupView::of(group, *count)).collect(),
            stuck: census.stuck.iter().map(StillView::of).collect(),
            quiet: census.quiet.iter().map(StillView::of).collect(),
            tasks: TaskCounts { waiting: tasks.waiting, overdue: tasks.overdue, complete: tasks.complete },
            dead_letters: LetterCounts { count: letters.count, complete: letters.complete },
        }
    }
}

impl GroupView {
    fn of(group: &Group, count: u64) -> Self {
        Self {
            saga: group.saga.to_string(),
            version: group.version,
            hash: hex(&group.hash),
            status: group.status.as_str(),
            paused: group.paused,
            count,
        }
    }
}

impl StillView {
    fn of(still: &Still) -> Self {
        Self {
            saga: still.key.saga.to_string(),
            correlation: still.key.correlation.to_string(),
            status: still.status.as_str(),
            paused: still.paused,
            since: still.since.to_string(),
        }
    }
}
