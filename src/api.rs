//! HTTP API: requests, responses, and errors as problems with a code.
//!
//! `api/` is the server: connections, layers, extractors, problems. The handlers of a feature stand in its `api.rs`;
//! each validates its input, calls the [`App`] and builds the response. A request acts for the tenant in its `x-tenant-id` header and never accesses another
//! tenant. Permissions are in `api/permissions.rs`. The description at `/openapi.json` is generated
//! from the handlers.

pub(crate) mod admission;
pub(crate) mod allowed_hosts;
pub(crate) mod audit_guard;
pub(crate) mod authorize;
pub(crate) mod blocking;
pub(crate) mod body;
pub(crate) mod body_budget;
pub(crate) mod caller;
pub(crate) mod connections;
pub(crate) mod context;
pub(crate) mod errors;
pub(crate) mod extract;
pub(crate) mod forward;
pub(crate) mod health;
pub(crate) mod index;
pub(crate) mod login;
pub(crate) mod metrics;
pub(crate) mod openapi;
pub(crate) mod origin;
pub(crate) mod page;
pub(crate) mod permissions;
pub(crate) mod pod_client;
pub(crate) mod problem;
pub(crate) mod query_limit;
pub(crate) mod quotas;
pub(crate) mod read_pool;
pub(crate) mod read_scope;
pub(crate) mod request_context;
pub(crate) mod request_info;
pub(crate) mod request_metrics;
pub(crate) mod security_headers;
pub(crate) mod serve;
mod signed_node;
pub(crate) mod signed_request;
pub(crate) mod tenant_storage;
pub(crate) mod ui;

use std::io;
use std::sync::Arc;

use axum::Router;
use futures::FutureExt as _;
use tokio::net::TcpListener;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::config::MIN_CONNECTIONS;
use crate::{
    access, audit, backup, batches, dead_letters, definitions, descriptors, doctor, events, export,
    flows, jobs, messages, node, peers, replay, sagas, schedules, shadows, tasks, timers, webhooks,
};
use connections::ConnectionLimits;
use context::ApiState;
use serve::Server;

/// Returns the API as a service.
pub fn router(app: Arc<App>) -> Router {
    let (routes, description) = described();
    let description =
        serde_json::to_string(&description).expect("the description serializes to JSON");
    let api = ApiState::new(app, description);
    batches::api::pages::connect(&api);
    shadows::api::pages::connect(&api);
    messages::api::delivery::connect(&api);
    routes
        .fallback(errors::no_route)
        .method_not_allowed_fallback(errors::no_method)
        // Innermost: the owner of the shard knows the size of a tenant.
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            tenant_storage::enforce,
        ))
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            forward::forward,
        ))
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            request_context::with_request_context,
        ))
        .with_state(api)
}

/// Serves the API, and its routes for peers also over NATS, until `shutdown` resolves and the requests in flight end, or their
/// grace period expires.
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
    let per_address = app
        .config
        .http
        .max_connections_per_address
        .min(total - total / 4);
    let limits = ConnectionLimits { total, per_address };
    let tls = app.services.keys.tls.clone();
    let (router, shutdown) = (router(Arc::clone(&app)), shutdown.shared());
    let peers = peers::api::over_nats::serve(&app, router.clone(), shutdown.clone());
    let ((), served) = tokio::join!(
        peers,
        serve::serve(
            Server {
                router,
                limits,
                tls
            },
            listener,
            shutdown
        )
    );
    served
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

fn schedule_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(schedules::api::list))
        .routes(routes!(
            schedules::api::show,
            schedules::api::put,
            schedules::api::delete
        ))
        .routes(routes!(schedules::api::pause))
        .routes(routes!(schedules::api::resume))
        .routes(routes!(schedules::api::trigger))
}

fn batch_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(
            jobs::api::runners::list,
            jobs::api::runners::register
        ))
        .routes(routes!(jobs::api::runners::remove))
        .routes(routes!(flows::api::list, flows::api::submit))
        .routes(routes!(flows::api::show))
        .routes(routes!(flows::api::lines::lines))
        .routes(routes!(flows::api::cancel))
        .routes(routes!(flows::api::retry))
        .routes(routes!(flows::api::rerun))
        .routes(routes!(batches::api::list, batches::api::create))
        .routes(routes!(batches::api::show))
        .routes(routes!(batches::api::pause))
        .routes(routes!(batches::api::resume))
        .routes(routes!(batches::api::stop))
}

fn message_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(
            messages::api::list::list,
            messages::api::send::send
        ))
        .routes(routes!(messages::api::show))
        .routes(routes!(messages::api::cancel))
        .routes(routes!(messages::api::acknowledge))
        .routes(routes!(messages::api::process))
        .routes(routes!(messages::api::reject))
        .routes(routes!(messages::api::add_line))
        .routes(routes!(messages::api::peer::receive))
}

