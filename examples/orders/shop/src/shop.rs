//! Service of the shop: receives commands and effects over HTTP and sends events to the runner.
//!
//! - `POST /v1/commands` is the gateway: it accepts a command once per id, and an aggregate executes it
//!   a little later.
//! - `POST /charges` and `POST /refunds` are the payment service: executed once per `idempotency-key`.
//! - `POST /control` sets its fault settings; `GET /book` returns its record.

mod aggregates;
mod emitter;
mod payments;
mod state;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::routing::{get, post};
use axum::{Json, Router};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::record::ShopRecord;
pub use state::FaultSettings;
use state::ShopState;

/// Options of a shop.
#[derive(Clone, Debug)]
pub struct Options {
    /// Base URL of the runner, for events.
    pub orlog: String,
    /// Seed of all random faults.
    pub seed: u64,
    /// Processing time of an aggregate or the payment service without faults.
    pub pace: Duration,
}

/// Running shop; closed on drop.
pub struct Shop {
    state: Arc<ShopState>,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Shop {
    /// Starts the shop on a listener.
    ///
    /// # Errors
    /// Fails if the listener has no address or the HTTP client cannot be created.
    pub fn open(listener: TcpListener, options: &Options) -> anyhow::Result<Self> {
        let address = listener
            .local_addr()
            .context("the shop's listener has no address")?;
        let (state, queue) = ShopState::new(options.seed, options.pace);
        let state = Arc::new(state);
        let mut tasks = JoinSet::new();
        let (client, teller) = (crate::orlog::http_client()?, Arc::clone(&state));
        let report = move |fault| teller.record().faults.push(fault);
        tasks.spawn(emitter::send(
            queue,
            client,
            format!("{}/v1/events", options.orlog),
            report,
        ));
        let service = router(Arc::clone(&state));
        tasks.spawn(async move {
            // It ends only on abort; the caller receives connection errors.
            drop(axum::serve(listener, service).await);
        });
        Ok(Self {
            state,
            address,
            _tasks: tasks,
        })
    }

    /// Returns its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns a copy of its record.
    #[must_use]
    pub fn record(&self) -> ShopRecord {
        self.state.record().clone()
    }

    /// Sets its fault settings.
    pub fn set_faults(&self, fault_settings: FaultSettings) {
        self.state.set_fault_settings(fault_settings);
    }

    /// Returns the number of events that the runner has not accepted yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.state.unsent()
    }
}

fn router(state: Arc<ShopState>) -> Router {
    Router::new()
        .route("/v1/commands", post(aggregates::accept))
        .route("/charges", post(payments::charge))
        .route("/refunds", post(payments::refund))
        .route("/control", post(control))
        .route("/book", get(record))
        .with_state(state)
}

async fn control(
    State(state): State<Arc<ShopState>>,
    Json(fault_settings): Json<FaultSettings>,
) -> Json<FaultSettings> {
    state.set_fault_settings(fault_settings);
    Json(fault_settings)
}

async fn record(State(state): State<Arc<ShopState>>) -> Json<ShopRecord> {
    Json(state.record().clone())
}
