//! `POST /v1/sagas/{saga}/{correlation}/…`: control requests to one instance. The response arrives
//! after the commit is durable.

use std::borrow::Cow;

use axum::extract::State;
use axum::{Extension, Json};
use orlog_actors::ControlResult;
use orlog_model::{
    ControlAction, ControlRequest, EventId, EventType, InstanceKey, StartSignal, Timestamp,
    WaitToken,
};
use orlog_program::is_built_in;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::request_key::control_key;
use super::start::{StartBody, with_signal};
use crate::resources::access::check_signed;
use crate::resources::events::takes_work;
use crate::server::body::{self, CheckedBody};
use crate::server::errors::invalid_parameter;
use crate::server::extract::{InstanceParams, InstancePath};
use crate::server::parts::access::Access;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::Caller;

/// Reason why a request has changed nothing yet.
const DEFERRED: &str = "the instance is paused; the request is applied when it is resumed";

/// Options of a control request. All fields, and the body itself, are optional.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ControlBody {
    /// Idempotency key of the request. Default: a new id.
    #[schema(value_type = Option<String>)]
    pub(crate) id: Option<EventId>,
    /// User name recorded in the history.
    pub(crate) user: Option<String>,
    /// Reason recorded in the history.
    pub(crate) reason: Option<String>,
    /// Reject the request unless the instance has this version.
    pub(crate) expected_version: Option<u64>,
    /// Reject the request unless the instance waits under this token.
    #[schema(value_type = Option<String>)]
    pub(crate) wait_token: Option<WaitToken>,
}

/// Event that is delivered to one instance only.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignalBody {
    /// Idempotency key of the request. Default: a new id.
    #[schema(value_type = Option<String>)]
    id: Option<EventId>,
    /// Event type.
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: EventType,
    /// Event payload.
    #[serde(default)]
    data: Value,
    /// User name recorded in the history.
    user: Option<String>,
    /// Reason recorded in the history.
    reason: Option<String>,
    /// Reject the request unless the instance has this version.
    expected_version: Option<u64>,
    /// Reject the request unless the instance waits under this token. It is checked again when a
    /// later signal is due.
    #[schema(value_type = Option<String>)]
    wait_token: Option<WaitToken>,
    /// Time of the delivery (RFC 3339). Default: at once. The end of the instance cancels a later
    /// signal.
    #[schema(format = "date-time")]
    due_at: Option<String>,
    /// Starts the instance if it does not exist, then delivers the signal to it, in one durable
    /// request.
    start: Option<StartBody>,
}

impl ControlBody {
    /// Returns the reason; empty if none is stated.
    pub(crate) fn reason(&self) -> &str {
        self.reason.as_deref().unwrap_or_default()
    }
}

/// Result of a control request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ControlResponse {
    /// The request changed the instance; false for a duplicate or a request without effect.
    applied: bool,
    /// Reason, if the request had no effect.
    reason: Option<String>,
    /// State version of the instance.
    version: u64,
    /// Status of the instance.
    status: &'static str,
    /// Whether the instance is paused.
    paused: bool,
    /// Whether the request is stored, and applied when the paused instance is resumed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(value_type = Option<bool>)]
    deferred: bool,
}

impl ControlResponse {
    /// Returns whether the request is stored, and applied when the instance is resumed.
    pub(crate) fn is_deferred(&self) -> bool {
        self.deferred
    }
}

impl From<ControlResult> for ControlResponse {
    fn from(controlled: ControlResult) -> Self {
        let ControlResult {
            applied,
            reason: why,
            version,
            status,
            paused,
            is_deferred,
        } = controlled;
        let reason = if is_deferred {
            Some(DEFERRED.to_owned())
        } else {
            why.map(Cow::into_owned)
        };
        Self {
            applied: applied && !is_deferred,
            reason,
            version,
            status: status.as_str(),
            paused,
            deferred: is_deferred,
        }
    }
}

