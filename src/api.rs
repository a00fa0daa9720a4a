//! The HTTP API: what callers may ask, what they are told, and every error as a problem with a code.
//!
//! One file a resource under `api/`; each handler checks its input, asks the [`App`] and shapes the answer. A call acts for
//! the tenant in its `x-tenant-id` header and never sees another one's. The description at `/openapi.json` is made from the
//! handlers, so it lists what there is.

mod admin;
mod body;
mod control;
mod dead_letters;
mod definitions;
mod errors;
mod events;
mod extract;
mod health;
mod index;
mod inspect;
mod mailboxes;
mod metrics;
mod observe;
mod openapi;
mod problem;
mod sagas;
mod serve;
mod timers;

use std::sync::Arc;

use axum::Router;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use problem::{Code, Problem};

pub use serve::serve;

/// Where the description of the API is.
const OPENAPI_PATH: &str = "/openapi.json";

/// What every handler is given.
#[derive(Clone)]
struct Api {
    app: Arc<App>,
    requests: Arc<metrics::Requests>,
    description: Arc<str>,
}

/// The API as a service.
pub fn router(app: Arc<App>) -> Router {
    let (routes, description) = described();
    let description = serde_json::to_string(&description).expect("a description is plain data");
    let api = Api { app, requests: Arc::default(), description: description.into() };
    routes
        .fallback(errors::no_route)
        .method_not_allowed_fallback(errors::no_method)
        .layer(axum::middleware::from_fn_with_state(api.clone(), observe::observe))
        .with_state(api)
}

/// The description of the API: OpenAPI 3.1.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().1
}

fn described() -> (Router<Api>, utoipa::openapi::OpenApi) {
    let (routes, mut description) = routes().split_for_parts();
    openapi::finish(&mut description);
    (routes, description)
}

fn routes() -> OpenApiRouter<Api> {
    let tenants = OpenApiRouter::new()
        .routes(routes!(events::publish))
        .routes(routes!(sagas::list))
        .routes(routes!(sagas::show))
        .routes(routes!(control::signal))
        .routes(routes!(control::cancel))
        .routes(routes!(control::pause))
        .routes(routes!(control::resume))
        .routes(routes!(control::retry))
        .routes(routes!(dead_letters::list))
        .routes(routes!(dead_letters::show, dead_letters::discard))
        .routes(routes!(dead_letters::redrive))
        .routes(routes!(timers::list))
        .routes(routes!(definitions::list))
        .routes(routes!(definitions::show))
        .routes(routes!(inspect::rows))
        .routes(routes!(mailboxes::deepest));
    let node = OpenApiRouter::new()
        .routes(routes!(index::index))
        .routes(routes!(index::openapi))
        .routes(routes!(index::error_page))
        .routes(routes!(health::health))
        .routes(routes!(health::ready))
        .routes(routes!(metrics::metrics))
        .routes(routes!(admin::info))
        .routes(routes!(admin::drain))
        .routes(routes!(admin::reload));
    OpenApiRouter::with_openapi(openapi::head()).merge(tenants).merge(node)
}

impl Api {
    /// Reads the stores on a thread that may block.
    async fn read<T, F>(&self, read: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&App) -> Result<T, Problem> + Send + 'static,
    {
        let app = Arc::clone(&self.app);
        match tokio::task::spawn_blocking(move || read(&app)).await {
            Ok(answer) => answer,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(error) => Err(Problem::new(Code::Unavailable, format!("the process is ending: {error}"))),
            },
        }
    }
}
