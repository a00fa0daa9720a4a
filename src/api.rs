//! HTTP API: requests, responses, and errors as problems with a code.
//!
//! One file per resource under `api/`; each handler validates its input, calls the [`App`] and builds
//! the response. A request acts for the tenant in its `x-tenant-id` header and never accesses another
//! tenant. Permissions are in `api/permissions.rs`. The description at `/openapi.json` is generated
//! from the handlers.

mod admin;
mod allowed_hosts;
mod audit;
mod audit_guard;
mod authorize;
mod backup;
mod blocking;
mod body;
mod body_budget;
mod caller;
mod connections;
mod context;
mod control;
mod dead_letters;
mod definitions;
mod deploy;
mod diagnostics;
mod errors;
mod events;
mod export;
mod extract;
mod forward;
mod graphs;
mod health;
mod index;
mod inspect;
mod jobs;
mod log;
mod login;
mod mailboxes;
mod metrics;
mod migrate;
mod openapi;
mod origin;
mod overview;
mod permissions;
mod pod_client;
mod problem;
mod query_limit;
mod quotas;
mod read_pool;
mod replay;
mod request_context;
mod request_info;
mod request_metrics;
mod sagas;
mod security_headers;
mod serve;
mod tasks;
mod timers;
mod ui;

use std::io;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::config::MIN_CONNECTIONS;
use crate::descriptors;
use connections::ConnectionLimits;
use context::ApiState;
use serve::Server;

/// Returns the API as a service.
pub fn router(app: Arc<App>) -> Router {
    let (routes, description) = described();
    let description = serde_json::to_string(&description).expect("the description serializes to JSON");
    let api = ApiState::new(app, description);
    routes
        .fallback(errors::no_route)
        .method_not_allowed_fallback(errors::no_method)
        .layer(axum::middleware::from_fn_with_state(api.clone(), forward::forward))
        .layer(axum::middleware::from_fn_with_state(api.clone(), request_context::with_request_context))
        .with_state(api)
}

/// Serves the API until `shutdown` resolves and the requests in flight end, or their grace period
/// expires.
///
/// # Errors
/// If the listener does not belong to the runtime.
pub async fn serve(
    app: Arc<App>,
    listener: TcpListener,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let total = descriptors::max_connections(&app.config).unwrap_or(MIN_CONNECTIONS);
    // One address never has all connections, also if the limit of open files is low.
    let per_address = app.config.http.max_connections_per_address.min(total - total / 4);
    let limits = ConnectionLimits { total, per_address };
    let tls = app.tls().cloned();
    serve::serve(Server { router: router(app), limits, tls }, listener, shutdown).await
}

/// Returns the description of the API: OpenAPI 3.1.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().1
}

fn described() -> (Router<ApiState>, utoipa::openapi::OpenApi) {
    let (routes, mut description) = routes().split_for_parts();
    openapi::finish(&mut description);
    (routes, description)
}

fn routes() -> OpenApiRouter<ApiState> {
    let tenants = OpenApiRouter::new()
        .routes(routes!(events::publish))
        .routes(routes!(sagas::list))
        .routes(routes!(sagas::show))
        .routes(routes!(control::signal))
        .routes(routes!(control::cancel))
        .routes(routes!(control::pause))
        .routes(routes!(control::resume))
        .routes(routes!(control::retry))
        .routes(routes!(control::skip))
        .routes(routes!(control::force_complete))
        .routes(routes!(control::drop_instance))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::claim))
        .routes(routes!(tasks::release))
        .routes(routes!(tasks::assign))
        .routes(routes!(tasks::complete))
        .routes(routes!(export::export))
        .routes(routes!(overview::overview))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::causes::list))
        .routes(routes!(dead_letters::show, dead_letters::discard))
        .routes(routes!(dead_letters::redrive))
        .routes(routes!(dead_letters::redrive::redrive_many))
        .routes(routes!(replay::replay))
        .routes(routes!(timers::list))
        .routes(routes!(jobs::list::list))
        .routes(routes!(jobs::claim))
        .routes(routes!(jobs::heartbeat))
        .routes(routes!(jobs::list::job_logs))
        .routes(routes!(jobs::append_log))
        .routes(routes!(jobs::complete))
        .routes(routes!(definitions::list))
        .routes(routes!(definitions::show))
        .routes(routes!(migrate::migrate))
        .routes(routes!(graphs::of_definition))
        .routes(routes!(graphs::of_instance))
        .routes(routes!(inspect::rows))
        .routes(routes!(mailboxes::deepest))
        .routes(routes!(audit::list));
    let node = OpenApiRouter::new()
        .routes(routes!(index::index))
        .routes(routes!(index::openapi))
        .routes(routes!(ui::file))
        .routes(routes!(ui::view))
        .routes(routes!(index::error_page))
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(login::login))
        .routes(routes!(login::callback))
        .routes(routes!(login::logout))
        .routes(routes!(caller::show))
        .routes(routes!(metrics::metrics))
        .routes(routes!(admin::info))
        .routes(routes!(admin::drain))
        .routes(routes!(log::show, log::update, log::reset))
        .routes(routes!(diagnostics::diagnostics))
        .routes(routes!(backup::create))
        .routes(routes!(backup::file))
        .routes(routes!(backup::discard))
        .routes(routes!(deploy::deploy))
        .routes(routes!(deploy::reload))
        .routes(routes!(deploy::collect));
    OpenApiRouter::with_openapi(openapi::head()).merge(tenants).merge(node)
}
