//! Distribution of a deployment: the pod that receives it repeats it on the other pods.

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::StreamExt as _;
use orlog_model::{TenantId, format_duration};
use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use crate::server::forward;
use crate::server::parts::cluster::Cluster;
use crate::server::parts::definitions::Definitions;
use orlog_node::cluster::pod_client;

/// Maximum number of pods that receive a deployment at the same time.
const MAX_CONCURRENT: usize = 8;

/// Result of the distribution.
#[derive(Default)]
struct Distribution {
    warnings: Vec<String>,
    applied: Vec<AppliedPlan>,
}

/// Deployment that was sent to a pod; without a response in time, its outcome is unknown.
struct SentDeployment {
    pod: String,
    outcome: SendOutcome,
}

enum SendOutcome {
    Response {
        status: StatusCode,
        body: Bytes,
    },
    Failed(pod_client::Error),
    /// The pod may have it: a repetition has no further effect there.
    NoResponse,
    /// The limit was over before the request.
    NotSent,
}

/// Plan of a pod that has compared the deployment with its own.
struct AppliedPlan {
    pod: String,
    plan: Value,
}

/// Repeats the current deployment of an owner on the other pods and returns the warnings. `None`
/// are the shared definitions.
///
/// All pods keep the newest deployment, in any order of the requests: it has the highest number. A
/// pod that misses it applies it when it acquires a shard.
pub(super) async fn repeat(
    definitions: &Definitions,
    cluster: &Cluster,
    headers: &HeaderMap,
    owner: Option<&TenantId>,
) -> Vec<String> {
    // The deployment as it is active now, not the request: with `keep_others`, the request lacks
    // files that stay active.
    let active = definitions.active().of(owner);
    let Some(deployment) = active.deployment else {
        return Vec::new();
    };

    // A definition without a file is part of the binary, so that the other pods have it already.
    let sources = active.definitions.iter().filter_map(|definition| {
        let name = definition
            .file
            .as_ref()?
            .file_name()?
            .to_string_lossy()
            .into_owned();
        Some(file(&name, definition.source.as_ref()?))
    });

    let schedules = deployment
        .schedules
        .iter()
        .filter(|schedule| !schedule.removed)
        .map(|schedule| file(&schedule.file, schedule.source.as_bytes()));
    let files: Vec<_> = sources.chain(schedules).collect();
    let bundle = json!({ "user": deployment.deployed_by, "files": files });

    let path = match owner {
        None => "/admin/deploy".to_owned(),
        Some(context) => {
            orlog_node::url_path::path(&["v1", "contexts", context.as_str(), "definitions"])
        }
    };
    // The other pods repeat a decision instead of making their own. Number and time let two
    // deployments at the same moment converge in any order.
    let number = deployment.number;
    let at = deployment.at.as_millis();
    let path = format!("{path}?allow_downgrade=true&number={number}&at={at}");

    let sent = send(cluster, headers, &path, bundle.to_string().into()).await;

    let mut warnings = sent.warnings;
    for AppliedPlan { pod, plan } in sent.applied {
        // A repetition also succeeds if the pod keeps a newer deployment; the user must not take
        // this one for active.
        if let Some(newer) = plan["number"].as_u64().filter(|newer| *newer > number) {
            warnings.push(format!(
                "pod {pod} has the newer deployment {newer}, which replaces this one on all pods"
            ));
        }
    }
    warnings
}

fn file(name: &str, bytes: &[u8]) -> Value {
    json!({ "name": name, "base64": STANDARD.encode(bytes) })
}

/// Sends a deployment to the other pods.
async fn send(cluster: &Cluster, headers: &HeaderMap, path: &str, bundle: Bytes) -> Distribution {
    // For all pods together, and less than the limit of the request itself, whose response must
    // contain the warnings: pods that do not respond would otherwise add up.
    let limit = cluster.request_timeout();
    let until = Instant::now() + limit;
    let sent = cluster.other_pods().into_iter().map(async |pod| {
        if Instant::now() >= until {
            return SentDeployment {
                pod: pod.name,
                outcome: SendOutcome::NotSent,
            };
        }

        let sent = forward::forward_post(cluster, &pod, path, headers, bundle.clone());
        let outcome = match timeout_at(until, sent).await {
            Ok(Ok((status, body))) => SendOutcome::Response { status, body },
            Ok(Err(error)) => SendOutcome::Failed(error),
            Err(_) => SendOutcome::NoResponse,
        };
        SentDeployment {
            pod: pod.name,
            outcome,
        }
    });
    let sent: Vec<_> = futures::stream::iter(sent)
        .buffered(MAX_CONCURRENT)
        .collect()
        .await;

    let mut distribution = Distribution::default();
    let limit_text = format_duration(limit);
    for SentDeployment { pod, outcome } in sent {
        let warning = match outcome {
            SendOutcome::Response { status, body } if status.is_success() => {
                distribution.applied.push(AppliedPlan {
                    pod,
                    // Without a readable plan, the numbers cannot be compared; the deployment
                    // itself was accepted.
                    plan: serde_json::from_slice(&body).unwrap_or_default(),
                });
                continue;
            }
            // A warning, no error: the deployment is durable, and the other pod applies it with the
            // next shard that it acquires.
            SendOutcome::Response { status, .. } => {
                format!("pod {pod} rejected the definitions ({status}); see its log")
            }
            // The warning has no address of a pod; the log has it.
            SendOutcome::Failed(error) => {
                tracing::warn!(pod, %error, "a pod has not received the definitions");
                format!("{}; deploy again", error.explain(&pod, Some(limit)))
            }
            SendOutcome::NoResponse => format!(
                "pod {pod} did not respond within {limit_text}, the limit for all pods together; \
                 deploy again"
            ),
            SendOutcome::NotSent => format!(
                "pod {pod} has not received it: others did not respond within {limit_text}; deploy \
                 again"
            ),
        };
        distribution.warnings.push(warning);
    }

    distribution
}
