//! What every handler is given.

use std::sync::Arc;

use super::overview::cache::Tallies;
use super::problem::{Code, Problem};
use super::request_metrics::Requests;
use crate::app::App;

/// Where the description of the API is.
pub(super) const OPENAPI_PATH: &str = "/openapi.json";

/// The node, and what belongs to the API alone.
#[derive(Clone)]
pub(super) struct Api {
    pub(super) app: Arc<App>,
    pub(super) requests: Arc<Requests>,
    pub(super) description: Arc<str>,
    pub(super) tallies: Arc<Tallies>,
    /// Asks other pods.
    pub(super) forwarder: reqwest::Client,
}

impl Api {
    pub(super) fn new(app: Arc<App>, description: String) -> Self {
        let forwarder = orlog_effect::http::client().build().expect("a client without options can be made");
        let description = description.into();
        Self { app, requests: Arc::default(), description, tallies: Arc::default(), forwarder }
    }

    /// Reads the stores on a thread that may block.
    pub(super) async fn read<T, F>(&self, read: F) -> Result<T, Problem>
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
