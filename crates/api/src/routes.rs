//! Routes of the API: which handler of a resource answers which path, and the layers around all of
//! them.

use std::io;
use std::sync::Arc;

use axum::Router;
use futures::FutureExt as _;
use tokio::net::TcpListener;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::resources::{
    access, audit, backup, batches, dead_letters, definitions, doctor, events, export, flows, jobs,
    messages, node, peers, replay, sagas, schedules, shadows, tasks, timers, webhooks,
};
use crate::server::connections::ConnectionLimits;
use crate::server::context::ApiState;
use crate::server::serve::Server;
use crate::server::{
    caller, errors, forward, health, index, login, metrics, openapi, query_guard, request_context,
    serve, tenant_storage, ui,
};
use orlog_node::app::App;
use orlog_node::config::MIN_CONNECTIONS;
use orlog_node::descriptors;

/// Returns the API as a service.
pub fn router(app: Arc<App>) -> Router {
    let (routes, description) = described();
    let api = ApiState::new(app, description);

    routes
        .fallback(errors::no_route)
        .method_not_allowed_fallback(errors::no_method)
        // Innermost: the owner of the shard receives the query as the client sent it.
        .layer(axum::middleware::from_fn_with_state(
            api.clone(),
            query_guard::check,
        ))
        // The owner of the shard knows the size of a tenant.
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

/// Serves the API, and its routes for peers also over NATS, until `shutdown` resolves and the
/// requests in flight end, or their grace period expires.
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
    let router = router(Arc::clone(&app));

    let shutdown = shutdown.shared();
    let peers = peers::over_nats::serve(&app, router.clone(), shutdown.clone());
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
        .routes(routes!(schedules::list))
        .routes(routes!(schedules::show, schedules::put, schedules::delete))
        .routes(routes!(schedules::pause))
        .routes(routes!(schedules::resume))
        .routes(routes!(schedules::trigger))
}

fn flow_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(jobs::runners::list, jobs::runners::register))
        .routes(routes!(jobs::runners::remove))
        .routes(routes!(flows::list, flows::submit))
        .routes(routes!(flows::show))
        .routes(routes!(flows::lines::lines))
        .routes(routes!(flows::cancel))
        .routes(routes!(flows::retry))
        .routes(routes!(flows::rerun))
}

fn batch_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(batches::list, batches::create))
        .routes(routes!(batches::show))
        .routes(routes!(batches::pause))
        .routes(routes!(batches::resume))
        .routes(routes!(batches::stop))
}

fn message_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(messages::list::list, messages::send::send))
        .routes(routes!(messages::show))
        .routes(routes!(messages::cancel))
        .routes(routes!(messages::acknowledge))
        .routes(routes!(messages::process))
        .routes(routes!(messages::reject))
        .routes(routes!(messages::add_line))
        .routes(routes!(messages::peer::receive))
}

fn shadow_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(shadows::list, shadows::start))
        .routes(routes!(shadows::show))
        .routes(routes!(shadows::stop))
        .routes(routes!(shadows::promote))
}

fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::with_openapi(openapi::head())
        .merge(tenant_routes())
        .merge(schedule_routes())
        .merge(flow_routes())
        .merge(batch_routes())
        .merge(shadow_routes())
        .merge(message_routes())
        .merge(access_routes())
        .merge(peer_routes())
        .merge(node_routes())
}

fn access_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(access::contexts::list))
        .routes(routes!(
            access::contexts::show,
            access::contexts::put,
            access::contexts::delete
        ))
        .routes(routes!(definitions::contexts::deploy))
        .routes(routes!(definitions::contexts::collect))
        .routes(routes!(access::actors::list, access::actors::create))
        .routes(routes!(access::actors::show, access::actors::put))
        .routes(routes!(access::actors::add_key))
        .routes(routes!(access::actors::revoke_key))
        .routes(routes!(access::actors::invite))
        .routes(routes!(access::actors::enroll))
}

fn peer_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(peers::list, peers::create))
        .routes(routes!(peers::show, peers::put, peers::delete))
        .routes(routes!(peers::add_key))
        .routes(routes!(peers::revoke_key))
        .routes(routes!(peers::refresh))
        .routes(routes!(peers::exchange::document))
        .routes(routes!(peers::exchange::read_document))
        .routes(routes!(peers::exchange::check))
        .routes(routes!(peers::exchange::answer_check))
}

