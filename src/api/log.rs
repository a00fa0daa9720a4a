//! `/admin/log`: which lines this process logs, changed while it runs.

use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::body;
use super::context::Api;
use super::control::read;
use super::problem::{Code, Place, Problem};
use crate::telemetry::{self, Filter, Levels};

/// A change of which the operator forgets ends all the same; for longer there is the configuration.
const LONGEST: Duration = Duration::from_hours(24);

/// Which lines shall be logged.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// A level, and levels for modules: `info,orlog_actors=debug`.
    filter: String,
    /// For how long, at most 24 hours: `10m`. Absent: until it is changed again or the process ends.
    #[serde(rename = "for")]
    lasting: Option<String>,
}

/// Which lines are logged.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Logged {
    /// In force.
    filter: String,
    /// What the configuration says.
    configured: String,
    /// When the configured one is in force again; null: not by itself.
    until: Option<String>,
}

impl From<Filter> for Logged {
    fn from(Filter { filter, configured, until }: Filter) -> Self {
        Self { filter, configured, until: until.map(|until| until.to_string()) }
    }
}

/// Which lines are logged
#[utoipa::path(
    get,
    path = "/admin/log",
    tag = "node",
    responses((status = 200, description = "The filter in force", body = Logged))
)]
pub(super) async fn show() -> Result<Json<Logged>, Problem> {
    Ok(Json(levels()?.look().into()))
}

/// Change which lines are logged
#[utoipa::path(
    put,
    path = "/admin/log",
    tag = "node",
    request_body = Wanted,
    responses((status = 200, description = "The filter in force now", body = Logged))
)]
pub(super) async fn change(
    State(api): State<Api>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Logged>, Problem> {
    let Wanted { filter, lasting } = body::parse(&read(&api, &headers, body).await?)?;
    let lasting = lasting.as_deref().map(duration).transpose()?;
    let changed = levels()?.set(&filter, lasting).map_err(|error| wrong("/filter", error))?;
    Ok(Json(changed.into()))
}

/// Log again as the configuration says
#[utoipa::path(
    delete,
    path = "/admin/log",
    tag = "node",
    responses((status = 200, description = "The filter in force now", body = Logged))
)]
pub(super) async fn reset() -> Result<Json<Logged>, Problem> {
    Ok(Json(levels()?.reset().into()))
}

fn levels() -> Result<&'static Levels, Problem> {
    let why = "this process does not log by itself: whoever embeds it says which lines are logged";
    telemetry::levels().ok_or_else(|| Problem::new(Code::Unavailable, why))
}

fn duration(text: &str) -> Result<Duration, Problem> {
    let parsed = text.parse::<SignedDuration>().ok().and_then(|signed| Duration::try_from(signed).ok());
    parsed
        .filter(|lasting| !lasting.is_zero() && *lasting <= LONGEST)
        .ok_or_else(|| wrong("/for", format!("{text:?} is no duration of at most 24 hours, such as \"10m\"")))
}

fn wrong(pointer: &str, detail: String) -> Problem {
    let place = Place { pointer: pointer.to_owned(), detail: detail.clone() };
    Problem::new(Code::WrongBody, detail).with(vec![place])
}
