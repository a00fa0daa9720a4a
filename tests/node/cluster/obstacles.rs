//! A pod that cannot run its shards says so, with the reason: it has no lease, or the logs of its shards reject it.

use orlog_testkit::nats_server::NatsServer;
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::wait::until;
use serde_json::{Value, json};

use super::pods::Pods;
use super::proxy::Proxy;
use super::within;

/// Stream of the replicated logs.
const LOG: &str = "ORLOG_LOG";

/// Sets the maximum size of the stream of the logs; -1: no limit.
pub(crate) fn limit_log(nats: &NatsServer, max_bytes: impl Fn(&Value) -> Value) {
    let mut client = RawNatsClient::connect(nats.port);
    let info = client.jetstream(&format!("STREAM.INFO.{LOG}"), &json!({}));
    let mut config = info["config"].clone();
    config["max_bytes"] = max_bytes(&info["state"]);
    client.jetstream(&format!("STREAM.UPDATE.{LOG}"), &config);
}

async fn get(pods: &Pods, path: &str) -> (u16, String) {
    match pods.ask("a", "GET", path).send().await {
        Ok(response) => {
            let status = response.status().as_u16();
            (status, response.text().await.unwrap_or_default())
        }
        Err(_) => (0, String::new()),
    }
}

async fn until_contains(pods: &Pods, path: &str, status: u16, text: &str) {
    let label = format!("{path}: {status} with {text:?}");
    until(&label, async || {
        let (found, body) = get(pods, path).await;
        (found == status && body.contains(text)).then_some(())
    })
    .await;
}

/// Requirements: R16.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_that_cannot_run_its_shards_states_the_reason_and_is_not_ready() {
    let nats = NatsServer::start();
    let wire = Proxy::to(nats.port).await;
    within("obstacles", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_through("a", vec![wire.url.clone()]).await;
        pods.until_spread().await;
        until_contains(&pods, "/ready", 200, "true").await;
        until_contains(&pods, "/metrics", 200, "\norlog_pod_lease_held 1\n").await;

        wire.partition();
        let no_lease = "this pod has no lease and runs no shard: ";
        until_contains(&pods, "/health", 200, no_lease).await;
        until_contains(&pods, "/ready", 503, no_lease).await;
        until_contains(&pods, "/metrics", 200, "\norlog_pod_lease_held 0\n").await;

        // As with a limit of the account: the servers respond, and store nothing more.
        limit_log(&nats, |state| state["bytes"].clone());
        wire.heal();
        until_contains(&pods, "/health", 200, "does not run: ").await;
        until_contains(&pods, "/ready", 503, "does not run: ").await;
        until_contains(&pods, "/metrics", 200, "\norlog_shards_failing 6\n").await;
        until_contains(&pods, "/info", 200, "\"failing_shards\"").await;
        until_contains(&pods, "/admin/diagnostics", 200, "the shard does not run: ").await;

        limit_log(&nats, |_| json!(-1));
        pods.wait_for_owners(&["a"]).await;
        until_contains(&pods, "/ready", 200, "true").await;
        until_contains(&pods, "/health", 200, "\"status\":\"ok\",\"store\"").await;
        until_contains(&pods, "/metrics", 200, "\norlog_shards_failing 0\n").await;
    })
    .await;
}
