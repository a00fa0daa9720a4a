//! `GET /v1/sagas/{saga}/{correlation}/result`: waits for the end of an instance and returns its
//! result.

use std::time::Duration;

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use orlog_model::{Instance, InstanceKey, SagaResult, Status};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use utoipa::{IntoParams, ToSchema};

use super::work::FailureView;
use crate::server::errors::invalid_parameter;
use crate::server::extract::{InstanceParams, InstancePath, QueryParams, duration};
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use crate::server::read_scope::ReadScope;
use orlog_node::redact::Redaction;
use orlog_node::sagas::state::hidden_values;
use orlog_node::url_path::path;

/// Maximum wait of a request for a result.
pub(crate) use orlog_node::cluster::pod_client::MAX_RESULT_WAIT as MAX_WAIT;

/// Options of a request for a result.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResultQuery {
    /// Maximum wait for the end of the instance, for example `30s`; at most `60s`. Default: no
    /// wait.
    #[param(format = "duration")]
    wait: Option<String>,
}

/// Status of an instance, and its result when it has ended.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ResultView {
    saga: String,
    correlation: String,
    /// Whether the instance existed before the request; absent if the request starts nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    existing: Option<bool>,
    /// `running`, `compensating`, `completed`, `failed`, `cancelled` or `stuck`.
    status: &'static str,
    /// Inputs are buffered, not applied.
    paused: bool,
    /// State version.
    version: u64,
    /// The last fact that the instance emitted at its end; null before, and if it emitted none.
    /// Absent if the instance has ended and the response does not read it.
    #[serde(skip_serializing_if = "ReadPart::is_unread")]
    #[schema(value_type = Option<SagaResultView>)]
    result: ReadPart<SagaResultView>,
    /// Failure of an instance that is not completed, if there is one. Absent as the result.
    #[serde(skip_serializing_if = "ReadPart::is_unread")]
    #[schema(value_type = Option<FailureView>)]
    failure: ReadPart<FailureView>,
}

/// Part of an instance that a response may not have read.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum ReadPart<T> {
    /// The response does not read it.
    Unread,
    /// The part, if there is one.
    Read(Option<T>),
}

impl<T> ReadPart<T> {
    fn is_unread(&self) -> bool {
        matches!(self, Self::Unread)
    }

    /// Returns a part that exists only after the end of an instance with this status.
    fn of_status(status: Status) -> Self {
        if status.is_final() {
            Self::Unread
        } else {
            Self::Read(None)
        }
    }
}

/// Fact at the end of an instance.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct SagaResultView {
    /// Event type.
    event: String,
    /// Data of the fact.
    data: Value,
}

impl SagaResultView {
    pub(super) fn of(result: &SagaResult, redact: &Redaction) -> Self {
        Self {
            event: result.event.to_string(),
            data: redact.redact(result.data.clone()),
        }
    }
}

impl ResultView {
    /// Creates the view of an instance without reading it.
    pub(super) fn of_status(key: &InstanceKey, status: Status, paused: bool, version: u64) -> Self {
        Self {
            saga: key.saga.to_string(),
            correlation: key.correlation.to_string(),
            existing: None,
            status: status.as_str(),
            paused,
            version,
            result: ReadPart::of_status(status),
            failure: ReadPart::of_status(status),
        }
    }

    fn of(scope: &ReadScope, key: &InstanceKey, instance: &Instance) -> Self {
        let hidden = hidden_values(scope.stores(), instance);
        // A completed instance can have recovered from an error, which is then no failure of its
        // result.
        let failure = instance
            .last_error
            .as_ref()
            .filter(|_| instance.status != Status::Completed);

        let result = instance.result.as_deref();
        let result = result.map(|result| SagaResultView::of(result, scope.redact()));
        let failure = failure.map(|failure| FailureView::of_instance(failure, &hidden));

        Self {
            result: ReadPart::Read(result),
            failure: ReadPart::Read(failure),
            ..Self::of_status(key, instance.status, instance.paused, instance.version)
        }
    }

    pub(super) fn existing(self, existing: bool) -> Self {
        Self {
            existing: Some(existing),
            ..self
        }
    }

