//! State of the router, and the context of a request.
//!
//! A handler reaches the node only through its [`RequestContext`] and the parts of
//! [`crate::server::parts`] that its signature names. [`ApiState`] itself is for layers,
//! extractors, and work without a request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{FromRef, FromRequestParts};
use axum::http::request::Parts;
use axum::http::{Extensions, Uri};
use orlog_actors::RuntimeHealth;
use orlog_model::{Clock, SteadyTime, Timestamp, TraceParent};
use orlog_signature::KeyId;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa::openapi::OpenApi;

use super::allowed_hosts::AllowedHosts;
use super::body_budget::BodyBudget;
use super::health::bus_check::BusCheck;
use super::logged_reads::LoggedReads;
use super::page::EncodedJson;
use super::problem::{Code, Problem};
use super::query_limit::QueryLimit;
use super::query_parameters::QueryParameters;
use super::quotas::{CallerBudgets, LongPollPermit, QueryTimer, Quotas, RequestPermit};
use super::read_scope::ReadScope;
use super::request_metrics::RequestMetrics;
use crate::server::other_boards::OtherBoards;
use crate::server::overview_cache::OverviewCache;
use orlog_node::admitted_tenants::AdmittedTenants;
use orlog_node::app::App;
use orlog_node::coded_error::CodedError;
use orlog_node::config::{HttpServerConfig, MIN_CONNECTIONS};
use orlog_node::descriptors;
use orlog_node::messages::exchange::MessageExchange;
use orlog_node::redact::Redaction;

/// Path of the API description.
pub(crate) const OPENAPI_PATH: &str = "/openapi.json";

/// What the layers before a handler know of its request.
#[derive(Clone, Default)]
pub(crate) struct RequestScope {
    /// Shares of the caller; `None`: no quotas apply.
    pub(crate) caller: Option<CallerBudgets>,
    /// Trace that the work of the request continues.
    pub(crate) trace: Option<TraceParent>,
    /// Key that signed the request.
    pub(crate) key: Option<KeyId>,
    /// Name of the authenticated caller.
    pub(crate) user: Option<Arc<str>>,
    /// URI of the request: its path identifies a list.
    pub(crate) uri: Uri,
}

impl RequestScope {
    /// Returns the scope that the layers have attached to a request.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().unwrap_or_default()
    }
}

/// State of the router: the node, and state that all requests share. Layers and the metrics use it;
/// handlers of resources extract the parts that they name.
#[derive(Clone)]
pub(crate) struct ApiState {
    pub(super) shared: Arc<SharedState>,
}

/// Node, and state that all requests share.
pub(crate) struct SharedState {
    pub(super) app: Arc<App>,
    pub(super) requests: Arc<RequestMetrics>,
    pub(super) logged_reads: Arc<LoggedReads>,
    pub(super) description: Arc<str>,
    pub(super) query_parameters: QueryParameters,
    pub(super) overview_cache: Arc<OverviewCache>,
    pub(super) hosts: Arc<AllowedHosts>,
    pub(super) bus_check: Arc<BusCheck>,
    queries: QueryLimit,
    pub(super) bodies: BodyBudget,
    pub(super) quotas: Quotas,
    /// Places of requests that wait for the results of instances.
    result_waits: Arc<Semaphore>,
    /// Jobs of key-sharded tenants on the boards of other pods.
    pub(super) other_boards: Arc<OtherBoards>,
}

impl ApiState {
    pub(crate) fn new(app: Arc<App>, description: OpenApi) -> Self {
        let json = serde_json::to_string(&description);
        let json = json.expect("the description serializes to JSON");
        let queries = QueryLimit::new(app.config.http.max_concurrent_queries);
        // The limit of open files can lower the configured number, and the quotas are shares of it.
        let connections = descriptors::max_connections(&app.config).unwrap_or(MIN_CONNECTIONS);
        let quotas = Quotas::new(&app.config.http, connections);

        let bodies = BodyBudget::new(app.config.http.max_bytes_in_flight, quotas.clone());
        let hosts = Arc::new(AllowedHosts::new(&app.config));
        let requests = Arc::new(RequestMetrics::new(&quotas, app.authenticator.signed()));
        let (overview_cache, bus_check) = Default::default();
        let shared = SharedState {
            app,
            requests,
            logged_reads: Arc::default(),
            description: json.into(),
            query_parameters: QueryParameters::of(description),
            overview_cache,
            hosts,
            bus_check,
            queries,
            bodies,
            quotas,
            // The other half stays free for the requests that let these waits end.
            result_waits: Arc::new(Semaphore::new(connections / 2)),
            other_boards: Arc::default(),
        };

        Self {
            shared: Arc::new(shared),
        }
    }

    /// Returns the exchange of messages with other nodes.
    pub(crate) fn messages(&self) -> Arc<MessageExchange> {
        Arc::clone(&self.shared.app.messages)
    }

    /// Returns the tenants that the node accepts.
    pub(crate) fn admitted_tenants(&self) -> &AdmittedTenants {
        &self.shared.app.tenants
    }

