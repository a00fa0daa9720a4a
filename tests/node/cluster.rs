//! Cluster of pods on NATS, as real processes: killed, paused, partitioned, drained and added under
//! load.
//!
//! Each order is placed, receives five notes in order, is charged, finished and shipped. At the end
//! every order is completed and has its notes once and in order. The upstream has received one
//! idempotency key per effect.

mod batches;
mod contexts;
mod faults;
mod flows;
mod incomplete_lists;
mod key_rules;
mod messages;
mod node_keys;
pub(crate) mod obstacles;
mod orders;
pub(crate) mod pods;
pub(crate) mod proxy;
mod schedules;
mod signatures;
mod tenants;
mod upstream;

use std::time::{Duration, Instant};

use orlog::telemetry::metric_specs;
use orlog_testkit::nats_server::{NatsCluster, NatsServer};
use orlog_testkit::raw_nats::RawNatsClient;
use orlog_testkit::runtime::seed;
use orlog_testkit::{WAIT_TIMEOUT, distribution, long_run_size};

use orders::Orders;
use pods::Pods;
use proxy::Proxy;

/// Timeout of a test run, with many waits.
const RUN: Duration = WAIT_TIMEOUT.saturating_mul(4);

async fn within<T>(label: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(RUN, work)
        .await
        .unwrap_or_else(|_| panic!("{label}: not within {RUN:?}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_pod_owns_all_shards_and_completes_orders() {
    let nats = NatsServer::start();
    within("one pod", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start("a").await;
        let orders = Orders::begin(&pods, 40);
        orders.all_placed().await;
        orders.check(&pods).await;
        let metrics = pods.metrics("a").await;
        for spec in metric_specs::ALL
            .iter()
            .filter(|spec| spec.name.starts_with("orlog_log_"))
        {
            let first = format!("{}{{shard=\"0\"", spec.name);
            let histogram = format!("{}_count{{shard=\"0\"", spec.name);
            assert!(
                metrics.contains(&first) || metrics.contains(&histogram),
                "{} is not in\n{metrics}",
                spec.name
            );
        }
        assert!(
            metrics.contains("orlog_log_unavailable{shard=\"0\"} 0\n"),
            "{metrics}"
        );
    })
    .await;
}

/// Requirements: R14.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_rebalance_when_a_pod_joins_and_when_it_drains() {
    let nats = NatsServer::start();
    within("coming and going", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start("a").await;
        let orders = Orders::begin(&pods, 120);
        orders.placed(30).await;
        pods.start("b").await;
        pods.until_spread().await;
        orders.placed(70).await;
        let started = Instant::now();
        pods.drain("a");
        pods.wait_for_owners(&["b"]).await;
        println!(
            "drained: every shard runs elsewhere after {:?}",
            started.elapsed()
        );
        orders.all_placed().await;
        orders.check(&pods).await;
    })
    .await;
}

/// Every pod that executes a forwarded request receives the caller's identity, enforces its permissions
/// and records it in its audit log.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forwarded_request_keeps_the_caller_identity() {
    let nats = NatsServer::start();
    within("callers across pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        let secret = pods.file("secret", "knock-knock");
        pods.more = format!(
            "[auth]\nmode = \"gateway\"\npublic_routes = [\"/info\"]\n[auth.gateway]\nsecret = \"file:{}\"\n",
            secret.display()
        );
        pods.start_all(&["a", "b"]).await;
        let call = async |pod: &str, method: &str, path: &str, tenant: &str, tenants: &str| {
            let request = pods.ask(pod, method, path).header("x-orlog-gateway-secret", "knock-knock");
            let request = request.header("x-orlog-user", "ada").header("x-orlog-role", "admin");
            let request = request.header("x-tenant-id", tenant).header("x-orlog-tenants", tenants);
            let response = request.send().await.unwrap();
            (response.status().as_u16(), response.text().await.unwrap())
        };
        let (tenants, pause) =
            (["t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8"], "/v1/sagas/order/none/pause");
        for tenant in tenants {
            for pod in ["a", "b"] {
                let (status, text) = call(pod, "GET", "/v1/sagas", tenant, tenant).await;
                assert_eq!(status, 200, "{pod} {tenant}: {text}");
                let (status, text) = call(pod, "GET", "/v1/sagas", tenant, "another").await;
                assert!(status == 403 && text.contains("OR0043"), "{pod} {tenant}: {status} {text}");
                let anonymous = pods.ask(pod, "GET", "/v1/sagas").header("x-tenant-id", tenant);
                assert_eq!(anonymous.send().await.unwrap().status().as_u16(), 401);
                let (status, text) = call(pod, "POST", pause, tenant, tenant).await;
                assert!(status == 404 && text.contains("OR0011"), "{pod} {tenant}: {status} {text}");
            }
        }
        // One of two pods owns the tenant, so each call to the other was forwarded once.
        let mut sent_on = 0;
        for (tenant, pod) in tenants.into_iter().flat_map(|tenant| [(tenant, "a"), (tenant, "b")]) {
            let (_, text) = call(pod, "GET", "/v1/audit", tenant, tenant).await;
            let trail: serde_json::Value = serde_json::from_str(&text).unwrap();
            let records = trail["items"].as_array().unwrap();
            assert!(!records.is_empty() && records.iter().all(|record| record["user"] == "ada"), "{trail}");
            sent_on += records.iter().filter(|record| record["forwarded_by"].is_string()).count();
        }
        assert_eq!(sent_on, tenants.len());
    })
    .await;
}

