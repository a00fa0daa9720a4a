//! Distribution of a deployment: the pod that receives it sends it to the other pods.

use std::collections::BTreeSet;

use axum::body::Bytes;
use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use orlog_model::TenantId;
use serde_json::{Value, json};

use crate::api::context::ApiState;
use crate::api::forward;

/// Deploys shared definitions on the other pods and returns the errors. A pod that misses the deployment applies it when
/// it acquires a shard. Of two deployments at the same time, a pod can apply either one last: a pod whose definitions differ
/// from those of this pod is an error.
pub(super) async fn shared(
    api: &ApiState,
    headers: &HeaderMap,
    bundle: Bytes,
    (allow_downgrade, keep_others): (bool, bool),
) -> Vec<String> {
    // A pod of an earlier release rejects an unknown parameter.
    let keep_others = if keep_others { "&keep_others=true" } else { "" };
    let path = format!("/admin/deploy?allow_downgrade={allow_downgrade}{keep_others}");
    let (mut errors, plans) = send(api, headers, &path, bundle).await;
    let deployment = api.app.definitions.of(None).deployment;
    let own = deployment
        .iter()
        .flat_map(|deployment| deployment.active())
        .map(|one| hex::encode(one.program.hash));
    let own: BTreeSet<_> = own.collect();
    let others = plans.iter().filter(|(_, plan)| active(plan) != own);
    errors.extend(others.map(|(pod, _)| {
        format!(
            "pod {pod} has other shared definitions, maybe of a deployment at the same time; deploy again"
        )
    }));
    errors
}

/// Returns the hashes of the definitions that the plan of a deployment activates.
fn active(plan: &Value) -> BTreeSet<String> {
    let lists = ["added", "changed", "unchanged"]
        .iter()
        .filter_map(|list| plan[list].as_array());
    lists
        .flatten()
        .filter_map(|one| one["hash"].as_str())
        .map(str::to_owned)
        .collect()
}

/// Repeats the current deployment of a context on the other pods and returns the errors. All pods keep the newest one, in any order
/// of the requests. A pod that misses it applies it when it acquires a shard.
pub(super) async fn context(
    api: &ApiState,
    headers: &HeaderMap,
    context: &TenantId,
) -> Vec<String> {
    let owned = api.app.definitions.of(Some(context));
    let Some(deployment) = owned.deployment else {
        return Vec::new();
    };
    let definitions = owned.definitions.iter().filter_map(|definition| {
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
        .filter(|schedule| !schedule.removed);
    let schedules = schedules.map(|schedule| file(&schedule.file, schedule.source.as_bytes()));
    let files: Vec<_> = definitions.chain(schedules).collect();
    let bundle = json!({ "user": deployment.deployed_by, "files": files });
    let path = crate::url_path::path(&["v1", "contexts", context.as_str(), "definitions"]);
    let (number, at) = (deployment.number, deployment.at.as_millis());
    let path = format!("{path}?allow_downgrade=true&number={number}&at={at}");
    send(api, headers, &path, bundle.to_string().into()).await.0
}

fn file(name: &str, bytes: &[u8]) -> Value {
    json!({ "name": name, "base64": STANDARD.encode(bytes) })
}

/// Sends a deployment to the other pods. Returns the errors, and the plans of the pods that have applied it.
async fn send(
    api: &ApiState,
    headers: &HeaderMap,
    path: &str,
    bundle: Bytes,
) -> (Vec<String>, Vec<(String, Value)>) {
    let (mut errors, mut plans) = (Vec::new(), Vec::new());
    for pod in api.app.routing.other_pods() {
        match forward::forward_post(api, (&pod, path), headers, bundle.clone()).await {
            Ok((status, body)) if status.is_success() => {
                plans.push((pod.name, serde_json::from_slice(&body).unwrap_or_default()));
            }
            Ok((status, _)) => {
                errors.push(format!(
                    "pod {} rejected the definitions ({status}); see its log",
                    pod.name
                ));
            }
            Err(error) => errors.push(format!(
                "pod {} did not respond: {error}; deploy again",
                pod.name
            )),
        }
    }
    (errors, plans)
}
