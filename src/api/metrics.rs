//! `/metrics`: what is counted all the time, and what is looked up when somebody asks.
//!
//! Whoever asks for `OpenMetrics` gets it; everybody else the older text format of Prometheus, which all others read too.

mod format;
mod node;
mod process;
mod sagas;
mod stores;
mod types;

use std::sync::PoisonError;

use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use orlog_actors::{Lag, Sheet as _};

use super::context::Api;
use super::problem::Problem;
use crate::app::App;
use crate::telemetry::Shown;

/// Metrics for Prometheus and what speaks its language
///
/// As `OpenMetrics` where the header `accept` names it.
#[utoipa::path(
    get,
    path = "/metrics",
    tag = "node",
    responses((status = 200, description = "All metrics", body = String, content_type = "text/plain"))
)]
pub(super) async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Result<Response, Problem> {
    let lags = api.app.runtime.lags().await;
    let looked_up = api.read(move |app| Ok(look(app, &lags))).await?;
    let mut text = String::with_capacity(64 * 1024);
    let counted = api.app.shown.lock().unwrap_or_else(PoisonError::into_inner);
    counted
        .write(&mut text)
        .and_then(|()| api.requests.shown().write(&mut text))
        .and_then(|()| looked_up.write(&mut text))
        .expect("a string takes everything");
    drop(counted);
    let (content_type, text) = format::in_the_format_asked_for(&headers, text);
    Ok(([(header::CONTENT_TYPE, content_type)], text).into_response())
}

/// What is not counted but can be seen at any time.
fn look(app: &App, lags: &[Lag]) -> Shown {
    let mut shown = Shown::default();
    let mailboxes = app.runtime.mailboxes();
    shown.put("instance_mailbox_depth", types::mailboxes(&mailboxes));
    shown.put("mailbox_deepest_depth", types::one(mailboxes.deepest));
    stores::show(app, &mut shown);
    sagas::show(app, &mut shown);
    node::show(app, lags, &mut shown);
    process::show(&mut shown);
    shown
}