    /// Returns the context of a request.
    pub(crate) fn for_request(&self, extensions: &Extensions) -> RequestContext {
        RequestContext {
            shared: Arc::clone(&self.shared),
            scope: RequestScope::of(extensions),
        }
    }
}

impl FromRef<ApiState> for Arc<MessageExchange> {
    fn from_ref(api: &ApiState) -> Self {
        api.messages()
    }
}

impl FromRef<ApiState> for Arc<OverviewCache> {
    fn from_ref(api: &ApiState) -> Self {
        Arc::clone(&api.shared.overview_cache)
    }
}

/// What a handler may use of its request: its scope, its shares of the limits, the time, and
/// reads of the stores. It changes nothing of the node.
#[derive(Clone)]
pub(crate) struct RequestContext {
    pub(super) shared: Arc<SharedState>,
    pub(crate) scope: RequestScope,
}

impl FromRequestParts<ApiState> for RequestContext {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Infallible> {
        Ok(api.for_request(&parts.extensions))
    }
}

impl RequestContext {
    /// Returns the context of work that outlives the request and belongs to no caller.
    pub(crate) fn detached(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            scope: RequestScope::default(),
        }
    }

    /// Returns the limits of requests.
    pub(crate) fn http(&self) -> &HttpServerConfig {
        &self.shared.app.config.http
    }

    /// Returns what responses do not show.
    pub(crate) fn redact(&self) -> &Redaction {
        &self.shared.app.config.redact
    }

    /// Returns the clock of the node.
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.shared.app.clock.as_ref()
    }

    /// Returns the wall-clock time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock().now()
    }

    /// Returns the time for measuring durations.
    pub(crate) fn steady(&self) -> SteadyTime {
        self.clock().steady()
    }

    /// Returns the memory for bodies of requests.
    pub(crate) fn bodies(&self) -> &BodyBudget {
        &self.shared.bodies
    }

    /// Returns the limit of expensive queries.
    pub(crate) fn queries(&self) -> &QueryLimit {
        &self.shared.queries
    }

    /// Returns whether the node accepts inputs, and has the capacity to store them.
    pub(crate) fn health(&self) -> RuntimeHealth {
        self.shared.app.runtime.health()
    }

    /// Checks that the node takes new work.
    ///
    /// # Errors
    /// If it drains, or could not store the work.
    pub(crate) fn check_takes_work(&self) -> Result<(), CodedError> {
        Ok(self.shared.app.runtime.check_takes_work()?)
    }

    /// Waits until the node is drained: the process would wait for a response that is not complete.
    pub(crate) async fn drained(&self) {
        self.shared.app.drained().await;
    }

    /// Begins to wait, within the share of the caller; ends on drop.
    pub(crate) fn begin_long_poll(&self) -> Result<LongPollPermit, Problem> {
        let caller = self.scope.caller.as_ref();
        self.shared.quotas.begin_long_poll(caller)
    }

    /// Begins a message of a stream, within the share of the caller; ends on drop.
    pub(crate) fn begin_message(&self) -> Result<Option<RequestPermit>, Problem> {
        let caller = self.scope.caller.as_ref();
        self.shared.quotas.begin_message(caller)
    }

    /// Begins an expensive query, whose time counts for the caller.
    pub(crate) fn begin_query(&self) -> Result<QueryTimer, Problem> {
        let caller = self.scope.caller.as_ref();
        self.shared.quotas.begin_query(caller, Instant::now())
    }

    /// Begins to wait for the result of an instance; ends on drop. At most half of the connections
    /// wait.
    pub(crate) fn begin_wait(&self) -> Result<(LongPollPermit, OwnedSemaphorePermit), Problem> {
        // The share of the caller first, so that one caller cannot take the places of all.
        let long_poll = self.begin_long_poll()?;
        let place = Arc::clone(&self.shared.result_waits)
            .try_acquire_owned()
            .map_err(|_| {
                let detail = "half of the connections wait for results (http.max_connections); ask \
                              again later";
                Problem::new(Code::Unavailable, detail)
            })?;

        Ok((long_poll, place))
    }

    /// Reads the stores on a thread that may block. At most `http.max_concurrent_reads` requests
    /// read at the same time; another one waits up to `http.request_timeout`. Scans end when the
    /// request ends.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, Problem>
    where
        T: Send + 'static,
        F: FnOnce(&ReadScope) -> Result<T, Problem> + Send + 'static,
    {
        let app = Arc::clone(&self.shared.app);
        let share = self.scope.caller.as_ref().map(|caller| &caller.reads);
        self.shared
            .app
            .reads
            .run(share, move |stores| read(&ReadScope::new(app, stores)))
            .await
    }

    /// Reads as [`Self::read`], and encodes the response on the same thread: the size of a page
    /// is no work for the threads that serve all requests.
    pub(crate) async fn read_json<T, F>(&self, read: F) -> Result<EncodedJson, Problem>
    where
        T: Serialize + 'static,
        F: FnOnce(&ReadScope) -> Result<T, Problem> + Send + 'static,
    {
        self.read(move |scope| read(scope).map(|response| EncodedJson::of(&response)))
            .await
    }
}