fn tenant_routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(events::publish))
        .routes(routes!(webhooks::receive))
        .routes(routes!(sagas::list))
        .routes(routes!(sagas::show))
        .routes(routes!(sagas::start::start))
        .routes(routes!(sagas::result::result))
        .routes(routes!(sagas::control::signal))
        .routes(routes!(sagas::control::cancel))
        .routes(routes!(sagas::control::pause))
        .routes(routes!(sagas::control::resume))
        .routes(routes!(sagas::control::retry))
        .routes(routes!(sagas::control::skip))
        .routes(routes!(sagas::control::force_complete))
        .routes(routes!(sagas::control::drop_instance))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::show))
        .routes(routes!(tasks::claim))
        .routes(routes!(tasks::release))
        .routes(routes!(tasks::assign))
        .routes(routes!(tasks::complete))
        .routes(routes!(export::export))
        .routes(routes!(sagas::overview::overview))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::causes::list))
        .routes(routes!(dead_letters::show, dead_letters::discard))
        .routes(routes!(dead_letters::redrive))
        .routes(routes!(dead_letters::redrive::redrive_many))
        .routes(routes!(replay::replay))
        .routes(routes!(timers::list))
        .routes(routes!(jobs::list::list))
        .routes(routes!(jobs::waiting::waiting))
        .routes(routes!(jobs::claim))
        .routes(routes!(jobs::fetch))
        .routes(routes!(jobs::claim_job))
        .routes(routes!(
            jobs::exchange::exchange,
            jobs::exchange::stream::open
        ))
        .routes(routes!(jobs::heartbeat))
        .routes(routes!(jobs::list::job_logs))
        .routes(routes!(jobs::append_log))
        .routes(routes!(jobs::complete))
        .routes(routes!(definitions::list))
        .routes(routes!(definitions::show))
        .routes(routes!(definitions::migrate::migrate))
        .routes(routes!(definitions::graphs::of_definition))
        .routes(routes!(definitions::graphs::of_instance))
        .routes(routes!(node::inspect::rows))
        .routes(routes!(node::mailboxes::deepest))
        .routes(routes!(audit::list))
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
        .routes(routes!(node::info))
        .routes(routes!(node::drain))
        .routes(routes!(
            node::log::show,
            node::log::update,
            node::log::reset
        ))
        .routes(routes!(doctor::diagnostics))
        .routes(routes!(backup::create))
        .routes(routes!(backup::file))
        .routes(routes!(backup::discard))
        .routes(routes!(definitions::deploy::deploy))
        .routes(routes!(definitions::deploy::reload))
        .routes(routes!(definitions::deploy::collect))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use axum::http::Method;
    use serde_json::Value;

    use super::*;
    use crate::server::extract::TENANT_HEADER;
    use crate::server::forward::scoped_routes;

    /// Routes with a tenant that every pod handles itself, and why.
    const HANDLED_BY_EVERY_POD: [(&str, &str); 5] = [
        ("POST /v1/events", "the bus delivers events to the owner"),
        (
            "GET /v1/definitions",
            "definitions are on every pod; a count of instances is scoped",
        ),
        (
            "GET /v1/definitions/{saga}",
            "definitions are on every pod; a count of instances is scoped",
        ),
        (
            "GET /v1/definitions/{saga}/graph.svg",
            "definitions are on every pod",
        ),
        ("GET /v1/audit", "audit trail of this pod"),
    ];

    #[test]
    fn every_route_with_a_tenant_is_scoped_or_handled_by_every_pod() {
        let description = serde_json::to_value(openapi()).expect("it serializes to JSON");
        let mut unscoped = BTreeSet::new();
        for (path, item) in description["paths"].as_object().expect("an object") {
            for (method, operation) in item.as_object().expect("an object") {
                let parameters = operation["parameters"].as_array();
                let has_tenant = parameters
                    .into_iter()
                    .flatten()
                    .any(|parameter: &Value| parameter["name"] == TENANT_HEADER);
                let method: Method = method.to_uppercase().parse().expect("a method");
                if has_tenant && !scoped_routes::is_scoped(&method, path, None) {
                    unscoped.insert(format!("{method} {path}"));
                }
            }
        }

        let expected = HANDLED_BY_EVERY_POD.map(|(route, _)| route.to_owned());
        assert_eq!(unscoped, BTreeSet::from(expected));
    }
}
