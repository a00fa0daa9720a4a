//! The shop's service: commands and effects come in over HTTP, events go out to the runner.
//!
//! - `POST /v1/commands` is the Gateway: it accepts a command once per id, and an aggregate acts on it a little later.
//! - `POST /charges` and `POST /refunds` are the payment service: executed once per `idempotency-key`.
//! - `POST /control` makes it fail, slow or unavailable; `GET /book` shows its record.

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

use crate::record::Book;
use state::Desk;
pub use state::Mood;

/// How a shop behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The base URL of the runner, where events go.
    pub orlog: String,
    /// For what is left to chance.
    pub seed: u64,
    /// What an aggregate or the payment service takes for its work, when all is well.
    pub pace: Duration,
}

/// A shop that is open. Closes when it is dropped.
pub struct Shop {
    desk: Arc<Desk>,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

impl Shop {
    /// Opens on a listener.
    ///
    /// # Errors
    /// When the listener has no address, or there can be no HTTP client.
    pub fn open(listener: TcpListener, options: &Options) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("the shop's listener has no address")?;
        let (desk, queue) = Desk::new(options.seed, options.pace);
        let desk = Arc::new(desk);
        let mut tasks = JoinSet::new();
        let (client, teller) = (crate::orlog::http_client()?, Arc::clone(&desk));
        let tell = move |fault| teller.book().faults.push(fault);
        tasks.spawn(emitter::send(queue, client, format!("{}/v1/events", options.orlog), tell));
        let service = router(Arc::clone(&desk));
        tasks.spawn(async move {
            // It only ends when it is aborted; an error of a connection is the caller's to see.
            drop(axum::serve(listener, service).await);
        });
        Ok(Self { desk, address, _tasks: tasks })
    }

    /// Its base URL.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its record as it stands.
    #[must_use]
    pub fn book(&self) -> Book {
        self.desk.book().clone()
    }

    /// Changes what is wrong with it.
    pub fn set_mood(&self, mood: Mood) {
        self.desk.set_mood(mood);
    }

    /// Events that the runner has not accepted yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.desk.unsent()
    }
}

fn router(desk: Arc<Desk>) -> Router {
    Router::new()
        .route("/v1/commands", post(aggregates::accept))
        .route("/charges", post(payments::charge))
        .route("/refunds", post(payments::refund))
        .route("/control", post(control))
        .route("/book", get(book))
        .with_state(desk)
}

async fn control(State(desk): State<Arc<Desk>>, Json(mood): Json<Mood>) -> Json<Mood> {
    desk.set_mood(mood);
    Json(mood)
}

async fn book(State(desk): State<Arc<Desk>>) -> Json<Book> {
    Json(desk.book().clone())
}