/// Send an event to one instance only
///
/// With `start`, the instance is started first if it does not exist. One commit stores the start
/// and the signal.
#[utoipa::path(
    post,
    path = "/v1/sagas/{saga}/{correlation}/signal",
    tag = "sagas",
    params(InstanceParams),
    request_body = SignalBody,
    responses((status = 200, description = "Durable", body = ControlResponse))
)]
pub(crate) async fn signal(
    instances: Instances,
    State(definitions): State<Definitions>,
    State(access): State<Access>,
    Extension(caller): Extension<Caller>,
    InstancePath(key): InstancePath,
    CheckedBody(body): CheckedBody,
) -> Result<Json<ControlResponse>, Problem> {
    // The routes of built-in sagas require other rights and check their content; a signal would
    // bypass both.
    if is_built_in(key.saga.as_str()) {
        let detail = format!("{} is a built-in saga; use its own routes", key.saga);
        return Err(invalid_parameter("saga", detail));
    }

    check_signed(&access, &caller, &key.tenant)?;
    let signal: SignalBody = instances.request.bodies().parse(&body, body::parse).await?;
    let SignalBody {
        id,
        kind,
        data,
        user,
        reason,
        expected_version,
        wait_token,
        due_at,
        start,
    } = signal;

    let due_at = due_at.map(|text| Timestamp::parse(&text)).transpose();
    let due_at =
        due_at.map_err(|error| Problem::new(Code::InvalidBody, format!("due_at: {error}")))?;
    let action = match start {
        Some(start) => {
            // A start is new work, which a draining or full node rejects; a signal to an existing
            // instance is not.
            takes_work(&instances.request)?;
            ControlAction::Start(Box::new(with_signal(
                &definitions,
                &key,
                start,
                StartSignal { kind, data, due_at },
            )?))
        }
        None => ControlAction::Signal { kind, data, due_at },
    };

    let provided = ControlBody {
        id,
        user,
        reason,
        expected_version,
        wait_token,
    };

    send_control(&instances, &caller, &key, provided, action).await
}

macro_rules! verbs {
    ($($(#[doc = $doc:literal])+ $verb:ident $path:literal => $action:expr;)+) => {$(
        $(#[doc = $doc])+
        #[utoipa::path(
            post,
            path = $path,
            tag = "sagas",
            params(InstanceParams),
            request_body(content = Option<ControlBody>),
            responses((status = 200, description = "Durable", body = ControlResponse))
        )]
        pub(crate) async fn $verb(
            instances: Instances,
            Extension(caller): Extension<Caller>,
            InstancePath(key): InstancePath,
            body: CheckedBody,
        ) -> Result<Json<ControlResponse>, Problem> {
            instruct(&instances, &caller, &key, &body, $action).await
        }
    )+};
}

verbs! {
    /// Cancel an instance and compensate its completed steps
    cancel "/v1/sagas/{saga}/{correlation}/cancel" => |reason| ControlAction::Cancel { reason };
    /// Pause an instance: buffer inputs without applying them
    pause "/v1/sagas/{saga}/{correlation}/pause" => |_| ControlAction::Pause;
    /// Resume an instance: apply the buffered inputs and continue
    resume "/v1/sagas/{saga}/{correlation}/resume" => |_| ControlAction::Resume;
    /// Retry the failed action of a stuck instance
    retry "/v1/sagas/{saga}/{correlation}/retry" => |_| ControlAction::Retry;
    /// Skip the failed compensation of a stuck instance and continue
    skip "/v1/sagas/{saga}/{correlation}/skip" => |_| ControlAction::Skip;
    /// Force-complete a stuck instance: end it without further steps or compensations
    force_complete "/v1/sagas/{saga}/{correlation}/force-complete" =>
        |_| ControlAction::ForceComplete;
    /// Delete a quarantined instance, whose stored data cannot be read
    drop_instance "/v1/sagas/{saga}/{correlation}/drop" => |_| ControlAction::Drop;
}

/// Sends a control request with the options of a body.
pub(crate) async fn instruct(
    instances: &Instances,
    caller: &Caller,
    key: &InstanceKey,
    body: &CheckedBody,
    action: impl FnOnce(String) -> ControlAction,
) -> Result<Json<ControlResponse>, Problem> {
    let options: ControlBody = body.optional()?;
    let action = action(options.reason().to_owned());
    send_control(instances, caller, key, options, action).await
}

/// Sends a control request; returns after its commit is durable.
pub(crate) async fn send_control(
    instances: &Instances,
    caller: &Caller,
    key: &InstanceKey,
    options: ControlBody,
    action: ControlAction,
) -> Result<Json<ControlResponse>, Problem> {
    let new = || {
        EventId::new(format!("control:{}", Uuid::now_v7()))
            .expect("an id in this format is short ASCII")
    };
    let ControlBody {
        id,
        user: by,
        reason,
        expected_version,
        wait_token,
    } = options;

    // Ids of new inputs must not contain bidirectional controls; ids of stored inputs may.
    let id = id.map(|id| EventId::for_input(id.as_str())).transpose();
    let id = id.map_err(|error| Problem::new(Code::InvalidBody, format!("id: {error}")))?;
    let is_named = id.is_some();
    let control = ControlRequest {
        id: id.unwrap_or_else(new),
        action,
        expected_version,
        at: instances.request.now(),
        user: caller.check_user(by)?,
        reason: reason.filter(|reason| !reason.is_empty()),
        trace: instances.request.scope.trace.clone(),
        wait_token,
    };
    // An id that the client chose can be that of another request.
    let controlled = if is_named {
        let record = control_key(key, &control);
        instances.control_once(key, control, record).await?
    } else {
        instances.control(key, control).await?
    };

    Ok(Json(controlled.into()))
}
