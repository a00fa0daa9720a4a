//! The shop's service: commands and effects come in over HTTP, events go out to the runner.
//!
//! - `POST /v1/commands` is the Gateway: it accepts a command once per id, and an aggregate acts on it a little later.
//! - `POST /charges` and `POST /refunds` are the payment service: executed once per `idempotency-key`.
//! - `POST /control` makes it fail, slow or unavailable; `GET /book` shows its record.

mod aggregates;
mod emitter;
mod payments;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use fastrand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::book::Book;
use emitter::Emitter;

/// One event in this many is sent twice.
const REPEAT_ONE_IN: u32 = 20;

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

/// What is wrong with it at the moment. Nothing, by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Mood {
    /// The share of payment calls that fail, from 0 to 1: half of them before the act, half after it.
    pub fail_rate: f64,
    /// Everything takes this much longer.
    pub slow_ms: u64,
    /// The payment service is down: every call is answered 503.
    pub down: bool,
}

/// A shop that is open. Closes when it is dropped.
pub struct Shop {
    desk: Arc<Desk>,
    address: SocketAddr,
    _tasks: JoinSet<()>,
}

/// What the handlers share.
struct Desk {
    book: Mutex<Book>,
    mood: Mutex<Mood>,
    chance: Mutex<Rng>,
    emitter: Emitter,
    pace: Duration,
}

impl Shop {
    /// Opens on a listener.
    ///
    /// # Errors
    /// When the listener has no address, or there can be no HTTP client.
    pub fn open(listener: TcpListener, options: Options) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("the shop's listener has no address")?;
        let (emitter, outbound) = Emitter::new();
        let desk = Arc::new(Desk {
            book: Mutex::default(),
            mood: Mutex::default(),
            chance: Mutex::new(Rng::with_seed(options.seed)),
            emitter,
            pace: options.pace,
        });
        let mut tasks = JoinSet::new();
        let client = crate::orlog::http_client()?;
        tasks.spawn(emitter::send(outbound, client, options.orlog, Arc::clone(&desk)));
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
        *self.desk.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    }

    /// Events that the runner has not accepted yet.
    #[must_use]
    pub fn unsent(&self) -> usize {
        self.desk.emitter.unsent()
    }
}

impl Desk {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn mood(&self) -> Mood {
        *self.mood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.chance.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes the time that work takes: between half the pace and one and a half of it.
    async fn work(&self) {
        let share = self.draw(|chance| 0.5 + chance.f64());
        let slow = Duration::from_millis(self.mood().slow_ms);
        tokio::time::sleep(self.pace.mul_f64(share) + slow).await;
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
    *desk.mood.lock().unwrap_or_else(PoisonError::into_inner) = mood;
    Json(mood)
}

async fn book(State(desk): State<Arc<Desk>>) -> Json<Book> {
    Json(desk.book().clone())
}

/// A refusal with its reason.
fn refuse(status: StatusCode, reason: &str) -> (StatusCode, Json<Value>) {
    (status, Json(json!({ "reason": reason })))
}