    /// Returns the response of an instance that has not ended: 202, with the location of its
    /// result.
    pub(super) fn accepted(self) -> Response {
        let location = path(&["v1", "sagas", &self.saga, &self.correlation, "result"]);
        let location = HeaderValue::try_from(location).expect("an escaped path is ASCII");
        (
            StatusCode::ACCEPTED,
            [(header::LOCATION, location)],
            Json(self),
        )
            .into_response()
    }
}

/// Wait for the result of an instance
///
/// Returns 200 when the instance has ended, whatever its status, or 202 with `Location` if it has
/// not ended within `wait`. Ask any pod, as often as necessary, also after a restart.
#[utoipa::path(
    get,
    path = "/v1/sagas/{saga}/{correlation}/result",
    tag = "sagas",
    params(InstanceParams, ResultQuery),
    responses(
        (status = 200, description = "The instance has ended", body = ResultView),
        (status = 202, description = "The instance has not ended", body = ResultView)
    )
)]
pub(crate) async fn result(
    instances: Instances,
    InstancePath(key): InstancePath,
    QueryParams(query): QueryParams<ResultQuery>,
) -> Result<Response, Problem> {
    let wait = wait(query.wait.as_deref())?.unwrap_or_default();
    let (has_ended, view) = await_end(&instances, &key, wait).await?;
    Ok(if has_ended {
        Json(view).into_response()
    } else {
        view.accepted()
    })
}

/// Parses the parameter `wait`.
pub(crate) fn wait(text: Option<&str>) -> Result<Option<Duration>, Problem> {
    let wait = duration("wait", text)?;
    match wait.filter(|wait| *wait > MAX_WAIT) {
        Some(wait) => {
            let detail =
                format!("wait is {wait:?}, the limit is {MAX_WAIT:?}; ask again for the result");
            Err(invalid_parameter("wait", detail))
        }
        None => Ok(wait),
    }
}

/// Waits until an instance has ended, or the time is over. Returns whether it has ended.
///
/// # Errors
/// If the instance does not exist, too many requests wait, the shard stops in this process, or the
/// node drains.
pub(crate) async fn await_end(
    instances: &Instances,
    key: &InstanceKey,
    wait: Duration,
) -> Result<(bool, ResultView), Problem> {
    // A request without a wait is an ordinary read, and needs no place among those that wait.
    let _permits = if wait.is_zero() {
        None
    } else {
        Some(instances.request.begin_wait()?)
    };
    let until = Instant::now() + wait;

    loop {
        // Registered before the read: an end after the read wakes the request.
        let mut waiter = instances
            .watch_end(key)
            .map_err(|_| interrupted(instances))?;
        let of = key.clone();
        let (has_ended, view) = instances
            .request
            .read(move |scope| {
                let missing = || Problem::new(Code::InstanceNotFound, format!("no instance {of}"));
                let reader = scope.reader(&of).ok_or_else(missing)?;
                let instance = reader.instance(&of)?.ok_or_else(missing)?;
                Ok((
                    instance.status.is_final(),
                    ResultView::of(scope, &of, &instance),
                ))
            })
            .await?;
        if has_ended || Instant::now() >= until {
            return Ok((has_ended, view));
        }

        // A wake-up does not state the reason, so that the loop reads the instance again.
        tokio::select! {
            is_running = waiter.woken() => if !is_running { return Err(interrupted(instances)) },
            () = tokio::time::sleep_until(until) => {}
        }
    }
}

fn interrupted(instances: &Instances) -> Problem {
    // Two codes, because they have different delays: after a drain, another process must take over
    // first.
    if instances.request.health().accepting {
        let detail = "the shard of the instance moves or restarts; ask again for the result";
        return Problem::new(Code::Unavailable, detail);
    }
    Problem::new(
        Code::Draining,
        "the node is draining; ask again for the result",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_has_a_limit() {
        assert_eq!(wait(None).unwrap(), None);
        assert_eq!(wait(Some("0s")).unwrap(), Some(Duration::ZERO));
        assert_eq!(wait(Some("1m")).unwrap(), Some(MAX_WAIT));
        for (text, expected) in [
            ("61s", "the limit is 60s"),
            ("-1s", "invalid duration"),
            ("x", "expected"),
        ] {
            let problem = serde_json::to_string(&wait(Some(text)).unwrap_err()).unwrap();
            assert!(problem.contains(expected), "{problem}");
        }
    }
}