/// Half of the requests reach a pod that does not own the shard; `big` is a key-sharded tenant.
///
/// Requirements: E7.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_pod_starts_and_joins_instances_also_after_a_takeover() {
    let nats = NatsServer::start();
    within("results across pods", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        let tenants = ["t1", "t2", "t3", "t4", "big"];
        let all = || {
            tenants
                .into_iter()
                .flat_map(|tenant| (0..4).map(move |n| (tenant, n)))
        };
        for (tenant, n) in all() {
            let order = serde_json::json!({ "orderId": format!("r-{n}") });
            for (pod, existing) in [(["a", "b"][n % 2], false), (["b", "a"][n % 2], true)] {
                let request = pods
                    .ask(pod, "POST", "/v1/sagas/order?wait=1ms")
                    .header("x-tenant-id", tenant);
                let response = request.json(&order).send().await.unwrap();
                let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
                let started: serde_json::Value = serde_json::from_str(&text).unwrap();
                assert!(
                    status == 202 && started["existing"] == existing,
                    "{pod} {tenant} {n}: {status} {text}"
                );
            }
        }
        let finish = async |pods: &Pods, pod: &str, tenant: &str, n: usize| {
            let path = format!("/v1/sagas/order/r-{n}");
            let signal = serde_json::json!({ "id": "finished", "type": "Finished", "data": {} });
            let signal = pods
                .ask(pod, "POST", &format!("{path}/signal"))
                .json(&signal);
            let result = pods
                .ask(pod, "GET", &format!("{path}/result?wait=2s"))
                .header("x-tenant-id", tenant);
            // As a client does, it repeats a signal that the owner of the shard cannot take at this moment.
            let signalled = async {
                let signal = signal.header("x-tenant-id", tenant);
                loop {
                    let sent = signal.try_clone().unwrap().send().await.unwrap();
                    let (status, text) = (sent.status().as_u16(), sent.text().await.unwrap());
                    if status != 503 {
                        break assert_eq!(status, 200, "{pod} {tenant} {n}: {text}");
                    }
                }
            };
            let ((), result) = tokio::join!(signalled, result.send());
            let result: serde_json::Value = result.unwrap().json().await.unwrap();
            assert_eq!(
                result["result"]["data"]["orderId"],
                format!("r-{n}"),
                "{pod} {tenant}: {result}"
            );
        };
        for (tenant, n) in all().filter(|(_, n)| *n < 2) {
            finish(&pods, ["a", "b"][n], tenant, n).await;
        }
        pods.kill("a");
        pods.wait_for_owners(&["b"]).await;
        for (tenant, n) in all() {
            finish(&pods, "b", tenant, n).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_forward_requests_over_tls_and_accept_them_from_pods_only() {
    let nats = NatsServer::start();
    within("pods with TLS", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.use_tls();
        pods.start_all(&["a", "b"]).await;
        for tenant in ["t1", "t2", "t3", "t4", "t5", "t6"] {
            for pod in ["a", "b"] {
                let list = pods
                    .ask(pod, "GET", "/v1/sagas")
                    .header("x-tenant-id", tenant);
                let response = list.send().await.unwrap();
                let (status, text) = (response.status().as_u16(), response.text().await.unwrap());
                assert_eq!(
                    status,
                    200,
                    "{pod} {tenant}: {text}; {}",
                    pods.all_logs_contain()
                );
            }
        }
        let url = pods.urls.lock()["a"].clone();
        let forwarded = async |certificate: Option<&str>| {
            let request = pods::https_client(certificate).get(format!("{url}/info"));
            request
                .header("x-orlog-forwarded-by", "b")
                .send()
                .await
                .unwrap()
                .status()
                .as_u16()
        };
        assert_eq!(forwarded(None).await, 403);
        assert_eq!(forwarded(Some("stranger")).await, 403);
        assert_eq!(forwarded(Some("pod")).await, 200);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_of_a_killed_pod_fail_over() {
    let nats = NatsServer::start();
    within("kill -9", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        let orders = Orders::begin(&pods, 120);
        orders.placed(40).await;
        let started = Instant::now();
        pods.kill("a");
        pods.wait_for_owners(&["b"]).await;
        println!(
            "killed: every shard runs elsewhere after {:?}",
            started.elapsed()
        );
        orders.placed(80).await;
        pods.start_all(&["a"]).await;
        orders.all_placed().await;
        orders.check(&pods).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shards_start_under_another_cluster_name() {
    let nats = NatsServer::start();
    within("another name", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a"]).await;
        let orders = Orders::begin(&pods, 60);
        orders.placed(20).await;
        // The sequence numbers of the bucket grow with each write.
        RawNatsClient::connect(nats.port).publish_empty("$KV.orlog.pod.other", 20_000);
        pods.kill("a");
        pods.start_all(&["a"]).await;
        orders.placed(40).await;
        pods.kill("a");
        pods.cluster_name = "renamed".to_owned();
        pods.start_all(&["a"]).await;
        orders.all_placed().await;
        orders.check(&pods).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_paused_past_its_lease_is_fenced() {
    let nats = NatsServer::start();
    within("a zombie", async {
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_all(&["a", "b"]).await;
        let orders = Orders::begin(&pods, 120);
        orders.placed(40).await;
        pods.pause("a");
        pods.wait_for_owners(&["b"]).await;
        orders.placed(60).await;
        pods.resume("a");
        pods.until_spread().await;
        orders.all_placed().await;
        orders.check(&pods).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitioned_pod_stops_its_shards_and_rejoins() {
    let nats = NatsServer::start();
    within("a cut wire", async {
        let wire = Proxy::to(nats.port).await;
        let mut pods = Pods::new(&[nats.url()], 1).await;
        pods.start_through("a", vec![wire.url.clone()]).await;
        pods.start("b").await;
        pods.until_spread().await;
        let orders = Orders::begin(&pods, 120);
        orders.placed(40).await;
        pods.exclude("a");
        wire.partition();
        pods.wait_for_owners(&["b"]).await;
        orders.placed(60).await;
        wire.heal();
        pods.until_spread().await;
        orders.all_placed().await;
        orders.check(&pods).await;
    })
    .await;
}

/// Requirements: E8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_pods_on_three_servers_survive_all_faults() {
    let mut nats = NatsCluster::start(3);
    within("everything", async {
        let mut pods = Pods::new(&nats.urls(), 3).await;
        pods.start_all(&["a", "b", "c"]).await;
        let orders = Orders::begin(&pods, 200);
        orders.placed(30).await;
        pods.kill("b");
        pods.wait_for_owners(&["a", "c"]).await;
        orders.placed(60).await;
        nats.nodes[0].kill();
        orders.placed(90).await;
        nats.nodes[0].restart();
        pods.start("b").await;
        pods.until_spread().await;
        pods.pause("c");
        pods.wait_for_owners(&["a", "b"]).await;
        orders.placed(130).await;
        pods.resume("c");
        pods.until_spread().await;
        pods.drain("a");
        pods.wait_for_owners(&["b", "c"]).await;
        orders.all_placed().await;
        orders.check(&pods).await;
    })
    .await;
}

/// `ORLOG_POD_FAULTS` faults (20), in groups with a new cluster each; `ORLOG_SEED` is the seed of the first
/// group.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "long; make stress"]
async fn random_faults_lose_and_duplicate_nothing_long() {
    const GROUP: usize = 20;
    let count = long_run_size("ORLOG_POD_FAULTS", GROUP);
    let first_seed = seed(1);
    let (mut recoveries, mut orders) = (faults::Recoveries::new(), 0);
    for (group, begun) in (0..count).step_by(GROUP).enumerate() {
        let size = GROUP.min(count - begun);
        let (durations, placed) = faults::inject(size, first_seed + group as u64).await;
        orders += placed;
        for (fault, durations) in durations {
            recoveries.entry(fault).or_default().extend(durations);
        }
        println!(
            "{} faults, {orders} orders, lost 0, duplicated keys 0",
            begun + size
        );
    }
    for (fault, durations) in recoveries {
        println!(
            "from {fault:?} to the next commit of every concerned shard: {}",
            distribution(durations)
        );
    }
}
