//! `GET /admin/diagnostics`: checks of a running node for the doctor.

use std::time::Duration;

use axum::extract::State;
use axum::http::Method;
use axum::{Extension, Json};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::server::context::RequestContext;
use crate::server::parts::access::Access;
use crate::server::parts::cluster::Cluster;
use crate::server::parts::definitions::Definitions;
use crate::server::parts::operations::Operations;
use crate::server::problem::Problem;
use orlog_node::auth::{Caller, Right};
use orlog_node::config::BusKind;
use orlog_node::definitions::closed::VisibleDefinitions;
use orlog_node::doctor::check::{CheckResult, CheckStatus};

/// Timeout of the bus check. Default: 2s.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);

/// Results of the checks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DiagnosticsResponse {
    /// Highest severity: `ok`, `warn` or `error`.
    severity: &'static str,
    /// Checks with `name`, `status`, `message` and, if an action is required, `remedy`.
    #[schema(value_type = Vec<serde_json::Value>)]
    checks: Vec<CheckResult>,
}

/// Check the node and return remedies
#[utoipa::path(
    get,
    path = "/admin/diagnostics",
    tag = "node",
    responses((status = 200, description = "Results of all checks", body = DiagnosticsResponse))
)]
pub(crate) async fn diagnostics(
    api: RequestContext,
    State(operations): State<Operations>,
    State(definitions): State<Definitions>,
    State(access): State<Access>,
    cluster: Cluster,
    Extension(caller): Extension<Caller>,
) -> Result<Json<DiagnosticsResponse>, Problem> {
    // With a limit of its own: the doctor must report while the bus does not respond.
    let response = tokio::time::timeout(CHECK_TIMEOUT, operations.bus().last_sequence()).await;
    let (last, bus) = match response {
        Ok(Ok(last)) => (
            Some(last),
            CheckResult::ok("bus", format!("responds, last sequence {last}")),
        ),
        Ok(Err(error)) => (
            None,
            unavailable_bus(&operations, &cluster, &error.to_string()).await,
        ),
        Err(_) => (
            None,
            unavailable_bus(
                &operations,
                &cluster,
                &format!("no response within {CHECK_TIMEOUT:?}"),
            )
            .await,
        ),
    };

    let programs = definitions.programs();
    // Checks name sagas; those of contexts that are closed to the caller are not shown.
    let visible = VisibleDefinitions::to(&caller, Right::Read, access.registry(), programs);
    let mut findings = api
        .read(move |_| Ok(operations.diagnose(&visible, last)))
        .await?;
    findings.insert(1, bus);

    let worst = findings
        .iter()
        .map(|finding| finding.status)
        .max()
        .unwrap_or(CheckStatus::Ok)
        .as_str();

    Ok(Json(DiagnosticsResponse {
        severity: worst,
        checks: findings,
    }))
}

/// Reports a bus that does not respond. If another pod reaches it, only this node is cut off.
async fn unavailable_bus(operations: &Operations, cluster: &Cluster, reason: &str) -> CheckResult {
    if operations.bus_kind() == BusKind::Embedded {
        return CheckResult::error("bus", reason, "check the disk");
    }
    // The remedy depends on it: the servers are the cause only if no pod reaches them.
    if let Some(pod) = pod_with_bus(cluster).await {
        let found = format!("this node is cut off from NATS, which pod {pod} reaches: {reason}");
        let remedy = "restore the network between this node and the NATS servers \
                      (docs/runbooks/pod-cut-off.md)";
        return CheckResult::error("bus", found, remedy);
    }

    let remedy = "restart the missing NATS servers, or restore the network to them \
                  (docs/runbooks/nats-quorum.md)";
    CheckResult::error(
        "bus",
        format!("the streams on NATS are not available: {reason}"),
        remedy,
    )
}

/// Returns another pod that reaches the bus.
async fn pod_with_bus(cluster: &Cluster) -> Option<String> {
    let pods = cluster.other_pods();
    // All pods at the same time, so that several unreachable pods delay the response by one timeout
    // only.
    let checks = pods.into_iter().map(async |pod| {
        let request = cluster
            .request_to(&pod, Method::GET, "/health")
            .ok()?
            .timeout(CHECK_TIMEOUT);
        let health = request.send().await.ok()?.bytes().await.ok()?;
        let health: Value = serde_json::from_slice(&health).ok()?;
        (health["bus"]["status"] == "ok").then_some(pod.name)
    });

    futures::future::join_all(checks)
        .await
        .into_iter()
        .flatten()
        .next()
}
