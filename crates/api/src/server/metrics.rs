//! `/metrics`: counters, and gauges that are read per request.
//!
//! The format is `OpenMetrics` if requested, else the older Prometheus text format, which all other
//! clients read.

mod failed_reads;
mod format;
mod messages;
mod node;
mod process;
mod sagas;
mod stores;
mod types;
mod workers;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use orlog_actors::MetricSink as _;

use super::context::{ApiState, RequestContext};
use super::health;
use super::logged_reads::LoggedReads;
use super::problem::Problem;
use failed_reads::FailedReads;
use node::BusMetrics;
use orlog_node::app::App;
use orlog_node::auth::Caller;
use orlog_node::config::Role;
use orlog_node::telemetry::MetricsRegistry;

/// Maximum time that a scrape waits for the bus, as for its lag.
const BUS_TIMEOUT: Duration = Duration::from_secs(1);

/// Get metrics in a Prometheus format
///
/// As `OpenMetrics` if the header `accept` names it.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "node",
    responses((
        status = 200,
        description = "All metrics",
        body = String,
        content_type = "text/plain"
    ))
)]
pub(crate) async fn metrics(
    State(api): State<ApiState>,
    request: RequestContext,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    // As a public route, it has no caller, and shows nothing of closed contexts.
    let caller = caller.map_or_else(Caller::unknown, |Extension(caller)| caller);
    let available = tokio::time::timeout(BUS_TIMEOUT, health::check_bus(&api));
    let app = Arc::clone(&api.shared.app);
    let consumers = tokio::time::timeout(BUS_TIMEOUT, app.job_consumers());
    // At the same time, so that a bus that does not respond delays a scrape by one timeout only.
    let (lags, available, consumers) = tokio::join!(app.runtime.lags(), available, consumers);
    let is_available = matches!(available, Ok(Ok(())));

    // Without a response there are no backlogs; the states of the consumers are known.
    let consumers = consumers.unwrap_or_else(|_| app.job_consumer_states());
    let logged = Arc::clone(&api.shared.logged_reads);
    let gauges = request
        .read(move |_| {
            let bus = BusMetrics {
                is_available,
                lags: &lags,
                consumers: &consumers,
            };
            Ok(read_gauges(&app, &caller, bus, &logged))
        })
        .await?;

    let mut text = String::with_capacity(64 * 1024);
    // Locked after the gauges are read, so that the counters are not locked during reads of the
    // stores.
    let counted = api.shared.app.metrics_registry.lock();
    counted
        .encode(&mut text)
        .and_then(|()| api.shared.requests.registry().encode(&mut text))
        .and_then(|()| gauges.encode(&mut text))
        .expect("writing to a string does not fail");
    drop(counted);
    let (content_type, text) = format::render(&headers, text);

    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

/// Reads the gauges, and the counters of definitions.
fn read_gauges(
    app: &App,
    caller: &Caller,
    bus: BusMetrics<'_>,
    logged: &LoggedReads,
) -> MetricsRegistry {
    let mut registry = MetricsRegistry::default();
    let mailboxes = app.runtime.mailboxes();
    registry.register("instance_mailbox_depth", types::mailboxes(&mailboxes));
    registry.register(
        "instance_mailbox_max_depth",
        types::int_gauge(mailboxes.deepest),
    );

    let mut failed = FailedReads::new(logged);
    stores::register(app, &mut failed, &mut registry);
    sagas::register(app, caller, &mut failed, &mut registry);
    messages::register(app, &mut failed, &mut registry);
    let shards = app.runtime.numbered_readers().map(|(shard, _)| shard);
    failed.register(shards, &mut registry);

    if app.config.role == Role::Effect {
        workers::register(app, bus.consumers, &mut registry);
    }
    node::register(app, bus, &mut registry);
    process::register(&mut registry);
    registry
}
