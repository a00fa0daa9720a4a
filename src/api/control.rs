//! `POST /v1/sagas/{saga}/{correlation}/…`: what an operator can tell one instance. The answer comes when it is durable.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::{Extension, Json};
use orlog_actors::{ControlError, Controlled};
use orlog_engine::Refusal;
use orlog_model::{Action, Control, EventId, EventType, InstanceKey};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::body;
use super::context::Api;
use super::extract::Key;
use super::problem::{Code, Problem};
use super::request_context;
use crate::auth::Caller;

/// Circumstances of an instruction; all of them may be left out, and the body with them.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Instruction {
    /// Makes sending it again harmless; a new one where nothing is said.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Who gives it, for the history.
    by: Option<String>,
    /// Why, for the history.
    reason: Option<String>,
    /// Refused unless the instance stands at this state version.
    expected_version: Option<u64>,
}

/// An event that is addressed to one instance.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Signal {
    /// Makes sending it again harmless; a new one where nothing is said.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// The event's type.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: EventType,
    /// The event's payload.
    #[serde(default)]
    data: Value,
    /// Who gives it, for the history.
    by: Option<String>,
    /// Why, for the history.
    reason: Option<String>,
    /// Refused unless the instance stands at this state version.
    expected_version: Option<u64>,
}

/// Who gives an instruction, and under which circumstances.
pub(super) struct Given {
    pub(super) id: Option<EventId>,
    pub(super) by: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) expected_version: Option<u64>,
}

/// What became of an instruction.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Answer {
    /// Something changed; false for a repetition or for something that means nothing now.
    applied: bool,
    /// Why nothing changed, where nothing did.
    why: Option<String>,
    /// The state version the instance stands at.
    version: u64,
    /// Where it stands.
    status: &'static str,
    /// Whether it is paused.
    paused: bool,
}

impl From<Controlled> for Answer {
    fn from(controlled: Controlled) -> Self {
        let Controlled { applied, why, version, status, paused } = controlled;
        Self { applied, why: why.map(Cow::into_owned), version, status: status.as_str(), paused }
    }
}

impl From<ControlError> for Problem {
    fn from(error: ControlError) -> Self {
        let code = match &error {
            ControlError::Refused(Refusal::NotFound) => Code::NoInstance,
            ControlError::Refused(Refusal::Version { .. }) => Code::Version,
            ControlError::Refused(Refusal::Status { .. }) => Code::Status,
            ControlError::Refused(Refusal::NoTask { .. }) => Code::NoTask,
            ControlError::Refused(Refusal::Task { .. }) => Code::Task,
            ControlError::Refused(Refusal::Blocked { .. }) => Code::Blocked,
            ControlError::SetAside(_) => Code::SetAside,
            ControlError::Unavailable => Code::Unavailable,
        };
        Problem::new(code, error.to_string())
    }
}

/// Hand an instance an event that is addressed to it alone
#[utoipa::path(
    post,
    path = "/v1/sagas/{saga}/{correlation}/signal",
    tag = "sagas",
    params(
        ("saga" = String, Path, description = "The definition's name"),
        ("correlation" = String, Path, description = "The correlation id, percent-encoded")
    ),
    request_body = Signal,
    responses((status = 200, description = "Durable", body = Answer))
)]
pub(super) async fn signal(
    State(api): State<Api>,
    Extension(caller): Extension<Caller>,
    Key(key): Key,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Answer>, Problem> {
    let signal: Signal = body::parse(&read(&api, &headers, body).await?)?;
    let action = Action::Signal { kind: signal.kind.clone(), data: signal.data.clone() };
    let Signal { id, by, reason, expected_version, .. } = signal;
    give(&api, &caller, &key, Given { id, by, reason, expected_version }, action).await
}

macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $verb:ident $path:literal => $action:expr;)+) => {$(
        $(#[doc = $doc])+
        #[utoipa::path(
            post,
            path = $path,
            tag = "sagas",
            params(
                ("saga" = String, Path, description = "The definition's name"),
                ("correlation" = String, Path, description = "The correlation id, percent-encoded")
            ),
            request_body(content = Option<Instruction>),
            responses((status = 200, description = "Durable", body = Answer))
        )]
        pub(super) async fn $verb(
            State(api): State<Api>,
            Extension(caller): Extension<Caller>,
            Key(key): Key,
            headers: HeaderMap,
            body: Body,
        ) -> Result<Json<Answer>, Problem> {
            instruct((&api, &caller), &key, &headers, body, $action).await
        }
    )+};
}

verbs! {
    /// Stop going forward and undo what was done
    cancel "/v1/sagas/{saga}/{correlation}/cancel" => |reason| Action::Cancel { reason };
    /// Keep inputs and apply none
    pause "/v1/sagas/{saga}/{correlation}/pause" => |_| Action::Pause;
    /// Apply what was kept, then go on
    resume "/v1/sagas/{saga}/{correlation}/resume" => |_| Action::Resume;
    /// Try again what made an instance stuck
    retry "/v1/sagas/{saga}/{correlation}/retry" => |_| Action::Retry;
    /// Leave undone what made an instance stuck, and go on
    skip "/v1/sagas/{saga}/{correlation}/skip" => |_| Action::Skip;
    /// End a stuck instance as it is: nothing more is done or undone
    force_complete "/v1/sagas/{saga}/{correlation}/force-complete" => |_| Action::ForceComplete;
}

async fn instruct(
    (api, caller): (&Api, &Caller),
    key: &InstanceKey,
    headers: &HeaderMap,
    body: Body,
    action: impl FnOnce(String) -> Action,
) -> Result<Json<Answer>, Problem> {
    let bytes = read(api, headers, body).await?;
    let instruction: Instruction = optional(&bytes)?;
    let Instruction { id, by, reason, expected_version } = instruction;
    let action = action(reason.clone().unwrap_or_default());
    give(api, caller, key, Given { id, by, reason, expected_version }, action).await
}

pub(super) async fn read(api: &Api, headers: &HeaderMap, body: Body) -> Result<axum::body::Bytes, Problem> {
    let content_type = body::content_type(headers)?;
    if !matches!(content_type.as_str(), "" | "application/json") {
        return Err(body::media_type(&content_type));
    }
    let http = &api.app.config.http;
    body::read(headers, body, http.max_body_size, http.request_timeout).await
}

pub(super) fn optional<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, Problem> {
    if bytes.trim_ascii().is_empty() { Ok(T::default()) } else { body::parse(bytes) }
}

/// Gives an instruction; returns when its consequences are durable.
pub(super) async fn give(
    api: &Api,
    caller: &Caller,
    key: &InstanceKey,
    given: Given,
    action: Action,
) -> Result<Json<Answer>, Problem> {
    let new =
        || EventId::new(format!("control:{}", Uuid::now_v7())).expect("an id of this form is short ASCII");
    let Given { id, by, reason, expected_version } = given;
    let control = Control {
        id: id.unwrap_or_else(new),
        action,
        expected_version,
        at: api.app.clock.now(),
        by: caller.acts_as(by)?,
        reason: reason.filter(|reason| !reason.is_empty()),
        trace: request_context::trace(),
    };
    let controlled = api.app.runtime.control(key, control).await?;
    Ok(Json(controlled.into()))
}
