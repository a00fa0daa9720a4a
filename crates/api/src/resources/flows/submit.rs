//! `POST /v1/flows`: submits a flow, and waits for its end if requested.

use axum::Extension;
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use orlog_sagas::flow::{self, SubmitFlow};
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::Flow;
use super::view::FlowView;
use crate::resources::events::takes_work;
use crate::resources::sagas::built_in;
use crate::resources::sagas::control::{ControlBody, send_control};
use crate::resources::sagas::resource;
use crate::resources::sagas::result::{await_end, wait};
use crate::server::blocking::run_blocking;
use crate::server::body::{self, CheckedBody};
use crate::server::extract::{QueryParams, Tenant};
use crate::server::forward;
use crate::server::parts::instances::Instances;
use crate::server::problem::{Code, Problem};
use orlog_node::auth::{Caller, Right};
use orlog_node::flows::{self, invalid_flow};

/// Options of a submission.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SubmitQuery {
    /// Maximum wait for the end of the flow, for example `30s`; at most `60s`. Requires the right
    /// to read. Default: the response follows as soon as the flow is durable.
    #[param(format = "duration")]
    wait: Option<String>,
    /// User name recorded in the history of the flow.
    user: Option<String>,
}

/// Submit a flow
///
/// Executes a graph of jobs. The response follows when the flow is durable, or with `wait` when it
/// has ended. The header `Idempotency-Key` is the id of the flow: a repetition has no effect.
/// docs/flows.md describes the body.
#[utoipa::path(
    post,
    path = "/v1/flows",
    tag = "flows",
    params(
        SubmitQuery,
        ("idempotency-key" = Option<String>, Header, description = "Id of the flow. Default: a new \
                                                                    id")
    ),
    request_body(content = Value, description = "The flow: `jobs`, and optionally `name`, \
                                                 `labels`, `env` and `timeout`"),
    responses(
        (status = 200, description = "The flow has ended within `wait`", body = FlowView),
        (status = 202, description = "The flow is durable; `Location` is its path", body = FlowView)
    )
)]
pub(crate) async fn submit(
    instances: Instances,
    Extension(caller): Extension<Caller>,
    Tenant(tenant): Tenant,
    QueryParams(query): QueryParams<SubmitQuery>,
    uri: Uri,
    mut headers: HeaderMap,
    CheckedBody(bytes): CheckedBody,
) -> Result<Response, Problem> {
    let api = &instances.request;
    takes_work(api)?;
    let wait = wait(query.wait.as_deref())?;
    // With `wait`, a caller that may only submit would read the results of the jobs.
    if wait.is_some() && !caller.roles.allow(Right::Read) {
        let detail = "wait returns the results of the flow and requires the right to read; omit it";
        return Err(Problem::new(Code::Forbidden, detail));
    }

    let user = caller.check_user(query.user)?;
    // Parsed only for the location of syntax errors: the flow is compiled from its text, which is
    // also stored.
    let _: Value = api.bodies().parse(&bytes, body::parse).await?;
    let source = String::from_utf8(bytes.to_vec()).map_err(|error| {
        Problem::new(Code::InvalidJson, format!("the body is not UTF-8: {error}"))
    })?;
    // Compiled here and again by the saga: an invalid flow must be rejected with its errors before
    // it is stored.
    let source = run_blocking(move || match flow::compile(&source, "body") {
        Ok(_) => Ok(source),
        Err(diagnostics) => Err(invalid_flow(&diagnostics).into()),
    })
    .await?;

    // The id is fixed before the forwarding, because it selects the owner and must not be generated
    // twice.
    let key = built_in::identified(None, &mut headers, |id| flows::key(tenant.clone(), id))?;
    if let Some(response) =
        forward::to_owner(&instances.cluster, &key, &uri, None, &headers, &bytes).await?
    {
        return Ok(response);
    }

    let provided = ControlBody {
        id: None,
        user: user.clone(),
        reason: None,
        expected_version: None,
        wait_token: None,
    };
    let signal = built_in::signal(
        flow::SUBMIT,
        json!(SubmitFlow {
            source,
            user,
            returns_results: false
        }),
    );

    let sent = send_control(&instances, &caller, &key, provided, signal).await;
    drop(sent.map_err(|problem| match problem.code() {
        // The saga rejects only another content: an equal one under the same id has no effect.
        Code::InvalidStatus => exists(key.correlation.as_str()),
        _ => problem,
    })?);

    let has_ended = match wait {
        // An interrupted wait is no failure of the submission: the caller asks for the flow
        // elsewhere.
        Some(wait) => await_end(&instances, &key, wait)
            .await
            .is_ok_and(|(has_ended, _)| has_ended),
        None => false,
    };
    let location = orlog_node::url_path::path(&["v1", "flows", key.correlation.as_str()]);
    let location = HeaderValue::from_str(&location).expect("an escaped path is a valid header");
    let status = if has_ended {
        StatusCode::OK
    } else {
        StatusCode::ACCEPTED
    };

    Ok((
        status,
        [(header::LOCATION, location)],
        resource::show::<Flow>(api, key).await?,
    )
        .into_response())
}

fn exists(id: &str) -> Problem {
    let detail =
        format!("a flow \"{id}\" with another content exists; use another Idempotency-Key");
    Problem::new(Code::FlowExists, detail)
}