fn shadow_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(shadows::api::list, shadows::api::start))
        .routes(routes!(shadows::api::show))
        .routes(routes!(shadows::api::stop))
        .routes(routes!(shadows::api::promote))
}

fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(openapi::head())
        .merge(tenant_routes())
        .merge(schedule_routes())
        .merge(batch_routes())
        .merge(shadow_routes())
        .merge(message_routes())
        .merge(access_routes())
        .merge(peer_routes())
        .merge(node_routes())
}

fn access_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(access::api::contexts::list))
        .routes(routes!(
            access::api::contexts::show,
            access::api::contexts::put,
            access::api::contexts::delete
        ))
        .routes(routes!(definitions::api::contexts::deploy))
        .routes(routes!(definitions::api::contexts::collect))
        .routes(routes!(
            access::api::actors::list,
            access::api::actors::create
        ))
        .routes(routes!(access::api::actors::show, access::api::actors::put))
        .routes(routes!(access::api::actors::add_key))
        .routes(routes!(access::api::actors::revoke_key))
        .routes(routes!(access::api::actors::invite))
        .routes(routes!(access::api::actors::enroll))
}

fn peer_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(peers::api::list, peers::api::create))
        .routes(routes!(
            peers::api::show,
            peers::api::put,
            peers::api::delete
        ))
        .routes(routes!(peers::api::add_key))
        .routes(routes!(peers::api::revoke_key))
        .routes(routes!(peers::api::refresh))
        .routes(routes!(peers::api::exchange::document))
        .routes(routes!(peers::api::exchange::read_document))
        .routes(routes!(peers::api::exchange::check))
        .routes(routes!(peers::api::exchange::answer_check))
}

fn tenant_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(events::api::publish))
        .routes(routes!(webhooks::api::receive))
        .routes(routes!(sagas::api::list))
        .routes(routes!(sagas::api::show))
        .routes(routes!(sagas::api::start::start))
        .routes(routes!(sagas::api::result::result))
        .routes(routes!(sagas::api::control::signal))
        .routes(routes!(sagas::api::control::cancel))
        .routes(routes!(sagas::api::control::pause))
        .routes(routes!(sagas::api::control::resume))
        .routes(routes!(sagas::api::control::retry))
        .routes(routes!(sagas::api::control::skip))
        .routes(routes!(sagas::api::control::force_complete))
        .routes(routes!(sagas::api::control::drop_instance))
        .routes(routes!(tasks::api::list))
        .routes(routes!(tasks::api::show))
        .routes(routes!(tasks::api::claim))
        .routes(routes!(tasks::api::release))
        .routes(routes!(tasks::api::assign))
        .routes(routes!(tasks::api::complete))
        .routes(routes!(export::api::export))
        .routes(routes!(sagas::api::overview::overview))
        .routes(routes!(dead_letters::api::list))
        .routes(routes!(dead_letters::api::causes::list))
        .routes(routes!(dead_letters::api::show, dead_letters::api::discard))
        .routes(routes!(dead_letters::api::redrive))
        .routes(routes!(dead_letters::api::redrive::redrive_many))
        .routes(routes!(replay::api::replay))
        .routes(routes!(timers::api::list))
        .routes(routes!(jobs::api::list::list))
        .routes(routes!(jobs::api::waiting::waiting))
        .routes(routes!(jobs::api::claim))
        .routes(routes!(jobs::api::fetch))
        .routes(routes!(jobs::api::claim_job))
        .routes(routes!(
            jobs::api::exchange::exchange,
            jobs::api::exchange::stream::open
        ))
        .routes(routes!(jobs::api::heartbeat))
        .routes(routes!(jobs::api::list::job_logs))
        .routes(routes!(jobs::api::append_log))
        .routes(routes!(jobs::api::complete))
        .routes(routes!(definitions::api::list))
        .routes(routes!(definitions::api::show))
        .routes(routes!(definitions::api::migrate::migrate))
        .routes(routes!(definitions::api::graphs::of_definition))
        .routes(routes!(definitions::api::graphs::of_instance))
        .routes(routes!(node::api::inspect::rows))
        .routes(routes!(node::api::mailboxes::deepest))
        .routes(routes!(audit::api::list))
}

fn node_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
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
        .routes(routes!(node::api::info))
        .routes(routes!(node::api::drain))
        .routes(routes!(
            node::api::log::show,
            node::api::log::update,
            node::api::log::reset
        ))
        .routes(routes!(doctor::api::diagnostics))
        .routes(routes!(backup::api::create))
        .routes(routes!(backup::api::file))
        .routes(routes!(backup::api::discard))
        .routes(routes!(definitions::api::deploy::deploy))
        .routes(routes!(definitions::api::deploy::reload))
        .routes(routes!(definitions::api::deploy::collect))
}
